"""`key`: export, import, confirm."""

import errno
import os
import shutil
import stat

import pytest

from tests.cli.harness import CommandLine

WARNING = "forks its logs"


def test_a_key_moves_to_another_store(own: CommandLine) -> None:
    file = own.folder / "key"
    exported = own("key", "export", file)
    assert (exported.status, exported.text) == (0, own.author)
    assert WARNING in exported.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    other = own.folder / "other"
    imported = own("key", "import", file, "--store", other)
    assert (imported.status, imported.text) == (0, own.author)
    assert WARNING in imported.err
    assert "`key confirm`" in imported.err
    refused = own("append", "--store", other, stdin=b"x")
    assert (refused.status, refused.out) == (7, b"")
    assert "key was imported" in refused.err
    assert own("key", "confirm", "--store", other).status == 0
    assert own("append", "--store", other, stdin=b"x").text == f"{own.author}/0/1"


def test_a_key_as_json(own: CommandLine) -> None:
    file = own.folder / "key"
    record = own("key", "export", file, "--json").record
    assert record == {"author": own.author, "file": str(file), "name": None}
    other = own.folder / "other"
    record = own("key", "import", file, "--store", other, "--json").record
    assert record == {"author": own.author, "store": str(other), "name": None}


def test_an_export_that_finds_no_room_can_be_made_again(
    own: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = own.folder / "key"

    def full(fd: int) -> None:
        os.ftruncate(fd, 2)
        raise OSError(errno.ENOSPC, "simulated")

    with monkeypatch.context() as patch:
        patch.setattr("logstore.keyfile.os.fsync", full)
        assert own("key", "export", file).status == 1
    assert not file.exists()
    assert own("key", "export", file).status == 0


def test_an_import_from_nowhere_is_named(own: CommandLine) -> None:
    file = own.folder / "key"
    result = own("key", "import", file)
    assert (result.status, result.out) == (1, b"")
    assert result.err.startswith(f"bamboo-peer: {file}: there is no such file")


def test_export_overwrites_nothing(own: CommandLine) -> None:
    file = own.file("key", b"precious")
    result = own("key", "export", file)
    assert (result.status, result.out) == (1, b"")
    assert file.read_bytes() == b"precious"


def test_import_gives_a_store_its_lost_key_back(own: CommandLine) -> None:
    file = own.folder / "key"
    own("key", "export", file)
    own("append", stdin=b"x")
    (own.store / "author.key").unlink()
    assert own("append", stdin=b"x").status == 1
    assert own("key", "import", file).status == 0
    assert own("append", stdin=b"x").text == f"{own.author}/0/2"


def test_import_refuses_another_authors_store_and_a_key_that_is_there(own: CommandLine) -> None:
    other = own.folder / "other"
    own("init", "--store", other)
    for file in (other / "author.key", own.store / "author.key"):
        before = (own.store / "author.key").read_bytes()
        result = own("key", "import", file)
        assert (result.status, result.out, result.err.count("\n")) == (1, b"", 1)
        assert (own.store / "author.key").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [(b"nonsense", 0o600, "64 hex digits"), (b"ab" * 32, 0o644, "mode 0644")],
)
def test_import_of_a_bad_key_file_makes_no_store(
    cli: CommandLine, content: bytes, mode: int, reason: str
) -> None:
    file = cli.file("key", content)
    file.chmod(mode)
    result = cli("key", "import", file)
    assert (result.status, result.out, result.err.count("\n")) == (1, b"", 1)
    assert reason in result.err
    assert not cli.store.exists()


def test_import_of_a_missing_file(cli: CommandLine) -> None:
    result = cli("key", "import", cli.folder / "missing")
    assert (result.status, result.out) == (1, b"")
    assert str(cli.folder / "missing") in result.err


def test_a_store_whose_directory_was_renamed_goes_on(own: CommandLine) -> None:
    own("append", stdin=b"x")
    renamed = own.store.rename(own.folder / "renamed")
    assert own("append", "--store", renamed, stdin=b"y").text == f"{own.author}/0/2"


def test_a_copied_store_appends_only_after_confirm(own: CommandLine) -> None:
    own("append", stdin=b"x")
    moved = own.folder / "moved"
    shutil.copytree(own.store, moved)
    refused = own("append", "--store", moved, stdin=b"y")
    assert (refused.status, refused.out) == (7, b"")
    confirmed = own("key", "confirm", "--store", moved, "--json")
    assert confirmed.record == {"author": own.author, "was_read_only": True, "name": None}
    assert "append only here" in confirmed.err
    assert own("append", "--store", moved, stdin=b"y").text == f"{own.author}/0/2"


def test_confirm_where_entries_are_known_to_be_lost_wants_a_word_more(own: CommandLine) -> None:
    """By the count of what was signed: the database is gone, and the key is not."""
    own("append", "--lines", stdin=b"a\nb\n")
    for each in own.store.glob("store.sqlite3*"):
        each.unlink()
    assert own("init").status == 0
    refused = own("key", "confirm")
    assert (refused.status, refused.out) == (1, b"")
    assert "2 entries that this store signed, by its own count, not held" in refused.err
    assert own("append", stdin=b"x").status == 7
    assert own("key", "confirm", "--anyway").status == 0
    assert own("append", "--log-id", 1, stdin=b"x").text == f"{own.author}/1/1"


def test_confirm_asks_the_node_that_runs(own: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    own("append", stdin=b"x")
    moved = own.folder / "moved"
    shutil.copytree(own.store, moved)
    behind = {"author": own.author, "log_id": 0, "behind": 3}
    monkeypatch.setattr("peer.node.serving_state", lambda _: {"logs": [behind]})
    refused = own("key", "confirm", "--store", moved)
    assert (refused.status, refused.out) == (1, b"")
    assert "log 0: peers hold 3 entries more than this store" in refused.err
    behind["behind"] = 0
    assert own("key", "confirm", "--store", moved).status == 0


def test_confirm_where_nothing_is_to_be_confirmed(own: CommandLine) -> None:
    result = own("key", "confirm", "--json")
    assert (result.status, result.err) == (0, "")
    assert result.record["was_read_only"] is False


@pytest.mark.parametrize(
    "argv", [(), ("export",), ("import",), ("delete", "x"), ("confirm", "x"), ("export", "a", "b")]
)
def test_wrong_usage(own: CommandLine, argv: tuple[str, ...]) -> None:
    result = own("key", *argv)
    assert (result.status, result.out, result.err.count("\n")) == (2, b"", 1)
