"""Entries of an import that came before what they link to: kept on disk until the input has ended.

The spool is a private temporary database, which goes away with the process. Reading it back in
ascending order of each log is all that is needed, since links only ever lead downward.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

import apsw

from wire import LogKey, decode_entry

from .errors import Problem
from .import_lines import Candidate

_SCHEMA: Final = """
PRAGMA journal_mode = MEMORY;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -8192;
CREATE TABLE lines(
    author BLOB, log_id BLOB, seq BLOB, line INTEGER, hash BLOB, in_parts INTEGER,
    encoded BLOB, payload BLOB
);
CREATE INDEX lines_by_log ON lines(author, log_id, seq, line);
CREATE TABLE parts(line INTEGER, part INTEGER, data BLOB, PRIMARY KEY(line, part));
"""


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise Problem(
            f"lines that wait for others do not fit in the temporary directory ({error}); "
            "free space, or set SQLITE_TMPDIR"
        ) from error


class Spool:
    """Candidates on disk, and the payloads of long lines in parts."""

    def __init__(self) -> None:
        # An empty name is a file without one in the system's temporary directory.
        with _translated():
            self._db = apsw.Connection("")
            self._db.execute(_SCHEMA).fetchall()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._db.close()

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Keeps candidates with the payloads that they have."""
        with _translated(), self._db:
            self._db.executemany(
                "INSERT INTO lines VALUES (?, ?, ?, ?, ?, 0, ?, ?)",
                ((*_key(each), each.hash, each.encoded, each.payload) for each in candidates),
            )

    def add_in_parts(self, candidate: Candidate, pieces: Iterable[bytes]) -> None:
        """Keeps a candidate and its payload; nothing of either if `pieces` raises."""
        with _translated(), self._db:
            self._db.execute(
                "INSERT INTO lines VALUES (?, ?, ?, ?, ?, 1, ?, NULL)",
                (*_key(candidate), candidate.hash, candidate.encoded),
            )
            for part, data in enumerate(pieces):
                self._db.execute(
                    "INSERT INTO parts VALUES (?, ?, ?)", (candidate.number, part, data)
                )

    def ascending(self) -> Iterator[tuple[Candidate, Iterator[bytes] | None]]:
        """All candidates, log by log and upward; with the payload's parts where it is in parts."""
        rows = self._db.execute(
            "SELECT line, hash, in_parts, encoded, payload FROM lines"
            " ORDER BY author, log_id, seq, line"
        )
        for line, hash_, in_parts, encoded, payload in rows:
            candidate = Candidate(line, decode_entry(encoded), encoded, hash_, payload)
            yield candidate, self._parts(line) if in_parts else None

    def _parts(self, line: int) -> Iterator[bytes]:
        rows = self._db.execute("SELECT data FROM parts WHERE line = ? ORDER BY part", (line,))
        for (data,) in rows:
            yield data


def _key(candidate: Candidate) -> tuple[bytes, bytes, bytes, int]:
    key: LogKey = candidate.key
    return (
        key.author,
        key.log_id.to_bytes(8, "big"),
        candidate.seq.to_bytes(8, "big"),
        candidate.number,
    )
