"""One stream for many readers: kept up to date, and handed out in shared pieces (4.4).

Readers that are at the same number get the same bytes object, and a piece is read once however
many wait for it. A reader holds one piece at a time.
"""

from bisect import bisect_right
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import trio
import trio.lowlevel

from gateways import LogHost
from logstore import PayloadUnavailable, StoreDamaged
from wire import LogKey

from .index import CUTS_KEPT
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
        """When the stream went back, and to which number, both ascending."""
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
            self._cut(state.cuts, cut)
            self._pieces.clear()
            self._bytes = 0
        if state != self.state:
            self.state = state
            if added is not None and added.cuts == state.cuts and added.first not in self._pieces:
                self._keep(added)
            self._changed.unpark_all()
            for watcher in list(self.watchers):
                watcher()

    def _cut(self, when: int, to: int) -> None:
        """Notes a cut, in place of those that went back less far: whoever was before them is
        before this one as well.

        Beyond as many as the index keeps, the oldest counts as no older than the next one, so that
        some are ended who need not be.
        """
        while self._cuts and self._cuts[-1][1] >= to:
            self._cuts.pop()
        self._cuts.append((when, to))
        if len(self._cuts) > CUTS_KEPT:
            (_, lowest), (later, _), *rest = self._cuts
            self._cuts = [(later, lowest), *rest]

    async def wait_behind(self, state: State | None) -> None:
        """Returns once the stream is in another state than this one, which it may be by now."""
        while self.state == state:
            await self._changed.park()

    def check(self, cuts: int, number: int) -> int:
        """Raises WentBack if the stream went behind `number` since `cuts`; the cuts now."""
        assert self.state is not None
        # The first one since then went back as far as any.
        first = bisect_right(self._cuts, cuts, key=itemgetter(0))
        if first < len(self._cuts) and self._cuts[first][1] < number:
            raise WentBack(f"the stream was truncated to {self._cuts[first][1]} entries")
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
