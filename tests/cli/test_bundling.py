"""`bundle`: what is carried in files and pipes, as people call it."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from logstore.bundle_records import HEADER
from tests.cli.harness import CommandLine, Made, Result, lines_of, make_log, words

PROGRAM = [sys.executable, "-m", "peer"]


def other(cli: CommandLine, *argv: str | Path, stdin: bytes = b"") -> Result:
    """Of another store."""
    return cli(*argv, "--store", cli.folder / "other", stdin=stdin)


@pytest.fixture
def made(own: CommandLine) -> list[Made]:
    """What the store holds, beside another one that is empty."""
    logs = make_log([*words(4), b"x" * 150_000]) + make_log(words(2), log_id=3)
    own("import", stdin=lines_of(logs))
    other(own, "init")
    return logs


def test_there_and_back(own: CommandLine, made: list[Made]) -> None:
    file = own.folder / "stick"
    done = own("bundle", "export", file, "--json")
    assert (done.status, done.err) == (0, "")
    size = file.stat().st_size
    assert done.record == {
        "file": str(file),
        "logs": 2,
        "entries": 7,
        "payloads": 7,
        "bytes": size,
        "resumed_at": None,
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    taken = other(own, "bundle", "import", file, "--json")
    assert (taken.status, taken.err) == (0, "")
    assert taken.record == {
        "entries": 7,
        "payloads": 7,
        "already_held": 0,
        "bad": 0,
        "cut_short": False,
    }
    for log in {str(each.key) for each in made}:
        assert other(own, "dump", log).dumped == own("dump", log).dumped
    again = own("bundle", "export", file)
    assert again.text.endswith("complete before")
    assert own("bundle", "export", file, "--json").record["resumed_at"] == size
    assert other(own, "bundle", "import", file).text.startswith(
        "0 entries and 0 payloads stored, 7"
    )


def test_what_the_other_side_has_is_left_out(own: CommandLine, made: list[Made]) -> None:
    other(own, "import", stdin=lines_of(made[:5]))
    have = own.folder / "have"
    told = other(own, "bundle", "have", have, "--json")
    assert told.record == {"file": str(have), "logs": 1}
    done = own("bundle", "export", own.folder / "stick", "--have", have, "--json")
    assert (done.record["logs"], done.record["entries"]) == (1, 2)
    piped = own("bundle", "export", own.folder / "piped", "--have", "-", stdin=have.read_bytes())
    assert piped.status == 0
    assert (own.folder / "piped").read_bytes() == (own.folder / "stick").read_bytes()


def test_targets_are_named_as_elsewhere(own: CommandLine, made: list[Made]) -> None:
    own("name", str(made[-1].key), "third")
    done = own("bundle", "export", own.folder / "a", "third", "--no-payload", "--json")
    assert (done.record["logs"], done.record["payloads"]) == (1, 0)
    author = made[0].key.author.hex()
    assert own("bundle", "export", own.folder / "b", author[:10], "--json").record["logs"] == 2
    unknown = own("bundle", "export", own.folder / "c", f"{author}/9")
    assert (unknown.status, "nothing is held of it" in unknown.err) == (1, True)
    assert not (own.folder / "c").exists()


def test_a_file_that_was_cut_short_is_gone_on_with(own: CommandLine, made: list[Made]) -> None:
    file = own.folder / "stick"
    own("bundle", "export", file)
    whole = file.read_bytes()
    file.write_bytes(whole[:100_000])
    short = other(own, "bundle", "import", file, "--json")
    assert (short.status, short.record["cut_short"]) == (6, True)
    assert "ends before its end" in short.err
    done = own("bundle", "export", file, "--json")
    assert 65_536 < done.record["resumed_at"] <= 100_000
    assert file.read_bytes() == whole
    assert other(own, "bundle", "import", file).status == 0
    assert other(own, "verify").status == 0


def test_what_is_wrong_is_named_and_the_rest_is_stored(own: CommandLine, made: list[Made]) -> None:
    file = own.folder / "stick"
    own("bundle", "export", file)
    whole = file.read_bytes()
    at = whole.index(b"payload 2")
    file.write_bytes(whole[:at] + b"P" + whole[at + 1 :])
    bad = other(own, "bundle", "import", file, "--json")
    assert (bad.status, bad.record["bad"], bad.record["entries"]) == (1, 2, 7)
    assert bad.err.startswith(f"offset {at - 2}: {made[1].name}: the payload is not the one")
    broken = other(own, "bundle", "import", own.file("no", HEADER + b"\x99"), "--json")
    assert (broken.status, broken.record["bad"], broken.record["cut_short"]) == (1, 1, False)
    assert broken.err.startswith("offset 15: a record of type 99")


def test_a_fork_that_is_met_first_is_status_5(own: CommandLine, made: list[Made]) -> None:
    parted = make_log([*words(2), b"another", *words(2)])
    other(own, "import", stdin=lines_of(parted))
    own("bundle", "export", own.folder / "stick")
    met = other(own, "bundle", "import", own.folder / "stick")
    assert (met.status, "is forked at entry 3" in met.err) == (5, True)
    assert other(own, "forks").lines == [made[2].name]
    assert other(own, "bundle", "import", own.folder / "stick").status == 0


def test_a_file_of_something_else_is_refused(own: CommandLine, made: list[Made]) -> None:
    file = own.file("letter", b"Dear Ben,")
    refused = own("bundle", "export", file)
    assert (refused.status, refused.err.count("\n")) == (1, 1)
    assert file.read_bytes() == b"Dear Ben,"
    for verb in ("export", "import", "have"):
        missing = own("bundle", verb, own.folder / "no" / "file")
        assert (missing.status, missing.err.count("\n")) == (1, 1)


def test_a_pipe_carries_the_bundle_and_standard_error_the_rest(
    own: CommandLine, made: list[Made]
) -> None:
    done = own("bundle", "export", "-", "--json")
    assert done.out.startswith(HEADER)
    assert '"entries": 7' in done.err
    taken = other(own, "bundle", "import", "-", "--json", stdin=done.out)
    assert taken.record["entries"] == 7
    have = other(own, "bundle", "have", "-")
    assert (have.out[:15], have.err) == (HEADER, "")


def test_a_full_disk_is_one_line_and_gone_on_with(
    own: CommandLine, made: list[Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = own.folder / "stick"

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        failed = own("bundle", "export", file)
    assert (failed.status, failed.err.count("\n")) == (1, 1)
    assert "the disk is full" in failed.err
    assert own("bundle", "export", file).status == 0
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        failed = own("bundle", "have", own.folder / "have")
    assert (failed.status, "the disk is full" in failed.err) == (1, True)
    assert not (own.folder / "have").exists()
    assert not list(own.folder.glob(".have*"))


def test_the_usage_is_refused_in_a_line(own: CommandLine) -> None:
    for argv in (("bundle",), ("bundle", "import"), ("bundle", "have", "a", "b"), ("bundle", "x")):
        wrong = own(*argv)
        assert (wrong.status, wrong.err.count("\n")) == (2, 1)


def test_processes_and_pipes(own: CommandLine, made: list[Made]) -> None:
    """Two processes, one behind the other."""
    there = str(own.folder / "other")
    with (
        subprocess.Popen([*PROGRAM, "bundle", "export", "-"], stdout=subprocess.PIPE) as sending,
        subprocess.Popen(
            [*PROGRAM, "bundle", "import", "-", "--store", there],
            stdin=sending.stdout,
            stdout=subprocess.PIPE,
        ) as taking,
    ):
        assert sending.stdout is not None
        sending.stdout.close()
        out, _ = taking.communicate(timeout=60)
        assert sending.wait(60) == 0
    assert (taking.returncode, out.decode()[:33]) == (0, "7 entries and 7 payloads stored, ")
    assert other(own, "verify").status == 0
    log = str(made[0].key)
    assert other(own, "dump", log).dumped == own("dump", log).dumped


def test_one_line_says_what_a_file_is_if_it_is_not_what_is_wanted(
    own: CommandLine, made: list[Made]
) -> None:
    bundle, have, empty = own.folder / "stick", own.folder / "have", own.file("empty", b"")
    own("bundle", "export", bundle)
    own("bundle", "have", have)

    as_lines = other(own, "import", bundle)
    assert (as_lines.status, as_lines.out) == (1, b"")
    assert as_lines.err == f"bamboo-peer: {bundle}: this is a bundle: `bundle import` takes it\n"
    assert "standard input: this is a bundle" in own("import", stdin=bundle.read_bytes()).err

    nothing = own("bundle", "export", own.folder / "new", "--have", empty)
    assert (nothing.status, nothing.err.count("\n")) == (1, 1)
    assert f"what `bundle have` has written is wanted: {empty}; make it" in nothing.err
    short = own.file("short", have.read_bytes()[:-1])
    cut = own("bundle", "export", own.folder / "new", "--have", short)
    assert (cut.status, f"was cut short: {short}; copy it again" in cut.err) == (1, True)
    wrong = own("bundle", "export", own.folder / "new", "--have", bundle)
    assert (wrong.status, f"{bundle}; make it anew" in wrong.err) == (1, True)


def test_a_list_of_what_is_held_is_no_bundle(own: CommandLine, made: list[Made]) -> None:
    stick, have = own.folder / "stick", own.folder / "have"
    own("bundle", "have", have)
    taken = other(own, "bundle", "import", have)
    assert (taken.status, taken.err) == (
        1,
        "offset 0: no bundle, but what `bundle have` writes, for `bundle export --have`\n",
    )
    # A bundle of which nothing was lacking, and the list of a store that holds nothing.
    own("bundle", "export", stick, "--have", have)
    assert other(own, "bundle", "import", stick).status == 0
    other(own, "bundle", "have", have)
    assert other(own, "bundle", "import", have).status == 0
