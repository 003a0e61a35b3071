"""An export has a row for each entry, says what it is, and takes in only what is new."""

import hashlib
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analytics import Exporter, Settings, load_all, parts, spark_ddl
from analytics.parts import row_groups
from logstore import Store
from tests.analytics.makers import (
    DAY_US,
    NOON,
    Clock,
    export,
    files,
    filled_store,
    held,
    keys,
    make_store,
    put,
    table,
)
from tests.logstore.authors import AuthorLog, signing_key
from wire import U64_MAX, decode_entry


def test_every_entry_is_a_row_with_all_its_fields(tmp_path: Path) -> None:
    log = AuthorLog(1, log_id=U64_MAX)
    with make_store(tmp_path / "s") as store:
        put(store, log, range(1, 6))
        store.put_entries(log.key, [log.make(6, b"the end", is_end=True)], source="test")
        export(store, tmp_path / "out")
        stored = store.read(log.key, 1, entries_max=10, bytes_max=1 << 20, with_payload=False)
    rows = table(tmp_path / "out").to_pylist()
    assert len(rows) == 6
    for row, entry in zip(rows, stored, strict=True):
        decoded = decode_entry(entry.encoded)
        link, back = decoded.lipmaalink, decoded.backlink
        assert row == {
            "author": decoded.author.hex(),
            "log_id": Decimal(U64_MAX),
            "seq": decoded.seq,
            "is_end": decoded.is_end,
            "entry_hash": entry.hash[2:],
            "backlink": None if back is None else back[2:],
            "lipmaalink": None if link is None else link[2:],
            "payload_hash": decoded.payload_hash[2:],
            "payload_size": decoded.payload_bytes,
            "payload": entry.payload,
            "payload_state": "present",
            "signature": decoded.signature,
            "received_at": row["received_at"],
            "ingest_seq": entry.ingest,
            "node": store.author.hex(),
            "date": row["received_at"].date().isoformat(),
        }
        assert row["received_at"].timestamp() * 1e6 == entry.received_at


def test_files_say_what_they_are_and_how_they_are_sorted(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s", logs=3) as store:
        export(store, tmp_path / "out")
    [name] = files(tmp_path / "out")
    node = bytes(signing_key(99).verify_key).hex()
    assert name.endswith(f"/part-{node[:8]}-{1:020}-{30:020}.zstd.parquet")
    footer = pq.read_metadata(tmp_path / "out" / name)
    assert footer.metadata == {
        b"bamboo.schema_version": b"1",
        b"bamboo.node": node.encode(),
        b"bamboo.first_ingest": b"1",
        b"bamboo.last_ingest": b"30",
    }
    group = footer.row_group(0)
    assert [column.column_index for column in group.sorting_columns] == [0, 1, 2]
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(15)}
    assert columns["payload"].compression == "ZSTD"
    assert not columns["payload"].has_dictionary_page
    assert columns["author"].has_dictionary_page
    assert all(each.has_offset_index and each.has_column_index for each in columns.values())
    rows = pq.read_table(tmp_path / "out" / name, partitioning=None)
    order = list(zip(*(rows[n].to_pylist() for n in ("author", "log_id", "seq")), strict=True))
    assert order == sorted(order)
    assert str(rows.schema.field("received_at").type) == "timestamp[us, tz=UTC]"
    assert rows.schema.field("log_id").type == pa.decimal128(20, 0)


def test_a_row_group_ends_at_its_rows_or_at_its_payloads() -> None:
    rows, size = parts.ROW_GROUP_ROWS_MAX, parts.ROW_GROUP_PAYLOAD_BYTES_MAX
    assert (rows, size) == (16_384, 16 << 20)
    assert list(row_groups([])) == []
    assert list(row_groups([0] * rows)) == [(0, rows)]
    assert list(row_groups([0] * (2 * rows + 1))) == [(0, rows), (rows, rows), (2 * rows, 1)]
    assert list(row_groups([1, size - 1, 0, 1])) == [(0, 3), (3, 1)]
    assert list(row_groups([size + 1, 1, size, size + 1])) == [(0, 1), (1, 1), (2, 1), (3, 1)]


def test_row_groups_hold_a_files_rows_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "ROW_GROUP_ROWS_MAX", 7)
    monkeypatch.setattr(parts, "ROW_GROUP_PAYLOAD_BYTES_MAX", 2_000)
    with filled_store(tmp_path / "s", logs=1) as store:
        store.append([b"x" * 1_000] * 3, log_id=1)
        export(store, tmp_path / "out")
    [name] = files(tmp_path / "out")
    footer = pq.read_metadata(tmp_path / "out" / name)
    groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
    assert [group.num_rows for group in groups] == [7, 4, 2]
    assert all(len(group.sorting_columns) == 3 for group in groups)
    found = pq.read_table(tmp_path / "out" / name, partitioning=None)
    order = list(zip(*(found[n].to_pylist() for n in ("author", "log_id", "seq")), strict=True))
    assert len(order) == 13
    assert order == sorted(order)


def test_manifests_name_files_rows_ranges_heads_and_sums(tmp_path: Path) -> None:
    root = tmp_path / "out"
    with filled_store(tmp_path / "s", logs=2) as store:
        export(store, root)
        put(store, AuthorLog(7), range(1, 3))
        export(store, root)
    first, second = load_all(root)
    assert (first.first, first.last, second.first, second.last) == (1, 20, 21, 22)
    assert (second.rows, second.total_rows, second.total_files) == (2, 22, 2)
    assert second.heads == {str(AuthorLog(7).key): 2}
    for file in (*first.files, *second.files):
        content = (root / file.path).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.bytes, file.sha256)
    latest = (root / "_manifests/_latest.json").read_bytes()
    assert latest == (root / "_manifests/00000002.json").read_bytes()
    assert json.loads(latest)["schema_version"] == 1
    assert (root / "_schema.ddl").read_text() == spark_ddl() + "\n"


def test_a_second_run_takes_in_only_what_is_new(tmp_path: Path) -> None:
    root = tmp_path / "out"
    with filled_store(tmp_path / "s") as store:
        assert export(store, root).rows == 30
        before = {name: (root / name).stat().st_mtime_ns for name in files(root)}
        again = export(store, root)
        assert (again.rows, again.files) == (0, ())
        put(store, AuthorLog(9), range(1, 3))
        assert export(store, root).rows == 2
        assert keys(root) == held(store)
    for name, modified in before.items():
        assert (root / name).stat().st_mtime_ns == modified


def test_nothing_new_writes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "out"
    with filled_store(tmp_path / "s") as store:
        export(store, root)
        before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
        export(store, root)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_rows_go_to_the_date_of_their_arrival(tmp_path: Path) -> None:
    root, clock = tmp_path / "out", Clock()
    with make_store(tmp_path / "s", clock=clock) as store:
        for day, number in enumerate((1, 2, 3)):
            clock.now = NOON + day * DAY_US
            put(store, AuthorLog(number), range(1, 4))
        result = export(store, root)
        assert keys(root) == held(store)
    assert len(result.files) == len({name.partition("/")[0] for name in files(root)}) == 3
    ranges = {name.partition("/")[2].partition("-")[2] for name in files(root)}
    assert len(ranges) == 1


def test_a_file_ends_at_the_bytes_asked_for(tmp_path: Path) -> None:
    root = tmp_path / "out"
    with make_store(tmp_path / "s") as store:
        payloads = [bytes([n]) * 60_000 for n in range(250)]
        store.append(payloads)
        result = export(store, root, file_bytes_max=5_000_000)
        assert keys(root) == held(store)
    assert len(result.files) >= 3
    ends = [(manifest.first, manifest.last) for manifest in load_all(root)]
    assert [first for first, _ in ends] == [1, *(last + 1 for _, last in ends[:-1])]


def test_a_large_payload_is_in_its_row(tmp_path: Path) -> None:
    payload = bytes(range(256)) * 1000
    with make_store(tmp_path / "s") as store:
        store.append([payload])
        export(store, tmp_path / "out")
    [row] = table(tmp_path / "out").to_pylist()
    assert row["payload"] == payload


def test_a_payload_above_the_limit_is_left_out_and_the_row_says_so(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        store.append([b"x" * 1000, b"y" * 1001])
        export(store, tmp_path / "out", settings=Settings(payload_bytes_max=1000))
    small, large = table(tmp_path / "out").to_pylist()
    assert (small["payload_state"], small["payload"]) == ("present", b"x" * 1000)
    assert (large["payload_state"], large["payload"]) == ("too_large", None)
    assert large["payload_size"] == 1001


def test_payloads_can_be_left_out(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        export(store, tmp_path / "out", settings=Settings(payloads=False))
    found = table(tmp_path / "out")
    assert found["payload"].null_count == found.num_rows == 30
    assert set(found["payload_state"].to_pylist()) == {"present"}


def test_a_payload_that_comes_later_makes_a_new_row(tmp_path: Path) -> None:
    root, log = tmp_path / "out", AuthorLog(1)
    with make_store(tmp_path / "s") as store:
        entry = log.make(1, b"late", held=False)
        store.put_entries(log.key, [entry], source="test")
        export(store, root)
        store.complete_payload(log.key, 1, b"late")
        export(store, root)
        store.drop(log.key)
        export(store, root)
    rows = sorted(table(root).to_pylist(), key=lambda row: row["ingest_seq"])
    states = [(row["payload_state"], row["payload"]) for row in rows]
    assert states == [("missing", None), ("present", b"late"), ("deleted", None)]
    assert len({row["entry_hash"] for row in rows}) == 1


@pytest.mark.parametrize("filtered", ["log", "author"])
def test_filters_take_in_some_logs_only(tmp_path: Path, filtered: str) -> None:
    wanted = AuthorLog(2)
    settings = (
        Settings(logs=(str(wanted.key),))
        if filtered == "log"
        else Settings(authors=(wanted.key.author.hex(),))
    )
    with filled_store(tmp_path / "s") as store:
        export(store, tmp_path / "out", settings=settings)
        put(store, AuthorLog(3, log_id=1), range(1, 3))
        assert export(store, tmp_path / "out", settings=settings).rows == 0
    assert {author for author, _, _ in keys(tmp_path / "out")} == {wanted.key.author.hex()}


def test_a_plan_says_what_a_run_adds_and_writes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "out"
    with filled_store(tmp_path / "s") as store:
        plan = Exporter(store, root).plan()
        assert not root.exists()
        result = export(store, root)
        assert (plan.rows, plan.first, plan.last) == (result.rows, result.first, result.last)
        assert Exporter(store, root).plan().rows == 0


def test_an_empty_store_makes_an_empty_export(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        assert export(store, tmp_path / "out").rows == 0
    assert files(tmp_path / "out") == []


def test_a_fork_found_later_is_in_the_table_of_states(tmp_path: Path) -> None:
    root, log = tmp_path / "out", AuthorLog(1)
    with make_store(tmp_path / "s") as store:
        put(store, log, range(1, 5))
        export(store, root)
        assert (root / "_states.jsonl").read_text() == ""
        twin = log.make(3, b"twin")
        store.record_fork(log.key, log.entries[3].encoded, twin.encoded)
        before = files(root)
        export(store, root)
    [state] = [json.loads(line) for line in (root / "_states.jsonl").read_text().splitlines()]
    assert (state["state"], state["fork_seq"], state["log_id"]) == ("forked", "3", "0")
    assert {state["fork_first"], state["fork_second"]} == {
        log.entries[3].encoded.hex(),
        twin.encoded.hex(),
    }
    assert files(root) == before


def test_a_node_that_writes_meanwhile_is_no_obstacle(tmp_path: Path) -> None:
    root = tmp_path / "out"
    with filled_store(tmp_path / "s") as writer:
        with Store.open(tmp_path / "s", readonly=True) as reader:
            export(reader, root)
            writer.append([b"one more"])
            export(reader, root)
        assert keys(root) == held(writer)
