"""What a session is told of a log."""

from itertools import pairwise
from typing import Any

import pytest

from logstore import NewEntry, Store
from peer import LogView, LookUp
from peer.node.host.reading import RUNS_NAMED, look_up
from peer.protocol.commands import MISSING_NAMED
from wire import LogKey, decode_entry, lipmaa, lower_pool

from .support import Author

SIZE = 200_000


def test_a_payload_whose_bytes_are_all_there_but_unproved_begins_anew() -> None:
    """No request may begin at the end of a payload (point2point.md 3)."""
    with Store.memory() as author, Store.memory() as replica:
        [appended] = author.append([b"x" * SIZE])
        held = author.entry(appended.key, 1)
        assert held is not None
        entry = decode_entry(held.encoded)
        replica.put_entries(
            appended.key, [NewEntry(1, held.encoded, held.hash, None)], source="test"
        )
        for written, resumes_at in ((SIZE // 2, SIZE // 2), (SIZE, 0)):
            with replica.payload_sink(
                appended.key, 1, SIZE, entry.payload_hash, source="test"
            ) as sink:
                sink.write(b"x" * (written - sink.offset))
            view = look_up(replica, LookUp(1, appended.key), ()).view
            assert view.tail_partial_bytes == resumes_at


def replica_of(count: int, held: list[int], without: set[int]) -> tuple[Store, LogKey]:
    """A store that holds these entries of a log, some of them without their payloads."""
    author, store = Author(1), Store.memory()
    for seq in range(1, count + 1):
        author.sign(seq, b"%d" % seq)
    store.put_entries(
        author.log,
        [
            NewEntry(
                seq,
                author.encoded[seq],
                author.hash(seq),
                None if seq in without else b"%d" % seq,
            )
            for seq in held
        ],
        source="test",
    )
    return store, author.log


def missing_in(view: LogView) -> list[int]:
    """The entries whose payloads a view names as missing."""
    runs = view.missing_payloads
    assert all(one[1] + 1 < other[0] for one, other in pairwise(runs))
    return [seq for first, last in runs for seq in range(first, last + 1)]


def view_of(store: Store, log: LogKey, **asked: object) -> LogView:
    return look_up(store, LookUp(1, log, **asked), ()).view  # type: ignore[arg-type]


def test_a_full_log_is_one_run() -> None:
    store, log = replica_of(5, list(range(1, 6)), set())
    with store:
        view = view_of(store, log, held=(2, 5))
        assert (view.runs, view.runs_complete, view.range_held) == (((1, 5),), True, True)
        assert view_of(store, log, runs_from=6).runs == ()
        assert not view_of(store, log, held=(5, 6)).range_held
        assert view_of(store, LogKey(bytes(32), 0)).runs == ()


def test_a_view_names_runs_that_end_at_or_behind_a_number() -> None:
    held = sorted({*lower_pool(40), *lower_pool(21), 22, 23})
    store, log = replica_of(40, held, set())
    with store:
        view = view_of(store, log, held=(21, 23))
        assert view.runs == ((1, 1), (4, 4), (13, 13), (17, 17), (21, 23), (40, 40))
        assert (view.height, view.newest, view.range_held) == (1, 40, True)
        assert view_of(store, log, runs_from=22).runs == ((21, 23), (40, 40))
        assert not view_of(store, log, held=(17, 21)).range_held


def test_a_view_names_some_runs_and_says_that_there_are_more() -> None:
    steps_of_4 = [seq for seq in range(5, 401) if lipmaa(seq) == seq - 4]
    store, log = replica_of(400, sorted({n for seq in steps_of_4 for n in lower_pool(seq)}), set())
    with store:
        every = store.runs(log, limit=999)
        assert len(every) > RUNS_NAMED
        view = view_of(store, log)
        assert (view.runs, view.runs_complete) == (tuple(every[:RUNS_NAMED]), False)
        last = view_of(store, log, runs_from=every[-2][0])
        assert (last.runs, last.runs_complete) == (tuple(every[-2:]), True)


@pytest.mark.parametrize(
    ("asked", "tail", "missing"),
    [
        ({}, 0, [2, 10, 13, 40]),
        ({"missing_above": 2}, 0, [10, 13, 40]),
        ({"missing_above": 12}, 0, [13, 40]),
        ({"missing_above": 40}, 0, []),
        ({"missing_of_newest": 31}, 0, [10, 13, 40]),
        ({"missing_of_newest": 30}, 0, [13, 40]),
        ({"missing_of_newest": 38, "missing_above": 10}, 0, [13, 40]),
        ({"max_bytes": 1}, 0, [2]),
        ({"min_bytes": 2}, None, [10, 13, 40]),
        ({"max_bytes": -1}, None, []),
        ({"max_bytes": -1, "any_size": ((2, 5),)}, 0, [2]),
        ({"missing_of_newest": 3, "any_size": ((5, 5),)}, 0, [40]),
        ({"missing_of_newest": 3, "any_size": ((2, 4),)}, 0, [2, 40]),
        ({"missing_of_newest": 3, "any_size": ((2, 5),), "missing_max": 1}, 0, [2]),
    ],
)
def test_payloads_are_missing_in_all_runs_and_of_the_sizes_asked_for(
    asked: dict[str, Any], tail: int | None, missing: list[int]
) -> None:
    """The newest entry of the first run is told apart."""
    held = sorted({*range(1, 6), *range(8, 14), 40} | {*lower_pool(8)})
    store, log = replica_of(40, held, {2, 5, 10, 13, 40})
    with store:
        view = view_of(store, log, **asked)
        assert view.height == 5
        assert view.tail_partial_bytes == tail
        assert missing_in(view) == missing


def test_payloads_that_are_arriving_are_left_to_who_receives_them() -> None:
    store, log = replica_of(9, list(range(1, 10)), {2, 5, 9})
    with store:
        for arriving in ({(log, 5)}, {(log, 5), (log, 9)}):
            for leave in (False, True):
                view = look_up(store, LookUp(1, log, leave_arriving=leave), arriving).view
                assert missing_in(view) == ([2] if leave else [2, 5])
                assert view.tail_partial_bytes == 0
                assert view.tail_arriving == ((log, 9) in arriving)
                assert view.some_arriving == (leave or view.tail_arriving)


def test_a_tail_behind_many_missing_payloads_is_told() -> None:
    count = MISSING_NAMED + 9
    store, log = replica_of(count, list(range(1, count + 1)), set(range(1, count + 1)))
    with store:
        view = view_of(store, log)
        assert view.tail_partial_bytes == 0
        assert missing_in(view) == list(range(1, MISSING_NAMED + 1))
        assert view.unnamed_above == MISSING_NAMED
        # All of those it would name are left out, and there are more behind them.
        arriving = {(log, seq) for seq in range(1, MISSING_NAMED + 1)}
        left = look_up(store, LookUp(1, log, leave_arriving=True), arriving).view
        assert (left.missing_payloads, left.unnamed_above) == ((), MISSING_NAMED)
        behind = view_of(store, log, missing_above=MISSING_NAMED)
        assert missing_in(behind) == list(range(MISSING_NAMED + 1, count))
        assert behind.unnamed_above is None


@pytest.mark.parametrize("more", [0, 1, 5])
def test_a_tail_before_many_missing_payloads_hides_none_of_them(more: int) -> None:
    """It is among the first ones that the store names, and not among those that a view names."""
    last = 11 + MISSING_NAMED + more
    held = [1, 4, *range(13, last + 1)]
    assert len(held) == 1 + MISSING_NAMED + more
    store, log = replica_of(last, held, set(held))
    with store:
        for any_size in ((), ((1, last),)):
            view = view_of(store, log, any_size=any_size)
            assert (view.height, view.tail_partial_bytes) == (1, 0)
            assert missing_in(view) == held[1 : 1 + MISSING_NAMED]
            assert view.unnamed_above == (held[MISSING_NAMED] if more else None)


def test_a_deleted_payload_is_missing_once_it_is_fetched_again() -> None:
    store, log = replica_of(5, list(range(1, 6)), set())
    with store:
        store.drop(log, 2, 5)
        assert view_of(store, log).missing_payloads == ()
        assert view_of(store, log).tail_partial_bytes is None
        store.want(log, 3, 5)
        assert missing_in(view_of(store, log)) == [3, 4]
        assert view_of(store, log).tail_partial_bytes == 0
