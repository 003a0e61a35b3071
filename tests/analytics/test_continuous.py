"""An export beside a node adds a file when what is pending is old or large."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from analytics import ContinuousExport, NotAnExport
from analytics.layout import LOCK
from analytics.states import read_states
from logstore import Store
from tests.analytics.makers import files, filled_store, held, keys, put
from tests.logstore.authors import AuthorLog


def continuous(store: Store, root: Path, file_bytes_max: int = 1 << 20) -> ContinuousExport:
    return ContinuousExport(
        store, root, file_bytes_max=file_bytes_max, file_age_max=timedelta(seconds=10)
    )


def test_what_an_earlier_run_left_behind_comes_at_once(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        result = continuous(store, tmp_path / "out").step(0.0)
    assert result is not None
    assert result.rows == 30


def test_an_entry_waits_no_longer_than_the_age(tmp_path: Path) -> None:
    root = tmp_path / "out"
    with filled_store(tmp_path / "s") as store:
        export = continuous(store, root)
        export.step(0.0)
        assert export.step(100.0) is None
        put(store, AuthorLog(8), range(1, 3))
        assert export.step(101.0) is None
        assert export.step(110.9) is None
        result = export.step(111.0)
        assert result is not None
        assert result.rows == 2
        assert export.step(112.0) is None
    assert len(files(root)) == 2


def test_a_fork_that_is_found_without_an_arrival_is_told_too(tmp_path: Path) -> None:
    root, log = tmp_path / "out", AuthorLog(1)
    with filled_store(tmp_path / "s") as store:
        export = continuous(store, root)
        export.step(0.0)
        assert export.step(1.0) is None
        log.add_all(range(1, 4))
        store.record_fork(log.key, log.entries[3].encoded, log.make(3, b"twin").encoded)
        assert export.step(2.0) is None
        assert export.step(11.9) is None
        result = export.step(12.0)
        assert result is not None
        assert (result.rows, result.files) == (0, ())
        assert [each["state"] for each in read_states(root)] == ["forked"]
        assert export.step(13.0) is None
        assert export.step(100.0) is None


def test_a_full_file_waits_for_nothing(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        export = continuous(store, tmp_path / "out", file_bytes_max=20_000)
        export.step(0.0)
        put(store, AuthorLog(8), range(1, 100))
        result = export.step(1.0)
        assert result is not None
        assert result.rows == 99


def test_the_end_exports_what_is_left(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        export = continuous(store, tmp_path / "out")
        export.step(0.0)
        put(store, AuthorLog(8), range(1, 3))
        assert export.finish().rows == 2
        assert keys(tmp_path / "out") == held(store)
        assert export.conclude() is None


@contextmanager
def another_export(root: Path) -> Iterator[None]:
    """Somebody else has the directory."""
    with (root / LOCK).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_another_export_is_waited_for_and_told_once(tmp_path: Path) -> None:
    root = tmp_path / "out"
    with filled_store(tmp_path / "s") as store:
        export = continuous(store, root)
        export.step(0.0)
        log = AuthorLog(8)
        put(store, log, range(1, 3))
        assert export.attempt(1.0) is None
        with another_export(root):
            waits = export.attempt(11.0)
            assert waits == {
                "event": "export_failed",
                "reason": f"another process is exporting into this directory: {root};"
                " it is waited for",
            }
            assert export.attempt(12.0) is None
            concluded = export.conclude()
        event = export.attempt(13.0)
        assert export.waits is None
        assert event is not None
        assert (event["event"], event["rows"]) == ("exported", 2)
        put(store, log, range(3, 4))
        assert export.attempt(14.0) is None
        with another_export(root):
            assert export.attempt(24.0) == waits
    assert concluded is not None
    assert concluded["event"] == "export_failed"


def test_a_failure_is_an_event_and_the_next_attempt_waits(tmp_path: Path) -> None:
    root = tmp_path / "out"
    root.mkdir()
    (root / "notes.txt").write_text("mine")
    with filled_store(tmp_path / "s") as store:
        export = continuous(store, root)
        with pytest.raises(NotAnExport):
            export.step(0.0)
        failed = export.attempt(1.0)
        assert failed is not None
        assert failed["event"] == "export_failed"
        assert "notes.txt" in str(failed["reason"])
        concluded = export.conclude()
        assert concluded is not None
        assert concluded["event"] == "export_failed"
        (root / "notes.txt").unlink()
        assert export.attempt(10.9) is None
        event = export.attempt(11.0)
    assert event is not None
    assert (event["event"], event["rows"], event["left_out"]) == ("exported", 30, [])
