"""Partial replicas: whatever can be verified is taken in, in any order (bamboo.md Verified)."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import EntryRejected, LogVerdict, NewEntry, PolicyKind, Shortfall, Store, Subscription
from tests.logstore.authors import AuthorLog
from wire import lipmaa, lower_pool, shortest_path, upper_pool

LOG = AuthorLog(1)
ENTRIES = {entry.seq: entry for entry in LOG.add_all(range(1, 122))}
ROOT = Path(__file__).resolve().parents[2]


def put(store: Store, *seqs: int, payloads: bool = True) -> None:
    entries = [ENTRIES[seq] for seq in seqs]
    if not payloads:
        entries = [NewEntry(e.seq, e.encoded, e.hash) for e in entries]
    store.put_entries(LOG.key, entries, source="peer")


def runs(store: Store) -> list[tuple[int, int]]:
    return store.runs(LOG.key, limit=1000)


def is_sound(store: Store) -> bool:
    return all(isinstance(found, LogVerdict) for found in store.verify())


@given(start=st.integers(1, 121), length=st.integers(1, 40))
def test_a_closed_range_comes_as_the_protocol_sends_it(start: int, length: int) -> None:
    """The lower pool of its start, the range, the upper pool of its end (point2point.md 3)."""
    end = min(start + length - 1, 121)
    with Store.memory() as store:
        for seq in sorted(lower_pool(start)):
            put(store, seq, payloads=False)
        for seq in range(start, end + 1):
            put(store, seq)
        for seq in sorted(upper_pool(end)):
            put(store, seq, payloads=False)
        assert store.is_held(LOG.key, start, end)
        wanted = Subscription(PolicyKind.RANGE, first=start, last=end)
        assert store.shortfall(LOG.key, wanted).entries == 0
        assert is_sound(store)


@given(end=st.integers(1, 121), start=st.integers(1, 121))
def test_a_path_comes_alone(end: int, start: int) -> None:
    start, end = min(start, end), max(start, end)
    with Store.memory() as store:
        put(store, *lower_pool(start), payloads=False)
        put(store, *shortest_path(end, start))
        info = store.log(LOG.key)
        assert info is not None
        assert info.newest == end
        assert info.entries == len({*lower_pool(start), *shortest_path(end, start)})
        assert is_sound(store)


@given(st.randoms(use_true_random=False))
def test_gaps_are_filled_in_any_order_that_can_be_verified(rng: random.Random) -> None:
    """From above, from below and in the middle; each step has a path of what is held."""
    held: set[int] = set()
    with Store.memory() as store:
        while len(held) < 60:
            ready = [
                seq
                for seq in range(1, 62)
                if seq not in held and (seq == 1 or {seq - 1, lipmaa(seq)} & held)
            ]
            seq = rng.choice(ready)
            put(store, seq)
            held.add(seq)
        expected = [
            (first, next(n for n in range(first, 200) if n + 1 not in held))
            for first in sorted(held)
            if first - 1 not in held
        ]
        assert runs(store) == expected
        info = store.log(LOG.key)
        assert info is not None
        assert (info.entries, info.height, info.newest) == (60, expected[0][1], max(held))


def test_an_entry_without_a_path_is_refused(memory: Store) -> None:
    put(memory, *lower_pool(40))
    for seq in (38, 39, 42, 54):
        with pytest.raises(EntryRejected, match="no path to entry 1"):
            put(memory, seq)
    assert runs(memory) == [(1, 1), (4, 4), (13, 13), (40, 40)]
    put(memory, 41)
    assert runs(memory)[-1] == (40, 41)


def test_two_runs_become_one(memory: Store) -> None:
    put(memory, *range(1, 5), *range(13, 17))
    assert runs(memory) == [(1, 4), (13, 16)]
    put(memory, 5, 6)
    put(memory, *range(8, 13))
    assert runs(memory) == [(1, 6), (8, 16)]
    put(memory, 7)
    assert runs(memory) == [(1, 16)]
    assert memory.log(LOG.key).height == 16  # type: ignore[union-attr]


def test_what_is_missing_of_what_is_wanted(memory: Store) -> None:
    put(memory, *lower_pool(40), payloads=False)
    put(memory, *lower_pool(31), payloads=False)
    put(memory, 39, 40)
    assert runs(memory) == [(1, 1), (4, 4), (13, 13), (26, 26), (30, 31), (39, 40)]
    for policy, expected in (
        ("full", Shortfall(32, 6)),
        ("metadata", Shortfall(32, 0)),
        ("sparse", Shortfall(0, 3)),
        ("latest:2", Shortfall(0, 0)),
        ("latest:10", Shortfall(7, 1)),
        ("range:27..30", Shortfall(3, 1)),
        ("range:39..50", Shortfall(0, 0)),
        ("range:41..50", Shortfall(0, 0)),
    ):
        assert memory.shortfall(LOG.key, Subscription.parse(policy)) == expected, policy


PUTTER = """
import sys
from logstore import NewEntry, Store
from tests.logstore.test_partial import ENTRIES, LOG
with Store.open(sys.argv[1]) as store:
    for line in sys.stdin:
        store.put_entries(LOG.key, [ENTRIES[int(line)]], source="peer")
"""


def test_processes_that_fill_a_log_from_several_places_agree_on_its_runs(store: Store) -> None:
    """Each one extends a run of its own, downwards in the end of one and the start of another."""
    starts = (14, 40, 80)
    for start in starts:
        put(store, *lower_pool(start))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PUTTER, str(store.path)],
            stdin=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for _ in starts
    ]
    for start, process in zip(starts, processes, strict=True):
        process.stdin.write("".join(f"{seq}\n" for seq in range(start + 1, start + 20)))  # type: ignore[union-attr]
        process.stdin.close()  # type: ignore[union-attr]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    held = {seq for start in starts for seq in (*lower_pool(start), *range(start, start + 20))}
    assert store.log(LOG.key).entries == len(held)  # type: ignore[union-attr]
    assert all(store.is_held(LOG.key, start, start + 19) for start in starts)
    assert is_sound(store)
