"""Entries of a log (bamboo.md): the bytes that are hashed and signed.

What is checked here are the rules that one encoding can break by itself, its links against hashes
that the caller holds, and its signature. What needs the rest of the log is the caller's business.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple, Self, overload

from .errors import EntryError, NeedMore
from .pools import has_distinct_lipmaalink
from .varu64 import U64_MAX, decode_varu64_canonical, encode_varu64
from .yamf import HASH_BYTES, decode_yamf

AUTHOR_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
ENTRY_BYTES_MAX: Final = 322

_LOG_KEY = re.compile(r"([0-9a-fA-F]{64})(?:/([0-9]{1,20}))?", re.ASCII)
_TAGS = {b"\x00": False, b"\x01": True}


class _LogFields(NamedTuple):
    author: bytes
    """Ed25519 public key, 32 bytes."""
    log_id: int
    """Unsigned 64-bit number."""


class LogKey(_LogFields):
    """The name of a log: `LogKey(author, log_id)`, or `LogKey(text)` as `parse` takes it.

    The engine makes and looks up millions: it hashes and compares as the tuple that it is, and what
    tells the two forms apart is a default, which costs nothing where both values are given. Neither
    checks them; who takes keys from elsewhere does.
    """

    __slots__ = ()

    @overload
    def __new__(cls, author: bytes, log_id: int) -> Self: ...
    @overload
    def __new__(cls, author: str) -> Self: ...
    def __new__(cls, author: bytes | str, log_id: int | None = None) -> Self:
        """Raises ValueError for a text that names no log, TypeError for an author without a log."""
        if log_id is None:
            if isinstance(author, str):
                author, log_id = _parsed(author)
            else:
                raise TypeError(
                    f"LogKey({author!r:.60}): a log is LogKey(author, log_id) or LogKey('…/N')"
                )
        return _new(cls, (author, log_id))

    def __repr__(self) -> str:
        if type(self.author) is bytes and len(self.author) == AUTHOR_BYTES:
            return f"LogKey('{self}')"
        return f"LogKey({self.author!r}, {self.log_id!r})"

    def __str__(self) -> str:
        return f"{self.author.hex()}/{self.log_id}"

    @classmethod
    def parse(cls, text: str) -> "LogKey":
        """The log named by "<author in hex>/<log id>", or "<author in hex>" for log id 0.

        Raises ValueError, with a message for people, if `text` is neither.
        """
        return cls(*_parsed(text))


_new = tuple.__new__


def _parsed(text: str) -> tuple[bytes, int]:
    match = _LOG_KEY.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text[:100]!r} names no log: expected the author's key as 64 hex digits, "
            "and optionally a slash and the log id"
        )
    log_id = int(match[2] or "0")
    if log_id > U64_MAX:
        raise ValueError(f"log id {log_id} is above 2^64 - 1")
    return bytes.fromhex(match[1]), log_id


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry, its payload apart."""

    author: bytes
    """Ed25519 public key, 32 bytes."""
    log_id: int
    seq: int
    """Sequence number, from 1 on."""
    is_end: bool
    """Whether the log ends with this entry."""
    lipmaalink: bytes | None
    """Yamf hash of entry lipmaa(seq), unless that is seq - 1 or there is none."""
    backlink: bytes | None
    """Yamf hash of entry seq - 1, unless seq is 1."""
    payload_bytes: int
    """Length of the payload in bytes: the field "size"."""
    payload_hash: bytes
    """Yamf hash of the payload."""
    signature: bytes
    """Ed25519 signature over all fields before it, 64 bytes."""

    @property
    def key(self) -> LogKey:
        """The log that the entry belongs to."""
        return LogKey(self.author, self.log_id)


def encode_entry(entry: Entry) -> bytes:
    """The canonical encoding of `entry`.

    Raises EntryError if a field has no encoding: a number out of range, a hash, key or signature
    of the wrong length, a link that this seqnum must have and has not, or the reverse.
    """
    if len(entry.signature) != SIGNATURE_BYTES:
        raise EntryError("signature", f"{len(entry.signature)} bytes instead of 64")
    return (
        encode_unsigned(
            entry.author,
            log_id=entry.log_id,
            seq=entry.seq,
            is_end=entry.is_end,
            lipmaalink=entry.lipmaalink,
            backlink=entry.backlink,
            payload_bytes=entry.payload_bytes,
            payload_hash=entry.payload_hash,
        )
        + entry.signature
    )


def encode_unsigned(
    author: bytes,
    *,
    log_id: int,
    seq: int,
    is_end: bool,
    lipmaalink: bytes | None,
    backlink: bytes | None,
    payload_bytes: int,
    payload_hash: bytes,
) -> bytes:
    """Everything of an entry's encoding that the signature covers; EntryError as `encode_entry`."""
    if len(author) != AUTHOR_BYTES:
        raise EntryError("author", f"{len(author)} bytes instead of 32")
    if seq == 0:
        raise EntryError("seqnum", "numbers start at 1")
    return b"".join(
        (
            b"\x01" if is_end else b"\x00",
            author,
            _encode_u64(log_id, "log id"),
            _encode_u64(seq, "seqnum"),
            encode_links(seq, lipmaalink, backlink),
            _encode_u64(payload_bytes, "size"),
            _encode_hash(payload_hash, "payload hash"),
        )
    )


def encode_links(seq: int, lipmaalink: bytes | None, backlink: bytes | None) -> bytes:
    """The links of entry `seq`, in order; EntryError unless they are those it must have."""
    if (lipmaalink is not None) != has_distinct_lipmaalink(seq):
        must = "must not" if lipmaalink is not None else "has to"
        raise EntryError("lipmaalink", f"entry {seq} {must} have one")
    if (backlink is not None) != (seq > 1):
        must = "must not" if backlink is not None else "has to"
        raise EntryError("backlink", f"entry {seq} {must} have one")
    links = b""
    if lipmaalink is not None:
        links = _encode_hash(lipmaalink, "lipmaalink")
    if backlink is not None:
        links += _encode_hash(backlink, "backlink")
    return links


def _encode_u64(n: int, field: str) -> bytes:
    if not 0 <= n <= U64_MAX:
        raise EntryError(field, f"{n} is not an unsigned 64-bit integer")
    return encode_varu64(n)


def _encode_hash(value: bytes, field: str) -> bytes:
    if len(value) != HASH_BYTES:
        raise EntryError(field, f"{len(value)} bytes instead of a yamf hash of 66")
    decode_yamf(value, 0, field)
    return value


def decode_entry(data: bytes) -> Entry:
    """The entry that `data` holds, exactly one.

    Raises EntryError, naming the field, if the bytes are no entry, end inside one, or go on.
    """
    try:
        entry, end = decode_entry_prefix(data, 0)
    except NeedMore as short:
        raise EntryError(short.field, f"the entry ends inside it, at byte {len(data)}") from None
    if end != len(data):
        raise EntryError("signature", f"{len(data) - end} bytes follow the entry")
    return entry


# tag 00 or 01 | author, 32 | log id, V | seqnum, V, not 0 | [lipmaalink, 66] | [backlink, 66]
# | size, V | payload hash, 66 | signature, 64. Every V is canonical.
def decode_entry_prefix(data: bytes, offset: int) -> tuple[Entry, int]:
    """The entry at `offset`, and the offset behind it.

    Raises EntryError, naming the field, and NeedMore if `data` ends inside an entry that is right
    so far.
    """
    tag = data[offset : offset + 1]
    is_end = _TAGS.get(tag)
    if is_end is None:
        if not tag:
            raise NeedMore("tag")
        raise EntryError("tag", f"byte {tag.hex()}, only 00 and 01 are valid")
    start = offset + 1
    offset = start + AUTHOR_BYTES
    if offset > len(data):
        raise NeedMore("author")
    author = data[start:offset]
    log_id, offset = decode_varu64_canonical(data, offset, "log id")
    seq, offset = decode_varu64_canonical(data, offset, "seqnum")
    lipmaalink = backlink = None
    if seq > 1:
        if has_distinct_lipmaalink(seq):
            lipmaalink, offset = decode_yamf(data, offset, "lipmaalink")
        backlink, offset = decode_yamf(data, offset, "backlink")
    elif seq == 0:
        raise EntryError("seqnum", "numbers start at 1")
    payload_bytes, offset = decode_varu64_canonical(data, offset, "size")
    payload_hash, offset = decode_yamf(data, offset, "payload hash")
    end = offset + SIGNATURE_BYTES
    if end > len(data):
        raise NeedMore("signature")
    entry = Entry(
        author,
        log_id,
        seq,
        is_end,
        lipmaalink,
        backlink,
        payload_bytes,
        payload_hash,
        data[offset:end],
    )
    return entry, end


def tail_offset(log_id: int, seq: int) -> int:
    """Index of the field "size" in the encoding of entry `seq`.

    From there on the encoding is what a metadata packet carries (point2point.md 4).
    """
    links = 0
    if seq > 1:
        links = 2 * HASH_BYTES if has_distinct_lipmaalink(seq) else HASH_BYTES
    # Numbers below 248, the usual ones, take one byte.
    log_id_bytes = 1 if log_id < 248 else 1 + ((log_id.bit_length() + 7) >> 3)
    seq_bytes = 1 if seq < 248 else 1 + ((seq.bit_length() + 7) >> 3)
    return 1 + AUTHOR_BYTES + log_id_bytes + seq_bytes + links


def rebuild_entry(
    log: LogKey,
    seq: int,
    tag: int,
    lipmaalink: bytes | None,
    backlink: bytes | None,
    tail: bytes,
) -> bytes:
    """The encoding of an entry whose metadata came in a data packet (point2point.md 4).

    `tag` (0 or 1) and `tail` are those of the packet, the links are the ones that it carried or
    the hashes of the entries that they name. Raises EntryError if they are not the links that
    entry `seq` must have.
    """
    links = encode_links(seq, lipmaalink, backlink)
    start = encode_varu64(log.log_id) + encode_varu64(seq)
    return b"".join((b"\x01" if tag else b"\x00", log.author, start, links, tail))


def tail_fields(tail: bytes) -> tuple[int, bytes]:
    """Payload length in bytes and yamf hash of the payload, from the tail of an encoding.

    Raises EntryError, naming the field, if `tail` is not a size, a payload hash and a signature.
    """
    try:
        payload_bytes, offset = decode_varu64_canonical(tail, 0, "size")
        payload_hash, offset = decode_yamf(tail, offset, "payload hash")
    except NeedMore as short:
        raise EntryError(short.field, "the bytes end inside it") from None
    if len(tail) - offset != SIGNATURE_BYTES:
        raise EntryError("signature", f"{len(tail) - offset} bytes instead of 64")
    return payload_bytes, payload_hash


def verify_links(entry: Entry, lipmaa_hash: bytes | None, back_hash: bytes | None) -> None:
    """Checks the links of `entry` against the hashes of the entries they name, as far as held.

    Raises EntryError, naming the link, where a hash is given and the link differs.
    """
    if lipmaa_hash is not None and entry.lipmaalink not in (None, lipmaa_hash):
        raise EntryError("lipmaalink", f"entry {entry.seq} names another entry", _VERIFIED)
    if back_hash is not None and entry.backlink not in (None, back_hash):
        raise EntryError("backlink", f"entry {entry.seq} names another entry", _VERIFIED)


_VERIFIED = "bamboo.md Verified"
