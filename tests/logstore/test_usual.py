"""Runs of usual entries: taken alike by the native core and by Python, and as one by one."""

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import (
    Fault,
    NewEntry,
    PayloadState,
    Store,
    StoreDamaged,
    StoredEntry,
    filling,
    foreign,
    reading,
)
from logstore.schema import PAYLOAD_FILE, PAYLOAD_INLINE, PAYLOAD_MISSING
from logstore.usual import (
    _WHOLE,
    _WITH_LACKING,
    LackingRow,
    Place,
    ReadRow,
    python_rows_read,
    python_rows_to_fill,
    python_rows_to_write,
    rows_read,
    rows_to_fill,
    rows_to_write,
)
from tests.logstore.authors import AuthorLog
from wire import NATIVE, NATIVE_STATE, U64_MAX, LogKey, yamf_hash

needs_core = pytest.mark.skipif(NATIVE is None, reason=f"native core: {NATIVE_STATE}")

COUNT = 45
LOGS = {log_id: AuthorLog(log_id=log_id) for log_id in (0, 248, U64_MAX)}
ENTRIES = {
    log_id: [
        log.add(seq, b"%d" % seq * (100 if seq % 7 == 0 else 3), is_end=seq == COUNT)
        for seq in range(1, COUNT + 1)
    ]
    for log_id, log in LOGS.items()
}
HOWS = (
    "encoding",
    "encoding and not its hash",
    "longer encoding",
    "shorter encoding",
    "hash",
    "payload",
    "longer payload",
    "no payload",
    "number",
)


def flipped(data: bytes, at: int) -> bytes:
    """The same but for one bit."""
    changed = bytearray(data or b"?")
    changed[at % len(changed)] ^= 1
    return bytes(changed)


def with_encoding(entry: NewEntry, encoded: bytes) -> NewEntry:
    return entry._replace(encoded=encoded, hash=yamf_hash(encoded))


def changed(entry: NewEntry, how: str, at: int) -> NewEntry:
    """An entry that is otherwise in one way."""
    payload, encoded = entry.payload, entry.encoded
    assert payload is None or isinstance(payload, bytes)
    match how:
        case "encoding":
            return with_encoding(entry, flipped(encoded, at))
        case "encoding and not its hash":
            return entry._replace(encoded=flipped(encoded, at))
        case "longer encoding":
            return with_encoding(entry, encoded + b"\0")
        case "shorter encoding":
            return with_encoding(entry, encoded[: at % (len(encoded) + 1)])
        case "hash":
            return entry._replace(hash=yamf_hash(b"another"))
        case "payload":
            return entry._replace(payload=flipped(payload or b"?", at))
        case "longer payload":
            return entry._replace(payload=(payload or b"") + b"!")
        case "no payload":
            return entry._replace(payload=None)
        case _:
            return entry._replace(seq=entry.seq + at % 3)


@st.composite
def batches(draw: st.DrawFn) -> tuple[LogKey, list[NewEntry]]:
    """Entries of a log, some of which may lack or be otherwise."""
    log_id = draw(st.sampled_from(sorted(LOGS)))
    first = draw(st.sampled_from([1, 1, 2, 13, 40]))
    entries = ENTRIES[log_id][first - 1 : first + draw(st.integers(0, COUNT))]
    for _ in range(draw(st.integers(0, 2))):
        if not entries:
            break
        place = draw(st.integers(0, len(entries) - 1))
        how = draw(st.sampled_from((*HOWS, "left out", "twice")))
        if how == "left out":
            some = []
        elif how == "twice":
            some = [entries[place]] * 2
        else:
            some = [changed(entries[place], how, draw(st.integers(0, 400)))]
        entries = [*entries[:place], *some, *entries[place + 1 :]]
    return LOGS[log_id].key, entries


# Both ways are one.


@needs_core
@given(batches(), st.sets(st.integers(1, COUNT)), st.integers(0, 3))
def test_a_run_to_be_written_is_taken_alike(
    batch: tuple[LogKey, list[NewEntry]], held: set[int], start: int
) -> None:
    key, entries = batch
    hashes = {each.seq: each.hash for each in ENTRIES[key.log_id]}
    place = Place(*key, row_id=3, ingest=1 << 40, received_at=1_700_000_000_000_000)
    known = {seq: hashes[seq] for seq in held if seq % 2}
    hash_of = {seq: hashes[seq] for seq in held}.get
    found: list[object] = []
    for take in (python_rows_to_write, rows_to_write):
        learnt, encodings = dict(known), dict[int, bytes]()
        rows = take(list(entries), start, place, learnt, encodings, hash_of)
        found.append((rows, learnt, encodings))
    assert found[0] == found[1]


@needs_core
@given(
    batches(),
    st.integers(0, COUNT),
    st.sampled_from([None, "state", "number", "order", "payload of none", "none of payload"]),
    st.booleans(),
)
def test_a_run_that_was_read_is_taken_alike(
    batch: tuple[LogKey, list[NewEntry]], start: int, how: str | None, with_lacking: bool
) -> None:
    key, entries = batch
    states = {"state": PAYLOAD_FILE, "payload of none": PAYLOAD_MISSING}
    rows = [
        read_row(n, each, states.get(how or "", PAYLOAD_INLINE) if n == 5 else None)
        for n, each in enumerate(entries)
    ]
    if how == "number" and rows:
        rows[-1] = (rows[-1][0], bytes(8), *rows[-1][2:])
    if how == "none of payload" and rows:
        rows[-1] = (*rows[-1][:-1], None)
    if how == "order":
        rows.reverse()
    usual = _WITH_LACKING if with_lacking else _WHOLE
    found = rows_read(rows, key, start, with_lacking=with_lacking)
    assert found == python_rows_read(rows, key, start, usual)


def read_row(ingest: int, entry: NewEntry, state: int | None = None) -> ReadRow:
    """The row of an entry as a statement gives it."""
    payload = entry.payload
    assert payload is None or isinstance(payload, bytes)
    if state is None:
        state = PAYLOAD_MISSING if payload is None else PAYLOAD_INLINE
    blob = entry.seq.to_bytes(8, "big")
    return ingest, blob, -ingest, state, entry.hash, entry.encoded, payload


def lacking_row(entry: NewEntry, how: str | None = None) -> LackingRow:
    """The row of an entry that is held without its payload, perhaps a damaged one."""
    encoded = flipped(entry.encoded, 40) if how == "encoding" else entry.encoded
    seq = entry.seq + (how == "number")
    return 1000 - seq, seq.to_bytes(8, "big"), 7 * seq, encoded


@needs_core
@given(
    batches(),
    st.sets(st.integers(1, COUNT)),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from([None, "encoding", "number"]),
)
def test_a_run_to_be_filled_in_is_taken_alike(
    batch: tuple[LogKey, list[NewEntry]], held: set[int], start: int, at: int, how: str | None
) -> None:
    key, entries = batch
    lacking = [
        lacking_row(each, how if each.seq % 9 == 0 else None)
        for each in ENTRIES[key.log_id]
        if each.seq not in held
    ]
    place = Place(*key, row_id=3, ingest=1 << 40, received_at=0)
    found = [
        take(list(entries), start, place, lacking, at)
        for take in (python_rows_to_fill, rows_to_fill)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("log_id", sorted(LOGS))
def test_all_that_is_usual_is_filled_in(log_id: int) -> None:
    key, entries = LOGS[log_id].key, ENTRIES[log_id]
    lacking = [lacking_row(each) for each in entries]
    place = Place(*key, row_id=1, ingest=5000, received_at=0)
    rows, payload_bytes = rows_to_fill(list(entries), 0, place, lacking, 0)
    assert [row[0] for row in rows] == list(range(5000, 5000 + COUNT))
    assert [row[2] for row in rows] == [each.payload for each in entries]
    assert [row[4] for row in rows] == [row[0] for row in lacking]
    assert payload_bytes == sum(len(row[2]) for row in rows)


@pytest.mark.parametrize("log_id", sorted(LOGS))
def test_all_that_is_usual_is_taken(log_id: int) -> None:
    key, entries = LOGS[log_id].key, ENTRIES[log_id]
    place = Place(*key, row_id=1, ingest=1, received_at=1)
    rows, encoded_bytes, payload_bytes = rows_to_write(
        list(entries), 0, place, {}, {}, lambda _: None
    )
    assert len(rows) == COUNT - 1
    assert encoded_bytes == sum(len(each.encoded) for each in entries[:-1])
    assert payload_bytes == sum(len(row[8] or b"") for row in rows)
    for each in (entries, [*map(without_payload, entries)]):
        read = rows_read([*map(partial(read_row, 0), each)], key, 1, with_lacking=True)
        assert [(one.key, one.seq) for one in read] == [(key, n) for n in range(1, COUNT + 1)]
        assert [one.payload_bytes for one in read] == [len(one.payload or b"") for one in entries]


# And as each entry by itself.


def outcome(store: Store, batches: Sequence[tuple[LogKey, list[NewEntry]]]) -> object:
    """All that can be told of a store after these batches but the time."""
    results = [store.put_many([batch], source="peer") for batch in batches]
    told: list[object] = []
    for key in sorted({key for key, _ in batches}):
        info = store.log(key)
        told.append(None if info is None else info._replace(newest_at=0))
        read = store.read(key, 1, entries_max=1000, bytes_max=1 << 30, with_payload=False)
        told.append([each._replace(received_at=0) for each in read])
    faults = [each for each in store.verify() if isinstance(each, Fault)]
    return results, told, store.position(), faults


@given(st.lists(batches(), min_size=1, max_size=3))
def test_runs_are_stored_as_one_entry_at_a_time(
    given: list[tuple[LogKey, list[NewEntry]]],
) -> None:
    with Store.memory() as store:
        in_runs = outcome(store, given)
    with Store.memory() as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(foreign, "rows_to_write", lambda *_: ([], 0, 0))
        assert outcome(store, given) == in_runs


@given(
    st.lists(batches(), min_size=1, max_size=3),
    st.sets(st.integers(1, COUNT)),
    st.sets(st.integers(1, COUNT)),
    st.booleans(),
)
def test_payloads_are_filled_in_as_one_at_a_time(
    given: list[tuple[LogKey, list[NewEntry]]], whole: set[int], deleted: set[int], undeletes: bool
) -> None:
    """Into logs some of whose payloads are held and some of which were deleted."""

    def filled() -> object:
        with Store.memory() as store:
            for log_id, log in LOGS.items():
                held = ENTRIES[log_id][:-3]
                bare = [each if each.seq in whole else without_payload(each) for each in held]
                store.put_entries(log.key, bare, source="peer")
                for seq in deleted:
                    store.drop(log.key, seq, seq)
            if undeletes:
                store.want(LOGS[0].key, 5, 20)
            return outcome(store, given)

    in_runs = filled()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filling, "rows_to_fill", lambda *_: ([], 0))
        assert filled() == in_runs


def without_payload(entry: NewEntry) -> NewEntry:
    return entry._replace(payload=None)


def test_a_batch_of_payloads_is_filled_in_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind one that is held already, and before one of which the entry is not."""
    key, entries = LOGS[0].key, ENTRIES[0]
    counts: list[int] = []

    def counted(
        entries: list[object], start: int, place: Place, lacking: list[LackingRow], at: int
    ) -> object:
        rows, payload_bytes = rows_to_fill(entries, start, place, lacking, at)
        counts.append(len(rows))
        return rows, payload_bytes

    monkeypatch.setattr(filling, "rows_to_fill", counted)
    with Store.memory() as store:
        bare = [*entries[:3], *map(without_payload, entries[3:-1])]
        store.put_entries(key, bare, source="peer")
        result = store.put_entries(key, entries, source="peer")
        assert (result.known, result.stored) == (COUNT - 1, 1)
        assert store.statistics().payloads == COUNT
        assert store.missing_payloads(key, limit=9) == []
        assert not [each for each in store.verify() if isinstance(each, Fault)]
    assert [count for count in counts if count] == [COUNT - 4]


def test_payloads_with_gaps_between_them_are_filled_in_too() -> None:
    key, entries = LOGS[0].key, ENTRIES[0]
    with Store.memory() as store:
        store.put_entries(key, [*map(without_payload, entries)], source="peer")
        some = [*entries[2:9], *entries[20:21], *entries[30:]]
        assert store.put_entries(key, some, source="peer").known == len(some)
        assert store.missing_payloads(key, limit=99) == [
            each.seq for each in entries if each not in some
        ]


@pytest.mark.parametrize("log_id", sorted(LOGS))
def test_what_runs_have_stored_is_found_to_be_sound(log_id: int) -> None:
    with Store.memory() as store:
        store.put_entries(LOGS[log_id].key, ENTRIES[log_id], source="peer")
        assert not [each for each in store.verify() if isinstance(each, Fault)]
        assert store.statistics().payloads == COUNT


DAMAGES = (
    "hash = zeroblob(66)",
    "payload = x'00'",
    "payload = NULL",
    "encoded = zeroblob(300)",
    "payload_state = 9",
)


@pytest.mark.parametrize(("damage", "at"), [("", 0), *product(DAMAGES, (25, 40))])
@pytest.mark.parametrize("room", [0, 1000, 20_000, 1 << 30])
@pytest.mark.parametrize(("lacking", "begun"), [(20, False), (1, False), (0, True)])
def test_runs_are_read_as_one_entry_at_a_time(
    damage: str, at: int, room: int, lacking: int, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, entries = LOGS[0].key, ENTRIES[0]
    with Store.memory() as store:
        store.put_entries(key, entries[:lacking], source="peer")
        store.put_entries(key, [*map(without_payload, entries[lacking:30])], source="peer")
        store.put_entries(key, entries[30:], source="peer")
        if begun:
            part = entries[24].payload
            assert isinstance(part, bytes)
            with store.payload_sink(key, 25, len(part), yamf_hash(part), source="peer") as sink:
                sink.write(part[:1])
        if damage:
            change(store, f"UPDATE entries SET {damage} WHERE ingest = {at}")

        def read() -> Sequence[StoredEntry] | str:
            try:
                return store.read(key, 2, entries_max=44, bytes_max=room, with_payload=False)
            except StoreDamaged as error:
                return str(error)

        found = read()
        monkeypatch.setattr(reading, "rows_read", lambda *_, **__: [])
        assert found == read()
    if not damage and room == 1 << 30:
        assert isinstance(found, list)
        assert [each.seq for each in found] == list(range(2, COUNT + 1))
        states = [each.payload_state for each in found]
        assert states[23] is (PayloadState.PARTIAL if begun else PayloadState.MISSING)
        assert states.count(PayloadState.PRESENT) == max(lacking - 1, 0) + COUNT - 30


def change(store: Store, statement: str) -> None:
    """What a disk may do."""
    database: Any = store
    with database._database.write() as transaction:
        transaction.db.execute(statement)
