"""What arrives, as a program takes it from a peer, and how far it has taken it.

It is a part of `peer.api.Peer`. A cursor of the store (`logstore`, cursors.py) says where to begin,
and is locked for as long as entries are taken by it. It moves only by `ack`, which the program
calls for what it is done with: whoever is killed before that gets the entry again.

`ack` names an entry and, if several cursors are read at a time, the cursor. It may come when the
reading is over, as behind a loop with `idle_s`: then the lock is taken once more for it, and an
acknowledgement fails that would move a cursor under somebody else's feet.
"""

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, overload

import trio

from logstore import (
    ALL,
    PAYLOAD_BYTES_MAX,
    AnyTarget,
    CursorTable,
    EntryWithPayload,
    Follow,
    OpenCursor,
    PayloadState,
    StoredEntry,
    at_hand,
    check_number,
    check_place,
    check_target,
    wrong_type,
)
from wire import LogKey

from .arguments import check_timeout, is_of, target_in
from .pending import news_of
from .wishing import Wishes

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

READ_ENTRIES: Final = 256
READ_BYTES: Final = 1 << 20


class _Oldest(int):
    """What tells a place that nobody has named from one that somebody has."""

    def __repr__(self) -> str:
        return "OLDEST"


OLDEST: Final[int] = _Oldest(0)
"""Before all that is held: where a reading begins that is not told from where."""


class Taking(NamedTuple):
    """What is to be taken: the arguments of `Peer.entries`."""

    target: AnyTarget | None
    after: int | None
    bytes_max: int | None
    """The largest payload that is wanted whole; None: none is."""
    idle_s: float | None
    cursor: str | None

    def check(self) -> None:
        """Raises TypeError, ValueError."""
        if self.target is not None and not isinstance(self.target, str):
            check_target(self.target)
        if self.after is not None:
            check_place(self.after)
        check_timeout(self.idle_s, "idle_s")
        if self.cursor is None:
            return
        if not isinstance(self.cursor, str):
            raise wrong_type("cursor", self.cursor, "a cursor has a name")
        if self.after is not OLDEST:
            raise ValueError(
                f"after={self.after}: the cursor says where to begin, leave one of them out"
            )


class Reading:
    """A cursor by which entries are taken, or were."""

    def __init__(self, name: str, target: LogKey | None) -> None:
        self.name = name
        self.target = target
        self.cursor: OpenCursor | None = None
        """None: nothing is read by it any more."""
        self._alone: AbstractContextManager[OpenCursor] | None = None

    def begin(self, table: CursorTable) -> OpenCursor:
        """Blocks. Raises as `CursorTable.reading`."""
        alone = table.reading(self.name, self.target)
        self.cursor = alone.__enter__()
        self._alone = alone
        return self.cursor

    def end(self) -> None:
        """Gives the lock back."""
        alone, self._alone, self.cursor = self._alone, None, None
        if alone is not None:
            alone.__exit__(None, None, None)

    def acknowledge(self, table: CursorTable, position: int) -> None:
        """Blocks; never two at a time. Raises CursorBusy if somebody else reads by it now."""
        if self.cursor is not None:
            self.cursor.acknowledge(position)
            return
        with table.reading(self.name, self.target) as cursor:
            cursor.acknowledge(position)


class Takes(Wishes):
    """Hands out what arrives. See `peer.api.Peer`."""

    _readings: dict[str, Reading]
    """By the names of cursors, in the order in which they began or, of late, ended."""

    @overload
    def entries(
        self,
        target: AnyTarget | None = None,
        *,
        after: int | None = OLDEST,
        with_payload: Literal[True] = True,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        idle_s: float | None = None,
        cursor: str | None = None,
    ) -> AsyncGenerator[EntryWithPayload, None]: ...
    @overload
    def entries(
        self,
        target: AnyTarget | None = None,
        *,
        after: int | None = OLDEST,
        with_payload: bool,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        idle_s: float | None = None,
        cursor: str | None = None,
    ) -> AsyncGenerator[StoredEntry, None]: ...
    def entries(
        self,
        target: AnyTarget | None = None,
        *,
        after: int | None = OLDEST,
        with_payload: bool = True,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        idle_s: float | None = None,
        cursor: str | None = None,
    ) -> AsyncGenerator[StoredEntry, None]:
        """Entries as they are stored, by whomever.

        `target`: of one log, of one author (32 bytes), or all. `after`: the `ingest` number of the
        last entry that was taken, from which to go on; 0 begins with the oldest, None with what is
        new from now on. `with_payload` waits for an entry's payload, and gives `EntryWithPayload`:
        its `payload` raises PayloadTooLarge above `payload_bytes_max`. Without, an entry comes as
        soon as it is verified, and once more when its payload has come or was deleted.

        Without end, unless `idle_s`: ends when nothing has come for so many seconds, 0: with what
        is held. `cursor`: begins where that cursor of the store is, which is made if it is new, for
        one log or all; `ack` moves it. Raises CursorBusy while somebody else reads by it,
        CursorMismatch if it is for something else, TypeError, and ValueError for `after` beside it
        and for what is no target or number.
        """
        bytes_max = payload_bytes_max if with_payload else None
        check_number("payload_bytes_max", payload_bytes_max)
        return self._entries(Taking(target, after, bytes_max, idle_s, cursor), None)

    def _entries(
        self, what: "Taking", taken: Callable[[], Awaitable[object]] | None
    ) -> AsyncGenerator[StoredEntry, None]:
        what.check()
        return self._taking(*what, taken)

    async def _taking(
        self,
        target: AnyTarget | None,
        after: int | None,
        bytes_max: int | None,
        idle_s: float | None,
        cursor: str | None,
        taken: Callable[[], Awaitable[object]] | None,
    ) -> AsyncGenerator[StoredEntry, None]:
        found = None if target is None else await target_in(self.store, target)
        wanted = None if found is ALL else found
        reading: Reading | None = None
        if cursor is not None:
            reading = await self._begin(cursor, wanted)
        try:
            position = after
            if reading is not None and reading.cursor is not None:
                position = reading.cursor.position
            elif position is None:
                position = await trio.to_thread.run_sync(self.store.position)
            until: float | None = None
            with news_of(self.node) as news:
                while True:
                    page = await self._next(position, until)
                    if page is None:
                        break
                    for entry in page:
                        position = entry.ingest
                        given = _due(entry, wanted, bytes_max)
                        if given is entry and bytes_max is not None:
                            given = await self._with_payload(entry, bytes_max)
                        if given is not None:
                            yield given
                            until = None
                    if not page:
                        if until is None and idle_s is not None:
                            # What the program does with an entry is not counted.
                            until = trio.current_time() + idle_s
                        with (
                            self._pending.waiting(),
                            trio.move_on_at(math.inf if until is None else until),
                        ):
                            await news.wait()
            if taken is not None:
                await taken()
        finally:
            if reading is not None:
                self._end(reading)

    async def _next(self, position: int, until: float | None) -> list[StoredEntry] | None:
        """What comes behind a place: nothing, if there is nothing yet; None, if time is over."""
        host = self.node.host
        is_over = until is not None and trio.current_time() >= until
        with self._pending.waiting():
            found = host.fresh_after(position)
            # At the end the store itself is asked, since news of other processes take a moment.
            if found is None and (is_over or position < host.told):
                found = await trio.to_thread.run_sync(
                    partial(
                        self.store.read_changes,
                        position,
                        entries_max=READ_ENTRIES,
                        bytes_max=READ_BYTES,
                    )
                )
            if found:
                await host.until_told(found[-1].ingest)
        return None if is_over and not found else found or []

    async def _with_payload(self, entry: StoredEntry, bytes_max: int) -> StoredEntry | None:
        read = partial(self.store.with_payload, entry, payload_bytes_max=bytes_max)
        with self._pending.waiting():
            return await trio.to_thread.run_sync(read)

    async def ack(self, entry: StoredEntry, *, cursor: str | None = None) -> None:
        """The program is done with all entries up to this one: moves the cursor that they are read
        by (`entries`). It is on disk when this returns.

        `cursor`: which one, where several are read by. Raises CursorBusy if the reading is over and
        somebody else reads by it now, StoreError, TypeError; ValueError where nothing is read by a
        cursor, or by several, or the entry is not of what is read by it.
        """
        if not isinstance(entry, StoredEntry):
            raise wrong_type("entry", entry, "an entry that `entries` gave is wanted")
        reading = self._read_by(cursor)
        if not is_of(entry.key, reading.target):
            raise ValueError(
                f"entry: it is of {entry.key}, and {reading.name} reads {reading.target}"
            )
        table = self.store.cursors
        # The lane of those who write has one at a time.
        await self.node.host.call(partial(reading.acknowledge, table, entry.ingest))

    def _read_by(self, cursor: str | None) -> Reading:
        if cursor is not None:
            if cursor not in self._readings:
                raise ValueError(f"cursor={cursor!r:.60}: nothing was read by it here")
            return self._readings[cursor]
        if not self._readings:
            raise ValueError("ack: nothing is read by a cursor, see entries(cursor=...)")
        active = [each for each in self._readings.values() if each.cursor is not None]
        if len(active) > 1:
            names = ", ".join(each.name for each in active)
            raise ValueError(
                f"several cursors are read by, say which one: ack(entry, cursor=...): {names}"
            )
        return active[0] if active else [*self._readings.values()][-1]

    async def _begin(self, name: str, target: Follow | None) -> Reading:
        if isinstance(target, bytes):
            raise ValueError(  # noqa: TRY004 - an author is a right target without a cursor
                f"cursor={name!r:.60}: a cursor reads one log or all, not an author's logs"
            )
        reading = Reading(name, target if isinstance(target, LogKey) else None)
        # Not abandoned when it is cancelled: the lock would be nobody's.
        with self._pending.waiting():
            await trio.to_thread.run_sync(reading.begin, self.store.cursors)
        self._readings.pop(name, None)
        self._readings[name] = reading
        return reading

    def _end(self, reading: Reading) -> None:
        reading.end()
        if self._readings.get(reading.name) is reading:
            self._readings[reading.name] = self._readings.pop(reading.name)


def _due(entry: StoredEntry, wanted: Follow | None, bytes_max: int | None) -> StoredEntry | None:
    """What is handed out of an entry, None if it is nothing; the same, if a file is to be read."""
    if wanted is not None and not is_of(entry.key, wanted):
        return None
    if bytes_max is None:
        return entry
    if entry.payload_state is not PayloadState.PRESENT:
        return None
    return at_hand(entry, bytes_max) or entry


def read_ahead(
    peer: Takes, what: Taking, taken: Callable[[], Awaitable[object]]
) -> AsyncGenerator[StoredEntry, None]:
    """`Peer.entries` for who reads ahead of somebody else, to whom he hands what was read.

    `taken` is waited for at the end: the cursor is not given back before all has been handed out.
    """
    return peer._entries(what, taken)  # noqa: SLF001 - of this file
