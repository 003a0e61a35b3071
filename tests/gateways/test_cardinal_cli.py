"""`cardinal VERB`: what is printed, and what is refused."""

import json
import signal
import subprocess

import pytest

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
        (("follow", "demo"), 2, "names no log"),
        (("messages", "00/1"), 2, "cardinal"),
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
