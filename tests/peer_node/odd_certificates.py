"""Certificates that no library would write, byte by byte (X.690, RFC 5280, RFC 8410)."""

from collections.abc import Mapping
from typing import Final

from nacl.signing import SigningKey

INTEGER, BIT_STRING, IDENTIFIER, TEXT, SEQUENCE, SET = 2, 3, 6, 12, 0x30, 0x31
UTC_TIME, GENERALIZED_TIME, EXPLICIT_0 = 0x17, 0x18, 0xA0
ED25519: Final = bytes.fromhex("2b6570")
COMMON_NAME: Final = bytes.fromhex("550403")
ODD: Final[Mapping[str, dict[str, bytes]]] = {
    "plain": {},
    "version 1, by saying nothing": {"version": b""},
    "version 2": {"version": b"\x01"},
    "version 4": {"version": b"\x03"},
    "version 128": {"version": b"\x7f"},
    "serial 0": {"serial": b"\x00"},
    "a serial below 0": {"serial": b"\xff"},
    "a serial of 60 bytes": {"serial": b"\x01" * 60},
    "a name of nothing": {"name": b""},
    "ended before it began": {"until": b"19500101000000Z"},
}


def der(tag: int, *parts: bytes) -> bytes:
    """One value: tag, length, contents."""
    contents = b"".join(parts)
    size = len(contents)
    if size < 128:
        return bytes((tag, size)) + contents
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(digits))) + digits + contents


def odd_certificate(
    key: SigningKey,
    *,
    version: bytes = b"\x02",
    serial: bytes = b"\x01",
    name: bytes = b"somebody",
    until: bytes = b"20990101000000Z",
    algorithm: bytes = ED25519,
) -> bytes:
    """A certificate of a key, signed with it. `algorithm`: of what kind it says that the key is."""
    signed_with = der(SEQUENCE, der(IDENTIFIER, ED25519))
    names = der(SEQUENCE, der(SET, der(SEQUENCE, der(IDENTIFIER, COMMON_NAME), der(TEXT, name))))
    times = der(SEQUENCE, der(UTC_TIME, b"200101000000Z"), der(GENERALIZED_TIME, until))
    public = der(BIT_STRING, b"\0", bytes(key.verify_key))
    shown = der(SEQUENCE, der(SEQUENCE, der(IDENTIFIER, algorithm)), public)
    body = der(
        SEQUENCE,
        der(EXPLICIT_0, der(INTEGER, version)) if version else b"",
        der(INTEGER, serial),
        signed_with,
        names,
        times,
        names,
        shown,
    )
    signature = der(BIT_STRING, b"\0", key.sign(body).signature)
    return der(SEQUENCE, body, signed_with, signature)
