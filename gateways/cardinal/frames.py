"""Payloads: frames, each a key and a value with their lengths (spec 4.2). Sans-io.

A frame with an empty key is a note, for this transport alone.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gateways.declaration import canonical_json
from gateways.reading import CodecError
from wire import U64_MAX, encode_varu64

PAYLOAD_BYTES_MAX: Final = 32 << 20
ENTRY_BYTES: Final = 1 << 20
"""Above it a new entry begins at the next frame."""
_ONE_BYTE_MAX: Final = 247


class Frame(NamedTuple):
    """A message as it lies in a payload, or a note where the key is empty."""

    key: bytes
    value: bytes


def encode_frame(key: bytes, value: bytes) -> bytes:
    """A message; with an empty key a note."""
    key_bytes, value_bytes = len(key), len(value)
    if key_bytes > _ONE_BYTE_MAX or value_bytes > _ONE_BYTE_MAX:
        return encode_varu64(key_bytes) + key + encode_varu64(value_bytes) + value
    return b"%c%b%c%b" % (key_bytes, key, value_bytes, value)


def encode_frames(head: bytes, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    """A frame for each message, whose keys begin alike. Nothing is interpreted for each of them."""
    begins = {size: encode_varu64(len(head) + size) + head for size in {*map(len, keys)}}
    lengths = {size: encode_varu64(size) for size in {*map(len, values)}}
    rows = zip(
        map(begins.__getitem__, map(len, keys)),
        keys,
        map(lengths.__getitem__, map(len, values)),
        values,
        strict=True,
    )
    return [*map(b"".join, rows)]


def encode_note(fields: Mapping[str, object]) -> bytes:
    """A frame that is no message."""
    return encode_frame(b"", canonical_json(fields))


def payloads(frames: Sequence[bytes]) -> list[bytes]:
    """Entries for some frames, in their order: 1 MiB at most, or one frame."""
    whole = b"".join(frames)
    if len(whole) <= ENTRY_BYTES:
        return [whole] if whole else []
    found: list[bytes] = []
    gathered: list[bytes] = []
    size = 0
    for frame in frames:
        if gathered and size + len(frame) > ENTRY_BYTES:
            found.append(b"".join(gathered))
            gathered, size = [], 0
        gathered.append(frame)
        size += len(frame)
    if gathered:
        found.append(b"".join(gathered))
    return found


def frames_of(payload: bytes) -> Iterator[Frame]:
    """The frames of a payload. Raises CodecError behind the last that is whole."""
    for key, value, _ in placed_frames(payload):
        yield Frame(key, value)


def placed_frames(payload: bytes) -> Iterator[tuple[bytes, bytes, int]]:
    """Key, value and end of each frame. Raises CodecError behind the last that is whole.

    A length is compared with what is left before anything is made of it. Plain tuples: to make a
    `Frame` of each takes as long as to read it.
    """
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise CodecError(f"a payload of {len(payload)} bytes: {PAYLOAD_BYTES_MAX} are the limit")
    at, end = 0, len(payload)
    while at < end:
        # Nearly all lengths are one byte: this is done for each message there is.
        length = payload[at]
        at += 1
        if length > _ONE_BYTE_MAX:
            length, at = _long_length(payload, at - 1)
        start, at = at, at + length
        if at >= end:
            raise CodecError(f"a key of {length} bytes at byte {start}: {end - start} are left")
        key = payload[start:at]
        length = payload[at]
        at += 1
        if length > _ONE_BYTE_MAX:
            length, at = _long_length(payload, at - 1)
        start, at = at, at + length
        if at > end:
            raise CodecError(f"a value of {length} bytes at byte {start}: {end - start} are left")
        yield key, payload[start:at], at


def _long_length(payload: bytes, at: int) -> tuple[int, int]:
    """A length of several bytes, and where it ends."""
    behind = at + payload[at] - _ONE_BYTE_MAX + 1
    length = int.from_bytes(payload[at + 1 : behind], "big")
    if behind > len(payload):
        raise CodecError(f"a length at byte {at}: it is cut off")
    if length > U64_MAX or encode_varu64(length) != payload[at:behind]:
        raise CodecError(f"a length at byte {at}: it is longer than needed")
    return length, behind


def channel_of(note: bytes) -> int | None:
    """The log that a note names as a channel; None if it names none. Unknown fields are ignored."""
    try:
        fields: object = json.loads(note)
    except (ValueError, RecursionError):
        return None
    channel = fields.get("channel") if isinstance(fields, dict) else None
    if (
        isinstance(channel, str)
        and channel.isascii()
        and channel.isdecimal()
        and len(channel) <= 20
    ):
        channel = int(channel)
    return channel if type(channel) is int and 0 <= channel <= U64_MAX else None
