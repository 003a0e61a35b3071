"""Room that is set aside for the day when the disk is full.

What frees space needs some itself: to drop payloads is to write to the database, and to open it
takes a file of shared memory. A file of no meaning takes that room, and gives it back then.
"""

from pathlib import Path
from typing import Final

from .system import System

RESERVE: Final = "reserve"
"""The name of the file, in the folder of the store."""
RESERVE_BYTES: Final = 1 << 20
OPENING_BYTES: Final = 1 << 16
"""What it takes to open the database: SQLite's index of the write-ahead log, and its header."""
FREEING_BYTES: Final = RESERVE_BYTES // 4
"""What is spent at once on what frees space; the next time there is some left."""
ROOM_BYTES_MIN: Final = 16 * RESERVE_BYTES
"""Nothing is set aside on a disk with less room than this."""


class Reserve:
    """The reserve of one store. Other processes may spend it, or set it aside anew."""

    def __init__(self, folder: Path | None, system: System) -> None:
        """`folder`: None for a store in memory, which has no reserve."""
        self._path = None if folder is None else folder / RESERVE
        self._system = system

    def set_aside(self) -> None:
        """Takes the room, if there is plenty. What fails is left for another time."""
        if self._path is None:
            return
        try:
            if (self._system.file_size(self._path) or 0) >= RESERVE_BYTES:
                return
            if self._system.free_bytes(self._path.parent) < ROOM_BYTES_MIN:
                return
            with self._system.open_file(self._path, create=True) as file:
                file.allocate(RESERVE_BYTES)
        except OSError:
            return

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
