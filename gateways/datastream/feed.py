"""One stream for many readers: kept up to date, and handed out in shared pieces (4.4).

Readers that are at the same number get the same bytes object, and a piece is read once however
many wait for it. A reader holds one piece at a time.
"""

from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio
import trio.lowlevel

from gateways import LogHost
from logstore import PayloadUnavailable, StoreDamaged
from wire import LogKey

from .logs import Piece, State, StreamLog

if TYPE_CHECKING:
    from collections.abc import Callable

CACHE_BYTES: Final = 16 << 20


class WentBack(Exception):  # noqa: N818 - what happened
    """The stream has no more what the reader was sent, or waits for; the text says so."""


class _Seen(NamedTuple):
    """What a look has found."""

    state: State
    damage: StoreDamaged | None
    """Where the stream ends for now, if it is there."""
    cut: int | None = None
    """The number that the stream went back to since the look before."""
    added: Piece | None = None


class Feed:
    """A stream that is followed while `run` runs. For one event loop."""

    def __init__(self, host: LogHost, key: LogKey) -> None:
        self.host: Final = host
        self.log: Final = StreamLog(self.host.store, key)
        self.state: State | None = None
        """As of the last look; None before the first one."""
        self._cuts: list[tuple[int, int]] = []
        self._changed = trio.lowlevel.ParkingLot()
        self.watchers: dict[Callable[[], None], None] = {}
        """Called in the event loop when the stream has changed, in the order in which they came:
        cheaper than a task that waits."""
        self._pieces: OrderedDict[int, Piece] = OrderedDict()
        self._bytes = 0
        self._reading: dict[int, trio.Event] = {}

    def close(self) -> None:
        """Closes the index."""
        self.log.close()

    async def run(self) -> None:
        """Keeps the stream up to date until cancelled."""
        await self.host.watch(self._look, self._told)

    async def refresh(self) -> State:
        """Brings the stream up to date now."""
        self._told(await self.host.call(self._look))
        assert self.state is not None
        return self.state

    def _look(self) -> _Seen:
        before, damage = self.state, None
        try:
            state = self.log.update()
        except StoreDamaged as error:
            # It counts as missing: what comes before is served.
            state, damage = self.log.state(), error
        if before is None:
            return _Seen(state, damage)
        if state.cuts != before.cuts:
            return _Seen(state, damage, self.log.lowest_cut(before.cuts, state.cuts))
        # What all who are live will ask for is read before they are told.
        added = None
        if state.total_entries > before.total_entries:
            with suppress(PayloadUnavailable, StoreDamaged):
                added = self.log.piece(before.total_entries)
        return _Seen(state, damage, added=added)

    def _told(self, seen: _Seen) -> None:
        state, damage, cut, added = seen
        if damage is not None:
            self.host.storage_failed(damage)
        if self.state is not None and (state.cuts, state.seq) < (self.state.cuts, self.state.seq):
            return  # an older look that came in late
        if cut is not None:
            self._cuts.append((state.cuts, cut))
            self._pieces.clear()
            self._bytes = 0
        if state != self.state:
            self.state = state
            if added is not None and added.cuts == state.cuts and added.first not in self._pieces:
                self._keep(added)
            self._changed.unpark_all()
            for watcher in list(self.watchers):
                watcher()

    async def wait(self) -> None:
        """Returns once the stream has changed."""
        await self._changed.park()

    def check(self, cuts: int, number: int) -> int:
        """Raises WentBack if the stream went behind `number` since `cuts`; the cuts now."""
        assert self.state is not None
        for when, to in reversed(self._cuts):
            if when <= cuts:
                break
            if to < number:
                raise WentBack(f"the stream was truncated to {to} entries")
        return self.state.cuts

    def piece_at_hand(self, number: int) -> Piece | None:
        """What `piece` returns, if that is in memory and of the stream as it is now."""
        found = self._pieces.get(number)
        assert self.state is not None
        return found if found is not None and found.cuts == self.state.cuts else None

    async def piece(self, number: int) -> Piece | None:
        """Whole entries from `number` on, None at the end. Raises PayloadUnavailable, WentBack."""
        while (reading := self._reading.get(number)) is not None:
            await reading.wait()
        found = self._pieces.get(number)
        if found is not None:
            self._pieces.move_to_end(number)
            return found
        done = self._reading[number] = trio.Event()
        try:
            piece = await self.host.call(partial(self.log.piece, number))
        finally:
            del self._reading[number]
            done.set()
        assert self.state is not None
        if piece is not None and piece.cuts == self.state.cuts:
            self._keep(piece)
        return piece

    def _keep(self, piece: Piece) -> None:
        self._pieces[piece.first] = piece
        self._bytes += len(piece.data)
        while self._bytes > CACHE_BYTES and len(self._pieces) > 1:
            _, oldest = self._pieces.popitem(last=False)
            self._bytes -= len(oldest.data)

    async def can_start(self, number: int) -> bool:
        """Whether a stream may begin at an entry: it is there and readable, or it is the next."""
        assert self.state is not None
        if number >= self.state.total_entries:
            return number == self.state.total_entries
        try:
            return await self.piece(number) is not None
        except PayloadUnavailable:
            return False
