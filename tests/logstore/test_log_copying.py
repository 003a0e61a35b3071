"""The write-ahead log is copied beside whoever writes. logstore/log_copying.py."""

import threading
from pathlib import Path

import apsw
import pytest

from logstore import Store, StoreFailed
from logstore.database import Database

FEW_PAGES = 50


@pytest.fixture(autouse=True)
def copied_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logstore.log_copying.COPIED_PAGES", FEW_PAGES)


def fill(store: Store) -> None:
    """Appends until it is time to copy."""
    for number in range(10_000):
        store.append([number.to_bytes(8, "big") * 50])
        if store.copy_due:
            return
    raise AssertionError("it never is")


def database_bytes(store: Store) -> int:
    """How long the file is into which is copied."""
    assert store._database.path is not None
    return store._database.path.stat().st_size


def test_what_was_committed_is_copied_and_still_there(store: Store, tmp_path: Path) -> None:
    before = database_bytes(store)
    assert not store.copy_due
    fill(store)
    assert database_bytes(store) == before, "a commit has copied it"
    store.copy_log()
    assert database_bytes(store) > before
    assert not store.copy_due
    entries = store.statistics().entries
    store.append([b"behind it"])
    store.close()
    with Store.open(tmp_path / "store") as again:
        assert again.statistics().entries == entries + 1


def test_who_writes_and_who_reads_do_not_wait_for_it(store: Store) -> None:
    before = database_bytes(store)
    fill(store)
    with store._database.write(), store._database.read() as db:
        seen = db.execute("SELECT count(*) FROM entries").get
        thread = threading.Thread(target=store.copy_log)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
        assert database_bytes(store) > before
        assert db.execute("SELECT count(*) FROM entries").get == seen
    store.append([b"another"])


def test_that_it_fails_is_no_failure_of_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)

    def fail(self: Database) -> apsw.Connection:
        raise apsw.IOError

    with monkeypatch.context() as patched:
        patched.setattr(Database, "_connect", fail)
        store.copy_log()
    fill(store)
    store.copy_log()
    assert not store.copy_due


def test_nothing_is_copied_that_a_failed_sync_may_have_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)

    def fail(_: object) -> None:
        raise OSError(5, "the disk")

    with monkeypatch.context() as patched:
        patched.setattr("logstore.database.Transaction.finish", fail)
        with pytest.raises(StoreFailed):
            store.append([b"it does not get there"])
    assert not store.copy_due
    before = database_bytes(store)
    store.copy_log()
    assert database_bytes(store) == before
    store.append([b"this opens it again"])
    fill(store)


def test_a_store_in_memory_has_nothing_to_copy(memory: Store) -> None:
    for _ in range(100):
        memory.append([bytes(1000)])
    assert not memory.copy_due
    memory.copy_log()
