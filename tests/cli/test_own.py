"""`init` and `append`."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from bamboo_cli import lines
from bamboo_cli import own as own_module
from logstore import Store
from tests.cli.harness import CommandLine, Stream


def test_init_prints_the_author_and_keeps_the_key_to_its_owner(cli: CommandLine) -> None:
    result = cli("init")
    assert (result.status, result.err) == (0, "")
    assert len(bytes.fromhex(result.text)) == 32
    mode = (cli.store / "author.key").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    with Store.open(cli.store) as store:
        assert store.author.hex() == result.text


def test_init_as_json(cli: CommandLine) -> None:
    record = cli("init", "--json").record
    assert list(record) == ["author", "name"]
    assert len(record["author"]) == 64


def test_an_init_that_finds_no_room_can_be_run_again(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        os.ftruncate(fd, 2)
        raise OSError(errno.ENOSPC, "simulated")

    with monkeypatch.context() as patch:
        patch.setattr("logstore.keyfile.os.fsync", full)
        result = cli("init")
    assert (result.status, result.out) == (1, b"")
    assert "the disk is full" in result.err
    assert cli("init").status == 0


def test_a_store_is_a_directory(cli: CommandLine) -> None:
    file = cli.file("taken", b"precious")
    result = cli("init", "--store", file)
    assert (result.status, result.out) == (1, b"")
    assert result.err.startswith(f"bamboo-peer: {file}: is no directory")


def test_a_second_init_changes_nothing(own: CommandLine) -> None:
    before = (own.store / "author.key").read_bytes()
    result = own("init")
    assert (result.status, result.out) == (1, b"")
    assert str(own.store) in result.err
    assert result.err.count("\n") == 1
    assert (own.store / "author.key").read_bytes() == before


def test_an_init_beside_a_key_says_whose_store_it_is(cli: CommandLine) -> None:
    cli("init")
    (cli.store / "store.sqlite3").unlink()
    result = cli("init")
    assert result.status == 0
    assert "author.key was there already, so its author is the same" in result.err
    assert "`key confirm`" in result.err
    assert cli("append", stdin=b"x").status == 7


@pytest.mark.parametrize("command", ["init", "import"])
def test_no_store_is_made_among_other_files(own: CommandLine, command: str) -> None:
    file, there = own.folder / "key", own.folder / "there"
    own("key", "export", file)
    there.mkdir()
    argv = ("init",) if command == "init" else ("key", "import", file)
    (there / "hosts").write_bytes(b"")
    result = own(*argv, "--store", there)
    assert (result.status, result.out) == (1, b"")
    assert "holds other files (hosts)" in result.err
    assert [each.name for each in there.iterdir()] == ["hosts"]
    (there / "hosts").rename(there / "lost+found")
    assert own(*argv, "--store", there).status == 0


def test_init_says_where_with_verbose(cli: CommandLine) -> None:
    assert f"created {cli.store}" in cli("init", "-v").err


def test_append_takes_an_entry_from_standard_input(own: CommandLine) -> None:
    assert own("append", stdin=b"a\nb\n").text == f"{own.author}/0/1"
    assert own("append", "-", stdin=b"c").text == f"{own.author}/0/2"
    assert own("cat", own.author).out == b"a\nb\nc"


def test_append_takes_an_entry_from_each_file(own: CommandLine) -> None:
    one, two = own.file("one", b"1\x00\xff"), own.file("two", b"\n")
    result = own("append", one, "-", two, "--log-id", 5, stdin=b"between")
    assert result.lines == [f"{own.author}/5/{seq}" for seq in (1, 2, 3)]
    assert [own("cat", f"{own.author}/5", seq).out for seq in (1, 2, 3)] == [
        b"1\x00\xff",
        b"between",
        b"\n",
    ]


def test_append_of_a_large_file(own: CommandLine) -> None:
    data = bytes(range(256)) * 1200
    own("append", own.file("large", data))
    assert own("cat", own.author).out == data


def test_append_as_json_names_the_entry(own: CommandLine) -> None:
    record = own("append", "--json", "--log-id", 2**63, stdin=b"x").record
    assert (record["author"], record["log_id"], record["seq"]) == (own.author, str(2**63), 1)
    entry = own("entry", f"{own.author}/{2**63}", 1, "--json").record
    assert entry["hash"] == record["hash"]


def test_nothing_is_appended_if_one_file_is_missing(own: CommandLine) -> None:
    result = own("append", own.file("there", b"x"), own.folder / "missing")
    assert (result.status, result.out) == (1, b"")
    assert f"bamboo-peer: {own.folder / 'missing'}: No such file or directory; " in result.err
    assert own("logs").out == b""


def test_a_directory_is_no_entry(own: CommandLine) -> None:
    assert "is a directory" in own("append", own.folder).err


def test_standard_input_is_taken_once(own: CommandLine) -> None:
    result = own("append", "-", "-", stdin=b"x")
    assert (result.status, result.out) == (2, b"")


def test_every_line_is_an_entry(own: CommandLine) -> None:
    result = own("append", "--lines", stdin=b"one\n\ntwo\r\nthree")
    assert result.lines == [f"{own.author}/0/{seq}" for seq in range(1, 5)]
    assert own("cat", own.author).out == b"onetwo\rthree"
    assert own("entry", own.author, 2, "--json").record["payload_bytes"] == 0


def test_no_line_is_no_entry(own: CommandLine) -> None:
    assert own("append", "--lines", stdin=b"").status == 0
    assert own("logs").out == b""


def test_lines_and_files_exclude_each_other(own: CommandLine) -> None:
    first, second = own.file("f", b"x"), own.file("of mine", b"y")
    result = own("append", "--lines", first, second)
    assert (result.status, result.out) == (2, b"")
    assert f"`cat {first} '{second}' | bamboo-peer append --lines`" in result.err


def test_many_lines_become_durable_in_batches(
    own: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    append = Store.append

    def counted(self: Store, payloads: list[bytes], *, log_id: int, end_of_log: bool) -> object:
        sizes.append(len(payloads))
        return append(self, payloads, log_id=log_id, end_of_log=end_of_log)

    monkeypatch.setattr(Store, "append", counted)
    monkeypatch.setattr(own_module, "BATCH_ENTRIES_MAX", 10)
    assert len(own("append", "--lines", stdin=b"x\n" * 25).lines) == 25
    assert sizes == [10, 10, 5]


def test_a_giant_line_is_an_entry(own: CommandLine) -> None:
    giant = b"\x00" * (lines.IN_MEMORY_BYTES_MAX + 5)
    own("append", "--lines", stdin=b"a\n" + giant + b"\nz")
    assert own("cat", own.author, 2).out == giant
    assert own("cat", own.author, 3).out == b"z"


def test_end_of_log_ends_with_the_last_file(own: CommandLine) -> None:
    files = [own.file(name, b"x") for name in ("a", "b")]
    own("append", "--end-of-log", *files)
    ends = [own("entry", own.author, seq, "--json").record["end_of_log"] for seq in (1, 2)]
    assert ends == [False, True]
    result = own("append", stdin=b"more")
    assert (result.status, result.out) == (5, b"")
    assert "ended with entry 2" in result.err


def test_end_of_log_ends_with_the_last_line(own: CommandLine) -> None:
    result = own("append", "--lines", "--end-of-log", stdin=b"a\nb\nc")
    assert len(result.lines) == 3
    record = own("logs", own.author, "--json").record
    assert (record["state"], record["end_seq"]) == ("ended", 3)


def test_end_of_log_needs_a_line(own: CommandLine) -> None:
    result = own("append", "--lines", "--end-of-log", stdin=b"")
    assert result.status == 1
    assert "no line to end the log with" in result.err


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "", str(2**64)])
def test_a_log_id_is_a_64_bit_number(own: CommandLine, text: str) -> None:
    result = own("append", f"--log-id={text}", stdin=b"x")
    assert (result.status, result.out) == (2, b"")
    assert "argument --log-id" in result.err


def test_append_with_standard_input_closed(own: CommandLine) -> None:
    result = own("append", stdin=None)
    assert (result.status, result.out) == (1, b"")
    assert "standard input is closed" in result.err


def test_a_person_is_told_how_to_end_the_input(
    own: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stream, "isatty", lambda _: True)
    result = own("append", stdin=b"typed")
    assert (result.status, result.text) == (0, f"{own.author}/0/1")
    assert "Ctrl-D" in result.err


@pytest.fixture
def read_only(own: CommandLine) -> Iterator[CommandLine]:
    """A store that belongs to somebody else."""
    own("append", stdin=b"theirs")
    as_root = os.geteuid() == 0
    places = [own.store, *own.store.rglob("*")]
    parents = [path for path in own.store.parents if not path.stat().st_mode & 0o001]
    modes = {path: path.stat().st_mode for path in [*places, *parents]}
    for path in places:
        path.chmod(0o555 if path.is_dir() else 0o444)
    if as_root:
        for path in parents:
            path.chmod(modes[path] | 0o055)
        os.seteuid(65534)
    yield own
    if as_root:
        os.seteuid(0)
    for path, mode in modes.items():
        path.chmod(mode)


def test_a_store_that_can_only_be_read(read_only: CommandLine) -> None:
    for argv in (("append",), ("drop", read_only.author, "1"), ("follow", "--all"), ("init",)):
        result = read_only(*argv, stdin=b"x")
        assert (result.status, result.out, result.err.count("\n")) == (1, b"", 1)
        assert str(read_only.store) in result.err
    assert read_only("cat", read_only.author).out == b"theirs"


def key_file(own: CommandLine) -> Path:
    return own.store / "author.key"


def test_append_without_a_key(own: CommandLine) -> None:
    key_file(own).unlink()
    result = own("append", stdin=b"x")
    assert (result.status, result.out) == (1, b"")
    assert f"{key_file(own)}" in result.err
    assert "missing" in result.err


def test_append_with_a_key_that_others_may_read(own: CommandLine) -> None:
    key_file(own).chmod(0o644)
    result = own("append", stdin=b"x")
    assert (result.status, result.out) == (1, b"")
    assert "mode 0644" in result.err
    assert "chmod 600" in result.err


@pytest.mark.parametrize("content", [b"", b"nonsense", b"ab" * 32 + b"\n", b"\xff\xfe"])
def test_append_with_a_wrong_key(own: CommandLine, content: bytes) -> None:
    key_file(own).write_bytes(content)
    result = own("append", stdin=b"x")
    assert (result.status, result.out) == (1, b"")
    assert str(key_file(own)) in result.err
    assert result.err.count("\n") == 1
