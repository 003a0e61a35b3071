"""`cardinal VERB`: what is printed, and what is refused."""

import errno
import json
import os
import re
import signal
import subprocess
from contextlib import nullcontext
from hashlib import blake2b
from pathlib import Path

import pytest

from bamboo_cli import cardinal_put
from gateways.cardinal import codec
from tests.cli.conftest import cli, own  # noqa: F401 - fixtures
from tests.cli.harness import CommandLine
from tests.cli_online.running import EXECUTABLE

HASH = bytes(range(32))
TOPICS = ("--topic", "a/=accounts", "--topic", "s/=storage")


def line(topic: str, message: codec.Message) -> bytes:
    key, value = codec.encode_message(message)
    fields = {"topic": topic, "key": key.hex(), "value": value.hex()}
    return json.dumps(fields).encode() + b"\n"


def test_a_stream_is_created_written_and_printed(own: CommandLine) -> None:  # noqa: F811
    created = own("cardinal", "create", "demo", *TOPICS)
    assert created.text == f"{own.author}/1"
    fields = own("--json", "cardinal", "create", "demo", *TOPICS).record
    assert fields == {
        "author": own.author,
        "log_id": 1,
        "name": None,
        "chain": "demo",
        "default": "main",
        "log_ids": {"accounts": 2, "main": 1, "storage": 3},
        "patterns": [["a/", "accounts"], ["s/", "storage"]],
        "threshold": 128,
    }
    other = own("cardinal", "create", "demo")
    assert other.status == 1
    assert "other settings" in other.err
    messages: list[tuple[str, codec.Message]] = [
        ("accounts", codec.Update(HASH, b"a/1", b"x")),
        ("accounts", codec.Delete(HASH, b"a/2")),
        ("main", codec.Batch(HASH, 1, 1, bytes(32), {b"a/": codec.Item(owed=2)})),
    ]
    data = b"".join(line(*each) for each in messages)
    put = own("--json", "cardinal", "put", "demo", "--messages", stdin=data)
    assert put.record == {"entries": 2, "messages": 3}
    found = own("cardinal", "messages", f"{own.author}/1").records
    assert [(each["topic"], each["log_id"], each["seq"]) for each in found] == [
        ("accounts", 2, 2),
        ("accounts", 2, 2),
        ("main", 1, 2),
    ]
    assert [
        codec.decode_message(bytes.fromhex(each["key"]), bytes.fromhex(each["value"]))
        for each in found
    ] == [message for _, message in messages]
    one = own("cardinal", "messages", "demo", "--topic", "main").records
    assert one == found[2:]
    # From a file, as well.
    path = own.file("messages", line("storage", codec.Update(HASH, b"s/1", b"")))
    assert own("cardinal", "put", "demo", path, "--messages").text == "1 message in 1 entry"
    assert own("verify").status == 0


def test_a_wrong_line_is_named_and_the_others_are_written(own: CommandLine) -> None:  # noqa: F811
    own("cardinal", "create", "demo", *TOPICS)
    good = line("main", codec.Reorg(HASH, 7))
    wrong = [
        b"no json\n",
        b"[]\n",
        b'{"topic":"main","key":"0"}\n',
        b'{"topic":"nowhere","key":"00","value":""}\n',
        b'{"topic":"main","key":"0","value":""}\n',
        b'{"topic":"main","key":"00","value":7}\n',
        b'{"topic":["main"],"key":"00","value":""}\n',
        b'{"topic":"main","key":"","value":"00"}\n',
    ]
    put = own("cardinal", "put", "demo", "--messages", stdin=good + b"".join(wrong) + good)
    assert (put.status, put.text) == (1, "2 messages in 1 entry")
    assert [f"line {number}:" in put.err for number in range(1, 11)] == [
        False,
        *[True] * len(wrong),
        False,
    ]


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (("create", "de mo"), 2, "no name of a chain"),
        (("create", "demo", "--topic", "a/=t t"), 2, "no name of a topic"),
        (("create", "demo", "--topic", "a/"), 2, "PATTERN=TOPIC"),
        (("create", "demo", "--topic", "(?=a)=t"), 1, "means no group everywhere"),
        (("create", "demo", "--topic", "a/=t", "--topic", "a/b=u"), 1, "begins with another"),
        (("put", "demo"), 1, "no such chain"),
        (("put", "demo", "--messages"), 1, "no such chain"),
        (("tail", "demo"), 1, "no such chain"),
        (("tail",), 2, "it takes STREAM..."),
        (("follow", "de mo"), 2, "names nothing"),
        (("create", "demo", "--threshold", str(1 << 31)), 1, "threshold"),
        (("create", "demo", "--log-id", str((1 << 64) - 1), "--topic", "a/=x"), 2, "no room"),
        (("messages", "00/1"), 2, "names nothing"),
        (("messages", f"{'0' * 64}/1"), 1, "nothing is held"),
    ],
)
def test_what_is_asked_for_in_a_wrong_way_is_named(
    own: CommandLine,  # noqa: F811
    argv: tuple[str, ...],
    status: int,
    said: str,
) -> None:
    result = own("cardinal", *argv)
    assert (result.status, result.out) == (status, b"")
    assert said in result.err
    assert own("logs").text == ""


def test_a_topic_that_there_is_not_a_log_that_is_none_and_a_file_that_is_gone(
    own: CommandLine,  # noqa: F811
) -> None:
    own("cardinal", "create", "demo", *TOPICS)
    assert "no topic 'x'" in own("cardinal", "messages", "demo", "--topic", "x").err
    topic = own("cardinal", "messages", f"{own.author}/2")
    assert topic.status == 1
    assert f"name {own.author}/1" in topic.err
    assert "No such file" in own("cardinal", "put", "demo", "nowhere", "--messages").err
    own("append", "--log-id", 1, stdin=b"\xff" * 9)
    broken = own("cardinal", "messages", "demo")
    assert (broken.status, broken.out) == (1, b"")
    assert f"{own.author}/1/2" in broken.err


def test_who_follows_gets_what_others_write_and_a_second_writer_is_refused(
    own: CommandLine,  # noqa: F811
) -> None:
    own("cardinal", "create", "demo", *TOPICS)
    base = [EXECUTABLE, "--store", str(own.store), "cardinal"]
    with (
        subprocess.Popen(
            [*base, "messages", "demo", "--follow"], stdout=subprocess.PIPE
        ) as following,
        subprocess.Popen(
            [*base, "put", "demo", "--messages"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as writing,
    ):
        assert writing.stdin is not None
        assert following.stdout is not None
        for number in range(3):
            writing.stdin.write(line("main", codec.Reorg(HASH, number)))
            writing.stdin.flush()
            # Each line is on disk while the pipe stays open.
            found = json.loads(following.stdout.readline())
            assert found["seq"] == 2 + number
        second = own("cardinal", "put", "demo", "--messages")
        assert second.status == 1
        assert f"process {writing.pid}" in second.err
        out, _ = writing.communicate()
        assert out == b"3 messages in 3 entries\n"
        following.send_signal(signal.SIGINT)
        following.communicate()


def h(number: object) -> str:
    return blake2b(repr(number).encode(), digest_size=32).hexdigest()


def blocks(*numbers: int, parent: str = "") -> bytes:
    """Lines, each block on the one before."""
    lines = []
    for number in numbers:
        above = parent or h(number - 1)
        fields = {
            "number": number,
            "hash": h(number),
            "parent": above,
            "weight": str(number),
            "values": {f"a/{number}": "01", "inline": "02"},
            "deletes": [f"s/{number}"],
        }
        lines.append(json.dumps(fields).encode() + b"\n")
    return b"".join(lines)


@pytest.fixture
def demo(own: CommandLine) -> CommandLine:  # noqa: F811
    own("cardinal", "create", "demo", *TOPICS)
    return own


def test_blocks_are_put_and_tailed(demo: CommandLine) -> None:
    put = demo("--json", "cardinal", "put", "demo", stdin=blocks(1, 2))
    assert put.records == [
        {"number": 1, "hash": h(1), "entries": 3, "messages": 3, "already": False},
        {"number": 2, "hash": h(2), "entries": 3, "messages": 3, "already": False},
    ]
    again = demo("cardinal", "put", "demo", stdin=blocks(2, 3))
    assert again.text == f"2 {h(2)} already\n3 {h(3)} 3 entries"
    tail = demo("cardinal", "tail", "demo", "--once")
    lines = [f"+ {number} {h(number)} 2 values 1 delete" for number in (1, 2, 3)]
    assert tail.text.splitlines() == [*lines, f"ready at 3 {h(3)}"]
    records = demo("--json", "cardinal", "tail", "demo", "--once", "--blocks").records
    assert [each["event"] for each in records] == ["block", "update"] * 3 + ["ready"]
    assert records[1]["added"] == [
        {
            "number": 1,
            "hash": h(1),
            "parent": h(0),
            "weight": 1,
            "values": {"inline": "02", "a/1": "01"},
            "deletes": ["s/1"],
        }
    ]
    assert records[1]["token"] == f"{demo.author}/1=3;{demo.author}/2=3;{demo.author}/3=3"
    brief = demo("cardinal", "tail", f"{demo.author}/1", "--once", "--no-values")
    assert brief.text.splitlines()[0] == f"+ 1 {h(1)}"
    assert demo("verify").status == 0


def test_sub_batches_reorganisations_and_wrong_lines(demo: CommandLine) -> None:
    id_ = h("id")
    lines = [
        {"number": 1, "hash": h(1), "parent": h(0), "weight": 1, "batches": {"s/x": {"id": id_}}},
        {"batch": {"hash": h(1), "id": id_, "values": {"s/x/1": "03"}}},
        {"batch": {"hash": h(1), "id": id_, "values": {}}},
        {"reorg": {"number": 0, "hash": h(0)}},
        {"reorg": {"number": 0, "hash": h(0)}},
        {"reorg": {"number": 1, "hash": h(1)}},
        {
            "number": "1",
            "hash": "0x" + h("new"),
            "parent": h(0),
            "weight": 0,
            "batches": {"s/x": {"id": id_, "values": {"s/x/2": "04"}, "deletes": ["s/y"]}},
        },
        {"reorg_done": True},
        {"reorg_done": True},
        {"number": 2, "hash": h(2), "parent": h("new"), "weight": 1, "values": {"a/1": "0"}},
        {"number": 2, "hash": h(2), "parent": h("new"), "weight": 1, "values": {"": ""}},
        {"number": -1, "hash": h(2), "parent": h("new"), "weight": 1},
        {"number": 2, "hash": "12", "parent": h("new"), "weight": 1},
        {"number": 2, "hash": h(2), "parent": h("new")},
        {"number": 2, "hash": h(2), "parent": h("new"), "weight": 1, "more": 1},
        {"number": 2, "hash": h(2), "parent": h("new"), "weight": 1, "values": []},
    ]
    data = b"".join(json.dumps(each).encode() + b"\n" for each in lines) + b"[1]\n"
    put = demo("--json", "cardinal", "put", "demo", stdin=data)
    assert put.status == 1
    wrong = {int(each) for each in re.findall(r"line (\d+):", put.err)}
    assert wrong == {3, 6, 9, 10, 11, 12, 13, 14, 15, 16, 17}
    assert "unknown batch" in put.err
    channel = put.records[2]["channel"]
    assert put.records[2] == {
        "reorg": {"number": 0, "hash": h(0)},
        "channel": channel,
        "already": False,
    }
    assert put.records[3]["already"]
    events = demo("--json", "cardinal", "tail", "demo", "--once").records
    assert [each["event"] for each in events] == ["update", "reorg", "update", "update", "ready"]
    assert events[2]["removed"] == [{"number": 1, "hash": h(1)}]
    assert events[3]["added"][0]["values"] == {"s/x/2": "04"}
    assert demo("logs").text.count("ended") == 1


def test_a_state_is_gone_on_with(demo: CommandLine) -> None:
    demo("cardinal", "put", "demo", stdin=blocks(1, 2))
    state = ("--state", str(demo.file("state", b"")))
    assert "no state of a consumer" in demo("cardinal", "tail", "demo", "--once", *state).err
    Path(state[1]).unlink()
    first = demo("cardinal", "tail", "demo", "--once", *state)
    assert len(first.text.splitlines()) == 3
    demo("cardinal", "put", "demo", stdin=blocks(3))
    second = demo("cardinal", "tail", "demo", "--once", *state)
    assert second.text.splitlines() == [f"+ 3 {h(3)} 2 values 1 delete", f"ready at 3 {h(3)}"]
    start = demo("cardinal", "tail", "demo", "--once", "--no-values", "--from", f"1/{h(1)}")
    assert start.text.splitlines() == [f"+ 2 {h(2)}", f"+ 3 {h(3)}", f"ready at 3 {h(3)}"]
    other = demo("cardinal", "tail", "demo", "--once", "--from", f"2/{h(1)}")
    assert (other.status, "number is 1" in other.err) == (1, True)
    for wrong in (f"x/{h(1)}", "1/12", f"1/{h(1)}/-1", "1"):
        assert demo("cardinal", "tail", "demo", "--once", "--from", wrong).status == 2
    assert demo("cardinal", "tail", "demo", "--once", "--track", "(").status == 2
    some = demo("cardinal", "tail", "demo", "--once", "--topic", "accounts", "--track", "a")
    assert some.text.splitlines()[0] == f"+ 1 {h(1)} 1 value"


def test_one_block_why_wait_and_status(demo: CommandLine) -> None:
    demo("cardinal", "put", "demo", stdin=blocks(1, 2) + blocks(9, parent=h("nowhere")))
    lone = h(9)
    assert demo("--json", "cardinal", "block", "demo", "2").record["hash"] == h(2)
    shown = demo("cardinal", "block", "demo", "0x" + h(1)).text
    assert "inline = 02" in shown
    assert "s/1 deleted" in shown
    assert demo("cardinal", "block", "demo", "7").status == 1
    assert demo("cardinal", "block", "demo").status == 2
    assert demo("cardinal", "why", "demo", h(2)).text == "block 2 is part of the chain"
    why = demo("--json", "cardinal", "why", "demo", lone).record
    assert why["state"] == "side"
    assert h("nowhere") in why["reasons"][0]
    assert demo("cardinal", "why", "demo", h("none")).status == 1
    assert demo("cardinal", "wait", "demo", "2").text == "success"
    late = demo("--json", "cardinal", "wait", "demo", lone, "--timeout", "0")
    assert (late.status, late.record) == (4, {"result": "timeout"})
    assert demo("cardinal", "wait", "demo", "77", "--timeout", "0").text == "not_found"
    status = demo("--json", "cardinal", "status", "demo").record
    assert (status["number"], status["complete"], status["incomplete"]) == (2, 3, 0)
    assert status["producers"][0]["author"] == demo.author
    assert f"head        2 {h(2)}" in demo("cardinal", "status", "demo").text


def test_lines_that_are_there_share_a_transaction_topic_by_topic(demo: CommandLine) -> None:
    demo("cardinal", "put", "demo", stdin=blocks(1, 2))
    found = demo("cardinal", "messages", f"{demo.author}/1").records
    assert [each["log_id"] for each in found] == [2, 2, 3, 3, 1, 1]


@pytest.mark.parametrize("words", [(), ("--messages",)])
def test_a_file_that_opens_and_cannot_be_read_is_named(
    demo: CommandLine, words: tuple[str, ...]
) -> None:
    unread = demo("cardinal", "put", "demo", "/proc/self/mem", *words)
    assert (unread.status, unread.out) == (1, b"")
    assert "/proc/self/mem: Input/output error" in unread.err


class _Failing:
    """A file of which the rest cannot be read."""

    def __init__(self, data: bytes, number: int) -> None:
        self._data = data
        self._number = number

    def read1(self, _: int, /) -> bytes:
        data, self._data = self._data, b""
        if not data:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return data

    def fileno(self) -> int:
        return self._number


def test_what_came_is_written_where_the_rest_cannot_be_read(
    demo: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(os.devnull).open("rb") as ready:
        failing = _Failing(blocks(1, 2) + b"{", ready.fileno())
        monkeypatch.setattr(cardinal_put, "_input", lambda *_: nullcontext(failing))
        put = demo("cardinal", "put", "demo")
    assert put.text.splitlines() == [f"{number} {h(number)} 3 entries" for number in (1, 2)]
    assert put.status == 1
    assert "standard input: Input/output error" in put.err
