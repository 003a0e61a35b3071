"""Storing entries of others: logstore/foreign.py and proofs.py."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import EntryRejected, LogState, NewEntry, NotAFork, PayloadState, Store
from logstore.foreign import linking_to
from tests.logstore.authors import AuthorLog
from wire import U64_MAX, has_distinct_lipmaalink, lipmaa, lower_pool, yamf_hash


def seqs_served(store: Store, log: AuthorLog) -> list[int]:
    return [
        e.seq
        for e in store.read(log.key, 1, entries_max=10_000, bytes_max=1 << 30, with_payload=False)
    ]


def put(store: Store, log: AuthorLog, *entries: NewEntry) -> object:
    return store.put_entries(log.key, entries, source="peer")


def test_entries_in_order_are_stored_and_read_back(memory: Store) -> None:
    log = AuthorLog()
    entries = log.add_all(range(1, 51))
    result = memory.put_entries(log.key, entries, source="peer a")
    assert (result.stored, result.known, result.height, result.newest) == (50, 0, 50, 50)
    read = memory.read(log.key, 1, entries_max=100, bytes_max=1 << 20, with_payload=False)
    assert [(e.seq, e.encoded, e.hash, e.payload) for e in read] == [
        (e.seq, e.encoded, e.hash, e.payload) for e in entries
    ]
    info = memory.log(log.key)
    assert info is not None
    assert (info.entries, info.payloads, info.missing_payloads) == (50, 50, 0)
    assert info.newest_from == "peer a"
    assert info.bytes == sum(len(e.encoded) + len(e.payload or b"") for e in read)


def test_putting_the_same_again_changes_nothing(memory: Store) -> None:
    log = AuthorLog()
    entries = log.add_all(range(1, 11))
    memory.put_entries(log.key, entries, source="peer")
    position, info = memory.position(), memory.log(log.key)
    result = memory.put_entries(log.key, entries, source="another")
    assert (result.stored, result.known) == (0, 10)
    assert (memory.position(), memory.log(log.key)) == (position, info)


def test_entries_may_be_given_in_any_order(memory: Store) -> None:
    log = AuthorLog()
    entries = log.add_all(range(1, 100))
    random.Random(1).shuffle(entries)
    assert memory.put_entries(log.key, entries, source="peer").height == 99


def test_an_entry_twice_in_one_call_is_stored_once(memory: Store) -> None:
    log = AuthorLog()
    entry = log.add(1)
    result = memory.put_entries(log.key, [entry, entry], source="peer")
    assert (result.stored, result.known) == (1, 1)


def test_an_entry_without_a_path_to_entry_1_is_rejected(memory: Store) -> None:
    log = AuthorLog()
    log.add_all(range(1, 8))
    memory.put_entries(log.key, [log.entries[1], log.entries[2]], source="peer")
    with pytest.raises(EntryRejected, match="path to entry 1") as caught:
        memory.put_entries(log.key, [log.entries[6]], source="peer")
    assert (caught.value.key, caught.value.seq) == (log.key, 6)
    assert seqs_served(memory, log) == [1, 2]


def test_a_rejected_first_entry_leaves_no_log_behind(memory: Store) -> None:
    log = AuthorLog()
    log.add_all(range(1, 3))
    with pytest.raises(EntryRejected):
        memory.put_entries(log.key, [log.entries[2]], source="peer")
    assert memory.log(log.key) is None


def test_a_lower_pool_is_a_path(memory: Store) -> None:
    log = AuthorLog()
    log.add_all(range(1, 24))
    pool = sorted(lower_pool(23))
    result = memory.put_entries(log.key, [log.entries[seq] for seq in pool], source="peer")
    assert result.stored == len(pool)
    assert (result.height, result.newest) == (1, 23)
    assert seqs_served(memory, log) == pool


def test_a_filled_gap_raises_the_height_over_what_was_held(memory: Store) -> None:
    log = AuthorLog()
    log.add_all(range(1, 14))
    for seq in (1, 4, 13, 5, 6, 7, 8, 9, 10, 11, 12):
        put(memory, log, log.entries[seq])
    assert memory.log(log.key).height == 1  # type: ignore[union-attr]
    put(memory, log, log.entries[2])
    assert memory.log(log.key).height == 2  # type: ignore[union-attr]
    put(memory, log, log.entries[3])
    assert memory.log(log.key).height == 13  # type: ignore[union-attr]


def test_entries_before_the_rejected_one_are_stored(memory: Store) -> None:
    log = AuthorLog()
    entries = log.add_all(range(1, 6))
    wrong = log.make(4, backlink=yamf_hash(b"other"))
    with pytest.raises(EntryRejected, match="backlink"):
        memory.put_entries(log.key, [*entries[:3], wrong, entries[4]], source="peer")
    assert seqs_served(memory, log) == [1, 2, 3]


@pytest.mark.parametrize("link", ["backlink", "lipmaalink"])
def test_a_link_that_is_not_the_hash_of_a_held_entry_is_rejected(memory: Store, link: str) -> None:
    log = AuthorLog()
    put(memory, log, *log.add_all(range(1, 8)))
    wrong = log.make(8, **{link: yamf_hash(b"other")})  # type: ignore[arg-type]
    with pytest.raises(EntryRejected, match=link):
        put(memory, log, wrong)


@pytest.mark.parametrize(("held", "missing"), [((1, 4, 5, 8), 7), ((1, 4, 8, 9, 10, 11, 12), 7)])
def test_an_entry_that_a_held_one_contradicts_is_rejected(
    memory: Store, held: tuple[int, ...], missing: int
) -> None:
    log = AuthorLog()
    log.add_all(range(1, 14))
    put(memory, log, *(log.entries[seq] for seq in held))
    put(memory, log, *(log.entries[seq] for seq in (2, 3, 5, 6)))
    other = log.make(missing, b"another one")
    with pytest.raises(EntryRejected, match="held, links to another entry 7"):
        put(memory, log, other)
    put(memory, log, log.entries[missing])


def test_a_rejection_says_whether_it_is_held_entries_that_it_contradicts(memory: Store) -> None:
    log, forger = AuthorLog(), AuthorLog()
    log.add_all(range(1, 4))
    forger.add_all([1, 2])
    forger.add(3, b"forged")
    put(memory, log, *log.entries.values())
    for wrong, contradicts in ((forger.make(4), True), (log.make(9), False)):
        (result,) = memory.put_many([(log.key, [wrong])], source="peer")
        assert result.rejected is not None
        assert result.rejected.contradicts is contradicts


def test_links_are_checked_against_entries_far_below(memory: Store) -> None:
    log, forger = AuthorLog(), AuthorLog()
    log.add_all(range(1, 14))
    put(memory, log, log.entries[1], log.entries[4], log.entries[13])
    forger.add_all([1, 2, 3])
    forger.add(4, b"forged")
    with pytest.raises(EntryRejected, match="lipmaalink is not the hash of entry 4"):
        put(memory, log, forger.make(8))


@given(st.one_of(st.integers(1, 3000), st.integers(1, 2**64 - 1)), st.integers(0, 3000))
def test_linking_to_finds_exactly_the_entries_that_name_a_number(seq: int, reach: int) -> None:
    newest = min(seq + reach, U64_MAX)
    naive = [
        n
        for n in range(seq + 1, newest + 1)
        if n == seq + 1 or (has_distinct_lipmaalink(n) and lipmaa(n) == seq)
    ]
    assert sorted(linking_to(seq, newest)) == naive


def test_a_second_encoding_of_a_number_is_a_fork_whatever_its_links(memory: Store) -> None:
    log = AuthorLog()
    put(memory, log, *log.add_all(range(1, 11)))
    other = log.make(5, b"other", backlink=yamf_hash(b"nothing"))
    result = memory.put_entries(log.key, [other], source="peer")
    assert result.fork is not None
    assert (result.fork.seq, result.fork.first, result.fork.second) == (
        5,
        log.entries[5].encoded,
        other.encoded,
    )
    assert (result.height, result.newest, result.stored) == (4, 4, 0)
    info = memory.log(log.key)
    assert info is not None
    assert (info.state, info.fork_seq, info.servable) == (LogState.FORKED, 5, 4)
    assert seqs_served(memory, log) == [1, 2, 3, 4]
    assert memory.entry(log.key, 5) is None
    assert memory.hashes(log.key, [4, 5]).keys() == {4}
    assert [change.seq for change in memory.changes(0, 100)] == [1, 2, 3, 4]
    assert memory.fork(log.key) == result.fork
    assert list(memory.forks()) == [result.fork]


def test_two_encodings_in_one_call_are_a_fork(memory: Store) -> None:
    log = AuthorLog()
    entries = log.add_all(range(1, 4))
    result = memory.put_entries(log.key, [*entries, log.make(3, b"other")], source="peer")
    assert result.fork is not None
    assert result.newest == 2


def test_the_earliest_fork_is_kept(memory: Store) -> None:
    log = AuthorLog()
    put(memory, log, *log.add_all(range(1, 11)))
    for seq in (7, 9, 3, 5):
        put(memory, log, log.make(seq, b"other"))
    fork = memory.fork(log.key)
    assert fork is not None
    assert fork.seq == 3
    assert seqs_served(memory, log) == [1, 2]


def test_nothing_at_or_after_a_fork_is_taken_in_and_what_is_below_is(memory: Store) -> None:
    log = AuthorLog()
    log.add_all(range(1, 14))
    put(memory, log, *(log.entries[seq] for seq in (1, 4, 13)))
    result = memory.put_entries(log.key, [log.make(13, b"other")], source="peer")
    assert result.fork is not None
    result = memory.put_entries(log.key, [log.entries[seq] for seq in range(2, 14)], source="peer")
    assert result.fork is not None
    assert (result.stored, result.known, result.height) == (10, 1, 12)


def test_a_fork_proof_from_elsewhere_is_checked_and_kept(memory: Store) -> None:
    log = AuthorLog()
    log.add_all(range(1, 4))
    first, second = log.entries[3].encoded, log.make(3, b"other").encoded
    proof = memory.record_fork(log.key, first, second)
    assert (proof.seq, memory.fork(log.key)) == (3, proof)
    info = memory.log(log.key)
    assert info is not None
    assert (info.entries, info.state) == (0, LogState.FORKED)
    put(memory, log, log.entries[1], log.entries[2], log.entries[3])
    assert seqs_served(memory, log) == [1, 2]


def test_what_proves_no_fork_is_refused(memory: Store) -> None:
    log, stranger = AuthorLog(), AuthorLog(2)
    log.add_all(range(1, 4))
    entry, other = log.entries[3].encoded, log.make(3, b"other").encoded
    bad = other[:-1] + bytes((other[-1] ^ 1,))
    for first, second, why in (
        (entry, entry, "same"),
        (entry, bad, "signature"),
        (entry, other[:-1], "parse"),
        (entry, log.entries[2].encoded, "entries 3 and 2"),
        (entry, stranger.add(3).encoded, "of log"),
    ):
        with pytest.raises(NotAFork, match=why):
            memory.record_fork(log.key, first, second)
    assert memory.fork(log.key) is None


def test_an_entry_after_the_end_of_a_log_is_rejected(memory: Store) -> None:
    log = AuthorLog()
    put(memory, log, log.add(1), log.add(2, is_end=True))
    info = memory.log(log.key)
    assert info is not None
    assert (info.state, info.end_seq) == (LogState.ENDED, 2)
    with pytest.raises(EntryRejected, match="the log ended with entry 2"):
        put(memory, log, log.add(3))


def test_an_end_below_what_is_held_hides_what_is_above_it(memory: Store) -> None:
    log = AuthorLog()
    log.add(1)
    log.add(2)
    log.add(3, is_end=True)
    log.add(4)
    log.add(5)
    put(memory, log, log.entries[1], log.entries[4], log.entries[5], log.entries[2])
    put(memory, log, log.entries[3])
    info = memory.log(log.key)
    assert info is not None
    assert (info.state, info.height, info.newest) == (LogState.ENDED, 3, 3)
    assert seqs_served(memory, log) == [1, 2, 3]


def test_a_fork_at_an_end_is_a_fork(memory: Store) -> None:
    log = AuthorLog()
    put(memory, log, log.add(1), log.add(2, is_end=True))
    put(memory, log, log.make(2, b"goes on"))
    assert memory.log(log.key).state is LogState.FORKED  # type: ignore[union-attr]


def test_an_entry_of_another_log_or_with_a_wrong_hash_is_rejected(memory: Store) -> None:
    log, stranger = AuthorLog(), AuthorLog(2)
    entry = log.add(1)
    with pytest.raises(EntryRejected, match="another log"):
        memory.put_entries(log.key, [stranger.add(1)], source="peer")
    with pytest.raises(EntryRejected, match="hash"):
        put(memory, log, NewEntry(1, entry.encoded, yamf_hash(b"")))


def test_an_entry_whose_payload_is_another_is_not_stored(memory: Store) -> None:
    log = AuthorLog()
    entry = log.add(1)
    with pytest.raises(EntryRejected, match="payload is not the one"):
        put(memory, log, NewEntry(1, entry.encoded, entry.hash, b"another"))
    assert memory.log(log.key) is None


@pytest.mark.parametrize("size", [7, 70_000])
def test_a_payload_of_the_right_hash_and_the_wrong_size_invalidates_the_log(
    store: Store, size: int
) -> None:
    log = AuthorLog()
    payload = bytes(size)
    put(store, log, log.add(1), log.add(2))
    wrong = log.make(3, payload, payload_bytes=size - 1)
    with pytest.raises(EntryRejected, match="invalid from here on"):
        put(store, log, wrong)
    info = store.log(log.key)
    assert info is not None
    assert (info.state, info.invalid_seq, info.newest) == (LogState.INVALID, 3, 2)
    with pytest.raises(EntryRejected, match="invalid from entry 3"):
        put(store, log, NewEntry(3, wrong.encoded, wrong.hash))
    assert [str(fault) for fault in store.verify()][:-1] == []


def test_a_wrong_size_found_later_hides_the_entries_from_there_on(store: Store) -> None:
    log = AuthorLog()
    log.add(1)
    log.entries[2] = log.make(2, b"payload", payload_bytes=8)
    log.add(3)
    put(store, log, log.entries[1], NewEntry(2, log.entries[2].encoded, log.entries[2].hash))
    put(store, log, log.entries[3])
    with pytest.raises(EntryRejected, match="right hash and 7 bytes"):
        store.complete_payload(log.key, 2, b"payload")
    assert seqs_served(store, log) == [1]
    assert len(list(store.verify())) == 1


@pytest.mark.parametrize("sizes", [(70_000, 7), (7, 70_000), (7, 8)])
def test_of_two_wrong_sizes_the_earlier_one_is_kept(store: Store, sizes: tuple[int, int]) -> None:
    """One of them may be in a file and the other in the row."""
    log = AuthorLog()
    payloads = {seq: bytes(size) for seq, size in zip((2, 3), sizes, strict=True)}
    log.add(1)
    for seq, payload in payloads.items():
        log.entries[seq] = log.make(seq, payload, payload_bytes=len(payload) + 1)
    bare = [NewEntry(e.seq, e.encoded, e.hash) for e in log.entries.values()]
    put(store, log, *bare)
    for seq in (3, 2):
        with pytest.raises(EntryRejected, match="right hash"):
            store.complete_payload(log.key, seq, payloads[seq])
    info = store.log(log.key)
    assert info is not None
    assert (info.state, info.invalid_seq, info.newest) == (LogState.INVALID, 2, 1)
    assert [str(fault) for fault in store.verify()][:-1] == []


def test_what_is_hidden_behind_a_fork_may_contradict_itself(memory: Store) -> None:
    """An entry of one history, and then what stands before it in the other one."""
    log, other = AuthorLog(), AuthorLog()
    for seq in (1, 2):
        other.entries[seq] = log.add(seq)
    for seq in (3, 4):
        log.add(seq)
        other.entries[seq] = other.make(seq, b"another")
    put(memory, log, log.entries[1], log.entries[4])
    memory.record_fork(log.key, log.entries[4].encoded, other.entries[4].encoded)
    put(memory, log, other.entries[2], other.entries[3])
    assert seqs_served(memory, log) == [1, 2, 3]
    assert [str(fault) for fault in memory.verify()][:-1] == []


def test_the_largest_numbers_hang_nothing(store: Store) -> None:
    """Entry 2^64 - 1 with its pool, in log 2^64 - 1: rows are walked, never numbers."""
    log = AuthorLog(log_id=U64_MAX)
    pool = sorted(lower_pool(U64_MAX))
    for seq in pool:
        log.add(seq)
    result = store.put_entries(log.key, [log.entries[seq] for seq in pool], source="peer")
    assert (result.height, result.newest) == (1, U64_MAX)
    assert seqs_served(store, log) == pool
    assert store.entry(log.key, U64_MAX) is not None
    assert store.drop(log.key).count == len(pool)
    assert len(list(store.verify())) == 1
    assert store.missing_payloads(log.key, limit=1) == []


def test_a_size_of_2_to_64_minus_1_is_a_number_like_any_other(memory: Store) -> None:
    log = AuthorLog()
    entry = log.make(1, None, payload_bytes=U64_MAX, payload_hash=yamf_hash(b"?"))
    put(memory, log, entry)
    stored = memory.entry(log.key, 1)
    assert stored is not None
    assert (stored.payload_bytes, stored.payload_state) == (U64_MAX, PayloadState.MISSING)


def test_batches_for_several_logs_go_into_one_transaction(memory: Store) -> None:
    logs = [AuthorLog(1, log_id) for log_id in range(5)]
    batches = [(log.key, log.add_all(range(1, 4))) for log in logs]
    batches[2] = (logs[2].key, [logs[2].make(3)])
    before = memory.data_version()
    results = memory.put_many(batches, source="peer")
    assert memory.data_version() == before + 1
    assert [result.stored for result in results] == [3, 3, 0, 3, 3]
    assert [result.rejected is None for result in results] == [True, True, False, True, True]
    assert len(list(memory.logs())) == 4


def test_one_s_own_entries_may_come_back_from_a_peer(memory: Store, store: Store) -> None:
    appended = store.append([b"a", b"b"])
    key = appended[0].key
    entries = store.read(key, 1, entries_max=10, bytes_max=1000, with_payload=False)
    back = [NewEntry(e.seq, e.encoded, e.hash, e.payload) for e in entries]
    memory.put_entries(key, back, source="peer")
    assert memory.append([b"c"])[0].seq == 3


def test_an_encoding_that_is_cut_short_is_refused(memory: Store) -> None:
    log = AuthorLog()
    first, second = log.add_all((1, 2))
    memory.put_entries(log.key, [first], source="peer")
    for length in range(len(second.encoded)):
        encoded = second.encoded[:length]
        cut = second._replace(encoded=encoded, hash=yamf_hash(encoded))
        (result,) = memory.put_many([(log.key, [cut])], source="peer")
        assert result.rejected is not None
        assert result.rejected.seq == 2
    assert seqs_served(memory, log) == [1]
    assert memory.put_entries(log.key, [second], source="peer").stored == 1
