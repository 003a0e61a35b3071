"""Violations of bymux.md on a connection between two peers, and of the setup (point2point.md 1)."""

from functools import partial

from tests.bymux.factory import CLOSE, CREDIT, PING, PONG, STOP_READ, WRITE, packet, write

from .cases import Offence
from .script import CONTROL, CREDIT_GIVEN, DATA, Speaker

INFINITE = 2**64 - 1
PACKETS, CREDITS, CLOSING = "bymux.md Packets", "bymux.md Credit", "bymux.md Closing"
NAMES = {
    CREDIT: "Credit",
    WRITE: "Write",
    PING: "Ping",
    PONG: "Pong",
    CLOSE: "Close",
    STOP_READ: "StopRead",
}


def of_stream(kind: int, stream: int | None) -> bytes:
    amount = 1 if kind == CREDIT else 0 if kind == WRITE else None
    if kind == WRITE and stream is None:
        return packet(WRITE, None, 2)
    return packet(kind, stream, amount)


def say(raw: bytes, p: Speaker) -> None:
    p.bad_mux(raw)


def after(first: bytes, raw: bytes, p: Speaker) -> None:
    p.mux(first)
    p.bad_mux(raw)


def beyond_the_data_credit(p: Speaker) -> None:
    while not p.data_credit:
        p.hear()
    p.bad_mux(packet(WRITE, DATA, p.data_credit + 1))


def beyond_what_is_left(p: Speaker) -> None:
    p.receiving(p.library.fresh())
    p.bad_mux(packet(WRITE, DATA, p.data_credit + (1 << 40)))


def idle(kind: str, p: Speaker) -> None:
    p.bad_mux(FLOODS[kind] * 3000)


FLOODS = {
    "pongs": packet(PONG, None),
    "pongs of a stream": packet(PONG, CONTROL),
    "empty writes": packet(WRITE, CONTROL, 0),
    "credit of 0": packet(CREDIT, CONTROL, 0),
    "pings": packet(PING, None),
}


OFFENCES: list[Offence] = [
    Offence(
        "a Write beyond the credit of data",
        ("BYMUX-2.02", "P2P-1.12"),
        beyond_the_data_credit,
        CREDITS,
        ("stream 1",),
    ),
    Offence(
        "a Write beyond what is left of it",
        ("BYMUX-2.02", "BYMUX-2.01"),
        beyond_what_is_left,
        CREDITS,
        ("stream 1",),
    ),
    Offence(
        "a Credit that makes the sum 2^64",
        ("BYMUX-2.04",),
        partial(say, packet(CREDIT, DATA, 2**64 - CREDIT_GIVEN)),
        CREDITS,
        (str(2**64 - CREDIT_GIVEN), "stream 1"),
    ),
    Offence(
        "a Credit of data that is infinite",
        ("BYMUX-2.07",),
        partial(after, packet(CREDIT, DATA, 0), packet(CREDIT, DATA, 1)),
        CREDITS,
        ("stream 1", "infinite"),
    ),
    Offence(
        "a Credit of control, which is infinite",
        ("BYMUX-2.07", "P2P-1.11"),
        partial(say, packet(CREDIT, CONTROL, 5)),
        CREDITS,
        ("stream 0", "5"),
    ),
]
OFFENCES += [
    Offence(
        f"bymux packet {first:#04x}",
        ("BYMUX-1.06",),
        partial(say, bytes((first,))),
        PACKETS,
        (f"{first:#04x}",),
        in_memory_only=first not in {0xC0, 0xDF, 0xE0, 0xFF},
    )
    for first in range(0xC0, 0x100)
]
OFFENCES += [
    Offence(
        f"{name} of stream {stream}",
        ("BYMUX-1.05", "P2P-1.13"),
        partial(say, of_stream(kind, stream)),
        PACKETS,
        (f"stream {stream}", "not active"),
        in_memory_only=stream > 3,
    )
    for kind, name in NAMES.items()
    for stream in (2, 3, 2**63)
]
OFFENCES += [
    Offence(
        f"global {name}",
        ("P2P-1.13",),
        partial(say, of_stream(kind, None)),
        CLOSING,
        ("global", name),
    )
    for kind, name in NAMES.items()
    if kind not in {PING, PONG}
]
closed, stopped = packet(CLOSE, CONTROL), packet(STOP_READ, CONTROL)
for name, rule, before, raw in (
    ("Write after Close", "BYMUX-4.03", closed, write(CONTROL, b"x")),
    ("empty Write after Close", "BYMUX-4.03", closed, packet(WRITE, CONTROL, 0)),
    ("Close after Close", "BYMUX-4.04", closed, closed),
    ("Credit after StopRead", "BYMUX-4.05", stopped, packet(CREDIT, CONTROL, 0)),
    ("StopRead after StopRead", "BYMUX-4.06", stopped, stopped),
    ("Ping after both", "BYMUX-4.07", closed + stopped, packet(PING, CONTROL)),
    ("Pong after both", "BYMUX-4.07", stopped + closed, packet(PONG, CONTROL)),
):
    play = partial(after, before, raw)
    OFFENCES.append(Offence(name, (rule,), play, CLOSING, ("stream 0",)))
OFFENCES += [
    Offence(
        f"a flood of {kind}",
        ("BYMUX-7.02",),
        partial(idle, kind),
        "bymux.md Idle work",
        ("idle work",),
    )
    for kind in FLOODS
]
