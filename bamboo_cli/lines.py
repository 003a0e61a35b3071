"""Splits a stream of bytes at its line feeds, in bounded memory.

Nothing is decoded: a line is bytes, one LF is taken off its end and nothing else, and what follows
the last LF is a line too. What came with one read is handed on at once, so that whoever types, or
sends a line a minute, need not wait for more.
"""

import select
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final, Protocol, cast

from .errors import WrongUsage
from .settings import PROGRAM

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


def check_is_stdin(command: str, files: Sequence[str], words: Sequence[str] = ()) -> None:
    """Raises WrongUsage, which says what to type, if lines are to come from files.

    `command`: as it was named; `words`: what stands between it and `--lines`. Other flags are not
    told again, and are not to be forgotten: an entry of another log cannot be taken back.
    """
    if list(files) == ["-"]:
        return
    typed = shlex.join([PROGRAM, *command.split(), *words, "--lines"])
    raise WrongUsage(
        f"{command} --lines reads standard input and takes no FILE:"
        f" `{shlex.join(['cat', *files])} | {typed}`, and all other flags as they were"
    )


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
        lines: list[LineBytes] = []
        # Of a long line most chunks have no end, which is found out sooner than split.
        first, *others = chunk.split(b"\n") if b"\n" in chunk else (chunk,)
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
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._file: BinaryIO | None = None

    @property
    def is_empty(self) -> bool:
        return self._file is None and not self._bytes

    def extend(self, data: bytes) -> None:
        self._pieces.append(data)
        self._bytes += len(data)
        if self._bytes > IN_MEMORY_BYTES_MAX:
            if self._file is None:
                # Whoever takes the line closes it; the file has no name and is gone then.
                self._file = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115
            self._file.write(self._joined())

    def _joined(self) -> bytes:
        pieces, self._pieces, self._bytes = self._pieces, [], 0
        return b"".join(pieces)

    def take(self) -> LineBytes:
        file, self._file = self._file, None
        if file is None:
            return self._joined()
        file.write(self._joined())
        file.seek(0)
        return file
