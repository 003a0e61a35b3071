"""What is printed where, whatever the state of the standard streams."""

import errno
import io
import sys

import pytest

from bamboo_cli import main
from bamboo_cli.terminal import Items, OutputClosed, Pairs, Terminal, escape
from tests.cli.harness import CommandLine, Stream


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text, é, 日本", "plain text, é, 日本"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\r", "a\\nb\\r"),
        ("\u202e\u200b\x9b", "\\u202e\\u200b\\x9b"),
        ("\ud800", "\\ud800"),
        ("", ""),
    ],
)
def test_what_could_move_a_cursor_or_hide_is_escaped(text: str, expected: str) -> None:
    assert escape(text) == expected


def test_what_is_printed_while_it_is_read_is_what_is_printed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = {"a": 1, "list": [{"values": {"k": "v", "é": None}, "gone": ["x", 2]}], "empty": {}}
    long = {
        "a": 1,
        "list": [
            {"values": Pairs(iter([("k", "v"), ("é", None)])), "gone": Items(iter(["x", 2]))},
        ],
        "empty": Pairs(iter(())),
    }
    terminal = Terminal()
    terminal.record(plain)
    terminal.stream(plain)
    terminal.stream(long)
    monkeypatch.setattr(sys, "stdout", out := Stream())
    terminal.flush()
    first, *others = out.bytes.getvalue().splitlines()
    assert others == [first, first]


class Failing(io.RawIOBase):
    """A file whose every write fails."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        raise OSError(self._number, "on purpose")


def failing(number: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(Failing(number)))


def test_output_that_nobody_reads_ends_the_command_quietly(
    own: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = Stream()
    monkeypatch.setattr(sys, "stdout", failing(errno.EPIPE))
    monkeypatch.setattr(sys, "stderr", err)
    assert main(["--help"]) == 1
    assert err.bytes.getvalue() == b""
    monkeypatch.setattr(sys, "stdout", Stream())


def test_output_that_cannot_be_written_is_named(
    own: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = Stream()
    monkeypatch.setattr(sys, "stdout", failing(errno.ENOSPC))
    monkeypatch.setattr(sys, "stderr", err)
    assert main(["--help"]) == 1
    assert err.bytes.getvalue() == (b"bamboo-peer: standard output cannot be written: on purpose\n")
    monkeypatch.setattr(sys, "stdout", Stream())


def test_closed_output_is_like_output_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    terminal = Terminal()
    terminal.line("x")
    with pytest.raises(OutputClosed):
        terminal.flush()


def test_a_note_is_lost_without_a_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Stream()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", None)
    terminal = Terminal()
    terminal.line("data")
    terminal.note("lost")
    terminal.flush()
    assert out.bytes.getvalue() == b"data\n"


def test_what_was_printed_comes_before_what_went_wrong(own: CommandLine) -> None:
    own("append", stdin=b"x")
    order: list[str] = []

    class Ordered(io.BytesIO):
        def __init__(self, name: str) -> None:
            super().__init__()
            self._name = name

        def write(self, data: object, /) -> int:
            order.append(self._name)
            return len(bytes(data))  # type: ignore[call-overload]  # whatever a stream writes

    with pytest.MonkeyPatch.context() as patch:
        for name in ("stdout", "stderr"):
            patch.setattr(sys, name, io.TextIOWrapper(Ordered(name), write_through=True))
        assert main(["cat", own.author, "1..2"]) == 1
    assert order == ["stdout", "stderr"]


def test_an_interrupt_keeps_what_was_done(
    own: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines() -> object:
        yield [b"one"]
        raise KeyboardInterrupt

    monkeypatch.setattr("bamboo_cli.own.line_batches", lambda _: lines())
    result = own("append", "--lines")
    assert (result.status, result.text, result.err) == (130, f"{own.author}/0/1", "")
    assert own("cat", own.author).out == b"one"
