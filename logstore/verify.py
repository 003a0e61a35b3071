"""Rechecking a whole store: the database's structure, every log, every file, every other row.

Nothing that is wrong is repaired here. A check beside a node that goes on writing is exact too: a
log is compared with its row as of the start of its check. If faults are found and it changed
meanwhile, it is checked again, in a single read: that keeps the write-ahead log from being copied
for as long as it takes, which is why it is not done at first.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps
from typing import Final

import apsw

from wire import LogKey

from .errors import KeyFileError, StoreDamaged, StoreError, from_apsw_error, translated
from .files import PayloadFiles, file_tag, read_through
from .forgetting import forgetting
from .keyfile import KEY_FILE, read_key_file
from .meta import load_meta
from .opening import Opened
from .records import Fault, LogVerdict
from .rows import LogRow, load_log, load_logs_after, row_tag
from .schema import (
    FILE_ATTACHED,
    FILE_GARBAGE,
    FILE_PARTIAL,
    FILE_STAGING,
    FILE_WHOLE,
    format_of,
    statements_of,
)
from .verify_log import Hashed, LogCheck

_PAGE_ROWS: Final = 200
_ROWS_WHERE_TAGGED: Final = {
    "follows": "SELECT author, log_id, tag FROM follows",
    "memory": "SELECT name, value, tag FROM memory",
    "subscriptions": (
        "SELECT author, log_id, policy, min_bytes, max_bytes, eager_bytes, tag FROM subscriptions"
    ),
    "wants": "SELECT author, log_id, first, last, tag FROM wants",
    "counters": "SELECT ingest, authored, tag FROM counters",
}


class _OneRead:
    """A database as of one moment, whatever is written meanwhile."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    @contextmanager
    def read(self) -> Iterator[apsw.Connection]:
        """The same read each time."""
        yield self._db


class Verifier:
    """The check of one store."""

    def __init__(self, opened: Opened, files: PayloadFiles) -> None:
        self._opened = opened
        self._database = opened.database
        self._system = opened.system
        self._files = files

    def run(self, key: LogKey | None, *, collect: bool) -> Iterator[Fault | LogVerdict]:
        """Faults and verdicts; see `Store.verify`."""
        if key is not None:
            with self._database.read() as db:
                row = load_log(db, key)
            if row is not None:
                yield from self._check_log(row)
            return
        steps = (
            self._check_structure,
            self._check_key,
            self._check_rows,
            lambda: self._check_files(collect=collect),
            self._check_logs,
        )
        for step in steps:
            try:
                yield from step()
            except StoreDamaged as damage:
                yield Fault(damage.where, damage.what)

    def _check_structure(self) -> Iterator[Fault]:
        with self._database.read_alone() as db:
            try:
                lines = [line for (line,) in db.execute("PRAGMA integrity_check")]
                schema = {sql for (sql,) in db.execute("SELECT sql FROM sqlite_schema") if sql}
                expected = set(statements_of(format_of(db)))
            except apsw.Error as error:
                lines = [from_apsw_error(error, self._database.where).what]
                schema = expected = set()
        for line in lines:
            if line != "ok":
                yield Fault(str(self._database.where), f"the database is damaged: {line}")
        if schema != expected:
            yield Fault(str(self._database.where), "the tables are not those of a store")

    def _check_key(self) -> Iterator[Fault]:
        if self._opened.folder is None:
            return
        path = self._opened.folder / KEY_FILE
        try:
            read_key_file(path, self._opened.author)
        except KeyFileError as error:
            yield Fault(error.where, error.what)

    def _check_rows(self) -> Iterator[Fault]:
        where = str(self._database.where)
        with self._database.read() as db:
            load_meta(db)
            for table, query in _ROWS_WHERE_TAGGED.items():
                for *values, tag in db.execute(query):
                    if row_tag(*values) != tag:
                        yield Fault(where, f"a row of {table} is damaged")
            given = db.execute("SELECT ingest FROM counters").get
            newest = max(
                db.execute("SELECT coalesce(max(ingest), 0) FROM entries").get,
                db.execute("SELECT coalesce(max(changed), 0) FROM logs").get,
            )
            if given is None or given < newest:
                yield Fault(where, f"the ingest counter is {given}, below {newest}")
            strays = 0
            for table in ("entries", "proofs", "runs", "missing"):
                strays += db.execute(
                    f"SELECT count(*) FROM {table} WHERE log NOT IN (SELECT id FROM logs)"  # noqa: S608 (constant)
                    " AND log NOT IN (SELECT value FROM json_each(?))",
                    (dumps(forgetting(db)),),
                ).get
            strays += db.execute(
                "SELECT count(*) FROM subscriptions"
                " WHERE (author, log_id) NOT IN (SELECT author, log_id FROM follows)"
            ).get
            if strays:
                yield Fault(where, f"{strays} rows belong to nothing")

    def _check_logs(self) -> Iterator[Fault | LogVerdict]:
        after = None
        while True:
            with self._database.read() as db:
                rows = load_logs_after(db, None, after, _PAGE_ROWS)
            for row in rows:
                yield from self._check_log(row)
            if len(rows) < _PAGE_ROWS:
                return
            after = rows[-1].key

    def _check_log(self, row: LogRow) -> list[Fault | LogVerdict]:
        try:
            found = list(LogCheck(self._database, self._database, row, self._hash_file).run())
            if len(found) == 1:
                return found
            with self._database.read() as db:
                now = load_log(db, row.key)
                if now is None or now == row:
                    return found
                read = _OneRead(db)
                return list(LogCheck(read, self._database, now, self._hash_file).run())
        except StoreError as damage:
            return [Fault(str(row.key), damage.what, row.key), LogVerdict(row.info(), 0, 0, 1)]

    def _hash_file(self, id_: bytes) -> Hashed | None:
        path = self._files.path_of(id_)
        with translated(path):
            try:
                handle = self._system.open_file(path, write=False)
            except FileNotFoundError:
                return None
            with handle:
                found = read_through(handle)
        return Hashed(found.size, found.hasher.digest_yamf(), found.sums.encode())

    def _check_files(self, *, collect: bool) -> Iterator[Fault]:
        yield from self._check_file_rows()
        strays = self._files.unknown(self._files.listed())
        removed = set(self._files.remove(strays)) if collect else set()
        for id_ in strays:
            what = "the payload file belongs to nothing"
            if id_ in removed:
                what = "a payload file that belongs to nothing was removed"
            yield Fault(str(self._files.path_of(id_)), what)

    def _check_file_rows(self) -> Iterator[Fault]:
        with self._database.read() as db:
            found = db.execute(
                "SELECT id, state, author, log_id, seq, payload_hash, payload_bytes, synced,"
                " sources, tag FROM files"
            )
            rows = list(found)
            used = {
                id_ for (id_,) in db.execute("SELECT payload FROM entries WHERE payload_state = 2")
            } | {
                id_
                for (id_,) in db.execute("SELECT second FROM proofs WHERE kind = 'size in file'")
            }
        for id_, state, author, log_id, seq, payload_hash, size, synced, sources, tag in rows:
            path = self._files.path_of(id_)
            name = (author, log_id, seq)
            if file_tag(state, name, payload_hash, size, synced, sources) != tag:
                yield Fault(str(path), "the file's row is damaged")
            if state == FILE_ATTACHED and id_ not in used:
                yield Fault(str(path), "the payload file's entry does not name it")
            if state in (FILE_PARTIAL, FILE_WHOLE) and not self._is_kept(id_, synced):
                yield Fault(str(path), f"the unfinished payload's file has not its {synced} bytes")
            if state not in (FILE_STAGING, FILE_PARTIAL, FILE_WHOLE, FILE_ATTACHED, FILE_GARBAGE):
                yield Fault(str(path), f"the file's state is {state}")
        attached = {row[0] for row in rows if row[1] == FILE_ATTACHED}
        for id_ in used - attached:
            yield Fault(str(self._files.path_of(id_)), "the payload's file has no row")

    def _is_kept(self, id_: bytes, synced: int) -> bool:
        """Whether the unfinished file has what its row says, or its row says that no more."""
        if self._reaches(id_, synced):
            return True
        # It may have been given up since, and removed; never becomes it again what it was.
        query = "SELECT 1 FROM files WHERE id = ? AND state IN (?, ?)"
        with self._database.read() as db:
            return db.execute(query, (id_, FILE_PARTIAL, FILE_WHOLE)).get is None

    def _reaches(self, id_: bytes, synced: int) -> bool:
        path = self._files.path_of(id_)
        with translated(path):
            try:
                with self._system.open_file(path, write=False) as handle:
                    return handle.size() >= synced
            except FileNotFoundError:
                return synced == 0
