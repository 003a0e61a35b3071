"""The side table: what is rolled back is not remembered, and what is damaged is passed over."""

import shutil
from pathlib import Path

import pytest

from gateways.ockam import Book, Catalog, Side
from gateways.ockam.declared import LEDGER_DECLARATION, declare_stream
from gateways.ockam.ledger import Position, Trim, encode_records
from gateways.ockam.side import FILE_NAME
from logstore import ExplainedError, Store, StoreFull
from tests.gateways.failing import damage, fill_disk_once
from tests.logstore.authors import AuthorLog
from wire import LogKey


def test_a_stream_is_met_again_when_the_transaction_that_met_it_is_rolled_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Store.create(tmp_path / "store") as store:
        side = Side(store)
        store.append([declare_stream("earlier", 0)], log_id=1)
        assert side.refresh()
        store.append([declare_stream("orders", 0), b"tea"], log_id=2)
        fill_disk_once(monkeypatch)
        with pytest.raises(StoreFull):
            side.refresh()
        assert side.refresh()
        assert [each.name for each in side.streams(store.author)] == ["earlier", "orders"]
        side.close()


def test_a_side_table_of_another_history_is_made_anew(tmp_path: Path) -> None:
    path, backup = tmp_path / "store", tmp_path / "backup"
    with Store.create(path) as store:
        store.append([declare_stream("kept", 0)], log_id=1)
    shutil.copytree(path, backup)
    with Store.open(path) as store:
        store.append([declare_stream("gone", 0), b"tea"], log_id=2)
        side = Side(store)
        side.refresh()
        side.close()
    # The store alone is put back, and grows past the place of what was derived from it.
    shutil.copy(path / FILE_NAME, backup / FILE_NAME)
    shutil.rmtree(path)
    backup.rename(path)
    with Store.open(path) as store:
        store.confirm_identity()
        store.append([declare_stream("new", 0), b"a", b"b", b"c"], log_id=3)
        side = Side(store)
        assert side.refresh()
        assert [each.name for each in side.streams(store.author)] == ["kept", "new"]
        # It is this store's from now on, whatever happens to a log of somebody else.
        other = AuthorLog(7)
        store.put_entries(other.key, other.add_all([1, 2]), source="a friend")
        side.refresh()
        ids = [each.id for each in side.streams(store.author)]
        store.put_entries(other.key, [other.make(2, b"another")], source="a friend")
        assert not side.refresh()
        assert [each.id for each in side.streams(store.author)] == ids
        side.close()


def test_a_side_table_of_another_store_is_made_anew_though_the_numbers_are_the_same(
    tmp_path: Path,
) -> None:
    for name in ("one", "other"):
        with Store.create(tmp_path / name) as store:
            store.append([declare_stream(name, 0)], log_id=1)
            if name == "other":
                shutil.copy(tmp_path / "one" / FILE_NAME, tmp_path / "other" / FILE_NAME)
            side = Side(store)
            assert side.refresh()
            assert [each.name for each in side.streams(store.author)] == [name]
            side.close()


def test_a_log_whose_first_entry_is_damaged_keeps_nobody_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Store.memory() as store:
        key = store.append([b"of somebody else"])[0].key
        damage(store, key, 1)
        side = Side(store)
        catalog = Catalog(store, side)
        assert catalog.make("orders", 2, may_make=True).failure == ""
        assert [each.partition for each in catalog.all()] == [0, 1]
        store.append([b"more"])
        catalog.refresh()
        assert caplog.text.count(f"{key}/1") == 1
        side.close()


def test_a_damaged_entry_of_a_ledger_is_one_that_is_missing() -> None:
    with Store.memory() as store:
        side = Side(store)
        records = [Position(store.author, "orders", 0, "web", 0, index) for index in (5, 7, 6)]
        store.append([LEDGER_DECLARATION, *(encode_records([each]) for each in records)], log_id=1)
        key = LogKey(store.author, 1)
        damage(store, key, 3)
        side.refresh()
        found = side.position(records[0].subject, [store.author])
        assert found is not None
        assert found.place.index == 6
        # It comes anew, behind the others.
        store.drop(key, 3, 3)
        store.want(key, 3, 3)
        store.complete_payload(key, 3, encode_records([records[1]]))
        side.refresh()
        found = side.position(records[0].subject, [store.author])
        assert found is not None
        assert found.place.index == 7
        side.close()


def test_a_position_that_nobody_can_have_counts_for_nobody() -> None:
    with Store.memory() as store:
        side = Side(store)
        records = [
            Position(store.author, "orders", 2**63, "web", 0, 1),
            Position(store.author, "orders", 0, "web", 2**63, 1),
            Position(store.author, "orders", 0, "", 0, 1),
            Position(store.author, "orders", 0, "last", 2**63 - 1, 2),
        ]
        store.append([LEDGER_DECLARATION, encode_records(records)], log_id=1)
        side.refresh()
        found = side.positions(store.author, [store.author])
        assert [each.subject.client for each in found] == ["last"]
        with pytest.raises(ExplainedError, match="cannot be moved again"):
            Book(Catalog(store, side)).rewind(records[3].subject, 0)
        side.close()


@pytest.mark.parametrize("first_met", [4, 5])
def test_of_two_ledgers_of_an_author_the_lower_one_counts(
    first_met: int, caplog: pytest.LogCaptureFixture
) -> None:
    with Store.memory() as store:
        side = Side(store)

        def ledger(log_id: int, index: int) -> None:
            records: list[Position | Trim] = [
                Position(store.author, "orders", 0, "web", 0, index),
                Position(store.author, "orders", 0, f"only {log_id}", 0, index),
                Trim(7, index),
            ]
            store.append([LEDGER_DECLARATION, encode_records(records)], log_id=log_id)
            side.refresh()

        ledger(first_met, first_met)
        ledger(9 - first_met, 9 - first_met)
        assert "4 and 5: the lower one counts" in caplog.text
        for log_id in (5, 4):
            # What is written to them later counts, or does not, as well.
            record = Position(store.author, "orders", 0, "later", 0, log_id)
            store.append([encode_records([record])], log_id=log_id)
            side.refresh()
        found = side.positions(store.author, [store.author])
        assert [(each.subject.client, each.place.index) for each in found] == [
            ("later", 4),
            ("only 4", 4),
            ("web", 4),
        ]
        assert side.earliest(LogKey(store.author, 7)) == 4
        state = side.ledger(store.author)
        assert state is not None
        assert state.key.log_id == 4
        side.close()
