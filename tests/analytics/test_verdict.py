"""What `analyze` says is what its jobs found, and nothing that an export holds is overlooked."""

import json
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analytics import ExportDamaged, OtherExport, analyze, audit, logs, read_export
from analytics.results import table_writer
from bamboo_cli import analyzing
from tests.analytics.makers import export, files, filled_store, make_store, put
from tests.cli.harness import CommandLine
from tests.logstore.authors import AuthorLog

TOP = Path(__file__).resolve().parents[2]
LAST_LOG = 2**64 - 1


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> CommandLine:
    """A command line whose `analyze` uses the session that is there."""
    monkeypatch.setattr(analyzing, "start_spark", lambda *_: nullcontext(spark))
    return CommandLine.isolated(tmp_path, monkeypatch)


def forked_export(folder: Path, root: Path, log: AuthorLog, seq: int = 3) -> bytes:
    """An export of a node that has met a second entry of a number, which it gives back."""
    with make_store(folder) as store:
        put(store, AuthorLog(8), range(1, 4))
        put(store, log, range(1, 5))
        twin = log.make(seq, b"twin").encoded
        store.record_fork(log.key, log.entries[seq].encoded, twin)
        export(store, root)
    return twin


def test_a_fork_that_the_node_knows_is_a_fault(cli: CommandLine, tmp_path: Path) -> None:
    log = AuthorLog(1, log_id=LAST_LOG)
    twin = forked_export(tmp_path / "s", tmp_path / "out", log)
    result = cli("analyze", tmp_path / "out", "--to", tmp_path / "to", "--json")
    assert result.status == 1
    found = result.records[0]
    assert (found["faults"], found["by_kind"], found["forked_logs"]) == (1, {"fork": 1}, 1)
    assert f"fault: fork: {log.key}/3: there are two entries of number 3" in result.err
    [fault] = pq.read_table(tmp_path / "to/faults").to_pylist()
    assert (fault["log_id"], fault["seq"], fault["kind"]) == (LAST_LOG, 3, "fork")
    twins = pq.read_table(tmp_path / "to/forks")["encoded"].to_pylist()
    assert sorted(twins) == sorted([log.entries[3].encoded, twin])
    page = (tmp_path / "to/report.html").read_text()
    first = page.partition("<body>")[2].partition("\n")[0]
    assert first == f'<p class="forked"><b>1 log is forked:</b> <code>{log.key}</code></p>'
    assert "background: var(--bad)" in page


def test_a_known_fork_counts_wherever_the_rows_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, log = tmp_path / "in ä place%20", AuthorLog(1)
    forked_export(tmp_path / "s", root, log)
    frame = read_export(spark, [root])
    found = audit(frame)
    kinds = [row["kind"] for row in found.faults.collect()]
    found.close()
    assert kinds == ["fork"]
    states = {row["author"]: row["state"] for row in logs(frame).collect()}
    assert states[log.key.author.hex()] == "forked"


def test_a_known_fork_counts_for_rows_that_are_cached_or_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, log = tmp_path / "out", AuthorLog(1)
    forked_export(tmp_path / "s", root, log)
    frame = read_export(spark, [root])
    cached, none = frame.where("seq > 1").cache(), frame.where("false")
    assert cached.count() == 3
    assert cached.inputFiles() == none.inputFiles() == []
    states = {row["author"]: row["state"] for row in logs(cached).collect()}
    cached.unpersist()
    assert states[log.key.author.hex()] == "forked"
    found = audit(none)
    assert [row["kind"] for row in found.faults.collect()] == ["fork"]
    assert found.forks.count() == 2
    found.close()


def test_a_fork_without_rows_is_a_fault_too(cli: CommandLine, tmp_path: Path) -> None:
    log = AuthorLog(1, log_id=LAST_LOG)
    forked_export(tmp_path / "s", tmp_path / "full", log)
    with make_store(tmp_path / "s2") as store:
        export(store, tmp_path / "out")
    states = (tmp_path / "full/_states.jsonl").read_text()
    (tmp_path / "out/_states.jsonl").write_text(states)
    result = cli("analyze", tmp_path / "out", "--to", tmp_path / "to", "--json")
    assert result.status == 1
    assert (result.records[0]["rows"], result.records[0]["forked_logs"]) == (0, 1)
    assert '<p class="forked">' in (tmp_path / "to/report.html").read_text()


def test_a_store_that_holds_a_proof_and_nothing_else_is_forked(
    cli: CommandLine, tmp_path: Path
) -> None:
    log = AuthorLog(1)
    log.add_all(range(1, 4))
    with make_store(tmp_path / "store") as store:
        store.record_fork(log.key, log.entries[3].encoded, log.make(3, b"twin").encoded)
    assert cli("export", tmp_path / "out").status == 0
    result = cli("analyze", tmp_path / "out", "--to", tmp_path / "to", "--json")
    assert result.status == 1
    assert (result.records[0]["by_kind"], result.records[0]["forked_logs"]) == ({"fork": 1}, 1)
    page = (tmp_path / "to/report.html").read_text()
    assert page.partition("<body>")[2].startswith('<p class="forked"><b>1 log is forked:</b>')
    assert "no faults" not in page
    [*twins] = cli("sql", tmp_path / "out", "SELECT seq, encoded FROM forks", "--json").records
    assert [each["seq"] for each in twins] == [3, 3]


def test_two_nodes_that_know_of_a_fork_are_one_fault(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a", "b"):
        forked_export(tmp_path / f"s{name}", tmp_path / name, AuthorLog(1))
    found = audit(read_export(spark, [tmp_path / "a", tmp_path / "b"]))
    assert [row["kind"] for row in found.faults.collect()] == ["fork"]
    found.close()


def test_what_is_no_proof_is_said(cli: CommandLine, tmp_path: Path) -> None:
    log = AuthorLog(1)
    forked_export(tmp_path / "s", tmp_path / "out", log)
    path = tmp_path / "out/_states.jsonl"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"fork_second": fields["fork_first"]}))
    result = cli("analyze", tmp_path / "out", "--to", tmp_path / "to")
    assert result.status == 1
    assert "what it gives as proof is none" in result.err
    assert pq.read_table(tmp_path / "to/forks").num_rows == 0
    for damaged in ("{", "[]", "{}", json.dumps(fields | {"log_id": str(2**64)})):
        path.write_text(damaged)
        result = cli("analyze", tmp_path / "out", "--to", tmp_path / "to")
        assert (result.status, len(result.err.splitlines())) == (1, 1)
        assert "states of logs cannot be read" in result.err


def test_rows_that_spark_leaves_out_are_missed(
    cli: CommandLine, tmp_path: Path, spark: SparkSession
) -> None:
    with filled_store(tmp_path / "s", logs=2, entries=6) as store:
        export(store, tmp_path / "out")
        store.append([b"more"])
        export(store, tmp_path / "out")
    path = tmp_path / "out" / files(tmp_path / "out")[0]
    data = bytearray(path.read_bytes())
    footer = int.from_bytes(data[-8:-4], "little") + 8
    data[4:-footer] = bytes(len(data) - 4 - footer)
    path.write_bytes(data)
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        result = cli("analyze", tmp_path / "out", "--to", tmp_path / "to", "--json")
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
    assert result.status == 1
    assert result.records[0]["by_kind"]["rows"] == 1
    assert "fault: rows: 1 rows were checked, and the export says that there are 13" in result.err
    assert "says that there are 13" in (tmp_path / "to/report.html").read_text()


def damaged_exports(folder: Path) -> tuple[Path, Path]:
    """Two nodes' exports of two files each."""
    for node, name in ((91, "a"), (92, "b")):
        with make_store(folder / f"s{name}", node=node) as store:
            put(store, AuthorLog(1), range(1, 4 + node % 2))
            export(store, folder / name)
            store.append([b"more"])
            export(store, folder / name)
    return folder / "a", folder / "b"


def test_a_file_that_is_gone_cut_or_anothers_is_named(cli: CommandLine, tmp_path: Path) -> None:
    pristine, other = damaged_exports(tmp_path)
    name, foreign = files(pristine)[0], files(other)[0]
    data = (pristine / name).read_bytes()
    unnamed = name.replace(f"{1:020}-", f"{2:020}-")
    refused: dict[str, tuple[str, bytes | None]] = {
        "a file of the export is gone": (name, None),
        f"has {len(data) - 7} bytes, and {len(data)} were written": (name, data[:-7]),
        f", and {len(data)} were written": (name, (other / foreign).read_bytes()),
        "is of another export": (foreign, (other / foreign).read_bytes()),
        "no manifest of this export names": (unnamed, data),
    }
    for number, (words, (path, content)) in enumerate(refused.items()):
        root = tmp_path / f"damaged {number}"
        shutil.copytree(pristine, root)
        if content is None:
            (root / path).unlink()
        else:
            (root / path).write_bytes(content)
        result = cli("analyze", root, "--to", tmp_path / "to")
        assert (result.status, len(result.err.splitlines())) == (1, 1)
        assert words in result.err
        assert str(root / path) in result.err
    assert not (tmp_path / "to").exists()


def test_an_interrupted_range_is_read_as_before(spark: SparkSession, tmp_path: Path) -> None:
    root, _ = damaged_exports(tmp_path)
    for name in ("_latest.json", "00000002.json"):
        (root / "_manifests" / name).unlink()
    [*stages] = analyze(spark, [root], tmp_path / "to")
    assert (stages[0].summary["rows"], stages[0].summary["faults"]) == (5, 0)
    for manifest in (root / "_manifests").iterdir():
        manifest.unlink()
    assert read_export(spark, [root]).count() == 5


def test_an_error_has_its_own_name(spark: SparkSession, tmp_path: Path) -> None:
    root, other = damaged_exports(tmp_path)
    shutil.copy(other / files(other)[0], root / files(other)[0])
    with pytest.raises(OtherExport):
        read_export(spark, [root])
    (other / files(other)[0]).unlink()
    with pytest.raises(ExportDamaged):
        read_export(spark, [other])


def test_an_out_that_cannot_be_written_is_a_line(cli: CommandLine, tmp_path: Path) -> None:
    with filled_store(tmp_path / "s") as store:
        export(store, tmp_path / "out")
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file/to", Path("/proc/results")):
        result = cli("analyze", tmp_path / "out", "--to", out)
        assert (result.status, len(result.err.splitlines())) == (1, 1)
        assert str(out) in result.err
    (tmp_path / "to").mkdir()
    (tmp_path / "to/faults").write_text("in the way")
    result = cli("analyze", tmp_path / "out", "--to", tmp_path / "to")
    assert (result.status, len(result.err.splitlines())) == (1, 1)
    assert str(tmp_path / "to/faults") in result.err


def test_a_table_replaces_that_of_an_earlier_run(tmp_path: Path) -> None:
    with table_writer(tmp_path / "t") as writer:
        writer.write(pa.table({"a": [1]}))
        writer.write(pa.table({"a": [2]}))
    assert pq.read_table(tmp_path / "t")["a"].to_pylist() == [1, 2]
    (tmp_path / "t/part-00001.parquet").write_bytes(b"of another writer")
    (tmp_path / ".t.tmp").mkdir()
    with table_writer(tmp_path / "t") as writer:
        writer.write(pa.table({"a": [3]}))
    assert pq.read_table(tmp_path / "t")["a"].to_pylist() == [3]
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_a_worker_needs_pynacl_and_pyarrow_alone() -> None:
    program = (
        "import sys\n"
        "class Refuses:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        top = name.partition('.')[0]\n"
        "        ours = {'analytics', 'wire', 'bamboo_native'}\n"
        "        allowed = ours | {'nacl', '_cffi_backend', 'cffi'}\n"
        "        if top not in allowed | sys.stdlib_module_names: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Refuses())\n"
        "import analytics.checks\n"
        "analytics.checks.signature_self_test()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=TOP, capture_output=True, check=False
    )
    assert done.stderr.decode() == ""
