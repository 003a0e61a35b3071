"""Bringing a store of an earlier format to this one, or reading it as it is.

Format 2 counts the runs of held entries and the payloads that are missing in tables of their own,
and has tables for what is wanted. Format 3 adds two sums to the row of each log. Format 4 has room
for sums in the row of a file, of which those that are there have none. Whoever may write makes and
fills what is lacking at opening, in one transaction. Whoever only reads changes nothing: it fills
temporary tables of the same names, which hide those of the database, and again whenever another
process has committed.

Columns that a table lacks cannot be added beside it. So temporary views hide `files` and `logs`:
the table itself, with each sum of a log as a subquery of its own. Such a view of one table is
always resolved into the query around it, so that indices are used as before, and a sum is looked up
only where it is asked for, where a join would look it up for each row of the change feed.

The sums need every entry once. They are read in the order in which they lie on disk, whichever logs
they are of: by log, each entry of logs that came together is a page of its own.
"""

from typing import TYPE_CHECKING, Final

import apsw

from .missing import count_all_missing, payload_bytes_of
from .rows import load_logs_after, pack_sum, unpack_u64
from .runs import count_runs, insert_runs
from .schema import (
    COLUMN_SINCE_FORMAT_4,
    COLUMNS_SINCE_FORMAT_3,
    FORMAT,
    INDEX_SINCE_FORMAT_2,
    TABLES_SINCE_FORMAT_2,
    format_of,
)

if TYPE_CHECKING:
    from wire import LogKey

_PAGE_ROWS: Final = 500
_SUMS_MAX: Final = 10_000
"""So many logs are summed up in memory; with more, what there is of them is written first."""
_VIEWS: Final = ("files", "logs")
_STAND_INS: Final = ("runs", "missing", "subscriptions", "wants", "sums", "stand_in")
_FILES: Final = "CREATE TEMP VIEW files AS SELECT *, NULL AS sums FROM main.files"
_SUMS: Final = (
    """CREATE TEMP TABLE sums(
    id INTEGER PRIMARY KEY, encoded_bytes INTEGER NOT NULL, payload_bytes BLOB NOT NULL
)""",
    "INSERT INTO temp.sums SELECT id, 0, zeroblob(16) FROM main.logs",
    """CREATE TEMP VIEW logs AS SELECT l.*,
    (SELECT encoded_bytes FROM temp.sums WHERE id = l.id) AS encoded_bytes,
    (SELECT payload_bytes FROM temp.sums WHERE id = l.id) AS payload_bytes
    FROM main.logs AS l""",
)


def migrate(db: apsw.Connection) -> None:
    """Brings the database to this format, all or nothing; nothing if it has been done already."""
    db.execute("BEGIN IMMEDIATE")
    try:
        version = format_of(db)
        if version < FORMAT:
            db.execute(f"ALTER TABLE files ADD COLUMN {COLUMN_SINCE_FORMAT_4}")
            if version < 3:
                for column in COLUMNS_SINCE_FORMAT_3:
                    db.execute(f"ALTER TABLE logs ADD COLUMN {column}")
                _add_sums(db, "main.logs")
            if version < 2:
                for statement in (*TABLES_SINCE_FORMAT_2, INDEX_SINCE_FORMAT_2):
                    db.execute(statement)
                db.execute("DROP INDEX entries_missing")
                _fill(db)
            db.execute("UPDATE counters SET id = ?", (FORMAT,))
            db.execute(f"PRAGMA user_version = {FORMAT}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def stand_in(db: apsw.Connection) -> None:
    """Gives a connection that only reads what its store lacks, as of this moment.

    To be called inside each transaction, before anything is read.
    """
    there = db.execute("SELECT 1 FROM sqlite_temp_schema WHERE name = 'stand_in'").get
    data_version: int = db.execute("PRAGMA data_version").get
    if there and data_version == db.execute("SELECT version FROM stand_in").get:
        return
    if there:
        for view in _VIEWS:
            db.execute(f"DROP VIEW IF EXISTS temp.{view}")
        for table in _STAND_INS:
            db.execute(f"DROP TABLE IF EXISTS temp.{table}")
    version = format_of(db)
    if version == FORMAT:
        return
    db.execute("CREATE TEMP TABLE stand_in(version INTEGER NOT NULL)")
    db.execute("INSERT INTO stand_in VALUES (?)", (data_version,))
    db.execute(_FILES)
    if version < 3:
        for statement in _SUMS:
            db.execute(statement)
        _add_sums(db, "temp.sums")
    if version < 2:
        for statement in TABLES_SINCE_FORMAT_2:
            db.execute(statement.replace("CREATE TABLE ", "CREATE TEMP TABLE "))
        db.execute(INDEX_SINCE_FORMAT_2.replace("missing_by_size", "temp.missing_by_size"))
        _fill(db)


def _fill(db: apsw.Connection) -> None:
    after: LogKey | None = None
    while True:
        rows = load_logs_after(db, None, after, _PAGE_ROWS)
        for row in rows:
            insert_runs(db, row, list(count_runs(db, row)))
            if row.missing:
                count_all_missing(db, row)
        if len(rows) < _PAGE_ROWS:
            return
        after = rows[-1].key


def _add_sums(db: apsw.Connection, table: str) -> None:
    """Adds what all entries come to; `table` has a row for each log, with sums of zero."""
    sums: dict[int, list[int]] = {}
    for log, blob, encoded in db.execute("SELECT log, seq, encoded FROM entries ORDER BY ingest"):
        found = sums.get(log)
        if found is None:
            if len(sums) == _SUMS_MAX:
                _write_sums(db, table, sums)
                sums.clear()
            log_id = db.execute("SELECT log_id FROM main.logs WHERE id = ?", (log,)).get
            if log_id is None:
                # `verify` finds entries of no log.
                continue
            found = sums[log] = [unpack_u64(log_id), 0, 0]
        found[1] += len(encoded)
        found[2] += payload_bytes_of(found[0], unpack_u64(blob), encoded)
    _write_sums(db, table, sums)


def _write_sums(db: apsw.Connection, table: str, sums: dict[int, list[int]]) -> None:
    for log, (_, encoded_bytes, payload_bytes) in sums.items():
        before = db.execute(
            f"SELECT payload_bytes FROM {table} WHERE id = ?",  # noqa: S608 (constants)
            (log,),
        ).get
        db.execute(
            f"UPDATE {table} SET encoded_bytes = encoded_bytes + ?, payload_bytes = ?"  # noqa: S608 (constants)
            " WHERE id = ?",
            (encoded_bytes, pack_sum(unpack_u64(before) + payload_bytes), log),
        )
