"""Runs the book of sources for the sessions of a node: gives it the time, tells what it decides."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import trio
from msgspec import Struct

from peer import Event, LogChanged, Notice, Reads, SourceBook, SourceChanged, SourceSeat
from wire import LogKey

from .records import Direction

Tell = Callable[[Event], None]
Settled = Callable[[Callable[[], None]], None]


class SourceInfo(Struct, frozen=True):
    """A connection over which a log can come, as far as this node knows.

    `fetching`: it is the one that this node fetches the log from. `peer_newest`: the newest entry
    that the peer is known to hold, 0 if it has said nothing. `last_progress_s`: how many seconds
    ago it brought something of the log, None if it has not, or does not fetch it.
    """

    address: str
    direction: Direction
    fetching: bool
    peer_newest: int
    last_progress_s: float | None


class Place:
    """A session's place: claims go in, notices go in, and what it is told comes out by `tell`."""

    def __init__(self, sources: "Sources", seat: SourceSeat, tell: Tell) -> None:
        self._sources = sources
        self._seat = seat
        self.tell = tell

    def claim(self, log: LogKey, brought: int = 0, /) -> bool:
        """Whether the session may fetch a log. `brought`: see `Claim`."""
        may = self._sources.book.claim(self._seat, log, trio.current_time(), brought)
        self._sources.wake()
        return may

    def take(self, notice: Notice, now: float) -> None:
        """A notice of the session."""
        if self._sources.book.took(self._seat, notice, now):
            self._sources.wake()

    def leave(self) -> None:
        """The session has ended."""
        self._sources.places.pop(self._seat, None)
        self._sources.book.leave(self._seat, trio.current_time())
        self._sources.wake()

    def info(self, log: LogKey, address: str, direction: Direction) -> SourceInfo | None:
        """How the session stands to a log; None if it does not want it."""
        standing = self._sources.book.standing(self._seat, log)
        if standing is None:
            return None
        at = standing.progress_at
        ago = None if at is None else trio.current_time() - at
        return SourceInfo(address, direction, standing.fetching, standing.peer_newest, ago)


class Sources:
    """The book of a node. `run` has to be running.

    `when_kept` calls what it is given once all that sessions have received of payloads is kept, so
    that the next source goes on where the last one stopped.
    """

    def __init__(self, when_kept: Settled) -> None:
        self.book = SourceBook()
        self.places: dict[SourceSeat, Place] = {}
        self._when_kept = when_kept
        self._timer = trio.CancelScope()

    def join(self, name: str, tell: Tell, reads: Callable[[], Reads | None]) -> Place:
        """A place for a new session; `tell` hands it an event. `reads`: see `SourceBook.join`."""
        seat = self.book.join(name, reads)
        place = self.places[seat] = Place(self, seat, tell)
        return place

    def note(self, changes: Iterable[LogChanged]) -> None:
        """News of logs."""
        now = trio.current_time()
        for change in changes:
            self.book.stands(change.log, change.newest, now)
        self.wake()

    def wake(self) -> None:
        """Has `run` look at the book when there is something to do, perhaps at once."""
        due = self._due()
        if due != self._timer.deadline:
            self._timer.deadline = due

    def _due(self) -> float:
        if self.book.has_changes:
            return -math.inf
        deadline = self.book.deadline
        return math.inf if deadline is None else deadline

    async def run(self) -> None:
        """Tells sessions what has changed, until cancelled."""
        while True:
            with trio.CancelScope() as self._timer:
                self.wake()
                await trio.sleep_forever()
            self.book.advance(trio.current_time())
            self._tell(self.book.take_changes())

    def _tell(self, changes: Sequence[tuple[SourceSeat, SourceChanged]]) -> None:
        to_fetch = []
        for seat, change in changes:
            if change.fetch:
                to_fetch.append((seat, change))
            elif (place := self.places.get(seat)) is not None:
                place.tell(change)
        if to_fetch:
            self._when_kept(partial(self._tell_fetch, to_fetch))

    def _tell_fetch(self, changes: Sequence[tuple[SourceSeat, SourceChanged]]) -> None:
        for seat, change in changes:
            place = self.places.get(seat)
            if place is not None:
                place.tell(change)
