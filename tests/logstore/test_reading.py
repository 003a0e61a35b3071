"""Reading entries and the change feed, follows and memory: reading.py, feed.py, upkeep.py."""

import threading
from contextlib import suppress

import pytest

from logstore import ALL, Arrived, NewEntry, PayloadState, Store, StoreDamaged, feed
from tests.logstore.authors import AuthorLog
from wire import LogKey


def test_batches_end_at_a_number_of_entries_of_bytes_and_at_an_end(memory: Store) -> None:
    key = memory.append([b"x" * 100] * 20)[0].key

    def seqs(start: int, entries: int, size: int, end: int | None = None) -> list[int]:
        found = memory.read(
            key, start, entries_max=entries, bytes_max=size, end=end, with_payload=False
        )
        return [entry.seq for entry in found]

    assert seqs(1, 3, 1 << 20) == [1, 2, 3]
    assert seqs(19, 5, 1 << 20) == [19, 20]
    assert seqs(21, 5, 1 << 20) == []
    assert seqs(0, 1, 1 << 20) == [1]
    assert seqs(5, 10, 1 << 20, 7) == [5, 6, 7]
    first, second = memory.read(key, 1, entries_max=2, bytes_max=1 << 20, with_payload=False)
    size = len(first.encoded) + len(second.encoded) + 200
    assert seqs(1, 10, size) == [1, 2]
    assert seqs(1, 10, size - 1) == [1]
    assert seqs(1, 10, 0) == [1]
    assert (
        memory.read(LogKey(bytes(32), 0), 1, entries_max=1, bytes_max=1, with_payload=False) == []
    )


def test_an_entry_that_is_not_held_is_none(memory: Store) -> None:
    key = memory.append([b"a"])[0].key
    assert memory.entry(key, 1) is not None
    assert memory.entry(key, 2) is None
    assert memory.entry(LogKey(bytes(32), 1), 1) is None
    assert memory.log(LogKey(bytes(32), 1)) is None
    assert memory.hashes(key, [0, 1, 2]).keys() == {1}
    assert memory.fork(key) is None


def test_the_feed_has_each_entry_once_at_its_latest_change(memory: Store) -> None:
    log = AuthorLog()
    entries = [log.add(seq, b"%d" % seq, held=seq != 2) for seq in range(1, 5)]
    memory.put_entries(log.key, entries, source="peer")
    memory.append([b"own"])
    memory.complete_payload(log.key, 2, b"2")
    memory.drop(log.key, 3, 3)
    changes = memory.changes(0, 100)
    assert [(c.ingest, c.key == log.key, c.seq, c.payload_state) for c in changes] == [
        (1, True, 1, PayloadState.PRESENT),
        (4, True, 4, PayloadState.PRESENT),
        (5, False, 1, PayloadState.PRESENT),
        (6, True, 2, PayloadState.PRESENT),
        (7, True, 3, PayloadState.DELETED),
    ]
    assert memory.position() == 7
    assert memory.changes(4, 1) == [changes[2]]
    read = memory.read_changes(0, entries_max=100, bytes_max=1 << 20)
    assert [(e.ingest, e.key, e.seq, e.payload_state) for e in read] == changes
    assert [e.payload for e in read] == [b"1", b"4", b"own", b"2", None]
    assert [e.ingest for e in memory.read_changes(1, entries_max=9, bytes_max=0)] == [4]


def test_changed_logs_are_those_of_which_anything_changed(memory: Store) -> None:
    log, other = AuthorLog(), AuthorLog(2)
    memory.put_entries(log.key, log.add_all([1, 2, 3]), source="peer")
    memory.put_entries(other.key, other.add_all([1]), source="peer")
    position, changed = memory.changed_logs(0)
    assert changed == [log.key, other.key]
    assert memory.changed_logs(position) == (position, [])
    memory.drop(log.key, 1, 1)
    later, changed = memory.changed_logs(position)
    assert changed == [log.key]
    memory.put_entries(other.key, [other.make(1, b"fork")], source="peer")
    assert memory.changed_logs(later)[1] == [other.key]


def test_what_is_held_of_changed_logs_and_of_others(memory: Store) -> None:
    log, other, third = AuthorLog(), AuthorLog(2), AuthorLog(3)
    for each in (log, other, third):
        memory.put_entries(each.key, each.add_all([1, 2]), source="peer")
    for after in range(memory.position() + 1):
        position, keys = memory.changed_logs(after)
        infos = [memory.log(key) for key in keys]
        assert memory.changed_infos(after) == (position, infos)
        # Others behind them, each once, and none of which nothing is held.
        also = [log.key, third.key, AuthorLog(4).key, log.key]
        beside = [key for key in (log.key, third.key) if key not in keys]
        assert memory.changed_infos(after, also) == (
            position,
            [*infos, *(memory.log(key) for key in beside)],
        )


def test_a_missing_payload_is_neither_present_nor_deleted(memory: Store) -> None:
    log = AuthorLog()
    entries = [log.add(seq, held=seq not in (3, 6)) for seq in range(1, 8)]
    memory.put_entries(log.key, entries, source="peer")
    memory.drop(log.key, 1, 2)
    assert memory.missing_payloads(log.key, limit=9) == [3, 6]
    assert memory.missing_payloads(log.key, limit=1) == [3]
    assert memory.missing_payloads(log.key, 4, limit=9) == [6]
    assert memory.missing_payloads(log.key, 7, limit=9) == []
    assert memory.missing_payloads(LogKey(bytes(32), 0), limit=9) == []


def test_what_came_behind_a_place_is_told_of_what_is_asked_for(memory: Store) -> None:
    log, other = AuthorLog(), AuthorLog(2)
    seqs = range(1, 13)
    memory.put_entries(
        log.key, [log.add(seq, b"%d" % seq, held=seq in (4, 6)) for seq in seqs], source="peer"
    )
    place = memory.position()
    assert memory.arrived(log.key, place, ((1, 12),)) == Arrived((), place)
    for seq in (5, 3, 8, 9, 11):
        memory.complete_payload(log.key, seq, b"%d" % seq)
    memory.put_entries(other.key, [other.add(1)], source="peer")
    now = memory.position()
    # Between 3 and 5 all is held, between 9 and 11 it is not.
    assert memory.arrived(log.key, place, ((1, 12),)) == Arrived(((3, 5), (8, 9), (11, 11)), now)
    assert memory.arrived(log.key, place, ((5, 8), (11, 99))).runs == ((5, 5), (8, 8), (11, 11))
    assert memory.arrived(log.key, place + 2, ((1, 12),)).runs == ((8, 9), (11, 11))
    memory.drop(log.key, 8, 8)
    assert memory.arrived(log.key, place, ((7, 10),)).runs == ((9, 9),)
    assert memory.arrived(LogKey(bytes(32), 0), 0, ((1, 9),)).runs == ()


def test_of_a_long_feed_a_part_is_looked_at_each_time(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_STEPS_MAX", 3)
    log = AuthorLog()
    memory.put_entries(log.key, log.add_all(range(1, 9)), source="peer")
    found: list[tuple[int, int]] = []
    after = 0
    while True:
        part = memory.arrived(log.key, after, ((1, 99),))
        found += part.runs
        after = part.up_to
        if part.complete:
            break
    assert (found, after) == ([(1, 3), (4, 6), (7, 8)], memory.position())


def test_more_logs_than_a_page_holds_are_listed_in_order(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logstore.view._PAGE_ROWS", 3)
    logs = [AuthorLog(number, log_id) for number in (1, 2, 3) for log_id in (0, 5, 2**64 - 1)]
    for log in logs:
        memory.put_entries(log.key, [log.add(1), log.add(2)], source="peer")
        memory.put_entries(log.key, [log.make(2, b"fork")], source="peer")
    keys = sorted(log.key for log in logs)
    assert [info.key for info in memory.logs()] == keys
    assert [fork.key for fork in memory.forks()] == keys
    author = logs[4].key.author
    assert [i.key for i in memory.logs(author)] == [key for key in keys if key.author == author]


def test_follows_are_remembered(store: Store) -> None:
    log = AuthorLog(log_id=3)
    assert store.follow(log.key)
    assert not store.follow(log.key)
    assert store.follow(log.key.author)
    assert store.follow(ALL)
    assert store.path is not None
    with Store.open(store.path) as again:
        assert again.follows() == [ALL, log.key.author, log.key]
        assert again.unfollow(ALL)
        assert not again.unfollow(ALL)
    assert store.follows() == [log.key.author, log.key]
    with pytest.raises(ValueError, match="32 bytes"):
        store.follow(b"short")


def test_small_values_are_remembered(memory: Store) -> None:
    memory.remember("peer/a", b"1")
    memory.remember("peer/b", b"2")
    memory.remember("peer/b", b"3")
    memory.remember("other", b"4")
    assert memory.recall("peer/b") == b"3"
    assert memory.recall("peer") is None
    assert memory.recall_all("peer/") == {"peer/a": b"1", "peer/b": b"3"}
    memory.remember("peer/a", None)
    assert memory.recall_all("peer/") == {"peer/b": b"3"}


def test_statistics_are_sums(memory: Store) -> None:
    log = AuthorLog()
    memory.put_entries(log.key, [log.add(1), log.add(2, held=False)], source="peer")
    memory.append([b"own"])
    found = memory.statistics()
    assert (found.logs, found.entries, found.payloads, found.missing_payloads) == (2, 3, 2, 1)
    assert found.position == 3
    assert found.forked_logs == 0


def test_threads_share_a_store(store: Store) -> None:
    log = AuthorLog()
    entries = log.add_all(range(1, 101))
    failures: list[BaseException] = []

    def guarded(work: "object") -> threading.Thread:
        def run() -> None:
            try:
                work()  # type: ignore[operator]
            except BaseException as error:  # noqa: BLE001 (reported by the test itself)
                failures.append(error)

        return threading.Thread(target=run)

    def put() -> None:
        for at in range(0, 100, 5):
            store.put_entries(log.key, entries[at : at + 5], source="peer")

    def append() -> None:
        for _ in range(20):
            store.append([b"a"], log_id=1)

    def read() -> None:
        for _ in range(50):
            found = store.read(log.key, 1, entries_max=1000, bytes_max=1 << 20, with_payload=False)
            assert [e.seq for e in found] == list(range(1, len(found) + 1))
            assert len(found) % 5 == 0

    threads = [guarded(work) for work in (put, append, append, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.log(LogKey(store.author, 1)).height == 40  # type: ignore[union-attr]
    assert isinstance(entries[0], NewEntry)


def test_the_work_of_a_call_does_not_grow_with_the_store(memory: Store) -> None:
    """Counted in steps of SQLite's machine, on top of 100 and of 20,000 entries."""
    log, tail = AuthorLog(), AuthorLog(2)
    foreign = log.add_all(range(1, 257))
    steps: list[int] = []

    def count_steps(event: dict[str, dict[str, int]]) -> None:
        steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

    def measure(log_id: int) -> list[int]:
        db = memory._database._open_writer()
        results = []
        there = AuthorLog(3, log_id)
        there_entries = there.add_all(range(1, 257))
        for work in (
            lambda: memory.append([b"x"] * 100),
            lambda: memory.put_entries(there.key, there_entries[:128], source="peer"),
            lambda: memory.put_entries(there.key, there_entries[128:], source="peer"),
            lambda: memory.put_entries(there.key, there_entries, source="peer"),
            lambda: memory.read(
                log.key, 100, entries_max=100, bytes_max=1 << 20, with_payload=False
            ),
            lambda: memory.changes(50, 20),
            lambda: memory.changed_logs(memory.position() - 1),
            lambda: memory.changed_infos(memory.position() - 1),
            lambda: memory.missing_payloads(log.key, limit=1),
        ):
            steps.clear()
            db.trace_v2(0x02, count_steps)  # SQLITE_TRACE_PROFILE
            work()
            db.trace_v2(0, None)
            results.append(sum(steps))
        return results

    memory.put_entries(log.key, foreign, source="peer")
    memory.put_entries(tail.key, tail.add_all([1]), source="peer")
    small = measure(10)
    memory.append([b"x"] * 20_000)
    large = measure(11)
    assert all(after <= before * 1.15 + 5 for before, after in zip(small, large, strict=True)), (
        small,
        large,
    )


def test_a_snapshot_is_of_one_moment_for_its_thread_alone(store: Store) -> None:
    key = store.append([b"a"])[0].key
    seen: list[int] = []
    with store.snapshot():
        seen.extend(info.height for info in store.logs())
        thread = threading.Thread(target=lambda: seen.append(store.append([b"b"])[0].seq))
        thread.start()
        thread.join()
        with store.snapshot():
            seen.extend(info.height for info in store.logs())
        assert store.entry(key, 2) is None
    assert seen == [1, 2, 1]
    assert store.entry(key, 2) is not None


def test_a_connection_that_failed_inside_a_snapshot_is_not_kept(store: Store) -> None:
    key = store.append([b"a"])[0].key
    with store.snapshot():
        with suppress(StoreDamaged), store._database.read():
            raise ValueError
        with store._database.read() as failed:
            pass
        assert store.entry(key, 1) is not None
    with store._database.read() as db:
        assert db is not failed
    with store.snapshot(), store._database.read() as again:
        assert again is db
    with store._database.read() as kept:
        assert kept is again


def test_a_failure_that_ends_a_snapshot_costs_no_later_connection(store: Store) -> None:
    key = store.append([b"a"])[0].key
    with suppress(StoreDamaged), store.snapshot(), store._database.read():
        raise ValueError
    with store._database.read() as db:
        pass
    assert store.entry(key, 1) is not None
    with store._database.read() as again:
        assert again is db
