"""A bundle in a file: begun, cut off anywhere, gone on with; and what is not gone on with."""

import io
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import BundleRefused, Store, StoreLocked, export_bundle
from logstore.bundle_records import ENTRY, HEADER, PAYLOAD, PROOF
from tests.logstore.authors import AuthorLog
from tests.logstore.carrying import (
    LARGE,
    content,
    exported,
    filled,
    had,
    imported,
    log_of,
    logs_strategy,
    records,
    two,
)
from wire import lower_pool


@settings(max_examples=60, deadline=None)
@given(logs=logs_strategy(), data=st.data())
def test_an_export_that_was_cut_off_goes_on(logs: list[AuthorLog], data: st.DataObject) -> None:
    with two() as (source, _), TemporaryDirectory() as folder:
        filled(source, *(each for each in logs if each.entries))
        whole, path = exported(source), Path(folder, "file")
        path.write_bytes(whole)
        for _ in range(data.draw(st.integers(1, 3))):
            cut = data.draw(st.integers(0, len(whole) - 1))
            # What a power cut leaves behind what was synced.
            zeros = data.draw(st.sampled_from([0, 200, 70_000])) if cut >= len(HEADER) else 0
            path.write_bytes(whole[:cut] + bytes(zeros))
            done = export_bundle(source, path)
            assert path.read_bytes() == whole
            begun = done.resumed_at or 0
            assert begun <= cut
            ends = [len(HEADER), *(each.end for each in records(whole))]
            # What is whole stays, but for a payload that zeros have got into.
            assert zeros or begun == max((end for end in ends if end <= cut), default=0)
        assert export_bundle(source, path).resumed_at == len(whole)


def test_what_has_come_meanwhile_does_not_make_it_another_export(tmp_path: Path) -> None:
    with two() as (source, target):
        early, log, late = log_of(1, [b"1"]), log_of(2, [b"x"] * 4), log_of(3, [b"3"])
        keys = sorted((early.key, log.key, late.key))
        by_key = {each.key: each for each in (early, log, late)}
        first, middle, last = (by_key[key] for key in keys)
        filled(source, middle, last)
        path = tmp_path / "file"
        whole = exported(source)
        cut = [each for each in records(whole) if each.type == ENTRY][-1].offset
        path.write_bytes(whole[: cut - 1])
        # A log before what is there, and more of what is there.
        filled(source, first)
        middle.add(len(middle.entries) + 1, b"more")
        filled(source, middle)
        done = export_bundle(source, path)
        assert done.resumed_at is not None
        done_import, named = imported(target, path.read_bytes())
        assert (done_import.cut_short, named) == (False, [])
        assert first.key not in content(target)
        assert last.key in content(target)
        with pytest.raises(BundleRefused, match="more by now"):
            export_bundle(source, path)


Change = Callable[[Store, Store, list[AuthorLog]], dict[str, object]]
OTHERS: dict[str, Change] = {
    "fewer logs": lambda _, __, logs: {"targets": [logs[1].key]},
    "no payloads": lambda *_: {"payloads": False},
    "another have": lambda _, target, logs: {"have": io.BytesIO(had(filled(target, logs[0])))},
}


@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_file_of_another_export_is_left_as_it_is(
    tmp_path: Path, what: str, cut: int, *, is_first: bool
) -> None:
    with two() as (source, target):
        logs = sorted((log_of(1, [b"1", b"2"]), log_of(2, [b"3"] * 9)), key=lambda log: log.key)
        filled(source, *logs)
        change = OTHERS[what](source, target, logs)
        path = tmp_path / "file"
        export_bundle(source, path, **(change if is_first else {}))  # type: ignore[arg-type]
        before = path.read_bytes()[: None if not cut else -80]
        path.write_bytes(before)
        change = OTHERS[what](source, target, logs)
        with pytest.raises(BundleRefused):
            export_bundle(source, path, **({} if is_first else change))  # type: ignore[arg-type]
        assert path.read_bytes() == before


@pytest.mark.parametrize("data", [b"a letter", HEADER[:-1] + b"\x09", b"bamboo-bundlE"])
def test_what_is_no_bundle_is_left_as_it_is(tmp_path: Path, data: bytes) -> None:
    with two() as (source, _):
        filled(source, log_of(1, [b"1"]))
        path = tmp_path / "file"
        path.write_bytes(data)
        with pytest.raises(BundleRefused):
            export_bundle(source, path)
        assert path.read_bytes() == data


def test_two_exports_do_not_write_to_one_file(tmp_path: Path) -> None:
    import fcntl

    with two() as (source, _), (tmp_path / "file").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StoreLocked):
            export_bundle(source, tmp_path / "file")


def test_an_entry_that_came_late_into_a_gap_begins_its_log_anew(tmp_path: Path) -> None:
    with two() as (source, target):
        log = log_of(1, [b"p%d" % seq for seq in range(1, 41)])
        early = sorted(lower_pool(40))
        source.put_entries(log.key, [log.entries[seq] for seq in early], source="test")
        whole, path = exported(source), tmp_path / "file"
        path.write_bytes(whole[: records(whole)[-1].offset])
        # Before what is in the file: something that is still to be written might lead to it.
        late = [log.entries[seq] for seq in sorted(lower_pool(39)) if seq not in early]
        source.put_entries(log.key, late, source="test")
        done = export_bundle(source, path)
        assert done.resumed_at == len(HEADER)
        assert imported(target, path.read_bytes())[1] == []
        assert content(target) == content(source)


def test_a_file_that_ends_between_log_and_proof_gets_the_proof(tmp_path: Path) -> None:
    with two() as (source, target):
        log = log_of(1, [b"1", b"2", b"3"])
        filled(source, log)
        source.record_fork(log.key, log.entries[3].encoded, log.make(3, b"other").encoded)
        whole, path = exported(source), tmp_path / "file"
        assert [each.type for each in records(whole)][1] == PROOF
        for record in records(whole)[:2]:
            path.write_bytes(whole[: record.end])
            export_bundle(source, path)
            assert path.read_bytes() == whole
        assert [each.seq for each in imported(target, whole)[0].forks] == [3]


def test_a_payload_that_went_meanwhile_is_left_out_as_far_as_it_was_written(
    tmp_path: Path,
) -> None:
    with two() as (source, target):
        log = log_of(1, [bytes(LARGE), b"2"])
        filled(source, log)
        whole, path = exported(source), tmp_path / "file"
        piece = next(each for each in records(whole) if each.type == PAYLOAD)
        path.write_bytes(whole[: piece.end])
        source.drop(log.key, 1, 1)
        done = export_bundle(source, path)
        assert (done.resumed_at, done.entries, done.payloads) == (piece.offset, 2, 1)
        assert imported(target, path.read_bytes())[1] == []
        assert content(target) == content(source)
