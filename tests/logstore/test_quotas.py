"""How much other people's logs may take of the disk (doors.md 4). logstore/quotas.py, stale.py."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logstore import (
    ALL,
    NewEntry,
    PayloadBusy,
    PayloadFile,
    PayloadState,
    QuotaLimits,
    Store,
    StoreOverQuota,
    System,
)
from logstore.brought import UNDECIDED_MAX
from tests.logstore.authors import AuthorLog, signing_key
from tests.payload_files import payload_files
from wire import LogKey, yamf_hash

PEER, OTHER = b"p" * 32, b"o" * 32
LARGE = 100_000
"""Of payloads that go to files."""


class Disk(System):
    """A disk of a size that a test says."""

    size, free = 0, 0

    def disk_bytes(self, path: Path) -> int:
        return self.size

    def free_bytes(self, path: Path) -> int:
        return self.free


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def store(tmp_path: Path, disk: Disk) -> Iterator[Store]:
    key = signing_key(99)
    with Store.create(tmp_path / "store", signing_key=key, system=disk) as made:
        made.follow(ALL)
        yield made


def bring(
    store: Store, log: AuthorLog, entries: list[NewEntry], giver: bytes | None = PEER
) -> tuple[int, str | None]:
    """How many entries were stored, and the limit that the next one was over."""
    (result,) = store.put_many([(log.key, entries)], source="peer", giver=giver)
    return result.stored, None if result.over_quota is None else result.over_quota.key


def begin(store: Store, log: AuthorLog, seq: int, size: int, giver: bytes | None = PEER) -> object:
    """Begins a payload that goes to a file, of which nothing comes."""
    sink = store.payload_sink(
        log.key, seq, size, yamf_hash(b"%d" % seq), source="peer", giver=giver
    )
    sink.write(b"x")
    sink.suspend()
    return sink


def held(store: Store, key: LogKey) -> int:
    found = store.log(key)
    return 0 if found is None else found.bytes


def test_an_author_who_is_not_followed_by_name_fills_his_quota_and_no_more(store: Store) -> None:
    store.set_quotas(QuotaLimits(author_bytes=10_000))
    log = AuthorLog()
    entries = log.add_all(range(1, 101))
    stored, over = bring(store, log, entries)
    assert over == "author-bytes"
    taken = entries[: stored + 1]
    size = sum(len(each.encoded) + len(cast("bytes", each.payload)) for each in taken)
    assert held(store, log.key) <= 10_000 < size
    assert bring(store, log, entries[stored:]) == (0, "author-bytes")
    # What is held stays, and is no news.
    assert bring(store, log, entries[:stored]) == (0, None)
    # Another log of the same author is his as well; another author's is not.
    assert bring(store, AuthorLog(log_id=1), AuthorLog(log_id=1).add_all(range(1, 3)))[0] < 2
    assert bring(store, AuthorLog(2), AuthorLog(2).add_all(range(1, 11))) == (10, None)


@pytest.mark.parametrize("by", ["author", "log", "fetch", "own", "import"])
def test_who_is_asked_for_by_name_has_no_quota(store: Store, by: str) -> None:
    store.set_quotas(QuotaLimits(author_bytes=1000, peer_bytes=1000))
    log = AuthorLog(99 if by == "own" else 1)
    giver: bytes | None = PEER
    match by:
        case "author":
            store.follow(log.key.author)
        case "log":
            store.follow(log.key)
        case "fetch":
            store.want(log.key, 1, 100)
        case "import":
            giver = None
        case _:
            pass
    assert bring(store, log, log.add_all(range(1, 51)), giver) == (50, None)
    begin(store, log, 51, LARGE, giver)


def test_it_goes_for_who_is_unfollowed_from_then_on(store: Store) -> None:
    log = AuthorLog()
    store.set_quotas(QuotaLimits(author_bytes=1000))
    store.follow(log.key.author)
    assert bring(store, log, log.add_all(range(1, 21))) == (20, None)
    store.unfollow(log.key.author)
    assert bring(store, log, log.add_all(range(21, 31))) == (0, "author-bytes")
    assert held(store, log.key) > 1000


def test_a_peer_brings_so_much_of_any_authors(store: Store) -> None:
    store.set_quotas(QuotaLimits(peer_bytes=5000))
    stored = [bring(store, log, log.add_all(range(1, 6))) for log in map(AuthorLog, range(1, 9))]
    assert stored[0] == (5, None)
    assert stored[-1] == (0, "peer-bytes")
    late = AuthorLog(20)
    assert bring(store, late, late.add_all(range(1, 6)), OTHER) == (5, None)
    # Dropping it gives no room to who brought it.
    for number in range(1, 9):
        store.drop(AuthorLog(number).key)
    assert bring(store, AuthorLog(21), AuthorLog(21).add_all(range(1, 2))) == (0, "peer-bytes")


def test_what_a_peer_brought_is_known_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "store"
    log = AuthorLog()
    with Store.create(path) as store:
        store.follow(ALL)
        store.set_quotas(QuotaLimits(peer_bytes=2000))
        _, over = bring(store, log, log.add_all(range(1, 21)))
        assert over == "peer-bytes"
    with Store.open(path) as store:
        store.set_quotas(QuotaLimits(peer_bytes=2000))
        assert bring(store, AuthorLog(2), AuthorLog(2).add_all([1, 2])) == (0, "peer-bytes")
        assert bring(store, AuthorLog(2), AuthorLog(2).add_all([1, 2]), OTHER) == (2, None)


def test_what_a_peer_brought_is_forgotten_with_the_peer(store: Store) -> None:
    store.set_quotas(QuotaLimits(peer_bytes=2000))
    store.peers.allow(PEER)
    first, second = AuthorLog(), AuthorLog(2)
    assert bring(store, first, first.add_all(range(1, 21)))[1] == "peer-bytes"
    # Who is blocked is still known.
    store.peers.block(PEER)
    store.peers.allow(PEER)
    assert bring(store, second, second.add_all([1, 2])) == (0, "peer-bytes")
    store.peers.remove(PEER)
    assert store.recall(f"brought/{PEER.hex()}") is None
    store.peers.allow(PEER)
    assert bring(store, second, second.add_all([1, 2])) == (2, None)


def test_of_ids_that_nobody_has_decided_those_who_brought_least_give_way(store: Store) -> None:
    """Ids cost nothing to make."""
    store.set_quotas(QuotaLimits(peer_bytes=1 << 20))
    log = AuthorLog()
    entries = iter(log.add_all(range(1, UNDECIDED_MAX + 20)))
    others = [number.to_bytes(32, "big") for number in range(1, UNDECIDED_MAX + 2)]

    def counted() -> set[bytes]:
        ids = (PEER, OTHER, b"", *others)
        return {each for each in ids if store.recall(f"brought/{each.hex()}") is not None}

    store.peers.allow(PEER)
    for giver in (PEER, b"", OTHER, OTHER):
        bring(store, log, [next(entries)], giver)
    for giver in others[: UNDECIDED_MAX - 1]:
        bring(store, log, [next(entries)], giver)
    assert counted() == {PEER, OTHER, b"", *others[: UNDECIDED_MAX - 1]}
    for giver in others[UNDECIDED_MAX - 1 :]:
        bring(store, log, [next(entries)], giver)
        found = counted()
        assert len(found) == UNDECIDED_MAX + 2
        assert found >= {PEER, OTHER, b"", giver}


def test_peers_without_an_id_share_one_quota(store: Store) -> None:
    store.set_quotas(QuotaLimits(peer_bytes=1000))
    for number in range(1, 9):
        bring(store, AuthorLog(number), AuthorLog(number).add_all([1]), b"")
    assert bring(store, AuthorLog(9), AuthorLog(9).add_all([1]), b"") == (0, "peer-bytes")


@pytest.mark.parametrize("limit", ["author_bytes", "peer_bytes", "store_bytes"])
def test_a_payload_counts_as_declared_before_its_first_byte(store: Store, limit: str) -> None:
    store.set_quotas(QuotaLimits(**{limit: 3 * LARGE}))
    log = AuthorLog()
    begin(store, log, 1, LARGE)
    begin(store, log, 2, LARGE)
    with pytest.raises(StoreOverQuota) as raised:
        begin(store, log, 3, LARGE + 1)
    assert raised.value.over.key == limit.replace("_", "-")
    assert (raised.value.over.log, raised.value.over.seq) == (log.key, 3)
    begin(store, log, 3, LARGE)
    with pytest.raises(StoreOverQuota):
        begin(store, log, 4, LARGE)
    # Whoever may begin may end, whoever goes on with it.
    begin(store, log, 1, LARGE, OTHER)
    # What is given up counts no more.
    store.drop(log.key)
    begin(store, log, 3, LARGE)


def due(entry: NewEntry) -> NewEntry:
    """An entry whose payload is on its way."""
    return entry._replace(due_bytes=LARGE)


@pytest.mark.parametrize("limit", ["author_bytes", "peer_bytes", "store_bytes"])
def test_no_log_begins_with_a_payload_that_there_is_no_room_for(store: Store, limit: str) -> None:
    store.set_quotas(QuotaLimits(**{limit: LARGE}))
    log = AuthorLog()
    one, two, three = (log.add(seq, b"x" * LARGE, held=False) for seq in (1, 2, 3))
    assert bring(store, log, [due(one), due(two)]) == (0, limit.replace("_", "-"))
    assert store.log(log.key) is None
    # Without it there is room, and a log goes on behind what it lacks.
    assert bring(store, log, [one]) == (1, None)
    assert bring(store, log, [due(one), due(two), due(three)]) == (2, None)


def test_a_payload_that_a_log_begins_with_counts_once(store: Store) -> None:
    store.set_quotas(QuotaLimits(author_bytes=LARGE + 1000))
    log = AuthorLog()
    begin(store, log, 1, LARGE)
    entry = log.make(1, payload_bytes=LARGE, payload_hash=yamf_hash(b"1"), held=False)
    assert bring(store, log, [due(entry)]) == (1, None)


def test_a_log_that_is_named_begins_without_its_payload(store: Store) -> None:
    store.set_quotas(QuotaLimits(author_bytes=1000, store_bytes=1000))
    log = AuthorLog()
    store.follow(log.key)
    assert bring(store, log, [due(log.make(1, held=False))]) == (1, None)


def test_a_giant_size_is_refused_at_once(store: Store) -> None:
    store.set_quotas(QuotaLimits())
    with pytest.raises(StoreOverQuota):
        begin(store, AuthorLog(), 1, 1 << 63)
    assert store.statistics().partial_payloads == 0


def test_a_payload_that_ends_counts_once(store: Store) -> None:
    store.set_quotas(QuotaLimits(author_bytes=2 * LARGE, peer_bytes=2 * LARGE))
    log, payload = AuthorLog(), bytes(LARGE)
    assert bring(store, log, [log.add(1, payload, held=False)]) == (1, None)
    sink = store.payload_sink(log.key, 1, LARGE, yamf_hash(payload), source="peer", giver=PEER)
    sink.write(payload)
    whole = sink.finish()
    assert isinstance(whole, PayloadFile)
    assert store.complete_payload(log.key, 1, whole, giver=PEER)
    begin(store, log, 2, LARGE - 1000)
    with pytest.raises(StoreOverQuota):
        begin(store, log, 3, LARGE)


def test_a_small_payload_that_comes_late_is_judged_when_it_is_stored(store: Store) -> None:
    log, payload = AuthorLog(), b"x" * 60_000
    entries = [log.add(seq, payload, held=False) for seq in (1, 2)]
    store.set_quotas(QuotaLimits(author_bytes=70_000))
    assert bring(store, log, entries) == (2, None)
    assert store.complete_payload(log.key, 1, payload, giver=PEER)
    with pytest.raises(StoreOverQuota):
        store.complete_payload(log.key, 2, payload, giver=PEER)
    entry = store.entry(log.key, 2)
    assert entry is not None
    assert entry.payload_state is PayloadState.MISSING


@pytest.mark.parametrize(("said", "kept"), [(None, 1 << 30), (5 * LARGE, 5 * LARGE)])
def test_so_much_of_the_disk_stays_free(
    store: Store, disk: Disk, said: int | None, kept: int
) -> None:
    disk.size, disk.free = 100 << 30, kept + 2 * LARGE
    store.set_quotas(QuotaLimits(author_bytes=None, peer_bytes=None, free_bytes=said))
    log = AuthorLog()
    store.follow(log.key)  # by name: the disk knows no names
    begin(store, log, 1, LARGE)
    begin(store, log, 2, LARGE)
    # What is to be written of these is spoken for.
    with pytest.raises(StoreOverQuota) as raised:
        begin(store, log, 3, LARGE)
    assert raised.value.over.key == "free-bytes"
    assert bring(store, log, log.add_all([1, 2])) == (0, "free-bytes")
    # One's own entries may use the last of it.
    store.append([bytes(70_000), b"own"])


def test_on_a_small_disk_a_twentieth_stays_free(store: Store, disk: Disk) -> None:
    disk.size, disk.free = 1 << 30, (1 << 30) // 20 + LARGE
    store.set_quotas(QuotaLimits())
    log = AuthorLog()
    store.follow(log.key)
    begin(store, log, 1, LARGE)
    with pytest.raises(StoreOverQuota):
        begin(store, log, 2, LARGE)


def test_a_disk_that_does_not_say_how_large_it_is_has_no_rule(store: Store, disk: Disk) -> None:
    disk.size = 0
    store.set_quotas(QuotaLimits())
    begin(store, AuthorLog(), 1, LARGE)


def test_two_processes_do_not_both_take_the_last_room(tmp_path: Path) -> None:
    path = tmp_path / "store"
    first_log, second_log = AuthorLog(1), AuthorLog(2)
    with Store.create(path) as first, Store.open(path) as second:
        for each in (first, second):
            each.set_quotas(QuotaLimits(store_bytes=6000))
        stored = 0
        for seq in range(1, 20):
            stored += bring(first, first_log, [first_log.add(seq)])[0]
            stored += bring(second, second_log, [second_log.add(seq)])[0]
        assert held(first, first_log.key) + held(first, second_log.key) <= 6000
        assert stored > 10


COUNTS = st.integers(1, 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), COUNTS, COUNTS, st.integers(0, 3000)),
        st.tuples(st.just("begin"), COUNTS, COUNTS, st.integers(65_537, 90_000)),
        st.tuples(st.just("drop"), COUNTS, COUNTS, st.just(0)),
        st.tuples(st.just("fail"), COUNTS, COUNTS, st.just(0)),
        st.tuples(st.just("own"), COUNTS, COUNTS, st.integers(1, 2000)),
    ),
    max_size=25,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, author_max=st.integers(0, 250_000), store_max=st.integers(0, 400_000))
def test_no_sum_is_ever_passed(
    steps: list[tuple[str, int, int, int]], author_max: int, store_max: int
) -> None:
    """Counted anew from the store after each step; what is refused would not have fitted."""
    logs = {(a, n): AuthorLog(a, n) for a in range(1, 5) for n in range(1, 5)}
    with Store.memory(signing_key=signing_key(99)) as store:
        store.set_quotas(
            QuotaLimits(author_bytes=author_max, peer_bytes=None, store_bytes=store_max)
        )
        parts: dict[tuple[LogKey, int], int] = {}

        def used(author: bytes | None) -> int:
            found = sum(info.bytes for info in store.logs() if author in (None, info.key.author))
            return found + sum(
                size for (key, _), size in parts.items() if author in (None, key.author)
            )

        own = 0
        for what, number, log_id, size in steps:
            log = logs[number, log_id]
            author = log.key.author
            match what:
                case "put":
                    entry = log.make(len(log.entries) + 1, b"p" * size)
                    room = min(author_max - used(author), store_max - used(None))
                    stored, over = bring(store, log, [entry])
                    fits = len(entry.encoded) + size <= room
                    assert (stored == 1) is fits is (over is None)
                    if stored:
                        log.entries[entry.seq] = entry
                case "begin":
                    seq = len(log.entries) + 1
                    room = min(author_max - used(author), store_max - used(None))
                    try:
                        begin(store, log, seq, size)
                    except StoreOverQuota:
                        assert size > room
                    except PayloadBusy:
                        pass
                    else:
                        known = parts.get((log.key, seq))
                        assert known == size or size <= room
                        # The same entry under another size is another payload, in a file too.
                        parts[log.key, seq] = size + (known or 0) * (known != size)
                case "drop":
                    store.drop(log.key)
                    parts = {at: n for at, n in parts.items() if at[0] != log.key}
                case "fail":
                    wrong = log.make(3, b"wrong", backlink=yamf_hash(b"?"))
                    bring(store, log, [wrong])
                case _:
                    store.append([b"o" * size])
                    own = held(store, LogKey(store.author, 0))
            assert used(author) <= author_max
            assert used(None) - own <= store_max


def test_parts_that_nobody_goes_on_with_go_away(store: Store) -> None:
    store.set_quotas(QuotaLimits(author_bytes=2 * LARGE))
    log = AuthorLog()
    begin(store, log, 1, LARGE)
    begin(store, log, 2, LARGE)
    assert store.path is not None
    files = payload_files(store.path)
    assert len(files) == 2
    os.utime(files[0], (1000, 1000))
    assert store.drop_stale(3600) == 1
    assert not files[0].exists()
    assert files[1].exists()
    assert store.statistics().partial_payloads == 1
    begin(store, log, 3, LARGE)


def test_a_part_that_somebody_is_at_is_not_stale(store: Store) -> None:
    log = AuthorLog()
    sink = store.payload_sink(log.key, 1, LARGE, yamf_hash(b"?"), source="peer")
    assert store.path is not None
    (file,) = (path for path in (store.path / "payloads").rglob("*") if path.is_file())
    os.utime(file, (1000, 1000))
    assert store.drop_stale(3600) == 0
    sink.write(b"x")
    sink.suspend()
    assert store.drop_stale(3600) == 0


def test_logs_of_one_transaction_share_what_the_disk_has_left(store: Store, disk: Disk) -> None:
    """It is asked once: each takes of what those before it have left."""
    disk.size, disk.free = 1 << 40, (1 << 30) + 10_000
    store.set_quotas(QuotaLimits(author_bytes=None, peer_bytes=None, free_bytes=1 << 30))
    logs = [AuthorLog(author) for author in range(4)]
    batches = [(log.key, [log.add(1, b"x" * 3000)]) for log in logs]
    results = store.put_many(batches, source="peer", giver=PEER)
    assert [result.stored for result in results] == [1, 1, 1, 0]
    assert results[-1].over_quota is not None
    assert results[-1].over_quota.key == "free-bytes"
    # What the disk says counts again for the next one.
    assert bring(store, logs[-1], batches[-1][1]) == (1, None)
