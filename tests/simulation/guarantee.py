"""What everyone must have once the trouble is over, and nothing more than that.

A node has what its subscription names now, and what it fetches, as far as a neighbour holds it at
the end and is connected: what is held two connections away counts only if the node between has it.
Of a log that forks, those who have parts of it are promised what lies before the fork. What one may
not give, or the other one may not take, is promised to nobody, nor is a fork found by who may not
tell the other one what it holds itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from logstore import LogInfo, PayloadState, Store, StoredEntry, Subscription
from peer import Interests
from tests.peer.partial import wanted_of
from wire import U64_MAX, LogKey

from .keeping import may_hold
from .subscribing import wants_from_the_start
from .truth import short

if TYPE_CHECKING:
    from .node import SimNode
    from .world import World

PAYLOAD = "the payload of"

_LACKING = (PayloadState.MISSING, PayloadState.PARTIAL)


@dataclass(frozen=True, slots=True)
class Lack:
    """What somebody has not got. `asks_anew`: another connection may be needed to get it.

    What a peer did not have when its turn came is asked for again by another connection only, and
    so is what a node takes in that it does not follow.
    """

    what: str
    asks_anew: bool = False
    is_work: bool = False
    """Nothing is known to be missing, but something is being done."""

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True)
class Held:
    """What a node may serve of a log."""

    info: LogInfo | None = None
    entries: dict[int, StoredEntry] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        return max(self.entries, default=0)

    @property
    def height(self) -> int:
        return 0 if self.info is None else self.info.height

    @property
    def servable(self) -> int:
        """The last entry that there may be as far as this node knows."""
        return U64_MAX if self.info is None else self.info.servable

    @property
    def fork(self) -> int:
        known = None if self.info is None else self.info.fork_seq
        return U64_MAX if known is None else known

    def state(self, seq: int) -> PayloadState | None:
        entry = self.entries.get(seq)
        return None if entry is None else entry.payload_state


class Holdings:
    """What the nodes of a world hold; read again only where something has changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, LogKey], tuple[tuple[int, int], Held]] = {}

    def of(self, node: "SimNode", log: LogKey) -> Held:
        position = (node.store.position(), node.forgets)
        known = self._known.get((node.name, log))
        if known is None or known[0] != position:
            # Those of the class: reads of this one store may be made to fail.
            found = Store.read(
                node.store, log, 1, entries_max=1 << 20, bytes_max=1 << 40, with_payload=False
            )
            held = Held(Store.log(node.store, log), {entry.seq: entry for entry in found})
            known = self._known[node.name, log] = (position, held)
        return known[1]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a node wants of a log: by its subscription, and once."""

    subscription: Subscription | None
    fetched: frozenset[int]

    @classmethod
    def of(cls, interests: Interests, log: LogKey, newest: int) -> "Wishes":
        ranges = interests.fetches.get(log, ())
        fetched = {n for first, last in ranges for n in range(first, min(last, newest) + 1)}
        followed = interests.follows(log)
        return cls(interests.subscription(log) if followed else None, frozenset(fetched))

    @property
    def from_the_start(self) -> bool:
        return self.subscription is not None and wants_from_the_start(self.subscription)

    def entries(self, newest: int) -> set[int]:
        """Those wanted of a log whose newest entry is `newest`."""
        if self.subscription is None:
            return set(self.fetched)
        return wanted_of(self.subscription, newest) | self.fetched

    def wants_payload(self, entry: StoredEntry, newest: int) -> bool:
        if entry.seq in self.fetched:
            return True
        if self.subscription is None or not self.subscription.wants_payload(entry.payload_bytes):
            return False
        kept = self.subscription.kept
        if kept is not None and not may_hold(kept, entry, newest):
            return False
        return self.subscription.wants_entry(entry.seq, newest)

    def lacks(self, seq: int, state: PayloadState | None) -> bool:
        """Whether a payload in this state has still to come; deleted ones only if fetched."""
        return state in _LACKING or (state is PayloadState.DELETED and seq in self.fetched)


def lacking(world: "World") -> Lack | None:
    """The first thing that somebody should have and has not, or None."""
    if world.clock.now <= world.changes_until:
        return Lack("somebody does not want yet what he wants in the end")
    for link in world.links:
        names = " and ".join(node.name for node in link.nodes)
        if not link.is_up:
            return Lack(f"{names} are not connected")
        if any(end.lie is not None for end in link.ends):
            return Lack(f"one of {names} has lied and is still there")
        if link.once is not None:
            return Lack(f"{names} have not finished their sync")
    for giver, taker in _pairs(world):
        for log in sorted(world.truth.entries):
            what = _Pair(world, giver, taker, log).lacks()
            if what:
                text = f"{taker.name} has not got from {giver.name} of {short(log)}: {what}"
                offers = giver.book.current.interests.follows(log)
                return Lack(text, asks_anew=PAYLOAD in what or not offers)
    busy = [node.name for node in world.nodes if not node.at_rest]
    busy += [str(end) for link in world.links for end in link.ends if not end.at_rest]
    return Lack(f"{busy} are at work", is_work=True) if busy else None


def _pairs(world: "World") -> "Iterator[tuple[SimNode, SimNode]]":
    for link in world.links:
        first, second = link.nodes
        yield first, second
        yield second, first


class _Pair:
    """What one node should have of a log from another one."""

    def __init__(self, world: "World", giver: "SimNode", taker: "SimNode", log: LogKey) -> None:
        self.world = world
        self.log = log
        self.giver, self.taker = giver, taker
        self.theirs = world.holdings.of(giver, log)
        self.held = world.holdings.of(taker, log)
        interests = taker.book.current.interests
        self.wishes = Wishes.of(interests, log, self.theirs.newest)
        offered = giver.book.current.interests
        self.giver_follows = offered.follows(log)
        self.giver_has_start = self.giver_follows and wants_from_the_start(
            offered.subscription(log)
        )

    def lacks(self) -> str | None:
        if not self.world.doorkeeper.passes(self.giver, self.taker, self.log):
            return None
        wanted, offered = self.taker.book.current, self.giver.book.current
        if not wanted.interests.wants(self.log):
            return None
        if self.log not in {*wanted.offers, *offered.offers, *wanted.interests.fetches}:
            return None
        if self.theirs.info is None or not (self.theirs.entries or self.giver_follows):
            # A proof alone is told by those who follow the log.
            return None
        whole = self.wishes.from_the_start
        if whole and self.theirs.fork < self.held.fork:
            return f"the fork at {self.theirs.fork}"
        forks = self.log in self.world.truth.forked_at
        if forks and whole and self.giver_has_start and (what := self._lacks_history()):
            return what
        return self._lacks_entries(forks=forks) or self._lacks_payload()

    def _lacks_history(self) -> str | None:
        """Both follow a log that forks from its start: they have the same, or know of a fork."""
        top = min(self.theirs.height, self.held.servable)
        if self.held.height < top:
            return f"entries {self.held.height + 1} to {top}"
        if not self.world.doorkeeper.passes(self.taker, self.giver, self.log):
            # What nobody asks for, and may not be told, is compared with nothing.
            return None
        if top and self.theirs.entries[top].hash != self.held.entries[top].hash:
            return f"the same entry {top}"
        return None

    def _lacks_entries(self, *, forks: bool) -> str | None:
        limit = self.held.servable
        if forks:
            limit = min(limit, self.world.truth.forked_at[self.log] - 1)
        wanted = self.wishes.entries(self._newest())
        due = {seq for seq in wanted & self.theirs.entries.keys() if seq <= limit}
        lacking = sorted(due - self.held.entries.keys())
        return f"entries {lacking[0]} to {lacking[-1]}" if lacking else None

    def _newest(self) -> int:
        """The newest entry that the node has to know of."""
        held = [
            self.world.holdings.of(giver, self.log)
            for giver, taker in _pairs(self.world)
            if taker is self.taker and self.world.doorkeeper.passes(giver, taker, self.log)
        ]
        return max(self.held.newest, *(min(each.newest, self.held.servable) for each in held))

    def _lacks_payload(self) -> str | None:
        wishes, newest = self.wishes, self._newest()
        for seq, entry in self.theirs.entries.items():
            own = self.held.entries.get(seq)
            if entry.payload_state is not PayloadState.PRESENT or own is None:
                continue
            same = own.hash == entry.hash
            if same and wishes.wants_payload(own, newest) and wishes.lacks(seq, own.payload_state):
                return f"{PAYLOAD} {seq}"
        return None
