"""Copying the write-ahead log into the database, beside whoever writes.

Theory. SQLite copies the log within the commit that finds `WAL_PAGES` in it: 16 MiB are written and
synced while whoever has committed waits, for about 50 ms, and so does everybody who has something
synced on the same file system. Of 300 live appends behind 20,000 entries four took ten times as
long as the others for that alone. So whoever runs a node has the log copied when `COPIED_PAGES`
have gathered, in a thread and over a connection of its own: reads and writes go on beside that. A
commit then finds too little to copy anything itself. It does where nobody calls this, as in a
program that only appends, and where this does not keep up.

That commits copy fewer pages themselves was tried: with 1,000 the slowest appends took three times
the median, but what comes in bulk came a twentieth slower, as pages that change with each commit
are then written four times as often while everybody waits.

What other processes write to the log they copy themselves. That copying fails is no failure of the
store: what was committed is in the log, synced, and stays there until it has been copied. SQLite
makes nothing of it either where a commit copies.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import apsw

from .errors import StoreError
from .schema import wait_for

COPIED_PAGES: Final = 1_000


def checkpoint(db: apsw.Connection) -> bool:
    """Copies the write-ahead log into the database as far as nobody reads from it.

    False if there is no room: it stopped after the log had been synced, and that is enough for the
    store to be read. SQLite waits for no other process that is doing the same, so the waiting is
    done here.
    """
    try:
        wait_for(lambda: db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE))
    except apsw.FullError:
        return False
    return True


class LogCopying:
    """How much this process has written to the log since it was copied, and how it is copied."""

    def __init__(self) -> None:
        self._pages = 0

    def committed(self, db: apsw.Connection) -> None:
        """A transaction of the writing connection has ended well. With the write lock."""
        written, _ = db.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE, True)  # noqa: FBT003 (positional)
        self._pages += written

    @property
    def is_due(self) -> bool:
        """Whether it is time; a hint, from any thread."""
        return self._pages >= COPIED_PAGES

    def copy(self, connect: Callable[[], apsw.Connection]) -> None:
        """Copies it, over a connection that is closed again. Waits for the disk and for nobody."""
        self._pages = 0
        with suppress(apsw.Error, StoreError):
            db = connect()
            try:
                db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            finally:
                db.close(True)  # noqa: FBT003 (positional)
