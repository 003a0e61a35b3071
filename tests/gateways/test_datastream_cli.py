"""`datastream VERB`: what is printed, what is refused, and that nothing wrong changes anything."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateways import side_table
from gateways.datastream.logs import StreamLog
from tests.cli.conftest import cli, own  # noqa: F401 - fixtures
from tests.cli.harness import CommandLine

MARK = "000000000000000001"


def lines(*found: object) -> bytes:
    return b"".join(
        (each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n" for each in found
    )


def operation(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"entries": list(entries)}


@pytest.fixture
def stream(own: CommandLine) -> CommandLine:  # noqa: F811
    """A store with a stream of three entries."""
    assert own("datastream", "create", "--system-id", 137).text == f"{own.author}/0"
    entries = ({"bookmark": MARK}, {"type": 1, "data": "68656c6c6f"}, {"type": 2, "data": ""})
    result = own("datastream", "append", stdin=lines(operation(*entries)))
    assert result.text == f"{own.author}/0/2: entries 0..2"
    return own


def test_what_is_there_is_shown(stream: CommandLine) -> None:
    header = stream("--json", "datastream", "header", stream.author).record
    assert header == {
        "author": stream.author,
        "log_id": 0,
        "name": None,
        "file_version": 1,
        "system_id": 137,
        "stream_type": 1,
        "origin": "source",
        "total_length": 4161,
        "total_entries": 3,
        "seq": 2,
        "height": 2,
        "state": "live",
        "reason": None,
    }
    rows = stream("--json", "datastream", "entries", stream.author, "1..").records
    assert rows == [
        {"number": 1, "type": 1, "data": "68656c6c6f", "seq": 2},
        {"number": 2, "type": 2, "data": "", "seq": 2},
    ]
    assert stream("datastream", "entries", stream.author, "1..7").status == 1
    mark = stream("--json", "datastream", "bookmark", stream.author, MARK).record
    assert mark["event"] == {"number": 1, "type": 1, "data": "68656c6c6f"}
    unknown = stream("datastream", "bookmark", stream.author, "ff")
    assert (unknown.status, unknown.err) == (
        1,
        f"bamboo-peer: {stream.author}/0: there is no bookmark ff\n",
    )


@pytest.mark.parametrize("may_write", [True, False])
def test_what_only_reads_writes_nothing_but_what_is_derived(
    may_write: bool, stream: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = stream.store / "datastream.sqlite3"
    index.unlink()

    def files() -> dict[Path, bytes]:
        # Whoever reads a database makes files for its locks.
        found = [path for path in stream.store.rglob("*") if path.is_file() and path != index]
        return {path: path.read_bytes() for path in found if path.name[-4:] not in ("-shm", "-wal")}

    if not may_write:
        monkeypatch.setattr(side_table, "_may_write", lambda _: False)
    before = files()
    for argv in (
        ("header", stream.author),
        ("entries", stream.author),
        ("bookmark", stream.author, MARK),
        ("export-file", stream.author, tmp_path / "s.bin", "--no-bookmarks"),
    ):
        result = stream("datastream", *argv)
        assert (result.status, result.err) == (0, "")
    assert files() == before
    assert index.exists() == may_write


def test_a_long_stream_is_indexed_by_the_first_who_reads_it(
    stream: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [operation({"type": 1, "data": f"{number:04x}"}) for number in range(1_000)]
    assert stream("datastream", "append", stdin=lines(*entries)).status == 0
    (stream.store / "datastream.sqlite3").unlink()
    applied: list[int] = []
    apply = StreamLog._apply

    def counted(log: StreamLog, db: Any, row: Any, entry: Any) -> Any:  # noqa: ANN401
        applied.append(entry.seq)
        return apply(log, db, row, entry)

    monkeypatch.setattr(StreamLog, "_apply", counted)
    commands = (
        ("entries", stream.author, "1000..1002"),
        ("bookmark", stream.author, MARK),
        ("header", stream.author),
    )
    for argv in commands:
        assert stream("datastream", *argv).status == 0
    assert applied == list(range(1, 1_003))
    stream("datastream", "append", stdin=lines(operation({"type": 1, "data": "ff"})))
    del applied[:]
    rows = stream("--json", "datastream", "entries", stream.author, "1003..").records
    assert [row["data"] for row in rows] == ["ff"]
    assert applied in ([], [1_003])


def test_operations_step_by_step_and_whole_ones(stream: CommandLine) -> None:
    result = stream(
        "--json",
        "datastream",
        "append",
        stdin=lines(
            {"do": "start"},
            {"do": "bookmark", "data": "aa"},
            {"do": "entry", "type": 1, "data": "00"},
            {"do": "update", "number": 4, "type": 1, "data": "0102"},
            {"do": "commit"},
            {"do": "start"},
            {"do": "entry", "type": 1, "data": "ff"},
            {"do": "rollback"},
            operation({"type": 5, "data": "05"}),
            operation({"type": 6, "data": "06"}),
        ),
    )
    assert result.status == 0
    assert [record.get("number", record.get("seq")) for record in result.records] == [
        *(3, 4, 3),
        5,
        *(4, 5),
    ]
    rows = stream("--json", "datastream", "entries", stream.author, "3..").records
    assert [(row["type"], row["data"]) for row in rows] == [
        (176, "aa"),
        (1, "0102"),
        (5, "05"),
        (6, "06"),
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"do":"fly"}', 'neither "entries" nor'),
        ({"entries": 5}, "no list of objects"),
        (operation({"type": 1, "data": "0"}), "not hex"),
        (operation({"type": 176, "data": "00"}), "that of bookmarks"),
        (operation({"bookmark": "00" * 17}), "a bookmark of 17 bytes"),
        ({"do": "commit"}, "no operation is open"),
        (b" " * (4 << 20) + b"{}", "longer than 4 MiB"),
        (b"[" * 100_000, "JSON"),
    ],
)
def test_a_wrong_line_is_named_and_changes_nothing(
    stream: CommandLine, line: bytes | dict[str, Any], why: str
) -> None:
    good = operation({"type": 1, "data": "aa"})
    result = stream("datastream", "append", stdin=lines(good, line, good))
    assert result.status == 1
    assert result.err.startswith("line 2: ")
    assert why in result.err
    assert len(result.lines) == 2
    assert stream("--json", "datastream", "header", stream.author).record["total_entries"] == 5


def test_an_operation_that_is_open_at_the_end_is_rolled_back(stream: CommandLine) -> None:
    result = stream(
        "datastream",
        "append",
        stdin=lines({"do": "start"}, {"do": "entry", "type": 1, "data": "00"}),
    )
    assert (result.status, "rolled back" in result.err) == (1, True)
    assert stream("--json", "datastream", "header", stream.author).record["total_entries"] == 3


def test_truncated_and_ended(stream: CommandLine) -> None:
    assert stream("datastream", "truncate", 3).status == 1
    assert stream("datastream", "truncate", 1).text == f"{stream.author}/0/3: 1 entry left"
    assert stream("--json", "datastream", "end").record["seq"] == 4
    header = stream("--json", "datastream", "header", stream.author).record
    assert (header["state"], header["total_entries"]) == ("ended", 1)
    assert stream("datastream", "append", stdin=lines(operation({"type": 1, "data": ""}))).status


def test_what_is_no_stream_and_what_is_broken_is_said(own: CommandLine) -> None:  # noqa: F811
    own("append", stdin=b"hello")
    result = own("datastream", "entries", own.author)
    assert result.status == 1
    assert "canonical JSON" in result.err
    again = own("datastream", "create")
    assert (again.status, "has entries already" in again.err) == (1, True)
    own("datastream", "create", "--log-id", 7)
    own("append", "--log-id", 7, stdin=b"hello")
    header = own("--json", "datastream", "header", f"{own.author}/7").record
    assert header["state"] == "broken"
    assert header["reason"].startswith("log entry 2: first byte 104")
    absent = own("--json", "datastream", "header", f"{own.author}/9").record
    assert (absent["state"], absent["reason"]) == ("waiting", "entry 1 is not held")


@pytest.mark.parametrize(
    "argv",
    [
        ("fly",),
        ("header",),
        ("header", "-", "x y"),
        ("create", "more"),
        ("create", "--once"),
        ("truncate", "-1"),
        ("truncate", "x"),
        ("client", "127.0.0.1:1", "fly"),
        ("client", "127.0.0.1:1", "entry"),
        ("client", "127.0.0.1:1", "header", "5"),
        ("export-file", "x", "y", "--no-bookmarks", "--bookmarks", "z"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(own: CommandLine, argv: tuple[str, ...]) -> None:  # noqa: F811
    result = own("datastream", *argv)
    assert result.status == 2
    assert result.err.count("\n") == 1


def test_files_come_and_go(stream: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "with.dot" / "s.x.bin"
    path.parent.mkdir()
    done = stream("--json", "datastream", "export-file", stream.author, path).record
    assert done["bookmarks"] == str(path.parent / "s.db")
    again = stream("datastream", "export-file", stream.author, path)
    assert (again.status, "exists already" in again.err) == (1, True)
    imported = stream("--json", "datastream", "import-file", path, "--log-id", 3).record
    assert (imported["entries"], imported["relaid"]) == (3, False)
    path.write_bytes(path.read_bytes()[:4100])
    wrong = stream("datastream", "import-file", path, "--log-id", 4)
    assert (wrong.status, "at byte 4096" in wrong.err) == (1, True)
    gone = stream("datastream", "client", "127.0.0.1:1", "header")
    assert (gone.status, gone.err.count("\n")) == (3, 1)
