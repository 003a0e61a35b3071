"""`serve --export` keeps a Parquet data set up to date beside the node."""

from pathlib import Path

from pyarrow import parquet

from analytics import load_all

from .node import Node, init, run, wait_until


def exported(folder: Path) -> list[int]:
    """The sequence numbers in an export, in the order of arrival."""
    files = sorted(folder.glob("date=*/*.parquet"))
    rows = [row for file in files for row in parquet.read_table(file).to_pylist()]
    return [row["seq"] for row in sorted(rows, key=lambda row: row["ingest_seq"])]


def test_entries_reach_the_export_while_the_node_runs_and_when_it_ends(tmp_path: Path) -> None:
    store, folder = tmp_path / "store", tmp_path / "export"
    init(store)
    run(store, "append", "--lines", stdin=b"entry\n" * 30)
    with Node(
        store, "--listen", "127.0.0.1:0", "--export", str(folder), "--max-file-age", "0.5"
    ) as node:
        wait_until(lambda: len(exported(folder)) == 30, "what was there before")
        run(store, "append", "--lines", stdin=b"live\n" * 10)
        wait_until(lambda: len(exported(folder)) == 40, "what was appended meanwhile")
        run(store, "append", "--lines", stdin=b"last\n" * 5)
        assert node.stop() == 0
    assert exported(folder) == list(range(1, 46))
    assert sum(manifest.rows for manifest in load_all(folder)) == 45


def test_a_folder_that_is_no_export_is_said_and_does_not_end_the_node(tmp_path: Path) -> None:
    store, folder = tmp_path / "store", tmp_path / "photos"
    init(store)
    folder.mkdir()
    (folder / "holiday.jpg").write_bytes(b"\xff\xd8")
    with Node(store, "--listen", "127.0.0.1:0", "--export", str(folder)) as node:
        failed = node.wait_for("export_failed")
        assert "holiday.jpg" in failed["reason"]
        assert node.stop() == 0
    assert [each.name for each in folder.iterdir()] == ["holiday.jpg"]
