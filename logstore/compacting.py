"""Giving back to the disk what the database no longer needs, beside whoever uses it.

Theory. What is deleted leaves free pages in the database, which later entries fill again; the file
stays as long as it was. A database that was made with SQLite's `auto_vacuum = INCREMENTAL` knows of
each page who points to it, so that pages can be moved from the end of the file into free ones, some
at a time. It is done in transactions of `STEP_PAGES`, and behind each there is a pause as long as
it took, in which others write; what kills it costs nothing. The room that it takes is that of the
write-ahead log for one step.

That gives back whole pages. Rows that were deleted here and there leave pages that are half full,
and a database that was made before has no such pointers: both take SQLite's VACUUM, which writes
everything once more, into a temporary file and from there into the write-ahead log, in a single
transaction for which every writer waits. So it is done only where no node serves the store, where
there is room for it, and where it gives back `WORTH_PART` or more. Rows of rules go in order, and
each row that loses its payload moves to the end (its `ingest` is a new one), so that as a rule only
whole pages are left behind.

In the end the write-ahead log is emptied and cut, since up to 64 MiB of it are kept for the next
time, and files that belong to nothing are removed.

Not taken: to delete and store again rows of half-full pages in between, as that fills them to two
thirds at best; `auto_vacuum = FULL`, which moves pages in the transaction that frees them, so that
every deletion takes longer and each page moves that the next entry would have filled.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from .errors import StoreFull, StoreLocked, translated
from .files import PayloadFiles
from .nodelock import NodeLock
from .records import Compacted, CompactProgress
from .schema import BUSY_TIMEOUT_MS, INCREMENTAL, PAGE_BYTES
from .system import PAUSE_S

if TYPE_CHECKING:
    from .opening import Opened

STEP_PAGES: Final = 1_000
WORTH_PART: Final = 0.15
"""Of the database: what can be given back only by writing all of it anew..."""
WORTH_BYTES: Final = 1 << 20
"""... and no less than this."""
_ATTEMPTS: Final = 20
"""At emptying the write-ahead log, which waits for readers."""
_LEAF_HEADER_BYTES: Final = 8


class Compacting:
    """One `compact` of a store."""

    def __init__(
        self,
        opened: "Opened",
        files: PayloadFiles,
        pid: int,
        tell: Callable[[CompactProgress], None],
    ) -> None:
        self._tell = tell
        self._opened = opened
        self._database = opened.database
        self._files = files
        self._pid = pid

    def run(self) -> Compacted:
        """Gives back what can be. Raises StoreLocked, StoreFull if it takes what there is not."""
        folder = self._opened.folder
        if folder is None:
            return Compacted(0, 0, 0)
        with translated(folder):
            before = self._opened.system.allocated_bytes(folder)
        self._files.tidy()
        left = 0
        if not self._gives_back_pages():
            self._write_anew(folder, is_first=True)
        else:
            self._give_back_pages()
            left = self._half_empty_bytes()
            if left:
                # Only decided where it is done: a node may come, or room go, at any time.
                with suppress(StoreLocked, StoreFull):
                    self._write_anew(folder, is_first=False)
                    left = 0
        self._cut_log()
        self._opened.reserve.trim()
        with translated(folder):
            after = self._opened.system.allocated_bytes(folder)
        return Compacted(before, after, left)

    def _gives_back_pages(self) -> bool:
        with self._database.read() as db:
            mode: int = db.execute("PRAGMA auto_vacuum").get
            return mode == INCREMENTAL

    def _give_back_pages(self) -> None:
        system = self._opened.system
        left = total = self._free_pages()
        while left > 0:
            done = total - left
            self._tell(CompactProgress(done * PAGE_BYTES, total * PAGE_BYTES, is_anew=False))
            began_s = system.monotonic_s()
            with self._database.write(frees=True) as transaction:
                # One row for each page: it has to be read to the end.
                for _ in transaction.db.execute(f"PRAGMA incremental_vacuum({STEP_PAGES})"):
                    pass
            # Others may free pages meanwhile: not for ever.
            left = min(left - STEP_PAGES, self._free_pages())
            system.let_others(began_s)

    def _free_pages(self) -> int:
        with self._database.read() as db:
            count: int = db.execute("PRAGMA freelist_count").get
            return count

    def _half_empty_bytes(self) -> int:
        """What only writing anew would give back, if that is worth it: pages that fit into one."""
        with self._database.read() as db:
            try:
                leaves = db.execute(
                    "SELECT name, unused FROM dbstat WHERE pagetype = 'leaf' ORDER BY name, path"
                )
            except apsw.SQLError:
                return 0  # SQLite was built without that table
            saved, before, free = 0, None, 0
            room = PAGE_BYTES - _LEAF_HEADER_BYTES
            for name, unused in leaves:
                used = room - unused
                if name == before and used <= free:
                    saved += 1
                    free -= used
                else:
                    before, free = name, unused
            pages: int = db.execute("PRAGMA page_count").get
        bytes_saved = saved * PAGE_BYTES
        is_worth = saved > WORTH_PART * pages and bytes_saved >= WORTH_BYTES
        return bytes_saved if is_worth else 0

    def _write_anew(self, folder: Path, *, is_first: bool) -> None:
        needed = self._needed_bytes()
        earlier = "a database of an earlier version" if is_first else "the database"
        what = f"{earlier} is to be written anew as a whole, which takes {needed:,} bytes of room"
        with translated(folder):
            free = self._opened.system.free_bytes(folder)
        if free < needed:
            raise StoreFull(
                f"{what}, and there are {free:,}", folder, "free some, and run it again"
            )
        try:
            alone = NodeLock(folder, self._opened.system, self._pid)
        except StoreLocked as error:
            raise StoreLocked(
                f"{what}, and {error.what}", folder, "end it for as long as that takes"
            ) from None
        with alone, self._database.outside() as db:
            self._tell(CompactProgress(0, needed // 2, is_anew=True))
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            db.execute("VACUUM")

    def _needed_bytes(self) -> int:
        """Room for writing it anew: a copy of what is in use, and once more in the log."""
        with self._database.read() as db:
            pages: int = db.execute("PRAGMA page_count").get
            free: int = db.execute("PRAGMA freelist_count").get
        return 2 * (pages - free) * PAGE_BYTES

    def _cut_log(self) -> None:
        """Whoever reads one moment for long keeps the log as it is: then it stays.

        It is not waited for inside of SQLite, which lets nobody write meanwhile.
        """
        for _ in range(_ATTEMPTS):
            with self._database.outside() as db, suppress(apsw.BusyError):
                db.set_busy_timeout(0)
                try:
                    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                finally:
                    db.set_busy_timeout(BUSY_TIMEOUT_MS)
                return
            self._opened.system.sleep(PAUSE_S)
