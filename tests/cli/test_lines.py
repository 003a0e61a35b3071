"""Lines are split at LF and nowhere else, however their bytes arrive."""

import io
import os
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from bamboo_cli import lines
from bamboo_cli.lines import LineBytes, is_more_there, line_batches


class Pieces:
    """A pipe that hands out the given pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces: Iterator[bytes] = iter([piece for piece in pieces if piece])

    def read1(self, size: int, /) -> bytes:
        return next(self._pieces, b"")


def content(line: LineBytes) -> bytes:
    if isinstance(line, bytes):
        return line
    with line:
        return line.read()


def expected(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    return parts if parts[-1] else parts[:-1]


@given(st.lists(st.binary(max_size=6) | st.just(b"\n") | st.just(b"\r\n")))
def test_lines_do_not_depend_on_how_their_bytes_arrive(pieces: list[bytes]) -> None:
    found = [content(line) for batch in line_batches(Pieces(pieces)) for line in batch]
    assert found == expected(b"".join(pieces))


def test_an_empty_line_counts_and_an_end_without_lf_too() -> None:
    found = [content(line) for batch in line_batches(io.BytesIO(b"a\n\n\r\nb")) for line in batch]
    assert found == [b"a", b"", b"\r", b"b"]


def test_no_bytes_are_no_line() -> None:
    assert list(line_batches(io.BytesIO(b""))) == []


def test_what_came_with_one_read_is_handed_on_before_the_next() -> None:
    batches = line_batches(Pieces([b"a\nb\nc", b"d\n"]))
    assert next(batches) == [b"a", b"b"]
    assert next(batches) == [b"cd"]


def test_a_long_line_waits_in_a_file() -> None:
    long = b"x" * (lines.IN_MEMORY_BYTES_MAX + 10)
    found = [line for batch in line_batches(io.BytesIO(long + b"\nshort\n")) for line in batch]
    assert not isinstance(found[0], bytes)
    assert [content(line) for line in found] == [long, b"short"]


def test_whether_a_read_would_wait_is_asked_of_the_system() -> None:
    inlet, outlet = os.pipe()
    with open(inlet, "rb") as stream:  # noqa: PTH123 - a number
        with open(outlet, "wb", buffering=0) as writer:  # noqa: PTH123
            assert not is_more_there(stream)
            writer.write(b"1\n")
            assert is_more_there(stream)
            assert stream.read1() == b"1\n"
            assert not is_more_there(stream)
        # The end is there, too.
        assert is_more_there(stream)
    assert not is_more_there(io.BytesIO(b"1\n"))
