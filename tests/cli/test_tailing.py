"""`cat`, `tail` and `cursor`."""

import base64
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from bamboo_cli import main, tailing
from logstore import Store
from tests.cli.harness import AUTHOR_KEY, CommandLine, lines_of, make_log, words

AUTHOR = bytes(AUTHOR_KEY.verify_key).hex()
FIELDS = [
    "ingest",
    "author",
    "log_id",
    "name",
    "seq",
    "hash",
    "received_at",
    "size",
    "payload_state",
    "text",
    "base64",
]


@pytest.fixture
def five(own: CommandLine) -> CommandLine:
    """A store whose own log has five entries, the third of which is no text, the fourth empty."""
    own("append", "--lines", stdin=b"one\ntwo\n")
    own("append", stdin=b"\xff\x00")
    own("append", "--lines", stdin=b"\nfive\n")
    return own


def seqs(lines: list[dict[str, object]]) -> list[object]:
    return [each["seq"] for each in lines]


# cat


def test_cat_takes_the_last_of_a_range(five: CommandLine) -> None:
    assert five("cat", "0", "-n", 2).out == b"five"
    assert five("cat", "0", "..2", "-n", 1).out == b"two"
    assert five("cat", "0", "-n", 99).out == five("cat", "0").out
    assert five("cat", "0", "-n", 0).out == b""


def test_cat_json_has_text_or_base64(five: CommandLine) -> None:
    records = five("cat", "0", "--json").records
    assert [list(each) for each in records] == [FIELDS] * 5
    assert [each["text"] for each in records] == ["one", "two", None, "", "five"]
    assert [each["base64"] for each in records] == [None, None, "/wA=", None, None]
    assert base64.b64decode(records[2]["base64"], validate=True) == b"\xff\x00"
    assert [each["size"] for each in records] == [3, 3, 2, 0, 4]
    assert {each["payload_state"] for each in records} == {"present"}
    assert [each["ingest"] for each in records] == [1, 2, 3, 4, 5]


def test_a_large_payload_is_left_out_of_json(five: CommandLine) -> None:
    record = five("cat", "0", "5", "--json", "--max-payload", 3).record
    assert (record["size"], record["text"], record["base64"]) == (4, None, None)
    assert five("cat", "0", "5", "--max-payload", 3).out == b"five"


def test_cat_json_stops_where_a_payload_is_not_held(five: CommandLine) -> None:
    five("drop", "0", "2")
    found = five("cat", "0", "--json")
    assert (found.status, seqs(found.records)) == (1, [1])


def test_cat_since(five: CommandLine) -> None:
    times = [each["received_at"] for each in five("cat", "0", "--json").records]
    assert five("cat", "0", "--since", times[0]).out == five("cat", "0").out
    assert five("cat", "0", "--since", "1h").out == five("cat", "0").out
    assert five("cat", "0", "--since", "2100-01-01").out == b""
    assert five("cat", "0", "--since", times[0], "-n", 2).out == b"five"
    # What came earlier is not selected, so that it may be missing.
    five("drop", "0", "1")
    last = five("cat", "0", "--since", times[4], "5..")
    assert (last.status, last.out) == (0, b"five")


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "2026-01-01T12:00:00", "5", "5w", ""])
def test_what_is_no_time(five: CommandLine, text: str) -> None:
    found = five("cat", "0", "--since", text)
    assert (found.status, "no time" in found.err) == (2, True)


# tail


def test_tail_prints_the_last_ten_of_all_logs_by_arrival(own: CommandLine) -> None:
    for n in range(6):
        own("append", "--log-id", n % 2, stdin=b"%d" % n)
    own("append", "--lines", stdin=b"".join(b"%d\n" % n for n in range(6, 12)))
    assert [each["text"] for each in own("tail", "--json").records] == [
        str(n) for n in range(2, 12)
    ]
    assert [each["text"] for each in own("tail", "-n", 2, "--json").records] == ["10", "11"]
    assert [each["text"] for each in own("tail", "1", "--json").records] == ["1", "3", "5"]
    assert [each["text"] for each in own("tail", "1", "-n", 1, "--json").records] == ["5"]
    assert own("tail", "-n", 0).out == b""
    assert len(own("tail", "--since", "1h").lines) == 12


def test_a_line_of_tail(five: CommandLine) -> None:
    five("append", stdin=b"\x1b[31mred\n")
    lines = five("tail").lines
    log, seq, moment, *text = lines[0].split("  ")
    assert (log, seq, text) == (f"{five.author}/0", "1", ["one"])
    assert moment.endswith("Z")
    assert lines[2].endswith("<2 bytes>")
    assert lines[5].endswith(r"\x1b[31mred\n")
    assert len(five("tail", "0").lines[0].split("  ")) == 3


def test_a_line_of_tail_fits_a_terminal(five: CommandLine) -> None:
    five.setenv("COLUMNS", "60")
    five("append", stdin=b"x" * 5000)
    lines = five("tail", terminal=True).lines
    assert max(map(len, lines)) == 60
    assert lines[0].startswith(f"{five.author[:12]}  1  ")


def test_tail_waits_for_payloads_unless_told_not_to(own: CommandLine) -> None:
    made = make_log(words(3))
    own("import", stdin="\n".join(each.line(payload=each.seq != 2) for each in made).encode())
    assert seqs(own("tail", "--json").records) == [1, 3]
    without = own("tail", "--no-payload", "--json").records
    assert seqs(without) == [1, 2, 3]
    assert (without[1]["payload_state"], without[1]["text"]) == ("missing", None)
    own("import", stdin=lines_of(made))
    assert seqs(own("tail", "--json").records) == [1, 3, 2]


def test_tail_of_a_log_of_which_nothing_is_held(own: CommandLine) -> None:
    assert own("tail", AUTHOR).status == 1
    assert own("tail").out == b""


# Following: what the store does is done while the command waits for it.


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Callable[[], object]]], None]:
    """Does one thing whenever a command waits, and interrupts it in the end."""

    def plan(steps: list[Callable[[], object]]) -> None:
        left: Iterator[Callable[[], object]] = iter(steps)

        def wait(*_: object) -> None:
            step = next(left, None)
            if step is None:
                raise KeyboardInterrupt
            step()

        monkeypatch.setattr(tailing, "_wait_for_change", wait)

    return plan


def test_cat_follow_waits_for_what_is_missing(
    own: CommandLine, meanwhile: Callable[[list[Callable[[], object]]], None]
) -> None:
    made = make_log(words(4))
    own("import", stdin="\n".join(each.line(payload=each.seq != 2) for each in made[:3]).encode())

    def bring(entries: object) -> None:
        with Store.open(own.store):
            pass
        CommandLine.__call__(own, "import", stdin=entries)  # type: ignore[arg-type]

    meanwhile([lambda: bring(lines_of(made[1:2])), lambda: bring(lines_of(made[3:]))])
    found = own("cat", AUTHOR, "--follow")
    assert (found.status, found.out) == (0, b"".join(each.payload for each in made))


def test_cat_follow_ends_with_the_log_and_with_a_closed_range(own: CommandLine) -> None:
    own("append", "--lines", "--end-of-log", stdin=b"one\ntwo\n")
    assert own("cat", "0", "--follow").out == b"onetwo"
    assert own("cat", "0", "1", "--follow").out == b"one"


def test_tail_follow_prints_each_entry_once(
    own: CommandLine, meanwhile: Callable[[list[Callable[[], object]]], None]
) -> None:
    made = make_log(words(3))
    bare = "\n".join(each.line(payload=False) for each in made).encode()
    own("import", stdin=bare)
    meanwhile([lambda: own("import", stdin=lines_of(made)), lambda: own("append", stdin=b"x")])
    found = own("tail", "--follow", "--no-payload", "--json")
    assert (found.status, seqs(found.records)) == (0, [1, 2, 3, 1])


@pytest.mark.parametrize("is_socket", [False, True], ids=["pipe", "socket"])
@pytest.mark.parametrize("command", [("tail",), ("cat", "0")])
def test_who_follows_ends_with_the_last_that_reads(
    five: CommandLine, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], is_socket: bool
) -> None:
    reading, writing = os.pipe()
    if is_socket:
        os.close(reading)
        os.close(writing)
        reading, writing = (each.detach() for each in socket.socketpair())
    read: list[bytes] = []

    def wait(_: float) -> None:
        # It has looked whether anybody reads, and there was somebody.
        assert not read
        read.append(os.read(reading, 1 << 16))
        os.close(reading)

    monkeypatch.setattr(time, "sleep", wait)
    with os.fdopen(writing, "w") as out, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        assert main([*command, "--follow"]) == 1
    assert read
    assert read[0].endswith(b"five" if command[0] == "cat" else b"  five\n")


# Cursors


def test_a_cursor_goes_on_where_it_was(own: CommandLine) -> None:
    own("append", "--lines", stdin=b"a\nb\nc\n")
    read = ("tail", "--cursor", "mine", "--json")
    assert [each["text"] for each in own(*read).records] == ["a", "b", "c"]
    assert own(*read).out == b""
    own("append", "--lines", stdin=b"d\ne\n")
    [listed] = own("cursor", "list", "--json").records
    assert (listed["cursor"], listed["author"], listed["name"]) == ("mine", None, None)
    assert (listed["position"], listed["behind"]) == (3, 2)
    assert [each["text"] for each in own(*read).records] == ["d", "e"]
    assert own("cursor", "reset", "mine", "--to", 4).text == "4"
    assert [each["text"] for each in own(*read).records] == ["e"]
    own("cursor", "reset", "mine")
    assert len(own(*read).records) == 5
    own("cursor", "reset", "mine", "--to", "oldest")
    own("cursor", "reset", "mine", "--to", "newest")
    assert own(*read).out == b""
    assert own("cursor", "remove", "mine").status == 0
    assert own("cursor", "remove", "mine").status == 1
    assert own("cursor", "reset", "mine").status == 1
    assert own("cursor", "list").out == b""


def test_where_a_new_cursor_begins(own: CommandLine) -> None:
    own("append", "--lines", stdin=b"a\nb\nc\n")
    assert len(own("tail", "--cursor", "one", "-n", 1).lines) == 1
    assert own("tail", "--cursor", "none", "-n", 0).lines == []
    assert len(own("tail", "--cursor", "then", "--since", "1h").lines) == 3
    assert own("tail", "--cursor", "later", "--since", "2100-01-01").lines == []
    own("append", stdin=b"d")
    # Later the flags are passed over.
    for name in ("one", "none", "then", "later"):
        assert len(own("tail", "--cursor", name, "-n", 0, "--since", "2100-01-01").lines) == 1


def test_a_cursor_is_for_one_target(own: CommandLine) -> None:
    own("append", stdin=b"a")
    own("tail", "0", "--cursor", "mine")
    assert own("tail", "--cursor", "mine").status == 1
    assert own("tail", "0", "--cursor", "a b").status == 2
    own("name", own.author, "me")
    [listed] = own("cursor", "list", "--json").records
    assert (listed["author"], listed["log_id"], listed["name"]) == (own.author, 0, "me")


def test_a_cursor_is_not_moved_behind_what_could_not_be_printed(
    own: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    own("append", "--lines", stdin=b"a\nb\n")

    def fail(_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("bamboo_cli.terminal.Terminal.flush", fail)
        with pytest.raises(OSError, match="No space"):
            own("tail", "--cursor", "mine")
    assert [each["position"] for each in own("cursor", "list", "--json").records] == [0]
    assert len(own("tail", "--cursor", "mine").lines) == 2


def test_a_cursor_is_stored_while_there_is_more(
    own: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailing, "STORED_EVERY", 2)
    own("append", "--lines", stdin=b"a\nb\nc\nd\ne\n")
    stored: list[int] = []
    monkeypatch.setattr(
        "logstore.cursors.CursorTable.store", lambda _, __, ___, position: stored.append(position)
    )
    own("tail", "--cursor", "mine")
    assert stored == [2, 4, 5]


# JSON


def test_what_prints_bytes_refuses_json_and_passes_over_the_setting(five: CommandLine) -> None:
    assert five("entry", "0", 1, "--raw", "--json").status == 2
    raw = five("entry", "0", 1, "--raw").out
    five.setenv("BAMBOO_PEER_JSON", "1")
    assert five("entry", "0", 1, "--raw").out == raw
    assert seqs([json.loads(line) for line in five("cat", "0", "-n", 1).lines]) == [5]


# append


def test_append_of_nothing_writes_nothing(own: CommandLine) -> None:
    refused = own("append", stdin=b"")
    assert (refused.status, refused.out, "--allow-empty" in refused.err) == (1, b"", True)
    empty, full = own.file("empty", b""), own.file("full", b"x")
    several = own("append", full, empty)
    assert (several.status, str(empty) in several.err) == (1, True)
    assert own("logs").out == b""
    assert own("append", "--allow-empty", stdin=b"").status == 0
    assert own("append", "--lines", stdin=b"\n").status == 0
    assert own("append", "--lines", stdin=b"").status == 0
    assert [each["size"] for each in own("cat", "0", "--json").records] == [0, 0]


def test_append_of_a_text_says_how(own: CommandLine) -> None:
    refused = own("append", "hello world")
    assert refused.status == 1
    assert refused.err.rstrip().endswith(
        "to append text: `printf %s 'hello world' | bamboo-peer append`"
    )
    assert "append text: `printf %s hello | bamboo-peer append`" in own("append", "hello").err


def test_drop_of_what_is_not_held_is_no_error(own: CommandLine) -> None:
    found = own("drop", AUTHOR, "..", "--json")
    assert (found.status, found.record["count"]) == (0, 0)
