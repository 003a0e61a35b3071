"""A world of nodes: things happen to it, then the trouble stops and everyone gets what is theirs.

One seed makes everything. After every step the invariants are checked (checks.py); at the end,
with all faults gone, every node has what it follows as far as its neighbours have it.
"""

import hashlib
import random
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Self

from logstore import ALL, LogVerdict, Subscription
from peer import RemoteViolation
from peer.node.interests import Wanted
from tests.peer.partial import closed
from wire import LogKey

from .ageing import Ageing
from .authors import Strangers
from .checks import check_end, check_link
from .clock import Clock
from .counting import ByteCount
from .doors import Doorkeeper
from .figures import Figures
from .guarantee import Holdings, lacking
from .host import Ordered
from .lasting import check_lasting
from .link import FLIPPED, End, Link
from .node import SimNode
from .plan import LONG_PAUSE_S, Plan
from .room import NONE
from .subscribing import draw_subscription
from .trouble import Trouble
from .truth import Broken, Truth, short
from .visitors import Visitors

TRACE_LINES = 30
STEPS_AT_ONCE_MAX = 50_000
STEPS_MAX = 2_000_000
STEPS_PER_HOUR_MAX = 500_000
SETTLE_S = 600.0
"""How long it may take, without faults, until everyone has everything..."""
SLOW_S = 3600.0
MOVING_S = 60.0
"""... and how long if bytes of a large payload have come so lately: the link is slow."""
QUIET_S = 10.0
WORK_S = 60.0
"""How long somebody may be at work at every moment: many nodes try many things again."""
LONG_SHARE = 0.2
"""Of kills in a long life, those behind which a node is down for long."""
LOOK_S = 0.1
LIE_NOTICED_S = 45.0


class World:
    """Nodes, links, and what happens to them. `folder` is for the few files that are real."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.clock = Clock()
        self.truth = Truth()
        self.steps = 0
        self.lines: deque[str] = deque(maxlen=TRACE_LINES)
        self.printing = False
        self._steps_max = max(STEPS_MAX, STEPS_PER_HOUR_MAX * plan.hours)
        self._digest = hashlib.blake2b(digest_size=16)
        self._touched: Ordered[End] = Ordered()
        self._at_once = (0.0, 0)
        self.reconnected = False
        self.moved_at = 0.0
        """When bytes inside a large payload last came anywhere."""
        self.changes_until = 0.0
        """When the last change of mind is taken back, that may be after the trouble is over."""
        self.lies_told = 0
        self.lies_found: dict[str, str] = {}
        self.holdings = Holdings()
        self.figures = Figures()
        self.count = ByteCount(plan.config)
        self.strangers = Strangers(self)
        self.doorkeeper = Doorkeeper(self)
        self.visitors = Visitors(self, folder)
        self.ageing = Ageing(self)
        self.is_healed = False
        """Whether the trouble is over."""
        self.nodes: list[SimNode] = []
        for number in range(plan.nodes):
            self.nodes.append(SimNode(self, f"n{number}", folder))
        self.links = [Link(self.clock, plan, (self.nodes[a], self.nodes[b])) for a, b in plan.links]
        self._populate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.visitors.close()
        for node in self.nodes:
            node.close()

    @property
    def digest(self) -> str:
        """A fingerprint of everything that happened."""
        return self._digest.hexdigest()

    def note(self, line: str) -> None:
        """Something for the trace."""
        text = f"{self.clock.now:.6f} {self.steps} {line}"
        self._digest.update(text.encode())
        self.lines.append(text)
        if self.printing:
            print(text)  # noqa: T201 - asked for on the command line

    def touch(self, end: End) -> None:
        """Something happened at this end of a connection: it is checked after this step."""
        self._touched.add(end)

    # What there is in the beginning

    def _populate(self) -> None:
        self.strangers.settle()
        self.doorkeeper.settle()
        self._interest()
        rng = self.plan.rng("first entries")
        for node in self.nodes:
            count = rng.choice((0, 1, 3, 20, 60))
            if count:
                node.append(
                    0, [rng.randbytes(rng.choice((0, 1, 50, 200))) for _ in range(count)], end=False
                )
        for link in self.links:
            link.call_soon()
        trouble, rng = Trouble(self), self.plan.rng("times")
        for _ in range(self.plan.events):
            self.clock.after(self.plan.moment(rng), trouble.happen)
        self.visitors.expect(self.plan.strangers)
        self.ageing.begin()

    def _interest(self) -> None:
        rng, policies = self.plan.rng("interests"), self.plan.rng("subscriptions")
        limited = self.plan.rng("limited")
        authors = [*(node.store.author for node in self.nodes), *self.strangers.authors]

        def subscription() -> Subscription | None:
            return draw_subscription(policies) if "subscriptions" in self.plan.troubles else None

        for node in self.nodes:
            takes_all = bool(self.plan.hours) and node is self.nodes[1]
            limits = "quotas" in self.plan.troubles
            if rng.random() < 0.3 or takes_all or (limits and limited.random() < 0.5):
                # Who is followed by name has no quota of his own, and a stranger is followed by
                # nobody else.
                node.follow(ALL, subscription())
            for author in authors:
                if rng.random() < 0.7:
                    target = author if rng.random() < 0.5 else LogKey(author, 0)
                    node.follow(target, subscription())

    def restart_later(self, node: SimNode, rng: random.Random) -> None:
        """Starts a node again after a while."""

        def start() -> None:
            if not node.alive:
                self.note(f"{node.name} starts")
                node.start()

        delay_s = rng.uniform(0.01, 3.0)
        if self.plan.hours and rng.random() < LONG_SHARE:
            delay_s += rng.uniform(0, LONG_PAUSE_S)
        self.clock.after(delay_s, start)

    # Lies

    def lied(self, end: End) -> None:
        """One end begins to lie: the other one has to notice, or else the liar leaves in time."""
        self.note(f"{end} lies: {end.lie}")
        self.lies_told += 1

        def judge() -> None:
            other = end.other
            if end.lie != FLIPPED and other.ending is None:
                raise Broken(f"{other} has not noticed: {end.lie}")
            end.end("the liar leaves")

        self.clock.after(LIE_NOTICED_S, judge, end.life)

    def found_out(self, lie: str, violation: RemoteViolation) -> None:
        """A lie was noticed."""
        if not violation.rule:
            raise Broken(f"no rule is named that says: {violation}")
        self.note(f"found out: {lie}: {violation.rule}")
        self.lies_found[lie] = violation.rule

    # Running it

    def run(self) -> None:
        """The whole story. Raises Broken, or whatever the product raises."""
        while self.clock.step(self.plan.duration_s):
            self.after_step()
        self.heal()
        healed_at = self.clock.now
        self.figures.rest_s = self.settle() - healed_at
        self._check_end()
        if self.plan.is_watched:
            check_lasting(self)
        self.visitors.check_doors()
        self.ageing.check()
        for link in self.links:
            for end in link.ends:
                end.count_proposals()

    def settle(self) -> float:
        """Until everyone has everything, and is at rest; returns when that came first.

        Raises Broken if it does not come.
        """
        forks, rests_at = None, self.clock.now
        while forks != (known := self._forks()):
            # One that is found late makes a log shorter, and what was too old in it is due again.
            forks = known
            self._settle()
            rests_at = self.clock.now
            self.run_for(QUIET_S)
        lack = lacking(self)
        until = self.clock.now + WORK_S
        while lack is not None and lack.is_work and self.clock.now < until:
            # Now and then something is looked at, or asked for again.
            self.run_for(LOOK_S)
            lack = lacking(self)
        if lack is not None:
            raise Broken(f"no longer settled: {lack}")
        return rests_at

    def _forks(self) -> set[tuple[str, LogKey, int | None]]:
        """The forks that are known, and to whom."""
        return {
            (node.name, info.key, info.fork_seq)
            for node in self.nodes
            for info in node.store.logs()
            if info.fork_seq is not None
        }

    def _settle(self) -> None:
        """Until everyone has everything; once, connections may have to be made anew."""
        for last in (False, True):
            began = until = self.clock.now
            while (lack := lacking(self)) is not None and self.clock.now <= until:
                self.run_for(1.0)
                until = min(max(began + SETTLE_S, self.moved_at + MOVING_S), began + SLOW_S)
            if lack is None:
                return
            if last or not lack.asks_anew:
                raise Broken(f"not settled after {SETTLE_S:.0f} s: {lack}")
            self.note(f"all connections are made anew: {lack}")
            self.reconnected = True
            for link in self.links:
                link.cut(None, "anew")

    def run_for(self, seconds: float) -> None:
        until = self.clock.now + seconds
        while self.clock.step(until):
            self.after_step()

    def after_step(self) -> None:
        """Looks whether what must always hold does. Raises Broken."""
        self.steps += 1
        at, count = self._at_once
        count = count + 1 if at == self.clock.now else 0
        self._at_once = (self.clock.now, count)
        if count > STEPS_AT_ONCE_MAX or self.steps > self._steps_max:
            raise Broken(f"nothing ends: {count} steps at one moment, {self.steps} in all")
        touched, self._touched = self._touched, Ordered()
        for end in touched:
            check_end(end)
            self.doorkeeper.check(end)
            check_link(end.link)
        for node in self.nodes:
            node.check_store()

    def heal(self) -> None:
        """The trouble is over: everything runs, and fails no more."""
        self.note("the trouble is over")
        self.is_healed = True
        self.visitors.end()
        for node in self.nodes:
            node.failing.clear()
            node.power_cut_at = None
            node.pace.slow_until = 0.0
            if not node.alive:
                node.start()
            if node.room.is_limited:
                node.room.limit(NONE)
        self.doorkeeper.rest()
        self._resume()
        for link in self.links:
            link.blocked_until = 0.0
            if self.plan.reconnect:
                link.cut(None, "anew")
        self.run_for(1.0)
        self.strangers.show_forks()

    def _resume(self) -> None:
        if "pauses" in self.plan.troubles:
            for node in self.nodes:
                for peer in (None, *(other.store.author for other in self.nodes)):
                    node.resume(peer)

    # The end

    def _check_end(self) -> None:
        for link in self.links:
            for end in link.ends:
                engine = end.engine
                if engine is None or engine._prover.in_flight_bytes or engine._prover._sinks:
                    raise Broken(f"{end} still receives something")
        for node in self.nodes:
            faults = [str(f) for f in node.store.verify() if not isinstance(f, LogVerdict)]
            if faults:
                raise Broken(f"{node.name}: {faults}")
            if node.book.wanted != Wanted.load(node.store):
                raise Broken(
                    f"{node.name} works for {node.book.wanted} and wants {Wanted.load(node.store)}"
                )
            self._check_logs(node)
            node.keeps.check_end()
        self.doorkeeper.check_spread()
        if self.plan.is_calm:
            self.count.check(self)

    def _check_logs(self, node: SimNode) -> None:
        """Every entry has its pool, and only what is forked or invalid is called so."""
        for log in sorted(self.truth.entries):
            held = self.holdings.of(node, log)
            if set(held.entries) != closed(held.entries):
                raise Broken(f"{node.name} has entries of {short(log)} without their pools")
            invalid = None if held.info is None else held.info.invalid_seq
            if invalid is not None and invalid not in self.truth.wrong_sizes[log]:
                raise Broken(f"{node.name} calls entry {invalid} of {short(log)} invalid")
        for proof in node.store.forks():
            at = self.truth.forked_at.get(proof.key)
            if at is None or proof.seq < at:
                raise Broken(f"{node.name} has a proof of a fork that is none: {proof}")
