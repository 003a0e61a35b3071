"""Bundles as bytes (everyday.md 5): what one node lacks of another's logs, in a file or a pipe.

    62 61 6d 62 6f 6f 2d 62 75 6e 64 6c 65 0a 01      "bamboo-bundle", LF, version 1
    type (1 byte), length (VarU64), body              records to the end

    00 log      author (32), log id, first, last: the entries meant; logs ascend
    01 entry    its canonical encoding; ascending within its log
    02 payload  up to 64 KiB of the payload of the entry before it, in order; none: not brought
    03 proof    both encodings of a fork of the log, one behind the other
    7f end      the yamf hash of all bytes before this record; nothing follows

Types 40 to 7e are skipped, whatever their length, and others refused.

Nothing here waits or opens anything: bytes go in, records come out, and at every split of the bytes
the same ones. Each type has a largest length, and a record that claims more is broken framing. So
the decoder never holds more than a record of 64 KiB and what it was fed last, and a flipped bit in
a length cannot pass for a file that was cut short: nobody would look for what comes behind it.

That a payload of no bytes was brought is said by a record of no bytes.
"""

from hashlib import blake2b
from typing import Final, NamedTuple

from wire import (
    ENTRY_BYTES_MAX,
    HASH_BYTES,
    EntryError,
    LogKey,
    NeedMore,
    decode_entry_prefix,
    decode_varu64,
    encode_varu64,
    yamf_from_digest,
)

MAGIC: Final = b"bamboo-bundle\n"
HEADER: Final = MAGIC + b"\x01"

LOG: Final = 0x00
ENTRY: Final = 0x01
PAYLOAD: Final = 0x02
PROOF: Final = 0x03
END: Final = 0x7F
_SKIPPED: Final = range(0x40, 0x7F)

PIECE_BYTES: Final = 65_536
"""As much of a payload as one record has."""
_AUTHOR_BYTES: Final = 32
_NUMBER_BYTES_MAX: Final = 9
_BODY_BYTES_MAX: Final = {
    LOG: _AUTHOR_BYTES + 3 * _NUMBER_BYTES_MAX,
    ENTRY: ENTRY_BYTES_MAX,
    PAYLOAD: PIECE_BYTES,
    PROOF: 2 * ENTRY_BYTES_MAX,
    END: HASH_BYTES,
}


class BundleError(Exception):
    """Bytes that are no bundle, or cannot be read on from an offset; the text is the reason."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset: Final = offset


class Record(NamedTuple):
    """A whole record: where it begins and what follows it, in bytes of the bundle."""

    offset: int
    end: int
    type: int
    body: bytes


class LogRange(NamedTuple):
    """A log record: which entries are meant, both ends included; none if `last` is below."""

    key: LogKey
    first: int
    last: int


def encode_record(type_: int, body: bytes) -> bytes:
    """A record with its head."""
    return b"".join((bytes((type_,)), encode_varu64(len(body)), body))


def encode_log(meant: LogRange) -> bytes:
    """A log record."""
    numbers = map(encode_varu64, (meant.key.log_id, meant.first, meant.last))
    return encode_record(LOG, b"".join((meant.key.author, *numbers)))


def encode_end(hasher: blake2b) -> bytes:
    """The end record behind the bytes that BLAKE2b was fed with."""
    return encode_record(END, yamf_from_digest(hasher.digest()))


def decode_log(record: Record) -> LogRange:
    """What a log record says. Raises BundleError."""
    body, at = record.body, _AUTHOR_BYTES
    try:
        log_id, at = decode_varu64(body, at)
        first, at = decode_varu64(body, at)
        last, at = decode_varu64(body, at)
    except NeedMore:
        raise BundleError(record.offset, "a log record that ends inside a number") from None
    if at != len(body):
        raise BundleError(record.offset, f"{len(body) - at} bytes behind the numbers of a log")
    return LogRange(LogKey(body[:_AUTHOR_BYTES], log_id), first, last)


def decode_proof(body: bytes) -> tuple[LogKey, bytes, bytes]:
    """The log that a proof is of, by the first of its encodings, and both. Raises EntryError."""
    try:
        entry, end = decode_entry_prefix(body, 0)
        _, second = decode_entry_prefix(body, end)
    except NeedMore as short:
        raise EntryError(short.field, "the proof ends inside it") from None
    if second != len(body):
        raise EntryError("signature", f"{len(body) - second} bytes follow the proof")
    return entry.key, body[:end], body[end:]


class BundleDecoder:
    """Records from bytes that come in pieces of any size.

    After a BundleError it is of no use any more.
    """

    def __init__(self) -> None:
        self._data = b""
        self._at = 0
        self._base = 0
        """How many bytes went before `_data`."""
        self._hasher = blake2b()
        self._skips = 0
        self._ended = False

    @property
    def offset(self) -> int:
        """Where what was not handed out yet begins."""
        return self._base + self._at

    @property
    def is_complete(self) -> bool:
        """Whether the end record was handed out."""
        return self._ended

    def hasher(self) -> blake2b:
        """BLAKE2b that was fed with all bytes before `offset`."""
        return self._hasher.copy()

    def feed(self, data: bytes) -> None:
        """Takes the next bytes; `next_record` is to be called until it has none."""
        rest = self._data[self._at :] if self._at < len(self._data) else b""
        self._base += self._at
        self._data = rest + data if rest else data
        self._at = 0

    def next_record(self) -> Record | None:
        """The next whole record; None until more bytes have come. Raises BundleError."""
        if self.offset < len(HEADER) and not self._take_header():
            return None
        while True:
            self._skip()
            if self._at == len(self._data):
                return None
            if self._ended:
                raise BundleError(self.offset, "something follows the end of the bundle")
            head = self._head()
            if head is None:
                return None
            type_, length, start = head
            if type_ in _SKIPPED:
                self._skips = start - self._at + length
                continue
            if start + length > len(self._data):
                return None
            return self._take(type_, self._data[start : start + length], start + length)

    def _take_header(self) -> bool:
        found = self._data[: len(HEADER)]
        if found[: len(MAGIC)] != MAGIC[: len(found)]:
            raise BundleError(0, "this is no bundle")
        if len(found) < len(HEADER):
            return False
        if found != HEADER:
            raise BundleError(len(MAGIC), f"version {found[-1]} of bundles is not known, only 1 is")
        self._consume(len(HEADER))
        return True

    def _skip(self) -> None:
        """Passes over what is to be skipped, as far as it has come."""
        count = min(self._skips, len(self._data) - self._at)
        if count:
            self._skips -= count
            self._consume(self._at + count)

    def _consume(self, end: int) -> None:
        self._hasher.update(memoryview(self._data)[self._at : end])
        self._at = end

    def _head(self) -> tuple[int, int, int] | None:
        """Type, length, and where in `_data` the body begins; None if it has not come."""
        data, at = self._data, self._at
        type_ = data[at]
        length_max = _BODY_BYTES_MAX.get(type_)
        if length_max is None and type_ not in _SKIPPED:
            raise BundleError(self.offset, f"a record of type {type_:02x}, which is not known")
        try:
            length, start = decode_varu64(data, at + 1)
        except NeedMore:
            return None
        if length_max is not None and length > length_max:
            what = f"a record of type {type_:02x} and {length} bytes, {length_max} are the most"
            raise BundleError(self.offset, what)
        return type_, length, start

    def _take(self, type_: int, body: bytes, end: int) -> Record:
        offset = self.offset
        if type_ == END:
            if body != yamf_from_digest(self._hasher.digest()):
                what = "the hash at the end is not that of the bundle: it was damaged on its way"
                raise BundleError(offset, what)
            self._ended = True
            self._at = end
        else:
            self._consume(end)
        return Record(offset, self.offset, type_, body)
