"""The bytes that each side sends first, and what both derive from them (point2point.md 1)."""

from dataclasses import dataclass

from .errors import NeedMore
from .varu64 import decode_varu64, encode_varu64

_SEND_GREEDILY = 2
_ACCEPT_GREEDILY = 1


@dataclass(frozen=True, slots=True)
class Setup:
    """What one side wishes for the session."""

    send_greedily: bool
    """I want to send payload bytes before I have verified them."""
    accept_greedily: bool
    """I am willing to receive such bytes."""
    send_window: int
    """Largest compression window for sending, in bytes; 0: I never compress."""
    receive_window: int
    """Largest compression window for receiving, in bytes; 0: never compress for me."""


@dataclass(frozen=True, slots=True)
class Negotiated:
    """What both sides' wishes come to, as one side sees it."""

    send_greedily: bool
    receive_greedily: bool
    compression_window: int
    """Bytes; 0: this side sends nothing compressed."""
    decompression_window: int
    """Bytes; 0: the other side sends nothing compressed."""


def encode_setup(setup: Setup) -> bytes:
    """The setup bytes; ValueError if a window is not an unsigned 64-bit integer."""
    flags = _SEND_GREEDILY * setup.send_greedily + _ACCEPT_GREEDILY * setup.accept_greedily
    windows = encode_varu64(setup.send_window) + encode_varu64(setup.receive_window)
    return bytes((flags,)) + windows


# flags: 000000 and two bits, send greedily, accept greedily | send window, V | receive window, V
def decode_setup(data: bytes, offset: int = 0) -> tuple[Setup, int]:
    """The setup at `offset`, and the offset behind it; the six high bits are ignored.

    Raises NeedMore if `data` ends first. Nothing else can go wrong.
    """
    if offset >= len(data):
        raise NeedMore("setup")
    flags = data[offset]
    send_window, offset = decode_varu64(data, offset + 1)
    receive_window, offset = decode_varu64(data, offset)
    setup = Setup(
        bool(flags & _SEND_GREEDILY), bool(flags & _ACCEPT_GREEDILY), send_window, receive_window
    )
    return setup, offset


def negotiate(ours: Setup, theirs: Setup) -> Negotiated:
    """What holds for the side that sent `ours` and received `theirs`."""
    return Negotiated(
        send_greedily=ours.send_greedily and theirs.accept_greedily,
        receive_greedily=theirs.send_greedily and ours.accept_greedily,
        compression_window=min(ours.send_window, theirs.receive_window),
        decompression_window=min(theirs.send_window, ours.receive_window),
    )
