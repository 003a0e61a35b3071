"""Connections for reading that nobody uses now, and what a thread is inside of.

The look-ups of sessions are thousands of small reads, inside of a snapshot each, and most of what
they cost would be to go in and out.
"""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from .errors import row_translated

if TYPE_CHECKING:
    from types import TracebackType

_READERS_KEPT: Final = 4


class Inside(threading.local):
    """What a thread is inside of: a snapshot, and whether anything failed in it."""

    db: apsw.Connection | None = None
    has_failed = False


class ReadInside:
    """A read inside of a snapshot: one of the several that each look-up of a log consists of."""

    __slots__ = ("_errors", "_inside")

    def __init__(self, where: str | Path, inside: Inside) -> None:
        self._errors = row_translated(where)
        self._inside = inside

    def __enter__(self) -> apsw.Connection:
        db = self._inside.db
        assert db is not None  # it is asked in the thread that is inside
        return db

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: "TracebackType | None",
    ) -> None:
        if error is not None:
            self._inside.has_failed = True
            self._errors.__exit__(kind, error, traceback)


class Readers:
    """Connections for reading that nobody uses now, of one generation: a failure drops them all.

    The lock is never held while anything is done to the disk.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[apsw.Connection] = []
        self.generation = 0

    def take(self) -> tuple[apsw.Connection | None, int]:
        """One of them, or None, and the generation of what is opened now."""
        with self._lock:
            return self._kept.pop() if self._kept else None, self.generation

    def give_back(self, db: apsw.Connection, generation: int) -> bool:
        """Keeps a connection of that generation; False if it is to be closed."""
        with self._lock:
            keeps = generation == self.generation and len(self._kept) < _READERS_KEPT
            if keeps:
                self._kept.append(db)
            return keeps

    def drop(self) -> list[apsw.Connection]:
        """All that are kept, to be closed; those in use are not kept any more."""
        with self._lock:
            self.generation += 1
            dropped, self._kept = self._kept, []
            return dropped
