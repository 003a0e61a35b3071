"""Packets of the data channel as values, and their encoders (point2point.md 4)."""

from dataclasses import dataclass
from typing import Final

from .entry import tail_offset
from .errors import Violation
from .pools import has_distinct_lipmaalink
from .varu64 import encode_varu64
from .yamf import HASH_BYTES

RULE: Final = "point2point.md 4"
RAW_PAYLOAD: Final = 8
"""First byte of a raw payload packet."""
PIECE_BYTES_MAX: Final = 65536
"""Payload bytes in one `PayloadBytes` at most, if they came compressed."""


@dataclass(frozen=True, slots=True)
class Switch:
    """What follows belongs to this request."""

    request: int


@dataclass(frozen=True, slots=True)
class Notify:
    """I hold these pieces and do not send them."""

    count: int
    """Pieces."""


@dataclass(frozen=True, slots=True)
class SkipBelow:
    """Payload skipped: below your minimum."""


@dataclass(frozen=True, slots=True)
class SkipAbove:
    """Payload skipped: above your maximum."""


@dataclass(frozen=True, slots=True)
class SkipUnavailable:
    """Payload skipped: I do not have it."""


@dataclass(frozen=True, slots=True)
class SkipBytes:
    """A part of this payload is skipped."""

    count: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Apology:
    """The last piece of this request was invalid."""


@dataclass(frozen=True, slots=True)
class RequestCancelled:
    """Nothing more is sent for this request."""

    request: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """An entry without what the receiver can rebuild."""

    tag: int
    """0, or 1 if the log ends with this entry."""
    backlink: bytes | None
    """Yamf hash, if the packet carries it."""
    tail: bytes
    """Size, payload hash and signature, exactly as in the entry's encoding."""


@dataclass(frozen=True, slots=True)
class PayloadStart:
    """`PayloadBytes` follow, this many bytes in all, none if it is 0."""

    length: int
    """Bytes of payload, before compression."""
    compressed: bool


@dataclass(frozen=True, slots=True)
class PayloadBytes:
    """The next bytes of a payload, decompressed; at least one.

    Those of a raw packet are what came of it at once, if that is much a view of it.
    """

    data: bytes | memoryview


DataPacket = (
    Switch
    | Notify
    | SkipBelow
    | SkipAbove
    | SkipUnavailable
    | SkipBytes
    | Apology
    | RequestCancelled
    | Metadata
    | PayloadStart
    | PayloadBytes
)


def encode_switch(request: int) -> bytes:
    """Packet 0."""
    return b"\x00" + encode_varu64(request)


def encode_notify(count: int) -> bytes:
    """Packet 2 for one piece, 3 for more; Violation for none, which would make no progress."""
    if count == 1:
        return b"\x02"
    if count == 0:
        raise Violation(RULE, "a notify of no piece")
    return b"\x03" + encode_varu64(count)


def encode_skip_below() -> bytes:
    """Packet 4."""
    return b"\x04"


def encode_skip_above() -> bytes:
    """Packet 5."""
    return b"\x05"


def encode_skip_unavailable() -> bytes:
    """Packet 6."""
    return b"\x06"


def encode_skip_bytes(count: int) -> bytes:
    """Packet 7."""
    return b"\x07" + encode_varu64(count)


def encode_payload_header(length: int) -> bytes:
    """The start of packet 8; `length` bytes of payload have to follow."""
    return b"\x08" + encode_varu64(length)


def encode_compressed(uncompressed_bytes: int, compressed: bytes) -> bytes:
    """Packet 9, for what `LZFooEncoder` made of that many bytes."""
    header = b"\x09" + encode_varu64(uncompressed_bytes) + encode_varu64(len(compressed))
    return header + compressed


def encode_apology() -> bytes:
    """Packet 16."""
    return b"\x10"


def encode_request_cancelled(request: int) -> bytes:
    """Packet 32."""
    return b"\x20" + encode_varu64(request)


def encode_metadata_packet(encoded: bytes, log_id: int, seq: int, with_backlink: bool) -> bytes:
    """Packet 128 or 129 for an entry, given its encoding.

    `encoded` is trusted to be the encoding of entry `seq` of a log `log_id`. Raises Violation if
    `with_backlink` is asked for an entry whose backlink the receiver always has: entry 1, which
    has none, and those that name one entry by both links.
    """
    offset = tail_offset(log_id, seq)
    if with_backlink:
        if not has_distinct_lipmaalink(seq):
            raise Violation(RULE, f"the metadata of entry {seq} never carries a backlink")
        offset -= HASH_BYTES
    return (b"\x81" if encoded[0] else b"\x80") + encoded[offset:]
