"""The side table: nothing is known of a log that its transaction has not committed."""

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from gateways import SideTable
from gateways.ockam.declared import declare_stream
from gateways.ockam.side import Side
from logstore import Store, StoreFull


def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the next transaction is to be committed, and has room again then."""
    run = SideTable.run

    def run_and_fail(table: SideTable, work: Callable[[apsw.Connection], object]) -> object:
        def fail(db: apsw.Connection) -> None:
            work(db)
            raise apsw.FullError("database or disk is full")

        monkeypatch.setattr(SideTable, "run", run)
        return run(table, fail)

    monkeypatch.setattr(SideTable, "run", run_and_fail)


def test_a_stream_is_met_again_when_the_transaction_that_met_it_is_rolled_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Store.create(tmp_path / "store") as store:
        side = Side(store)
        store.append([declare_stream("earlier", 0)], log_id=1)
        assert side.refresh()
        store.append([declare_stream("orders", 0), b"tea"], log_id=2)
        refused(monkeypatch)
        with pytest.raises(StoreFull):
            side.refresh()
        assert side.refresh()
        assert [each.name for each in side.streams(store.author)] == ["earlier", "orders"]
        side.close()
