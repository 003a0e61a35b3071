"""Strangers: identities that no node names, which come to one, stay for a while, and vanish.

Each is a node of its own with a store of its own, so that it talks as the product does, and has
one connection, which is never made again. `Doorkeeper.doors` says whether it is let in; who is not
has knocked, and is written down all the same. What strangers come for (`Errand`):

    LISTEN    follows what there is, and takes it
    BRING     has logs of its own; many vanish in the middle of a payload
    SILENT    says nothing at all
    CLAIM     offers what nobody has, which is no lie that the protocol knows, and says no more
    LIE       breaks a rule (lies.py)

They come in waves with quiet between them. An operator decides now and then about one that is
there: lets it in with a scope, or blocks it, and forgets it later.
"""

from collections import Counter
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from logstore import ALL, RuleChange, Sighting, WriteScope
from peer.node.doors.admission import Doors
from peer.protocol.events import LogView
from tests.records import replace
from wire import U64_MAX, Eagerness, LogKey, Propose

from .doors import connect, remove_peer
from .link import End, Link
from .node import SimNode
from .truth import Broken, short

if TYPE_CHECKING:
    from .world import World

WAVE_MAX = 12
"""Strangers who come within `WAVE_S` seconds."""
WAVE_S = 20.0
BRINGERS_SHARE = 0.01
"""Each brings logs that all who take them hold for the rest of the world."""
ALL_SHARE = 0.1
"""Those who take all there is, or all of an author; a day of nothing but copies would be long."""
VANISH_SHARE = 0.7
LOOK_S, LOOKS = 0.01, 300
DECIDED_SHARE = 0.1
PLACES = 40
"""Addresses that strangers come from."""
WAITING_MAX, OF_ONE_PLACE_MAX = 256, 8
"""doors.md 3: how many the table remembers of those about whom nobody has decided."""
FAREWELL_S = 10.0
FORGET_S = 600.0


class Errand(StrEnum):
    """What a stranger comes for."""

    LISTEN = "listen"
    BRING = "bring"
    SILENT = "silent"
    CLAIM = "claim"
    LIE = "lie"


class Visit(Link):
    """The one connection of a stranger; the stranger calls."""

    def __init__(self, visitors: "Visitors", stranger: SimNode, host: SimNode) -> None:
        super().__init__(host.world.clock, host.world.plan, (stranger, host))
        self._visitors = visitors

    def begin(self) -> bool:
        """Calls; whether it is let in."""
        if connect(*self.nodes):
            self._call()
        return bool(self.ends)

    def call_soon(self) -> None:
        """Both sides have ended it."""
        # Not at once: one of the two is still at it.
        self.clock.after(0.0, partial(self._visitors.gone, self))


class Visitors:
    """All strangers of a world."""

    def __init__(self, world: "World", folder: Path) -> None:
        self._world = world
        self._rng = world.plan.rng("visitors")
        self._folder = folder
        self._visits: dict[Visit, None] = {}
        self._hosts: dict[bytes, SimNode] = {}
        """Of strangers who bring logs, whom they brought them to."""
        self.came = self.let_in = 0
        """How many strangers have come, and how many of them had a connection."""

    def expect(self, count: int) -> None:
        """So many come, spread over the life of the world."""
        while count > 0:
            wave = min(count, self._rng.randint(1, WAVE_MAX))
            count -= wave
            at = self._world.plan.moment(self._rng)
            for _ in range(wave):
                self._world.clock.after(at + self._rng.uniform(0, WAVE_S), self._come)

    def hosts_of(self, log: LogKey) -> tuple[SimNode, ...]:
        """To whom a stranger has brought a log of its own."""
        host = self._hosts.get(log.author)
        return () if host is None else (host,)

    # One of them

    def _come(self) -> None:
        host = self._rng.choice(self._world.nodes)
        if self._world.is_healed or not host.alive:
            return
        stranger = self._new_stranger(host)
        errands = (Errand.LISTEN, Errand.LISTEN, Errand.SILENT, Errand.CLAIM, Errand.LIE)
        errand = self._rng.choice(errands)
        if self._rng.random() < BRINGERS_SHARE:
            errand = Errand.BRING
            self._hosts[stranger.store.author] = host
            for log_id in range(self._rng.choice((1, 1, 3))):
                self._fill(stranger, log_id)
        visit = Visit(self, stranger, host)
        self._visits[visit] = None
        self._world.note(f"{stranger.name} comes to {host.name}: {errand}")
        self._knock(host, stranger.store.author)
        if not visit.begin():
            self._world.note(f"{host.name} does not let {stranger.name} in")
            self.gone(visit)
            return
        self.let_in += 1
        self._behave(visit, errand)
        if self._rng.random() < DECIDED_SHARE:
            self._decide(host, stranger.store.author)
        stay_s = self._rng.choice((0.1, 1.0, 5.0, 20.0, 70.0, 200.0)) * self._rng.uniform(0.5, 1.0)
        self._world.clock.after(stay_s, partial(self._leave, visit))

    def _new_stranger(self, host: SimNode) -> SimNode:
        self.came += 1
        everything = Doors(allow_any=True, any_write=WriteScope.FOLLOWED)
        stranger = SimNode(self._world, f"s{self.came}", self._folder, everything)
        if self._rng.random() < ALL_SHARE:
            stranger.store.follow(ALL)
        else:
            author = self._rng.choice(self._world.nodes).store.author
            stranger.store.follow(author if self._rng.random() < ALL_SHARE else LogKey(author, 0))
        stranger.read_rules()
        return stranger

    def _fill(self, stranger: SimNode, log_id: int) -> None:
        sizes = (0, 30, 300, 2_000, 70_000, 150_000)
        payloads = [
            self._rng.randbytes(self._rng.choice(sizes)) for _ in range(self._rng.randint(1, 6))
        ]
        for made in stranger.store.append(payloads, log_id=log_id):
            self._world.truth.add(made.key, made.seq, made.hash)

    def _behave(self, visit: Visit, errand: Errand) -> None:
        end = visit.ends[0]
        delay_s = self._rng.uniform(0, 5.0)
        if errand is Errand.SILENT:
            end.lie = "silence"
        elif errand is Errand.CLAIM:
            self._world.clock.after(delay_s, partial(self._claim, end), end.life)
        elif errand is Errand.LIE:
            self._world.clock.after(delay_s, end.begin_to_lie, end.life)
        elif errand is Errand.BRING and self._rng.random() < VANISH_SHARE:
            self._vanish_inside(visit, LOOKS)

    def _vanish_inside(self, visit: Visit, looks: int) -> None:
        """Leaves as soon as a payload of which only a part has come is on its way."""
        stranger, host = visit.nodes
        parts = host.store.partial_payloads()
        if any(log.author == stranger.store.author for log in parts):
            self._leave(visit)
        elif looks:
            again = partial(self._vanish_inside, visit, looks - 1)
            self._world.clock.after(LOOK_S, again, visit.ends[0].life)

    def _claim(self, end: End) -> None:
        """Offers entries that nobody has, of logs that its host wants."""
        logs = sorted(self._world.truth.entries)
        for log in self._rng.sample(logs, min(len(logs), self._rng.randint(1, 5))):
            offer = partial(self._offer, end, log, self._rng.choice((2, 100, 1 << 40)))
            end.guarded(offer, stirs=True)

    def _offer(self, end: End, log: LogKey, last: int) -> None:
        engine = end.engine
        # What it claims may be wrong, but not that it proposes while a proposal is unanswered.
        may = engine is not None and engine._table.may_propose(log, 1, last)
        if engine is not None and may and engine._table.credit:
            self._world.note(f"{end} claims entries up to {last} of {short(log)}")
            number = engine._table.next_number()
            offer = Propose(number, log, 1, 1, 0, U64_MAX, None, Eagerness.NOTIFY)
            engine.actor.propose(replace(offer, end=last, upper_info=last), LogView(log))

    def _leave(self, visit: Visit) -> None:
        """In good order, or not."""
        end = visit.ends[0]
        if end.ending is not None:
            return
        how = self._rng.choice(("in good order", "cut", "at once"))
        self._world.note(f"{end.node.name} leaves: {how}")
        if how == "in good order" and end.lie is None:
            end.finish()
            # It waits for the other side, which may be at work for long.
            self._world.clock.after(FAREWELL_S, visit.cut_now, end.life)
        elif how == "at once":
            end.end("the stranger leaves")
        else:
            visit.cut_now()

    def gone(self, visit: Visit) -> None:
        """Nothing of it is left but what others hold."""
        if self._visits.pop(visit, visit) is None:
            visit.nodes[0].alive = False
            visit.nodes[0].close()

    def end(self) -> None:
        """All who are still there leave now."""
        for visit in list(self._visits):
            visit.cut_now()

    def close(self) -> None:
        """The end of the world."""
        for visit in list(self._visits):
            self.gone(visit)

    # At the door

    def _knock(self, host: SimNode, peer: bytes) -> None:
        """What the node writes down of everybody who has proved an id."""
        place = f"192.0.2.{self._rng.randrange(PLACES)}"
        now_us = int(self._world.clock.now * 1_000_000)
        seen = {peer: Sighting(1, now_us, now_us, f"{place}:50122", place)}
        host.host.write(partial(host.store.peers.note_seen, seen), lambda _: None)

    def _decide(self, host: SimNode, peer: bytes) -> None:
        """An operator lets a stranger in by name, or blocks it, and forgets it after a while."""
        scopes = (None, RuleChange(), RuleChange(read=frozenset(), write=WriteScope.OWN))
        scope = self._rng.choice(scopes)

        def decide() -> None:
            if scope is None:
                host.store.peers.block(peer)
            else:
                host.store.peers.allow(peer, scope)

        def forget() -> None:
            if host.alive:
                host.decide(partial(remove_peer, host, peer))
            else:
                self._world.clock.after(FORGET_S, forget)

        def act() -> None:
            if host.alive:
                host.decide(decide)

        self._world.clock.after(self._rng.uniform(0, 5.0), act, host.pace.life)
        self._world.clock.after(self._rng.uniform(1.0, FORGET_S), forget)

    def check_doors(self) -> None:
        """Those who wait at the doors are no more than there may be. Raises Broken."""
        for node in self._world.nodes:
            waiting = [each for each in node.store.peers.known() if each.rule is None]
            places = Counter(each.seen.place for each in waiting if each.seen is not None)
            if len(waiting) > WAITING_MAX or max(places.values(), default=0) > OF_ONE_PLACE_MAX:
                raise Broken(f"{len(waiting)} strangers wait at {node.name}: {places}")
