"""Several questions about one log at one moment: its row is read once for all of them.

A session looks up each log that it shares with somebody, thousands of them whenever a connection is
made. To read the row anew for each question cost as much as all the answers.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from wire import U64_MAX

from .keeping import load_askable
from .reading import load_hashes, load_partials, read_entries_of
from .rows import LogRow
from .runs import is_held, load_runs

if TYPE_CHECKING:
    from .database import Database
    from .records import LogInfo, StoredEntry
    from .system import System


class HeldLog:
    """What is held of a log. Good inside of the `snapshot` that it was made in, and no longer.

    Its methods raise StoreError as those of a store do.
    """

    def __init__(
        self,
        database: "Database",
        row: LogRow,
        author: bytes,
        system: "System",
        *,
        lacks_any: bool,
    ) -> None:
        self._database = database
        self.lacks_any = lacks_any
        """Whether there are payloads of it that may be asked for."""
        self._row = row
        self._author = author
        self._system = system
        self.info: LogInfo = row.info()
        """What a list of logs says of it."""

    def entry(self, seq: int) -> "StoredEntry | None":
        """`Store.entry` of this log."""
        with self._database.read() as db:
            found = read_entries_of(db, self._row, seq, seq, 1, 0)
        return found[0] if found else None

    def hashes(self, seqs: Iterable[int]) -> dict[int, bytes]:
        """`Store.hashes` of this log."""
        with self._database.read() as db:
            return load_hashes(db, self._row, seqs)

    def missing_payloads(
        self, from_seq: int = 1, *, sizes: tuple[int, int] = (0, U64_MAX), limit: int
    ) -> list[int]:
        """`Store.missing_payloads` of this log."""
        if not (self._row.newest and self.lacks_any):
            return []
        now_us = self._system.now_us()
        with self._database.read() as db:
            return load_askable(
                db, self._row, from_seq, sizes, limit, author=self._author, now_us=now_us
            )

    def begun_payloads(self) -> dict[int, int]:
        """How many bytes are held of each payload that is held in part."""
        with self._database.read() as db:
            return load_partials(db, self._row.key)

    def runs(self, runs_from: int = 1, *, limit: int) -> list[tuple[int, int]]:
        """`Store.runs` of this log."""
        with self._database.read() as db:
            return load_runs(db, self._row, runs_from, limit)

    def is_held(self, first: int, last: int) -> bool:
        """`Store.is_held` of this log."""
        with self._database.read() as db:
            return is_held(db, self._row, first, last)
