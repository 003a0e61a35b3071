"""Bad days of a store: bytes that are others than were written, and a disk that is full once."""

from collections.abc import Callable

import apsw
import pytest

from gateways import SideTable
from logstore import Store
from wire import LogKey


def damage(store: Store, key: LogKey, seq: int) -> None:
    """The payload of an entry is another one on disk than was written."""
    entry = store.entry(key, seq)
    assert entry is not None
    with store._database.write() as transaction:
        transaction.db.execute(
            "UPDATE entries SET payload = CAST('x' AS BLOB) WHERE ingest = ?", (entry.ingest,)
        )


def fill_disk_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next transaction of a side table finds no room, and the one after it does."""
    run = SideTable.run

    def run_and_fail(table: SideTable, work: Callable[[apsw.Connection], object]) -> object:
        def fail(db: apsw.Connection) -> None:
            work(db)
            raise apsw.FullError("database or disk is full")

        monkeypatch.setattr(SideTable, "run", run)
        return run(table, fail)

    monkeypatch.setattr(SideTable, "run", run_and_fail)
