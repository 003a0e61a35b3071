"""A world of nodes: things happen to it, then the trouble stops and everyone gets what is theirs.

One seed makes everything. After every step the invariants are checked (checks.py); at the end,
with all faults gone, every node has what it follows as far as its neighbours have it.
"""

import errno
import hashlib
from collections import deque
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from nacl.signing import SigningKey

from logstore import ALL, LogInfo, LogVerdict, PayloadState, Store, StoredEntry
from peer import RemoteViolation
from wire import LogKey

from .checks import check_end, check_link
from .clock import Clock
from .host import Ordered
from .link import FLIPPED, End, Link
from .node import SimNode
from .plan import Plan
from .truth import Broken, ForkingAuthor, Truth, short

TRACE_LINES = 30
STEPS_AT_ONCE_MAX = 50_000
STEPS_MAX = 2_000_000
SETTLE_S = 600.0
"""How long it may take, without faults, until everyone has everything."""
QUIET_S = 10.0
PAYLOAD = "the payload of"
LIE_NOTICED_S = 45.0


@dataclass(frozen=True, slots=True)
class Lack:
    """What somebody has not got. `asks_anew`: another connection may be needed to get it.

    What a peer did not have when its turn came is asked for again by another connection only, and
    so is what a node takes in that it does not follow.
    """

    what: str
    asks_anew: bool = False

    def __str__(self) -> str:
        return self.what


class World:
    """Nodes, links, and what happens to them. `folder` is for the few files that are real."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.clock = Clock()
        self.truth = Truth()
        self.steps = 0
        self.lines: deque[str] = deque(maxlen=TRACE_LINES)
        self.printing = False
        self._digest = hashlib.blake2b(digest_size=16)
        self._touched: Ordered[End] = Ordered()
        self._rng = plan.rng("events")
        self._at_once = (0.0, 0)
        self.reconnected = False
        self.lies_told = 0
        self.lies_found: dict[str, str] = {}
        self.nodes: list[SimNode] = []
        for number in range(plan.nodes):
            self.nodes.append(SimNode(self, f"n{number}", folder))
        self.links = [Link(self.clock, plan, (self.nodes[a], self.nodes[b])) for a, b in plan.links]
        self.forkers: list[ForkingAuthor] = []
        self.homes: list[tuple[SimNode, SimNode]] = []
        self._populate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        rng = self.plan.rng("interests")
        authors = [node.store.author for node in self.nodes]
        if "forks" in self.plan.troubles:
            self._make_forkers()
            authors += [forker.log.author for forker in self.forkers]
        for node in self.nodes:
            if rng.random() < 0.3:
                node.follow(ALL)
            for author in authors:
                if rng.random() < 0.7:
                    target = author if rng.random() < 0.5 else LogKey(author, 0)
                    node.follow(target)
        for node in self.nodes:
            count = rng.choice((0, 1, 3, 20, 60))
            if count:
                node.append(
                    0, [rng.randbytes(rng.choice((0, 1, 50, 200))) for _ in range(count)], end=False
                )
        for link in self.links:
            link.call_soon()
        for _ in range(self.plan.events):
            self.clock.after(rng.uniform(0, self.plan.duration_s), self._happen)

    def _make_forkers(self) -> None:
        rng = self.plan.rng("forks")
        for number in range(rng.choice((1, 1, 2))):
            key = SigningKey(b"fork %d" % number + bytes(26))
            forker = ForkingAuthor(key, 0, rng.choice((1, 2, 3, 5, 14)))
            first, second = rng.sample(self.nodes, 2)
            self.forkers.append(forker)
            self.homes.append((first, second))
            for branch in (0, 1):
                self._extend(number, branch, rng.randint(0, 20))

    def _extend(self, number: int, branch: int, count: int) -> None:
        forker, home = self.forkers[number], self.homes[number][branch]
        made = [forker.extend(branch, self._rng, self.truth) for _ in range(count)]
        if home.alive:
            # What the node did not get before, because it was down, comes now.
            held = forker.branches[branch]
            home.put(forker.log, [held[seq] for seq in sorted(held)])
        self.note(f"{home.name} gets {len(made)} of {short(forker.log)}, history {branch}")

    # What happens

    def _happen(self) -> None:
        trouble = self._rng.choice(self.plan.troubles)
        node = self._rng.choice(self.nodes)
        link = self._rng.choice(self.links)
        self.note(f"event: {trouble} {node.name}")
        match trouble:
            case "appends" | "large" | "ends":
                self._append(node, trouble)
            case "forks":
                number, branch = self._rng.randrange(len(self.forkers)), self._rng.randrange(2)
                self._extend(number, branch, self._rng.randint(1, 3))
            case "follows" | "fetches" | "drops":
                self._change_mind(node, trouble)
            case "writes" | "syncs" | "full" | "kills" | "power" | "slow":
                self._harm(node, trouble)
            case _:
                self._disturb(link, trouble)

    def _harm(self, node: SimNode, trouble: str) -> None:
        match trouble:
            case "kills":
                node.crash(power=False)
                self.restart_later(node)
            case "power":
                node.power_cut_at = node.disk.operations + self._rng.randint(1, 40)
            case "slow":
                node.pace.slow_until = self.clock.now + self._rng.uniform(0, 5)
            case _:
                self._fail_disk(node, trouble)

    def _disturb(self, link: Link, trouble: str) -> None:
        match trouble:
            case "cuts":
                link.cut_now()
            case "partitions":
                link.blocked_until = self.clock.now + self._rng.uniform(0, 20)
                link.cut_now()
            case "cancels":
                self._cancel(link)
            case "lies":
                if link.is_up and not any(end.lie for end in link.ends):
                    self._rng.choice(link.ends).begin_to_lie()
            case _:
                raise AssertionError(trouble)

    def _change_mind(self, node: SimNode, trouble: str) -> None:
        if not node.alive:
            return
        if trouble == "follows":
            self._change_follows(node)
            return
        logs = [log for log in sorted(self.truth.entries) if log.author != node.store.author]
        if logs:
            log, first = self._rng.choice(logs), self._rng.randint(1, 10)
            change = node.drop if trouble == "drops" else node.fetch
            change(log, first, first + self._rng.choice((0, 3, 100)))

    def _append(self, node: SimNode, how: str) -> None:
        if not node.alive:
            return
        small, large = (0, 1, 30, 64, 65, 300, 2_000), (30_000, 65_536, 65_537, 150_000)
        sizes = large if how == "large" else small
        count = 1 if how == "large" else self._rng.choice((1, 1, 2, 10))
        payloads = [self._rng.randbytes(self._rng.choice(sizes)) for _ in range(count)]
        node.append(self._rng.choice((0, 0, 1, 7)), payloads, end=how == "ends")

    def restart_later(self, node: SimNode) -> None:
        def start() -> None:
            if not node.alive:
                self.note(f"{node.name} starts")
                node.start()

        self.clock.after(self._rng.uniform(0.01, 3.0), start)

    def _fail_disk(self, node: SimNode, trouble: str) -> None:
        kinds = {
            "writes": ("write", errno.EIO),
            "syncs": ("sync", errno.EIO),
            "full": ("write", errno.ENOSPC),
        }
        kind, code = kinds[trouble]
        node.failing[kind] = code
        self.clock.after(self._rng.uniform(0.01, 3.0), partial(node.recover, kind))

    def _change_follows(self, node: SimNode) -> None:
        author = self._rng.choice([each.store.author for each in self.nodes])
        target = self._rng.choice((author, LogKey(author, 0), LogKey(author, 1)))
        if self._rng.random() < 0.3:
            node.unfollow(target)
        else:
            node.follow(target)

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

    def _cancel(self, link: Link) -> None:
        if not link.is_up:
            return
        end = self._rng.choice(link.ends)
        engine = end.engine
        requests = [] if engine is None else [r for r in engine._table.all() if r.active]
        if engine is not None and requests:
            request = self._rng.choice(requests)
            end.guarded(lambda: engine._give_up(request, "a whim"))

    # Running it

    def run(self) -> None:
        """The whole story. Raises Broken, or whatever the product raises."""
        while self.clock.step(self.plan.duration_s):
            self._after_step()
        self._heal()
        self._settle()
        self._run_for(QUIET_S)
        lack = self.lacking()
        if lack is not None:
            raise Broken(f"no longer settled: {lack}")
        self._check_end()

    def _settle(self) -> None:
        """Until everyone has everything; once, connections may have to be made anew."""
        for last in (False, True):
            until = self.clock.now + SETTLE_S
            while (lack := self.lacking()) is not None and self.clock.now < until:
                self._run_for(1.0)
            if lack is None:
                return
            if last or not lack.asks_anew:
                raise Broken(f"not settled after {SETTLE_S:.0f} s: {lack}")
            self.note(f"all connections are made anew: {lack}")
            self.reconnected = True
            for link in self.links:
                link.cut(None, "anew")

    def _run_for(self, seconds: float) -> None:
        until = self.clock.now + seconds
        while self.clock.step(until):
            self._after_step()

    def _after_step(self) -> None:
        self.steps += 1
        at, count = self._at_once
        count = count + 1 if at == self.clock.now else 0
        self._at_once = (self.clock.now, count)
        if count > STEPS_AT_ONCE_MAX or self.steps > STEPS_MAX:
            raise Broken(f"nothing ends: {count} steps at one moment, {self.steps} in all")
        touched, self._touched = self._touched, Ordered()
        for end in touched:
            check_end(end)
            check_link(end.link)
        for node in self.nodes:
            node.check_store()

    def _heal(self) -> None:
        """The trouble is over: everything runs, and fails no more."""
        self.note("the trouble is over")
        for node in self.nodes:
            node.failing.clear()
            node.power_cut_at = None
            node.pace.slow_until = 0.0
            if not node.alive:
                node.start()
        for link in self.links:
            link.blocked_until = 0.0
            if self.plan.reconnect:
                link.cut(None, "anew")
        self._run_for(1.0)
        for number, forker in enumerate(self.forkers):
            # Histories of the same length show once one of them goes on: a starting hash is that
            # of one entry only.
            branches = forker.branches
            longer = 0 if len(branches[0]) >= len(branches[1]) else 1
            self._extend(number, longer, 1)
            self._extend(number, 1 - longer, 0)

    # The end

    def lacking(self) -> "Lack | None":
        """The first thing that somebody should have and has not, or None."""
        for link in self.links:
            if not link.is_up:
                names = " and ".join(node.name for node in link.nodes)
                return Lack(f"{names} are not connected")
            for giver, taker in (link.nodes, link.nodes[::-1]):
                for log in sorted(self.truth.entries):
                    what = self._lacks(giver, taker, log)
                    if what:
                        text = f"{taker.name} has not got from {giver.name} of {short(log)}: {what}"
                        offers = giver.book.current.interests.follows(log)
                        return Lack(text, asks_anew=PAYLOAD in what or not offers)
        busy = [node.name for node in self.nodes if not node.host.at_rest or node.host.open_sinks]
        return Lack(f"{busy} are at work") if busy else None

    def _lacks(self, giver: SimNode, taker: SimNode, log: LogKey) -> str | None:
        wanted, offered = taker.book.current, giver.book.current
        if not wanted.interests.follows(log) or log not in {*wanted.offers, *offered.offers}:
            return None
        theirs, held = giver.store.log(log), taker.store.log(log)
        if theirs is None or not (theirs.entries or offered.interests.follows(log)):
            # A proof alone is told by those who follow the log.
            return None
        if theirs.fork_seq is not None and (
            held is None or (held.fork_seq or 1 << 64) > theirs.fork_seq
        ):
            return f"the fork at {theirs.fork_seq}"
        top, height = theirs.height, 0 if held is None else held.height
        if held is not None and held.fork_seq is not None:
            top = min(top, held.fork_seq - 1)
        if height < top:
            return f"entries {height + 1} to {top}"
        if held is None:
            return None
        if theirs.height < height and not offered.interests.follows(log):
            # It asks for nothing of this log, and is asked for what is behind what it holds.
            return None
        if top and giver.store.hashes(log, [top]) != taker.store.hashes(log, [top]):
            return f"the same entry {top}"
        return self._lacks_payload(giver, taker, held, top)

    def _lacks_payload(self, giver: SimNode, taker: SimNode, held: LogInfo, top: int) -> str | None:
        if not held.missing_payloads or not top:
            return None
        present = {
            entry.seq
            for entry in _all_entries(giver.store, held.key, top)
            if entry.payload_state is PayloadState.PRESENT
        }
        for entry in _all_entries(taker.store, held.key, top):
            missing = entry.payload_state in (PayloadState.MISSING, PayloadState.PARTIAL)
            if missing and entry.seq in present:
                return f"{PAYLOAD} {entry.seq}"
        return None

    def _check_end(self) -> None:
        for link in self.links:
            for end in link.ends:
                engine = end.engine
                if engine is None or not engine.drained or engine._tickets:
                    raise Broken(f"{end} still waits for something")
                if engine._prover.in_flight_bytes or engine._prover._sinks:
                    raise Broken(f"{end} still receives something")
        for node in self.nodes:
            faults = [str(f) for f in node.store.verify() if not isinstance(f, LogVerdict)]
            if faults:
                raise Broken(f"{node.name}: {faults}")
            self._check_fork_proofs(node)

    def _check_fork_proofs(self, node: SimNode) -> None:
        for proof in node.store.forks():
            at = self.truth.forked_at.get(proof.key)
            if at is None or proof.seq < at:
                raise Broken(f"{node.name} has a proof of a fork that is none: {proof}")


def _all_entries(store: Store, log: LogKey, top: int) -> list[StoredEntry]:
    return store.read(log, 1, entries_max=top, bytes_max=1 << 30, end=top)
