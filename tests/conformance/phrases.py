"""What many cases on the data channel begin with."""

from collections.abc import Callable

from wire import Adjust, encode_payload_header

from .cases import Need
from .histories import History
from .script import Speaker

Play = Callable[[Speaker], None]
Packet = Callable[[History], bytes]
S3, S4, S6, S8, S9 = (f"point2point.md {number}" for number in (3, 4, 6, 8, 9))
SOLID = encode_payload_header
LARGE = 200
"""Bytes of a payload that is not gathered in memory but goes to a file."""
TOGETHER = frozenset((Need.TOGETHER,))
SETTINGS = frozenset((Need.SETTINGS,))
UNWANTED = frozenset((Need.UNWANTED,))


def large(seq: int) -> bytes:
    return b"%d" % seq * LARGE


def receives(*packets: Packet) -> Play:
    """The endpoint is about to receive a new log from entry 1 on."""

    def play(p: Speaker) -> None:
        history = p.library.fresh()
        number = p.receiving(history)
        p.bad_data(*(packet(history) for packet in packets), request=number)

    return play


def raw(packet: bytes) -> Packet:
    return lambda _: packet


def meta(seq: int) -> Packet:
    return lambda history: history.metadata(seq)


def body(seq: int) -> Packet:
    return lambda history: history.solid(seq)


def confirming(settings: Adjust, *packets: Packet) -> Play:
    """The same, and its confirmation has settings of the case's choice."""

    def play(p: Speaker) -> None:
        history = p.library.fresh()
        number = p.receiving_with(history, settings)
        p.bad_data(*(packet(history) for packet in packets), request=number)

    return play
