"""Reads the JSON lines of `import`, however long they are, in bounded memory.

A line of up to 1 MiB is parsed whole. A longer one can only be an entry with a large payload, in
the form in which `dump` prints it, `encoded` first: then the entry is known, and with it how long
the payload may be, before the payload is read; it is handed on in pieces. Anything else of that
length is refused unread.
"""

import json
import re
from binascii import unhexlify
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from wire import (
    ENTRY_BYTES_MAX,
    Entry,
    EntryError,
    LogKey,
    decode_entry,
    signature_is_valid,
    yamf_hash,
)

from .lines import Readable, chunks

if TYPE_CHECKING:
    from logstore import PayloadFile

LINE_BYTES_MAX: Final = 1 << 20
"""Longer lines are read in pieces."""
_HEAD_BYTES_MAX: Final = 2 * ENTRY_BYTES_MAX + 1024
_TRAILER_BYTES_MAX: Final = 1024

_HEAD = re.compile(
    rb'\s*\{\s*"encoded"\s*:\s*"([0-9a-fA-F]*)"\s*,\s*'
    # What `dump` says in between, for people: all of it is in the entry, but for when it came.
    rb'(?:"(?!payload")\w{1,40}"\s*:\s*(?:"[^"\\]{0,200}"|[0-9]{1,20}|null)\s*,\s*){0,20}'
    rb'"payload"\s*:\s*"'
)
_TRAILER = re.compile(rb"\s*\}\s*")


class BadLine(Exception):  # noqa: N818 - the input's fault, reported and passed over
    """A line that is not stored; the argument is the reason."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line that fits in memory."""

    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line that does not; its bytes have to be taken before the next line is asked for."""

    number: int
    pieces: Iterator[bytes]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry whose encoding, signature and payload are right; what it links to is not known."""

    number: int
    """The line it stood in."""
    entry: Entry
    encoded: bytes
    hash: bytes
    payload: "bytes | PayloadFile | None"

    @property
    def key(self) -> LogKey:
        return self.entry.key

    @property
    def seq(self) -> int:
        return self.entry.seq

    @property
    def bytes_in_memory(self) -> int:
        payload = len(self.payload) if isinstance(self.payload, bytes) else 0
        return len(self.encoded) + payload


def read_lines(stream: Readable) -> Iterator[Line | LongLine]:
    """The lines of a stream, numbered from 1."""
    reader = _Reader(stream)
    number = 0
    while True:
        data = reader.up_to_end_of_line(LINE_BYTES_MAX)
        if not data and reader.at_end:
            return
        number += 1
        if reader.line_is_whole:
            yield Line(number, data)
        else:
            rest = reader.rest_of_line(data)
            yield LongLine(number, rest)
            for _ in rest:
                pass


class _Reader:
    """A stream with a buffer, cut at line feeds."""

    def __init__(self, stream: Readable) -> None:
        self._chunks = chunks(stream)
        self._buffer = b""
        self._used = 0
        self.at_end = False
        self.line_is_whole = False

    def _take(self) -> bytes:
        """The buffer up to a LF, if there is one, or all of it; b"" at the end of the stream."""
        if self._used == len(self._buffer):
            self._buffer = next(self._chunks, b"")
            self._used = 0
            self.at_end = not self._buffer
        end = self._buffer.find(b"\n", self._used)
        self.line_is_whole = end >= 0
        if end < 0:
            end = len(self._buffer)
        taken = self._buffer[self._used : end]
        self._used = end + self.line_is_whole
        return taken

    def up_to_end_of_line(self, bytes_max: int) -> bytes:
        """The next line without its LF, or more than `bytes_max` of it and the rest to come."""
        parts: list[bytes] = []
        size = 0
        while size <= bytes_max:
            parts.append(self._take())
            size += len(parts[-1])
            if self.line_is_whole or self.at_end:
                self.line_is_whole = True
                break
        return b"".join(parts)

    def rest_of_line(self, start: bytes) -> Iterator[bytes]:
        """A line that `up_to_end_of_line` began, to its end."""
        yield start
        while not (self.line_is_whole or self.at_end):
            yield self._take()


def parse_line(line: Line) -> Candidate | None:
    """The entry of a line; None for a blank one. Raises BadLine."""
    if not line.data.strip():
        return None
    try:
        fields = json.loads(line.data)
    except RecursionError:
        raise BadLine("JSON that is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise BadLine(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except ValueError as error:
        raise BadLine(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadLine("not a JSON object")
    for name in ("encoded", "payload"):
        if name not in fields:
            raise BadLine(f'there is no "{name}"')
    encoded = _unhex(fields["encoded"], "encoded")
    entry = _checked_entry(encoded)
    payload = None if fields["payload"] is None else _unhex(fields["payload"], "payload")
    if payload is not None:
        _check_payload(entry, payload)
    return Candidate(line.number, entry, encoded, yamf_hash(encoded), payload)


def _unhex(value: object, name: str) -> bytes:
    if not isinstance(value, str):
        raise BadLine(f'"{name}" is not a string of hex digits')
    return _unhex_bytes(value, name)


def _unhex_bytes(digits: str | bytes, name: str) -> bytes:
    try:
        return unhexlify(digits)
    except ValueError as error:
        raise BadLine(f'"{name}" is not hex: {error}') from None


def _checked_entry(encoded: bytes) -> Entry:
    try:
        entry = decode_entry(encoded)
    except EntryError as error:
        raise BadLine(f"no entry: {error}") from None
    if not signature_is_valid(encoded):
        raise BadLine("the signature is not the author's")
    return entry


def _check_payload(entry: Entry, payload: bytes) -> None:
    """Raises BadLine unless the payload has the entry's hash.

    With the right hash and the wrong size it is evidence against the log, which the store judges.
    """
    if yamf_hash(payload) == entry.payload_hash:
        return
    if len(payload) != entry.payload_bytes:
        raise BadLine(f"a payload of {len(payload)} bytes; the entry says {entry.payload_bytes}")
    raise BadLine("the payload is not the one whose hash the entry has")


def parse_long_line(line: LongLine) -> tuple[Candidate, Iterator[bytes]]:
    """The entry of a long line, and its payload in pieces, which raise BadLine too."""
    start = next(line.pieces)
    head = _HEAD.match(start[:_HEAD_BYTES_MAX])
    if head is None:
        limit = LINE_BYTES_MAX >> 20
        raise BadLine(
            f'a line above {limit} MiB has to be {{"encoded": hex, "payload": hex}}, in this order'
        )
    encoded = _unhex_bytes(head[1], "encoded")
    entry = _checked_entry(encoded)
    candidate = Candidate(line.number, entry, encoded, yamf_hash(encoded), None)
    return candidate, _payload_pieces(entry, start[head.end() :], line.pieces)


def _payload_pieces(entry: Entry, start: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes of a payload from its hex digits, never more than the entry says."""
    due = entry.payload_bytes
    digits, quote, trailer = start.partition(b'"')
    while not quote:
        even = len(digits) & ~1
        piece = _unhex_bytes(digits[:even], "payload")
        due -= len(piece)
        if due < 0:
            raise BadLine(f"a payload longer than the {entry.payload_bytes} bytes of the entry")
        yield piece
        following = next(pieces, None)
        if following is None:
            raise BadLine("not JSON: the line ends inside a string")
        digits, quote, trailer = (digits[even:] + following).partition(b'"')
    piece = _unhex_bytes(digits, "payload")
    if len(piece) != due:
        total = entry.payload_bytes - due + len(piece)
        raise BadLine(f"a payload of {total} bytes; the entry says {entry.payload_bytes}")
    yield piece
    for more in pieces:
        trailer += more
        if len(trailer) > _TRAILER_BYTES_MAX:
            break
    if len(trailer) > _TRAILER_BYTES_MAX or not _TRAILER.fullmatch(trailer):
        raise BadLine("not JSON that `dump` prints: something follows the payload")
