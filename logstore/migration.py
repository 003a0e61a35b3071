"""Bringing a store of an earlier format to this one, or reading it as it is.

Format 2 counts the runs of held entries and the payloads that are missing in tables of their own,
and has tables for what is wanted. Whoever may write makes and fills them at opening, in one
transaction. Whoever only reads changes nothing: it fills temporary tables of the same names, which
hide those of the database, and again whenever another process has committed.
"""

from typing import TYPE_CHECKING, Final

import apsw

from .missing import count_all_missing
from .rows import load_logs_after
from .runs import count_runs, insert_runs
from .schema import FORMAT, INDEX_SINCE_FORMAT_2, TABLES_SINCE_FORMAT_2, format_of

if TYPE_CHECKING:
    from wire import LogKey

_PAGE_ROWS: Final = 500
_STAND_INS: Final = ("runs", "missing", "subscriptions", "wants", "stand_in")


def migrate(db: apsw.Connection) -> None:
    """Brings the database to this format, all or nothing; nothing if it has been done already."""
    db.execute("BEGIN IMMEDIATE")
    try:
        if format_of(db) < FORMAT:
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
    """Gives a connection that only reads the tables that its store lacks, as of this moment.

    To be called inside each transaction, before anything is read.
    """
    there = db.execute("SELECT 1 FROM sqlite_temp_schema WHERE name = 'stand_in'").get
    version: int = db.execute("PRAGMA data_version").get
    if there and version == db.execute("SELECT version FROM stand_in").get:
        return
    if there:
        for table in _STAND_INS:
            db.execute(f"DROP TABLE temp.{table}")
    if format_of(db) == FORMAT:
        return
    for statement in TABLES_SINCE_FORMAT_2:
        db.execute(statement.replace("CREATE TABLE ", "CREATE TEMP TABLE "))
    db.execute(INDEX_SINCE_FORMAT_2.replace("missing_by_size", "temp.missing_by_size"))
    db.execute("CREATE TEMP TABLE stand_in(version INTEGER NOT NULL)")
    db.execute("INSERT INTO stand_in VALUES (?)", (version,))
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
