"""Whether payload bytes go raw or compressed, and the packets that hold them (point2point.md 4).

What is compressed is what shrinks. That is found out by trying, but cheaply: of a large piece only
the beginning is tried first, and a request in which nothing shrank sends the next bytes raw without
trying, ever more of them. Whether the link is so fast that compressing holds it up is measured
(link_speed.py); what is small goes with its entries, many at a time, as it is.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from peer.protocol.config import Compression
from peer.protocol.request import TRIAL_PAUSE_BYTES_MIN, Trial
from wire import U64_MAX, LZFooEncoder, encode_compressed, encode_payload_header

from .link_speed import LinkSpeed, Pull

SMALL_BYTES: Final = 1024
"""With "auto", payloads below this size go raw: their metadata outweighs what could be saved."""

PACKET_BYTES_MAX: Final = 64 * 1024
"""Payload bytes in one compressed packet at most."""

_ALONE_BYTES_MIN: Final = 16 * 1024
"""Of less it takes longer to hand on two pieces than to make one."""

_SAMPLE_BYTES: Final = 4096
"""Of a large piece this is tried first: a sixteenth of a packet."""
_SAVING_BYTES_MIN: Final = 4
"""The second length of a compressed packet; beyond that 3 % have to be saved."""
_PAUSE_BYTES_MAX: Final = 16 * PACKET_BYTES_MAX
"""So much goes raw at most before it is tried again, however little shrank until then."""

Packets = Sequence[bytes | memoryview]
"""Whole packets in any number of pieces; what is large in them was not copied."""


def packets(made: bytes) -> Packets:
    """What was made in one piece, if anything was."""
    return (made,) if made else ()


def gathered(pieces: Packets) -> list[bytes | memoryview]:
    """The same with small pieces put together: a request may send hundreds of packets at once."""
    found: list[bytes | memoryview] = []
    for is_large, some in groupby(pieces, lambda piece: len(piece) >= _ALONE_BYTES_MIN):
        neighbours = list(some)
        found += neighbours if is_large else (b"".join(neighbours),)
    return found


class Packer:
    """Makes the packets of payload bytes, for one direction of a connection.

    What it returns has to be sent, in this order: compressed packets refer to earlier ones.
    """

    def __init__(self, window: int, compression: Compression) -> None:
        """`window`: the negotiated one for what this side sends, in bytes; 0: all goes raw."""
        self.saved_bytes = 0
        """By how much what was sent compressed was smaller than what it stands for."""
        self._always = compression == "always"
        off = window == 0 or compression == "never"
        self._encoder = None if off else LZFooEncoder(window, thorough=self._always)
        self._speed = LinkSpeed() if compression == "auto" and not off else None

    @property
    def compressing(self) -> bool:
        """Whether what shrinks is compressed now."""
        return self._encoder is not None and (self._speed is None or self._speed.compressing)

    @property
    def packet_bytes_min(self) -> int:
        """Pieces of a payload smaller than this are not worth a packet, unless it is the last."""
        return 16384 if self.compressing else 4096

    def run_payload_bytes_max(self, trial: Trial) -> int:
        """Payloads up to this size go raw, so that whole runs of entries can; -1: none do."""
        if not self.compressing:
            return U64_MAX
        if self._always:
            return -1
        return U64_MAX if trial.raw_bytes else SMALL_BYTES - 1

    def pulled(self, now: float, pull: Pull) -> None:
        """What the transport was given, and when: see `LinkSpeed`."""
        if self._speed is not None:
            self._speed.pulled(now, pull)
            if self._encoder is not None:
                self._encoder.thorough = self._speed.slow

    def went_raw(self, payload_bytes: int, trial: Trial) -> None:
        """So many payload bytes were sent as they are."""
        if self._speed is not None:
            shrinking = not self._speed.compressing and not trial.raw_bytes
            self._speed.packed(payload_bytes, payload_bytes, shrinking=shrinking)
        trial.raw_bytes = max(trial.raw_bytes - payload_bytes, 0)

    def pack(
        self, data: bytes | memoryview, offset: int, payload_bytes: int, trial: Trial
    ) -> Packets:
        """One or more packets with `data`, which begins at `offset` of a payload of that size.

        What goes raw is not copied.
        """
        if offset == 0 and (self._always or payload_bytes > PACKET_BYTES_MAX):
            # Another payload may be of another kind.
            trial.raw_bytes = 0
        encoder = self._encoder
        tried = self.compressing and (self._always or payload_bytes >= SMALL_BYTES)
        if encoder is None or not data or not tried:
            return self._raw(data, trial)
        made: list[bytes | memoryview] = []
        while data:
            # What goes raw now goes on so until it is tried again.
            size = max(trial.raw_bytes, PACKET_BYTES_MAX)
            made += self._packet(encoder, data[:size], trial)
            data = data[size:]
        return made

    def _packet(self, encoder: LZFooEncoder, data: bytes | memoryview, trial: Trial) -> Packets:
        if trial.raw_bytes:
            return self._raw(data, trial)
        data = bytes(data)
        compressed = None
        if len(data) < 4 * _SAMPLE_BYTES or encoder.may_shrink(data[:_SAMPLE_BYTES]):
            compressed = encoder.encode_if_smaller(data, _SAVING_BYTES_MIN + (len(data) >> 5))
        if compressed is None:
            packet = self._raw(data, trial)
            trial.raw_bytes = trial.next_pause_bytes
            trial.next_pause_bytes = min(2 * trial.next_pause_bytes, _PAUSE_BYTES_MAX)
            return packet
        trial.next_pause_bytes = TRIAL_PAUSE_BYTES_MIN
        if self._speed is not None:
            self._speed.packed(len(data), len(compressed), shrinking=True)
        self.saved_bytes += len(data) - len(compressed)
        return (encode_compressed(len(data), compressed),)

    def _raw(self, data: bytes | memoryview, trial: Trial) -> Packets:
        self.went_raw(len(data), trial)
        return encode_payload_header(len(data)), data
