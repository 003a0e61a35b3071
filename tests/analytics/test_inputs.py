"""A file of an export is the one that was written: by name, size, footer and SHA-256."""

import json
import shutil
import sys
from pathlib import Path
from threading import Event

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analytics import (
    BadInput,
    ExportDamaged,
    MissingExtra,
    OtherExport,
    Settings,
    analyze,
    check_exports,
    inputs,
)
from analytics.inputs import changed_files, files_hashed_meanwhile
from bamboo_cli import analyzing
from tests.analytics.makers import export, files, make_store, put
from tests.cli.harness import CommandLine
from tests.logstore.authors import AuthorLog


def two_ranges(folder: Path) -> tuple[Path, Path]:
    """One node's export of two ranges, and one of a single log of the same ranges."""
    logs = [AuthorLog(1), AuthorLog(2)]
    with make_store(folder / "s") as store:
        for seqs in (range(1, 5), range(5, 7)):
            for log in logs:
                put(store, log, seqs)
            export(store, folder / "out")
            settings = Settings(logs=(str(logs[0].key),))
            export(store, folder / "some", settings=settings)
    return folder / "out", folder / "some"


def put_in_place(root: Path, name: str, content: bytes) -> None:
    """Gives a file another content, whose size its manifest says."""
    (root / name).write_bytes(content)
    for manifest in (root / "_manifests").glob("[0-9]*.json"):
        fields = json.loads(manifest.read_text())
        for file in fields["files"]:
            if file["path"] == name:
                file["bytes"] = len(content)
        manifest.write_text(json.dumps(fields))


def test_a_file_of_the_same_size_is_known_by_its_footer(tmp_path: Path) -> None:
    root, some = two_ranges(tmp_path)
    one, two = files(root)
    check_exports([root, some])
    swapped = tmp_path / "swapped"
    shutil.copytree(root, swapped)
    put_in_place(swapped, one, (root / two).read_bytes())
    with pytest.raises(OtherExport, match=f"arrivals 9 to 12: {swapped / one}; take it from a"):
        check_exports([swapped])
    # Of the same node and arrivals, but of other settings.
    put_in_place(root, one, (some / one).read_bytes())
    with pytest.raises(ExportDamaged, match=f"has 4 rows, and 8 were written: {root / one}; "):
        check_exports([root])


def test_a_footer_that_cannot_be_read_is_named_whichever_file_has_it(tmp_path: Path) -> None:
    root, _ = two_ranges(tmp_path)
    path = root / files(root)[0]
    data = path.read_bytes()
    path.write_bytes(data[:-1000] + bytes(1000))
    with pytest.raises(BadInput, match=f"is no Parquet file: {path}; "):
        check_exports([root])


@pytest.mark.parametrize("gone", ["00000001.json", "00000002.json"])
def test_a_file_that_went_with_its_manifest_is_missed(tmp_path: Path, gone: str) -> None:
    root, _ = two_ranges(tmp_path)
    number = int(gone[:8]) - 1
    (root / "_manifests" / gone).unlink()
    # What names files may go: what is said of all of them is there.
    check_exports([root])
    (root / files(root)[number]).unlink()
    words = "a file of the export is gone"  # the newest manifest is there twice
    if number == 0:
        words = "has 2 files and 12 rows by its newest manifest, and 1 and 4 by what is there: "
    with pytest.raises(ExportDamaged, match=words):
        check_exports([root])


def test_a_file_that_says_nothing_of_its_origin_is_none_of_an_export(tmp_path: Path) -> None:
    root, _ = two_ranges(tmp_path)
    name = files(root)[1]
    for manifest in (root / "_manifests").iterdir():
        manifest.unlink()
    table = pq.ParquetFile(root / name).read().replace_schema_metadata(None)
    pq.write_table(table, root / name)
    with pytest.raises(OtherExport, match="its footer tells of node nothing, arrivals nothing"):
        check_exports([root])


def changed_export(folder: Path) -> tuple[Path, Path]:
    """An export one of whose signatures has another last byte, and the file that has it."""
    root, _ = two_ranges(folder)
    path = root / files(root)[0]
    signature = pq.ParquetFile(path).read(["signature"])["signature"][0].as_py()
    data = path.read_bytes()
    assert data.count(signature) == 1
    path.write_bytes(data.replace(signature, signature[:-1] + bytes([signature[-1] ^ 1])))
    return root, path


def test_a_file_that_was_changed_is_a_fault_beside_its_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, path = changed_export(tmp_path)
    [audit, *_] = analyze(spark, [root], tmp_path / "to")
    assert audit.summary["by_kind"] == {"file": 1, "signature": 1}
    assert audit.summary["faults"] == 2
    assert f"file: by its SHA-256 the file is not what was written: {path}" in audit.faults
    assert str(path) in (tmp_path / "to/report.html").read_text()


def test_hashing_ends_with_the_work_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, path = changed_export(tmp_path)
    assert changed_files([root, "s3://bucket/lake"], Event()) == [path]
    began, stopped = Event(), Event()

    def endless(_: object, stop: Event) -> list[Path]:
        began.set()
        assert stop.wait(60)
        stopped.set()
        return []

    monkeypatch.setattr(inputs, "changed_files", endless)

    def fail() -> None:
        with files_hashed_meanwhile([root]):
            assert began.wait(60)
            raise ValueError("the work failed")

    with pytest.raises(ValueError, match="the work failed"):
        fail()
    assert stopped.is_set()


def test_what_cannot_be_read_is_said_before_java_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analyzing, "ensure_spark", lambda: None)
    monkeypatch.setattr(analyzing, "start_spark", lambda *_: pytest.fail("Java was started"))
    cli = CommandLine.isolated(tmp_path, monkeypatch)
    root, _ = two_ranges(tmp_path)
    (root / files(root)[1]).unlink()
    for wrong, words in (
        (tmp_path / "nowhere", "there is no export"),
        (tmp_path, "no part of an export"),
        (root, "a file of the export is gone"),
    ):
        result = cli("analyze", wrong, "--to", tmp_path / "to")
        assert (result.status, len(result.err.splitlines())) == (1, 1)
        assert words in result.err


def test_exports_elsewhere_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    check_exports(["s3://bucket/lake"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"bamboo-peer\[parquet\]"):
        check_exports([])
