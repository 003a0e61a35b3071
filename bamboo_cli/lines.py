"""Splits a stream of bytes at its line feeds, in bounded memory.

Nothing is decoded: a line is bytes, one LF is taken off its end and nothing else, and what follows
the last LF is a line too. What came with one read is handed on at once, so that whoever types, or
sends a line a minute, need not wait for more.
"""

import select
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, Final, Protocol, cast

CHUNK_BYTES: Final = 1 << 18
IN_MEMORY_BYTES_MAX: Final = 1 << 20
"""Longer lines wait in a temporary file."""

LineBytes = bytes | BinaryIO


class Readable(Protocol):
    """Hands out what is there, b"" at the end: standard input, a file, a pipe."""

    def read1(self, size: int, /) -> bytes: ...


def chunks(stream: Readable) -> Iterator[bytes]:
    """The bytes of a stream as they come."""
    while chunk := stream.read1(CHUNK_BYTES):
        yield chunk


def is_more_there(stream: BinaryIO) -> bool:
    """Whether the next read has to wait for nobody, as far as the system says."""
    try:
        number = stream.fileno()
    except OSError:
        # Bytes in memory, say.
        return False
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))


def line_batches(stream: Readable) -> Iterator[list[LineBytes]]:
    """The lines that came with each read; a list may be empty."""
    tail = _Tail()
    for chunk in chunks(stream):
        first, *others = chunk.split(b"\n")
        lines: list[LineBytes] = []
        tail.extend(first)
        if others:
            lines = [tail.take(), *others[:-1]]
            tail.extend(others[-1])
        yield lines
    if not tail.is_empty:
        yield [tail.take()]


class _Tail:
    """The line whose end has not come yet."""

    def __init__(self) -> None:
        self._memory = bytearray()
        self._file: BinaryIO | None = None

    @property
    def is_empty(self) -> bool:
        return self._file is None and not self._memory

    def extend(self, data: bytes) -> None:
        self._memory += data
        if len(self._memory) > IN_MEMORY_BYTES_MAX:
            if self._file is None:
                # Whoever takes the line closes it; the file has no name and is gone then.
                self._file = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115
            self._file.write(self._memory)
            self._memory.clear()

    def take(self) -> LineBytes:
        memory, self._memory = self._memory, bytearray()
        file, self._file = self._file, None
        if file is None:
            return bytes(memory)
        file.write(memory)
        file.seek(0)
        return file
