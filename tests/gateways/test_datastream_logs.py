"""Streams as logs say they are: vectors, a model, replicas, forks, dropped payloads, the index."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.signing import SigningKey

from gateways import Standing
from gateways.datastream.logs import StreamLog
from logstore import NewEntry, Store
from wire import LogKey, sign_entry, yamf_hash

from .streams import VECTORS, Model, data_of, declare, raw

BREAKING = VECTORS["log"][3]["values"]


def read_all(stream: StreamLog) -> bytes:
    parts, number = [], 0
    while piece := stream.piece(number):
        assert piece.first == number
        parts.append(piece.data)
        number = piece.end
    return b"".join(parts)


def check(stream: StreamLog, model: Model) -> None:
    state = stream.update()
    assert not state.broken
    assert (state.total_entries, state.total_length) == (len(model.entries), model.length)
    assert read_all(stream) == model.wire
    for mark in (b"a", b"b", b"c"):
        assert stream.bookmark(mark) == model.bookmark(mark)
    for number in {0, len(model.entries) // 2, len(model.entries) - 1, len(model.entries)}:
        entry = stream.entry(number)
        if 0 <= number < len(model.entries):
            assert entry is not None
            assert (entry.number, entry.type, entry.data) == (number, *model.entries[number])
        else:
            assert entry is None


@pytest.mark.parametrize(
    "vector", VECTORS["files"] + VECTORS["truncations"], ids=lambda v: v["name"]
)
def test_totals_are_those_that_upstream_reports(vector: dict[str, Any]) -> None:
    model = Model()
    with Store.memory() as store:
        stream = StreamLog(store, declare(store))
        for step in vector["steps"]:
            if "truncate" in step:
                store.append([model.truncate(step["truncate"])])
            else:
                added = [model.add(entry["type"], data_of(entry)) for entry in step["entries"]]
                store.append([b"".join(added)])
            state = stream.update()
            assert state.total_entries == step["after"]["total_entries"]
            assert state.total_length == step["after"]["total_length"]
        check(stream, model)
        stream.close()


@pytest.mark.parametrize("value", BREAKING, ids=lambda value: value["why"])
def test_a_stream_is_broken_where_the_vectors_say(value: dict[str, Any]) -> None:
    operation = bytes.fromhex(VECTORS["log"][1]["values"][0]["payload"])
    with Store.memory() as store:
        stream = StreamLog(store, declare(store))
        store.append([operation, bytes.fromhex(value["payload"]), raw(3, 1, b"behind")])
        state = stream.update()
        assert (state.total_entries, state.total_length, state.seq) == (3, 4161, 2)
        assert state.broken
        assert read_all(stream) == operation
        standing = stream.standing(state)
        assert standing.standing is Standing.BROKEN
        assert "log entry 3" in standing.reason
        stream.close()


MARKS = st.sampled_from([b"a", b"b", b"c", b"x" * 20, b""])
ENTRY = st.one_of(
    st.tuples(st.just(176), MARKS),
    st.tuples(st.sampled_from([0, 1, 7]), st.binary(max_size=9)),
    st.tuples(st.just(2), st.integers(1000, 400_000).map(lambda size: b"z" * size)),
)
STEP = st.one_of(
    st.lists(ENTRY, min_size=1, max_size=6),
    st.integers(0, 2**32),
    st.sampled_from(["reopen", "forget", "many"]),
)


@settings(max_examples=30)
@given(st.lists(STEP, max_size=12))
def test_a_source_and_its_replica_are_the_model(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("stores")
    with Store.create(folder / "source") as source, Store.create(folder / "replica") as replica:
        key = declare(source)
        model = Model()
        stream, other = StreamLog(source, key), StreamLog(replica, key)
        for step in steps:
            match step:
                case list():
                    source.append([b"".join(model.add(*entry) for entry in step)])
                case int() if model.entries:
                    source.append([model.truncate(step % len(model.entries))])
                case "many":
                    source.append([b"".join(model.add(3, b"q") for _ in range(600))])
                case "reopen" | "forget":
                    stream.close()
                    if step == "forget":
                        (folder / "source" / "datastream.sqlite3").unlink(missing_ok=True)
                    stream = StreamLog(source, key)
                case _:
                    pass
            check(stream, model)
            copy(source, replica, key)
            check(other, model)
        stream.close()
        other.close()


def copy(source: Store, replica: Store, key: LogKey) -> None:
    """Brings a replica up to date."""
    info = replica.log(key)
    have = info.height if info else 0
    new = []
    for entry in source.read(
        key, have + 1, entries_max=10_000, bytes_max=1 << 30, with_payload=False
    ):
        payload = entry.payload
        if payload is None:
            with source.open_payload(key, entry.seq) as reader:
                payload = b""
                while part := reader.read(len(payload), 1 << 20):
                    payload += part
        new.append(NewEntry(entry.seq, entry.encoded, entry.hash, payload))
    if new:
        replica.put_entries(key, new, source="test")


def test_nothing_behind_a_gap_or_a_missing_payload_is_visible() -> None:
    with Store.memory() as source, Store.memory() as replica:
        key = declare(source)
        source.append([raw(0, 1, b"0"), raw(1, 1, b"1"), raw(2, 1, b"2")])
        rows = source.read(key, 1, entries_max=9, bytes_max=1 << 20, with_payload=False)
        entries = [NewEntry(row.seq, row.encoded, row.hash, row.payload) for row in rows]
        stream = StreamLog(replica, key)
        assert stream.standing(stream.update()).standing is Standing.WAITING
        replica.put_entries(key, [entries[0], entries[3]], source="test")
        assert stream.update().total_entries == 0
        replica.put_entries(key, [NewEntry(2, rows[1].encoded, rows[1].hash)], source="test")
        replica.put_entries(key, [entries[2]], source="test")
        state = stream.update()
        assert state.total_entries == 0
        assert stream.standing(state).reason == "the payload of entry 2 is not held"
        replica.put_entries(key, [entries[1]], source="test")
        assert stream.update().total_entries == 3
        stream.close()


def test_a_stream_goes_back_to_where_its_log_is_forked() -> None:
    signing_key = SigningKey.generate()
    with Store.memory(signing_key=signing_key) as source, Store.memory() as replica:
        key = declare(source)
        source.append([raw(0, 1, b"0"), raw(1, 1, b"1") + raw(2, 1, b"2"), raw(3, 1, b"3")])
        copy(source, replica, key)
        stream = StreamLog(replica, key)
        state = stream.update()
        assert state.total_entries == 4
        other = raw(1, 1, b"another")
        rows = source.read(key, 1, entries_max=9, bytes_max=1 << 20, with_payload=False)
        forked = sign_entry(
            signing_key,
            log_id=0,
            seq=3,
            is_end=False,
            lipmaalink=None,
            backlink=rows[1].hash,
            payload_bytes=len(other),
            payload_hash=yamf_hash(other),
        )
        replica.record_fork(key, rows[2].encoded, forked)
        after = stream.update()
        assert after.total_entries == 1
        assert stream.lowest_cut(state.cuts, after.cuts) == 1
        assert stream.standing(after).standing is Standing.FORKED
        assert read_all(stream) == raw(0, 1, b"0")
        stream.close()


def test_a_truncation_says_how_far_it_went_back() -> None:
    with Store.memory() as store:
        stream = StreamLog(store, declare(store))
        model = Model()
        store.append([b"".join(model.add(1, b"x") for _ in range(9))])
        before = stream.update()
        store.append([model.truncate(7), model.add(1, b"y"), model.truncate(4), model.add(2, b"z")])
        after = stream.update()
        assert stream.lowest_cut(before.cuts, after.cuts) == 4
        assert stream.lowest_cut(after.cuts, after.cuts) is None
        check(stream, model)
        stream.close()


def test_a_dropped_payload_leaves_what_was_applied_visible() -> None:
    with Store.memory() as store:
        key = declare(store)
        store.append([raw(0, 176, b"a"), raw(1, 1, b"1"), raw(2, 1, b"2")])
        stream = StreamLog(store, key)
        stream.update()
        store.drop(key, 3, 3)
        state = stream.update()
        assert state.total_entries == 3
        assert stream.entry(1) is None
        assert stream.entry(2) is not None
        piece = stream.piece(0)
        assert piece is not None
        assert piece.end == 1
        stream.close()


@pytest.mark.parametrize("ends", ["alone", "with an operation"])
def test_a_stream_ends_with_its_log(ends: str) -> None:
    with Store.memory() as store:
        stream = StreamLog(store, declare(store))
        store.append([raw(0, 1, b"0")], end_of_log=ends != "alone")
        if ends == "alone":
            store.append([b""], end_of_log=True)
        state = stream.update()
        assert (state.total_entries, state.broken) == (1, "")
        assert stream.standing(state).standing is Standing.ENDED
        stream.close()


def test_a_damaged_index_says_the_same(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store") as store:
        key = declare(store)
        model = Model()
        for number in range(300):
            store.append([model.add(176, b"a") + model.add(1, bytes([number % 256]) * 50)])
        stream = StreamLog(store, key)
        check(stream, model)
        stream.close()
        path = tmp_path / "store" / "datastream.sqlite3"
        data = bytearray(path.read_bytes())
        data[4096:] = b"\xee" * (len(data) - 4096)
        path.write_bytes(data)
        stream = StreamLog(store, key)
        check(stream, model)
        stream.close()


def test_an_index_of_another_time_says_the_same(tmp_path: Path) -> None:
    """Put back with the store left alone: behind the log, and of entries that are there no more."""
    path = tmp_path / "store"
    with Store.create(path) as store:
        key = declare(store)
        model = Model()
        store.append([model.add(176, b"a") + model.add(1, bytes([at])) for at in range(20)])
        stream = StreamLog(store, key)
        check(stream, model)
        stream.close()
        old = (path / "datastream.sqlite3").read_bytes()
        store.append([model.truncate(7), model.add(176, b"b"), model.add(176, b"a")])
        stream = StreamLog(store, key)
        check(stream, model)
        stream.close()
        (path / "datastream.sqlite3").write_bytes(old)
        stream = StreamLog(store, key)
        check(stream, model)
        stream.close()


@pytest.mark.parametrize("entries", [3, 30])
def test_an_index_of_another_history_is_made_anew(tmp_path: Path, entries: int) -> None:
    """Of the same log as it is not held here: of a store that holds another side of a fork."""
    signing_key = SigningKey.generate()
    key = LogKey(signing_key.verify_key.encode(), 0)
    models = []
    for name, count in (("other", 10), ("store", entries)):
        with (
            Store.memory(signing_key=signing_key) as source,
            Store.create(tmp_path / name) as replica,
        ):
            assert declare(source) == key
            model = Model()
            mark = name[:1].encode()
            source.append([model.add(176, mark) + model.add(1, mark * at) for at in range(count)])
            copy(source, replica, key)
            stream = StreamLog(replica, key)
            check(stream, model)
            stream.close()
            models.append(model)
    (tmp_path / "store" / "datastream.sqlite3").write_bytes(
        (tmp_path / "other" / "datastream.sqlite3").read_bytes()
    )
    with Store.open(tmp_path / "store") as store:
        stream = StreamLog(store, key)
        check(stream, models[1])
        assert stream.bookmark(b"o") is None
        stream.close()
