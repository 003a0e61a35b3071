"""Directories and stores that an export cannot use, or not all of: what is said, what is kept."""

import json
from pathlib import Path

import apsw
import pytest

from analytics import (
    ExportDamaged,
    Exporter,
    ExportFailed,
    ExportTooNew,
    MissingExtra,
    NotAnExport,
    OtherExport,
    Settings,
    extras,
)
from logstore import LogState, Store
from tests.analytics.makers import export, files, filled_store, held, keys, make_store, put, table
from tests.logstore.authors import AuthorLog
from tests.payload_files import payload_files
from wire import lower_pool


@pytest.mark.parametrize("name", ["notes.txt", "part-0.parquet", "date=2026-01-01/x.parquet"])
def test_a_directory_with_something_else_in_it_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with (
        filled_store(tmp_path / "s") as store,
        pytest.raises(NotAnExport, match=f"no part of an export: .*{name}; move it away"),
    ):
        export(store, tmp_path / "out")
    assert path.read_text() == "mine"


def test_a_foreign_file_that_came_later_is_named(tmp_path: Path) -> None:
    root = tmp_path / "out"
    with filled_store(tmp_path / "s") as store:
        export(store, root)
        [name] = files(root)
        foreign = (root / name).with_name("half-written.parquet")
        foreign.write_bytes(b"PAR1")
        with pytest.raises(NotAnExport, match=r"half-written\.parquet"):
            export(store, root)
        foreign.unlink()
        assert export(store, root).rows == 0


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with (
        filled_store(tmp_path / "s") as store,
        pytest.raises(ExportFailed, match="there is a file"),
    ):
        export(store, tmp_path / "out")


def test_another_nodes_export_is_refused(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
    before = files(tmp_path / "out")
    with make_store(tmp_path / "s2", node=98) as other:
        put(other, AuthorLog(1), range(1, 3))
        with pytest.raises(OtherExport, match=r"the export of node .* a directory of its own"):
            export(other, tmp_path / "out")
    assert files(tmp_path / "out") == before


def test_other_settings_are_refused(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
        with pytest.raises(OtherExport, match="made with no filters, not with --no-payload"):
            export(store, tmp_path / "out", settings=Settings(payloads=False))


def test_an_older_store_is_refused(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        store.backup(tmp_path / "backup")
        store.append([b"later"])
        export(store, tmp_path / "out")
    with (
        Store.open(tmp_path / "backup", readonly=True) as older,
        pytest.raises(OtherExport, match="the store has 30 arrivals and the export 31"),
    ):
        export(older, tmp_path / "out")


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
        path = tmp_path / "out/_manifests/_latest.json"
        document = json.loads(path.read_text()) | {"schema_version": 2}
        path.write_text(json.dumps(document))
        with pytest.raises(ExportTooNew, match="version 2, this program knows 1"):
            export(store, tmp_path / "out")


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"manifest_version": "x"}'])
def test_a_broken_manifest_is_named(tmp_path: Path, content: bytes) -> None:
    with filled_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
        path = tmp_path / "out/_manifests/_latest.json"
        path.write_bytes(content)
        with pytest.raises(ExportDamaged, match=r"_latest\.json; remove it"):
            export(store, tmp_path / "out")
        path.unlink()
        assert export(store, tmp_path / "out").rows == 0


def damage(path: Path, statement: str, *values: object) -> None:
    """Changes a store's database behind its back."""
    db = apsw.Connection(str(path / "store.sqlite3"))
    db.execute(statement, values)
    db.close()


def test_damaged_entries_are_named_and_left_out_and_the_rest_is_there(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s"):
        pass
    damage(
        tmp_path / "s",
        "UPDATE entries SET encoded = zeroblob(length(encoded)) WHERE ingest IN (4, 17)",
    )
    damage(tmp_path / "s", "UPDATE entries SET payload = x'00' WHERE ingest = 20")
    with Store.open(tmp_path / "s") as store:
        everything = held(store)
        result = export(store, tmp_path / "out")
        assert [each.where for each in result.left_out] == [
            f"{AuthorLog(1).key}/4",
            f"{AuthorLog(2).key}/7",
            f"{AuthorLog(2).key}/10",
        ]
        assert "the entry is damaged" in result.left_out[0].why
        assert len(keys(tmp_path / "out")) == len(everything) - 3
        assert export(store, tmp_path / "out").left_out == ()


def test_a_damaged_payload_file_leaves_its_entry_out(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        store.append([b"small", b"x" * 100_000, b"y" * 100_000])
        [first, _] = payload_files(tmp_path / "s")
        first.write_bytes(b"z" * 100_000)
        result = export(store, tmp_path / "out")
        assert len(result.left_out) == 1
        assert "payload" in result.left_out[0].why
        assert len(keys(tmp_path / "out")) == 2


def test_a_damaged_page_leaves_out_what_was_on_it(tmp_path: Path) -> None:
    with make_store(tmp_path / "s") as store:
        store.append([bytes([n % 256]) * 500 for n in range(2000)])
    db = apsw.Connection(str(tmp_path / "s/store.sqlite3"))
    db.execute("PRAGMA journal_mode = DELETE")
    page_bytes = db.execute("PRAGMA page_size").get
    leaves = db.execute(
        "SELECT pageno FROM dbstat WHERE name = 'entries' AND pagetype = 'leaf'"
    ).fetchall()
    db.close()
    path = tmp_path / "s/store.sqlite3"
    content = bytearray(path.read_bytes())
    number = leaves[len(leaves) // 2][0]
    assert isinstance(number, int)
    content[(number - 1) * page_bytes : number * page_bytes] = bytes(page_bytes)
    path.write_bytes(content)
    with Store.open(tmp_path / "s") as store:
        result = export(store, tmp_path / "out")
    lost = 2000 - len(keys(tmp_path / "out"))
    assert 0 < lost < 50
    assert result.left_out
    assert all(each.where.startswith("arrivals ") or "/" in each.where for each in result.left_out)


def test_numbers_above_a_bigint_are_named_and_left_out(tmp_path: Path) -> None:
    log = AuthorLog(1)
    newest = 2**63 + 5
    with make_store(tmp_path / "s") as store:
        path = sorted(lower_pool(newest))
        store.put_entries(log.key, log.add_all(path), source="test")
        [huge] = log.add_all([newest + 1])
        store.put_entries(log.key, [huge], source="test")
        size = AuthorLog(2)
        entry = size.make(1, b"", held=False, payload_bytes=2**63)
        store.put_entries(size.key, [entry], source="test")
        result = export(store, tmp_path / "out")
        fits = [seq for seq in path if seq < 2**63]
    assert [seq for _, _, seq in keys(tmp_path / "out")] == fits
    assert [each.where for each in result.left_out] == [
        *(f"{log.key}/{seq}" for seq in path if seq >= 2**63),
        f"{log.key}/{newest + 1}",
        f"{size.key}/1",
    ]
    assert all("above 2^63 - 1" in each.why for each in result.left_out)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(extras, "import_module", missing)
    with pytest.raises(MissingExtra, match=r"pip install 'bamboo-peer\[parquet\]'"):
        extras.require("pyarrow")
    with pytest.raises(MissingExtra, match=r"pip install 'bamboo-peer\[spark\]'"):
        extras.require("pyspark")


def test_an_invalid_log_is_in_the_table_of_states(tmp_path: Path) -> None:
    log = AuthorLog(1)
    with make_store(tmp_path / "s") as store:
        put(store, log, range(1, 3))
        store.put_entries(log.key, [log.add(3, is_end=True)], source="test")
        info = store.log(log.key)
        assert info is not None
        assert info.state is LogState.ENDED
        export(store, tmp_path / "out")
    [line] = (tmp_path / "out/_states.jsonl").read_text().splitlines()
    assert json.loads(line)["end_seq"] == "3"
    assert table(tmp_path / "out")["is_end"].to_pylist() == [False, False, True]


def test_a_range_inside_another_is_refused(tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
        [name] = files(tmp_path / "out")
        path = tmp_path / "out" / name
        store.append([b"more"])
        path.with_name(path.name.replace(f"{1:020}-{30:020}", f"{5:020}-{31:020}")).write_bytes(
            path.read_bytes()
        )
        with pytest.raises(NotAnExport, match="begins inside one that is exported already"):
            Exporter(store, tmp_path / "out").run()
