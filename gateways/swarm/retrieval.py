"""Looking for a chunk at other nodes (spec section 3.6).

Who wants a chunk, be it somebody here or a peer that asks us, asks the peers from the nearest to
its address outward: the nearer a node, the likelier it has it, or knows who does. One that does not
know says nothing, so after a second the next one is asked beside it. All who wait for one address
share one search. Nobody is asked for what he asks us for: so a request does not come back.

A search is not a fetch of the book's: whoever is asked may have nothing, and owes nothing. Where a
batch waits for the same chunk, what comes by either way is there for both.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, Protocol

from gateways.swarm.book import Book

NEXT_S: Final = 1.0
"""After so long the next peer is asked."""
SEARCH_S: Final = 10.0
SEARCHES_MAX: Final = 1_024
"""For one peer (spec section 7): the oldest is forgotten."""


class Neighbour(Protocol, Hashable):
    """A full peer that can be asked."""

    @property
    def overlay(self) -> bytes:
        """Its address, 32 bytes."""

    @property
    def has_room(self) -> bool:
        """Whether it may be asked more: who asks us without end fills no other's queue."""

    def seek(self, address: bytes, hops: int) -> None:
        """Asks it for a chunk."""


class Waiter(Protocol, Hashable):
    """Who waits for a chunk."""

    @property
    def neighbour(self) -> Neighbour | None:
        """The peer that has asked for it, None: somebody here."""


@dataclass(slots=True)
class _Search:
    since: float
    due: float
    """When the next peer is asked, or it is over."""
    hops: int
    waiters: dict[Waiter, None] = field(default_factory=dict)
    asked: list[Neighbour] = field(default_factory=list)


class Searches:
    """All chunks that a node is looking for. `book` is the node's."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._neighbours: list[Neighbour] = []
        self._searches: dict[bytes, _Search] = {}
        # When which is due, the first on top; what is no longer so is passed over. Peers may have
        # tens of thousands of searches here.
        self._line: list[tuple[float, bytes]] = []
        # What each peer waits for, the oldest first.
        self._asking: dict[Neighbour, dict[tuple[bytes, Waiter], None]] = {}

    def join(self, neighbour: Neighbour, now: float) -> None:
        """A full peer is there; it is asked at once where nobody else is left."""
        self._neighbours.append(neighbour)
        for address, search in self._searches.items():
            again = max(now, search.since + NEXT_S * len(search.asked))
            if again < search.due:
                self._set_due(address, search, again)

    def leave(self, neighbour: Neighbour, now: float) -> None:
        """A peer has left: what it has asked for nobody waits for, and whom else we ask is due."""
        self._neighbours = [each for each in self._neighbours if each is not neighbour]
        for address, waiter in [*self._asking.get(neighbour, ())]:
            self.give_up(address, waiter)
        for address, search in self._searches.items():
            if search.asked[-1:] == [neighbour]:
                self._set_due(address, search, now)
            search.asked = [each for each in search.asked if each is not neighbour]

    def seek(self, address: bytes, waiter: Waiter, hops: int, now: float) -> None:
        """Begins to look for a chunk, or joins in. `hops`: those that whom we ask is told."""
        search = self._searches.get(address)
        if search is None:
            search = self._searches[address] = _Search(now, now, hops)
            self._book.sought.add(address)
        search.hops = max(search.hops, hops)
        search.waiters[waiter] = None
        self._note(address, waiter)
        self._ask(address, search, now)

    def _note(self, address: bytes, waiter: Waiter) -> None:
        """A peer that asks without end holds no more than so many searches."""
        if waiter.neighbour is not None:
            asking = self._asking.setdefault(waiter.neighbour, {})
            asking[address, waiter] = None
            if len(asking) > SEARCHES_MAX:
                self.give_up(*next(iter(asking)))

    def _forget(self, address: bytes, waiter: Waiter) -> None:
        neighbour = waiter.neighbour
        if neighbour is not None and (asking := self._asking.get(neighbour)) is not None:
            asking.pop((address, waiter), None)
            if not asking:
                del self._asking[neighbour]

    def give_up(self, address: bytes, waiter: Waiter) -> None:
        """Somebody waits no longer; with the last one the search is over."""
        search = self._searches.get(address)
        if search is not None:
            search.waiters.pop(waiter, None)
            self._forget(address, waiter)
            if not search.waiters:
                self._end(address)

    def found(self, address: bytes) -> list[Waiter]:
        """The chunk is here, however it came: who waits for it, and does so no longer."""
        search = self._searches.get(address)
        if search is None:
            return []
        self._end(address)
        return [*search.waiters]

    def _end(self, address: bytes) -> None:
        for waiter in self._searches.pop(address).waiters:
            self._forget(address, waiter)
        self._book.sought.discard(address)

    # Time ----------------------------------------------------------------------------------------

    def _set_due(self, address: bytes, search: _Search, at: float) -> None:
        search.due = min(at, search.since + SEARCH_S)
        heappush(self._line, (search.due, address))

    @property
    def next_deadline(self) -> float | None:
        """When `advance` is to be called at the latest."""
        while self._line:
            at, address = self._line[0]
            search = self._searches.get(address)
            if search is not None and search.due == at:
                return at
            heappop(self._line)
        return None

    def advance(self, now: float) -> list[tuple[bytes, Waiter]]:
        """Asks the next peers; who has waited in vain, and for what."""
        in_vain: list[tuple[bytes, Waiter]] = []
        while (due := self.next_deadline) is not None and now >= due:
            _, address = heappop(self._line)
            search = self._searches[address]
            if now >= search.since + SEARCH_S:
                self._end(address)
                in_vain += [(address, each) for each in search.waiters]
            else:
                self._ask(address, search, now)
        return in_vain

    def _ask(self, address: bytes, search: _Search, now: float) -> None:
        if now < search.due:
            return
        asking = {each.neighbour for each in search.waiters}
        left = [
            each for each in self._neighbours if each not in search.asked and each not in asking
        ]
        if not left:
            self._set_due(address, search, search.since + SEARCH_S)
            return
        self._set_due(address, search, now + NEXT_S)
        with_room = [each for each in left if each.has_room]
        if with_room:
            nearest = min(with_room, key=lambda each: _distance(each.overlay, address))
            search.asked.append(nearest)
            nearest.seek(address, search.hops)


def _distance(one: bytes, other: bytes) -> int:
    return int.from_bytes(one, "big") ^ int.from_bytes(other, "big")
