"""Room that is set aside for the day when the disk is full.

What frees space needs some itself: to drop payloads is to write to the database, and to open it
takes a file of shared memory. A file of no meaning takes that room, and gives it back then.

It also has the room that the database will grow by when the write-ahead log is copied into it. That
could not be done otherwise once the disk is full, so that the log could not be written over from
its beginning, and nothing more be written, whatever is freed. It is not taken in the database file
itself: SQLite does that by writing zeros behind its end, where another process may just be copying.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from .errors import StoreFull, is_full
from .system import System

RESERVE: Final = "reserve"
"""The name of the file, in the folder of the store."""
RESERVE_BYTES: Final = 1 << 20
OPENING_BYTES: Final = 1 << 16
"""What it takes to open the database: SQLite's index of the write-ahead log, and its header."""
FREEING_BYTES: Final = RESERVE_BYTES // 4
"""What is spent at once on what frees space; the next time there is some left."""
SPARE_BYTES: Final = RESERVE_BYTES // 2
"""What is left for freeing space when the database has grown as it has to."""
ROOM_BYTES_MIN: Final = 16 * RESERVE_BYTES
"""Nothing is set aside on a disk with less room than this."""
_REFILL_BYTES_MIN: Final = 2 * RESERVE_BYTES
"""The same where there was a reserve before."""
_STEP_BYTES: Final = RESERVE_BYTES // 4
"""It grows by no less."""
_EXCESS_BYTES: Final = 4 * RESERVE_BYTES
"""What is more than is needed by so much is given back."""

Done = TypeVar("Done")


class Reserve:
    """The reserve of one store. Other processes may spend it, or set it aside anew."""

    def __init__(self, folder: Path | None, system: System) -> None:
        """`folder`: None for a store in memory, which has no reserve."""
        self._path = None if folder is None else folder / RESERVE
        self._system = system

    def set_aside(self) -> None:
        """Takes the room, if there is plenty. What fails is left for another time.

        Less than plenty is enough for having again what was spent.
        """
        if self._path is None:
            return
        try:
            size = self._system.file_size(self._path)
            room_min = ROOM_BYTES_MIN if size is None else _REFILL_BYTES_MIN
            if (size or 0) >= RESERVE_BYTES:
                return
            if self._system.free_bytes(self._path.parent) < room_min:
                return
            with self._system.open_file(self._path, create=True) as file:
                file.allocate(RESERVE_BYTES)
        except OSError:
            return

    def cover(self, growth: int, *, frees: bool) -> None:
        """Has the room that the database will grow by, and some to spare unless space is freed.

        To be called with the write lock. Raises OSError if the disk is full.
        """
        if self._path is None or not growth:
            return
        try:
            size = self._system.file_size(self._path) or 0
            needed = growth if frees else growth + SPARE_BYTES
            with self._system.open_file(self._path, create=True) as file:
                if size < needed:
                    file.allocate(needed if frees else -(-needed // _STEP_BYTES) * _STEP_BYTES)
                elif size - needed > _EXCESS_BYTES:
                    file.truncate(max(RESERVE_BYTES, needed))
        except OSError as error:
            if is_full(error):
                raise

    def trim(self) -> None:
        """Gives back what was for growth; to be called when nothing is left to be copied."""
        if self._path is None:
            return
        try:
            if (self._system.file_size(self._path) or 0) > RESERVE_BYTES:
                with self._system.open_file(self._path) as file:
                    file.truncate(RESERVE_BYTES)
        except OSError:
            return

    def free(self, act: Callable[[], Done]) -> Done:
        """Does what frees space, and again with some of the room as long as the disk is full.

        The second time needs none as a rule: the database was opened anew, with an empty log.
        """
        has_failed = False
        while True:
            try:
                return act()
            except StoreFull:
                if has_failed and not self.spend():
                    raise
                has_failed = True

    def spend(self, bytes_max: int = FREEING_BYTES) -> bool:
        """Gives some of the room back to the disk; False if nothing is left of it."""
        if self._path is None:
            return False
        try:
            size = self._system.file_size(self._path) or 0
            if not size:
                return False
            with self._system.open_file(self._path) as file:
                file.truncate(max(0, size - bytes_max))
        except OSError:
            return False
        return True
