"""Cursors: at least once, one reader at a time (everyday.md 2)."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore import CursorBusy, CursorMismatch, NothingSoCalled, PayloadState, Store
from wire import LogKey


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / "store") as made:
        yield made


def position_of(store: Store, name: str) -> int:
    [info] = [each for each in store.cursors.all() if each.name == name]
    return info.position


def test_a_cursor_begins_with_the_oldest_and_goes_on_where_it_was(store: Store) -> None:
    store.append([b"a", b"b"])
    with store.cursors.reading("mine", None) as cursor:
        assert cursor.position == 0
        cursor.acknowledge(2)
    with store.cursors.reading("mine", None, start=99) as cursor:
        assert cursor.position == 2
        cursor.acknowledge(1)
    assert position_of(store, "mine") == 2


def test_another_target_is_refused(store: Store) -> None:
    log = LogKey(store.author, 0)
    store.append([b"a"])
    with store.cursors.reading("mine", log):
        pass
    for other in (None, LogKey(store.author, 1)):
        with pytest.raises(CursorMismatch, match=str(log)), store.cursors.reading("mine", other):
            pass


def test_one_reader_at_a_time_in_this_process_and_in_others(store: Store) -> None:
    assert store.path is not None
    with store.cursors.reading("mine", None), Store.open(store.path) as other:
        for each in (store, other):
            with pytest.raises(CursorBusy), each.cursors.reading("mine", None):
                pass
            with pytest.raises(CursorBusy):
                each.cursors.reset("mine", 0)
            with pytest.raises(CursorBusy):
                each.cursors.remove("mine")
        with other.cursors.reading("Mine", None):
            pass
    with store.cursors.reading("mine", None):
        pass


def test_one_reader_at_a_time_in_memory() -> None:
    with (
        Store.memory() as store,
        store.cursors.reading("mine", None),
        pytest.raises(CursorBusy),
        store.cursors.reading("mine", None),
    ):
        pass


def test_the_lock_dies_with_its_reader(store: Store) -> None:
    assert store.path is not None
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        reader = Store.open(store.path).cursors.reading("mine", None)
        reader.__enter__()
        os.write(writing, b"x")
        signal.pause()
        os._exit(0)
    os.read(reading, 1)
    with pytest.raises(CursorBusy), store.cursors.reading("mine", None):
        pass
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with store.cursors.reading("mine", None):
        pass


def test_a_cursor_that_is_ahead_is_set_to_the_last_arrival(store: Store) -> None:
    store.append([b"a", b"b"])
    row = {"log": None, "position": 9, "updated_at": 0}
    store.remember("cursor/mine", json.dumps(row).encode())
    with store.cursors.reading("mine", None) as cursor:
        assert cursor.position == 2
    assert position_of(store, "mine") == 2


def test_reset_and_remove(store: Store) -> None:
    store.append([b"a", b"b", b"c"])
    with store.cursors.reading("mine", None):
        pass
    assert store.cursors.reset("mine", None).position == 3
    assert store.cursors.reset("mine", 2).position == 2
    assert store.cursors.reset("mine", 99).position == 3
    assert store.cursors.reset("mine", 0).position == 0
    store.cursors.remove("mine")
    assert store.cursors.all() == []
    for missing in (store.cursors.remove, lambda name: store.cursors.reset(name, 0)):
        with pytest.raises(NothingSoCalled):
            missing("mine")


def test_behind_counts_what_its_reader_would_get(store: Store) -> None:
    store.append([b"a", b"b", b"c"])
    store.append([b"x"], log_id=1)
    store.drop(LogKey(store.author, 0), 2, 2)
    counts = {}
    for name, target in (("both", None), ("one", LogKey(store.author, 0))):
        with store.cursors.reading(name, target):
            pass
    for info in store.cursors.all():
        counts[info.name] = store.cursors.behind(info)
    assert counts == {"both": 3, "one": 2}
    nothing = LogKey(bytes(32), 0)
    with store.cursors.reading("none", nothing):
        pass
    assert [
        store.cursors.behind(each) for each in store.cursors.all() if each.target == nothing
    ] == [0]


# What is read by them


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 2), max_size=25),
    st.integers(0, 12),
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(0, 2)),
)
def test_pages_hold_the_last_of_what_is_selected_once_each(
    logs: list[int], last: int, page: int, only: int | None
) -> None:
    with Store.memory() as store:
        for log_id in logs:
            store.append([b"x"], log_id=log_id)
        key = None if only is None else LogKey(store.author, only)
        place = store.place_before(last, key)
        found: list[tuple[int, int]] = []
        while True:
            arrivals = store.read_arrivals(place, key, entries_max=page, bytes_max=1 << 20)
            found += [(each.key.log_id, each.seq) for each in arrivals.entries]
            place = arrivals.position
            if not arrivals.entries:
                break
        count = [0, 0, 0]
        expected = []
        for log_id in logs:
            count[log_id] += 1
            if only in (None, log_id):
                expected.append((log_id, count[log_id]))
        assert found == expected[len(expected) - min(last, len(expected)) :]
        assert place == store.position()


def test_what_is_dropped_is_no_arrival_unless_payloads_do_not_count(store: Store) -> None:
    store.append([b"a", b"b"])
    store.drop(LogKey(store.author, 0), 1, 1)
    with_payload = store.read_arrivals(0, entries_max=9, bytes_max=1 << 20)
    assert [each.seq for each in with_payload.entries] == [2]
    both = store.read_arrivals(0, has_payload=False, entries_max=9, bytes_max=1 << 20)
    states = [(each.seq, each.payload_state) for each in both.entries]
    assert states == [(2, PayloadState.PRESENT), (1, PayloadState.DELETED)]


def test_since_a_moment(store: Store) -> None:
    store.append([b"a", b"b", b"c"])
    key = LogKey(store.author, 0)
    moment = store.read(key, 1, entries_max=1, bytes_max=0, with_payload=False)[0].received_at
    assert store.first_since(key, 1, 9, moment, None) == 1
    assert store.first_since(key, 1, 9, moment, 2) == 2
    assert store.first_since(key, 1, 9, moment, 0) is None
    assert store.first_since(key, 1, 9, moment + 10**9, None) is None
    assert store.place_before(None, since=moment) == 0
    assert store.place_before(None, since=moment + 10**9) == store.position()
