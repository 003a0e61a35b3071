"""`drop`, `verify` and `backup`."""

import errno
import os
import re
from pathlib import Path

import apsw
import pytest

from logstore import PayloadHandle, Store, System
from tests.cli.harness import CommandLine, lines_of, make_log, words


def test_drop_deletes_payloads_and_says_how_much(own: CommandLine) -> None:
    own("append", "--lines", stdin=b"aa\nbbb\ncccc\nddddd\n")
    assert own("drop", own.author, "2..3").text == (
        "2 payloads, 7 B deleted (`compact` gives the room to the disk)"
    )
    record = own("drop", own.author, "..", "--json").record
    assert (record["author"], record["log_id"]) == (own.author, 0)
    assert (record["count"], record["bytes"], record["freed"]) == (2, 7, 0)
    held = own("logs", own.author, "--json").record
    assert (held["entries"], held["payloads"], held["missing_payloads"]) == (4, 0, 0)


def test_drop_of_what_is_gone_is_nothing(own: CommandLine) -> None:
    own("append", stdin=b"x")
    own("drop", own.author, 1)
    assert own("drop", own.author, "1..").text == "0 payloads, 0 B deleted"


def test_what_was_in_a_file_is_off_the_disk_at_once(own: CommandLine) -> None:
    own("append", stdin=bytes(100_000))
    assert own("drop", own.author, 1).text == "1 payload, 97.7 KiB deleted"
    own("append", stdin=bytes(100_000))
    record = own("drop", own.author, 2, "--json").record
    assert (record["bytes"], record["freed"]) == (100_000, 100_000)


def test_compact_gives_back_what_was_deleted(own: CommandLine) -> None:
    own("append", "--lines", stdin=b"".join(b"%0999d\n" % n for n in range(3_000)))
    own("drop", own.author, "..")
    record = own("compact", "--json").record
    freed = int(record["bytes_before"]) - int(record["bytes_after"])
    assert record["bytes_freed"] == freed > 2_000_000
    again = own("compact")
    assert (again.status, again.err) == (0, "")
    assert again.text.endswith(" now")
    assert own("verify").status == 0


def test_compact_says_how_far_it_is(own: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bamboo_cli.terminal.PROGRESS_EVERY_S", 0.0)
    own("append", "--lines", stdin=b"".join(b"%0999d\n" % n for n in range(3_000)))
    own("drop", own.author, "..")
    done = own("--verbose", "compact")
    assert re.search(r"^.*0 B of [\d.]+ [KM]iB given back$", done.err, re.MULTILINE)
    assert "given back" not in own("compact").err


@pytest.mark.parametrize("argv", [(), ("3..1",), ("x",), ("1", "2")])
def test_drop_wants_one_range(own: CommandLine, argv: tuple[str, ...]) -> None:
    own("append", stdin=b"x")
    result = own("drop", own.author, *argv)
    assert (result.status, result.out) == (2, b"")
    assert own("cat", own.author).out == b"x"


def test_verify_prints_a_line_for_each_log(own: CommandLine) -> None:
    made = make_log(words(3))
    own("append", stdin=b"x")
    own("append", "--log-id", 4, stdin=b"x")
    own("import", stdin=lines_of(made))
    lines = own("verify").lines
    assert len(lines) == 3
    assert f"{own.author}/4  ok  1 entry, 1 payload, 167 B" in lines
    [record] = own("verify", str(made[0].key), "--json").records
    assert (record["ok"], record["faults"], record["entries"]) == (True, 0, 3)


def test_what_is_not_held_is_no_fault(own: CommandLine) -> None:
    made = make_log(words(13))
    own("import", stdin=lines_of([made[0], made[3], made[12]]))
    own("drop", str(made[0].key), "4")
    assert own("verify").status == 0


def test_verify_notes_that_others_may_look_in_and_changes_nothing(own: CommandLine) -> None:
    own("append", stdin=b"x")
    assert "other users" not in own("verify").err
    own.store.chmod(0o755)
    noted = own("verify")
    assert noted.status == 0
    assert f"{own.store}: other users may look into it" in noted.err
    assert own.store.stat().st_mode & 0o777 == 0o755
    own("append", stdin=b"y")
    assert own.store.stat().st_mode & 0o777 == 0o700


def test_verify_names_what_is_damaged(own: CommandLine) -> None:
    own("append", "--lines", stdin=b"one\ntwo\nthree\n")
    database = apsw.Connection(str(own.store / "store.sqlite3"))
    database.execute(
        "UPDATE entries SET payload = CAST('twO' AS BLOB) WHERE payload = CAST('two' AS BLOB)"
    )
    database.close()
    result = own("verify")
    assert result.status == 1
    assert len(result.lines) == 1
    assert "ok" not in result.text
    assert f"fault: {own.author}/0/2: " in result.err
    record = own("verify", "--json").record
    assert (record["ok"], record["faults"]) == (False, 1)


def test_reading_a_damaged_payload_is_one_line(own: CommandLine) -> None:
    own("append", stdin=b"x")
    database = apsw.Connection(str(own.store / "store.sqlite3"))
    database.execute("UPDATE entries SET payload = CAST('y' AS BLOB)")
    database.close()
    result = own("cat", own.author)
    assert (result.status, result.out, result.err.count("\n")) == (1, b"", 1)
    assert f"{own.author}/0/1" in result.err


def test_backup_makes_a_store_that_reads_and_does_not_sign(own: CommandLine) -> None:
    own("append", "--lines", stdin=b"one\ntwo\n")
    copy = own.folder / "copy"
    record = own("backup", copy, "--json").record
    assert (record["directory"], record["logs"], record["entries"]) == (str(copy), 1, 2)
    assert own("cat", own.author, "--store", copy).out == b"onetwo"
    assert own("verify", "--store", copy).status == 0
    result = own("append", "--store", copy, stdin=b"x")
    assert (result.status, result.out) == (7, b"")
    assert own("append", stdin=b"x").text == f"{own.author}/0/3"


def only_readable(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """As if it were on a disk that the system has mounted again for reading, since it failed."""
    open_file = System.open_file

    def refuse(
        self: System, path: Path, *, create: bool = False, write: bool = True
    ) -> PayloadHandle:
        if write and path.is_relative_to(folder):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return open_file(self, path, create=create, write=write)

    patch.setattr(System, "open_file", refuse)


@pytest.mark.parametrize("is_collected", [False, True])
def test_a_store_that_can_only_be_read_is_backed_up(
    own: CommandLine, monkeypatch: pytest.MonkeyPatch, *, is_collected: bool
) -> None:
    own("append", stdin=bytes(100_000))
    own("append", stdin=bytes(100_000))
    if is_collected:
        own("drop", own.author, 1)
    assert (own.store / "collect.lock").exists() is is_collected
    with monkeypatch.context() as patch:
        only_readable(own.store, patch)
        assert own("backup", own.folder / "copy").status == 0
        # It finds no node there, which is all that is wrong.
        assert "no node serves this store" in own("wait").err
    assert (own.store / "collect.lock").exists() is is_collected
    assert own("verify", "--store", own.folder / "copy").status == 0
    assert len(own("cat", own.author, 2, "--store", own.folder / "copy").out) == 100_000


def test_backup_says_what_it_copied(own: CommandLine) -> None:
    own("append", stdin=b"x")
    copy = own.folder / "copy"
    assert own("backup", copy).text == f"{copy}: 1 log, 1 entry, 1 payload, 167 B"


def test_backup_overwrites_nothing(own: CommandLine) -> None:
    copy = own.folder / "copy"
    copy.mkdir()
    (copy / "precious").write_text("data")
    result = own("backup", copy)
    assert (result.status, result.out, result.err.count("\n")) == (1, b"", 1)
    assert [path.name for path in copy.iterdir()] == ["precious"]


def test_a_store_of_a_later_version_is_refused(own: CommandLine) -> None:
    database = apsw.Connection(str(own.store / "store.sqlite3"))
    database.execute("PRAGMA user_version = 1000")
    database.close()
    for argv in (("logs",), ("append",), ("verify",)):
        result = own(*argv, stdin=b"x")
        assert (result.status, result.out, result.err.count("\n")) == (1, b"", 1)
        assert str(own.store) in result.err


@pytest.mark.parametrize("content", [b"", b"no database at all" * 500])
def test_what_is_no_store_is_named(own: CommandLine, content: bytes) -> None:
    for name in ("store.sqlite3-wal", "store.sqlite3-shm"):
        (own.store / name).unlink(missing_ok=True)
    (own.store / "store.sqlite3").write_bytes(content)
    for argv in (("logs",), ("append",), ("verify",)):
        result = own(*argv, stdin=b"x")
        assert (result.status, result.out, result.err.count("\n")) == (1, b"", 1)
        assert str(own.store) in result.err


def test_a_change_while_another_writes_for_too_long(
    own: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logstore.schema.BUSY_TIMEOUT_MS", 1)
    database = apsw.Connection(str(own.store / "store.sqlite3"))
    database.execute("BEGIN IMMEDIATE")
    result = own("append", stdin=b"x")
    database.execute("ROLLBACK")
    database.close()
    assert (result.status, result.out) == (1, b"")
    assert "another process" in result.err
    with Store.open(own.store) as store:
        assert list(store.logs()) == []


@pytest.mark.parametrize("was_there", [False, True])
def test_a_backup_that_finds_no_room_can_be_made_again(
    own: CommandLine, monkeypatch: pytest.MonkeyPatch, *, was_there: bool
) -> None:
    target = own.folder / "deep/copy"
    if was_there:
        target.mkdir(parents=True)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "simulated")

    with monkeypatch.context() as patch:
        patch.setattr("logstore.backup._mark", full)
        result = own("backup", target)
    assert (result.status, result.out) == (1, b"")
    assert result.err.startswith(f"bamboo-peer: {target}: there is no room for a copy")
    assert list(target.parent.iterdir()) == ([target] if was_there else [])
    assert not was_there or list(target.iterdir()) == []
    assert own("backup", target).status == 0


def test_a_backup_wants_a_directory(own: CommandLine) -> None:
    file = own.file("taken", b"precious")
    result = own("backup", file)
    assert (result.status, result.err) == (
        1,
        f"bamboo-peer: it is no directory: {file}; choose a new one\n",
    )
