"""`forks` lists, shows, exports and imports proofs, and takes nothing for one that is none."""

import errno
import io
import json
import os
from pathlib import Path
from typing import BinaryIO, NoReturn

import pytest

from logstore import Store
from tests.cli.harness import CommandLine, lines_of, make_log, words
from wire import LogKey

MADE = make_log(words(3))
OTHER = make_log([*words(1), b"another"])
LOG = str(MADE[0].key)


@pytest.fixture
def forked(own: CommandLine) -> CommandLine:
    own("import", stdin=lines_of(MADE))
    own("import", stdin=OTHER[1].line().encode())
    return own


def on_a_full_disk(fd: int, mode: str) -> BinaryIO:
    """A file whose first bytes are taken and whose others are not."""
    os.write(fd, b"{")
    os.close(fd)
    return io.BufferedWriter(FullDisk("/dev/null", "wb"))


class FullDisk(io.FileIO):
    def write(self, _: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_show_tells_both_entries_and_where_they_differ(forked: CommandLine) -> None:
    lines = forked("forks", "show", LOG).lines
    author = MADE[0].key.author.hex()
    assert lines[0] == f"entry 2 of log 0 was signed twice by {author}"
    assert [line for line in lines if line.startswith("  end_of_log")] == ["  end_of_log     no"]
    assert sum(line.startswith("* payload_hash") for line in lines) == 1
    record = forked("forks", "show", LOG, "--json").record
    assert record["differs"] == ["payload_bytes", "payload_hash", "signature", "hash"]
    assert {record["first"]["payload_bytes"], record["second"]["payload_bytes"]} == {9, 7}


def test_an_exported_proof_is_verified_and_imported_elsewhere(
    forked: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "proof.json"
    assert forked("forks", "export", LOG, file).status == 0
    assert forked("forks", "export", LOG).out == file.read_bytes()
    assert forked("forks", "export", LOG, "-").out == file.read_bytes()
    assert forked("forks", "verify", file, "--store", tmp_path / "none").lines == [f"{LOG}/2"]
    other = tmp_path / "other"
    forked("init", "--store", other)
    assert forked("forks", "import", file, "--store", other).lines == [f"{LOG}/2"]
    assert forked("forks", "--store", other).lines == [f"{LOG}/2"]
    listed = forked("forks", "--json")
    assert forked("forks", "verify", "-", stdin=listed.out).lines == [f"{LOG}/2"]


def test_a_log_of_which_only_the_proof_is_held_is_not_listed(
    forked: CommandLine, tmp_path: Path
) -> None:
    file, other = tmp_path / "proof.json", tmp_path / "other"
    forked("forks", "export", LOG, file)
    forked("init", "--store", other)
    forked("forks", "import", file, "--store", other)
    assert forked("logs", "--store", other, "--json").lines == []
    for command in (("logs", LOG), ("dump", LOG), ("entry", LOG, "1")):
        done = forked(*command, "--store", other)
        assert done.status == 1
        assert "only the proof that it is forked" in done.err
    assert forked("verify", LOG, "--store", other).status == 0
    assert forked("forks", "--store", other).lines == [f"{LOG}/2"]


def test_an_export_overwrites_nothing(forked: CommandLine) -> None:
    file = forked.file("letter", b"dear reader")
    done = forked("forks", "export", LOG, file)
    assert done.err == f"bamboo-peer: {file}: it is there already; name a new file\n"
    assert (done.status, file.read_bytes()) == (1, b"dear reader")


def test_an_export_that_finds_no_room_can_be_made_again(
    forked: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "proof.json"
    with monkeypatch.context() as patch:
        patch.setattr("bamboo_cli.forks.os.fdopen", on_a_full_disk)
        done = forked("forks", "export", LOG, file)
    assert (done.status, done.out) == (1, b"")
    assert done.err.endswith("No space left on device\n")
    assert not file.exists()
    assert forked("forks", "export", LOG, file).status == 0
    assert forked("forks", "verify", file).status == 0


@pytest.mark.parametrize("action", ["import", "verify"])
def test_what_is_no_proof_is_named_by_its_line_and_the_rest_is_taken(
    own: CommandLine, action: str
) -> None:
    good = {"first": MADE[1].encoded.hex(), "second": OTHER[1].encoded.hex()}
    spoiled = OTHER[1].encoded[:-1] + bytes([OTHER[1].encoded[-1] ^ 1])
    lines = [
        "oops",
        "[]",
        json.dumps(good | {"second": good["first"]}),
        json.dumps(good | {"second": MADE[2].encoded.hex()}),
        json.dumps(good | {"second": spoiled.hex()}),
        "",
        json.dumps(good),
        "x" * 100_000,
    ]
    done = own("forks", action, "-", stdin="\n".join(lines).encode())
    assert (done.status, done.lines) == (1, [f"{LOG}/2"])
    assert [line.split(": ")[0] for line in done.err.splitlines()] == [
        "line 1",
        "line 2",
        "line 3",
        "line 4",
        "line 5",
        "line 8",
    ]
    assert "they are the same" in done.err
    assert "they are entries 2 and 3" in done.err
    assert "one has a wrong signature" in done.err
    assert own("forks").lines == ([f"{LOG}/2"] if action == "import" else [])


def test_a_log_that_is_not_forked_is_one_clear_line(own: CommandLine) -> None:
    own("import", stdin=lines_of(MADE))
    for action in ("show", "export"):
        done = own("forks", action, LOG)
        assert (done.status, done.out) == (1, b"")
        assert "is not known to be forked" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("show",),
        ("export",),
        ("import",),
        ("burn",),
        ("show", "a b"),
        ("list", LOG),
        ("show", LOG, "f"),
    ],
)
def test_wrong_usage_is_one_line(own: CommandLine, arguments: tuple[str, ...]) -> None:
    done = own("forks", *arguments)
    assert (done.status, done.out) == (2, b"")
    assert len(done.err.splitlines()) == 1


def test_other_processes_learn_of_a_proof_from_the_change_feed() -> None:
    with Store.memory() as store:
        position = store.position()
        store.record_fork(MADE[0].key, MADE[1].encoded, OTHER[1].encoded)
        assert store.changed_logs(position)[1] == [LogKey(MADE[0].key.author, 0)]
