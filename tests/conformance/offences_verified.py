"""Violations on the data channel: compression, interests, verification (point2point.md 9)."""

from functools import partial

from wire import (
    Adjust,
    Eagerness,
    encode_apology,
    encode_compressed,
    encode_notify,
    encode_request_cancelled,
    encode_skip_above,
    encode_skip_below,
    encode_skip_unavailable,
)

from .cases import Offence
from .histories import History
from .phrases import (
    LARGE,
    S4,
    S8,
    SETTINGS,
    SOLID,
    Packet,
    body,
    confirming,
    large,
    meta,
    raw,
    receives,
)
from .script import NARROW, SAFE, Speaker

APOLOGY = encode_apology()
NO_COMPRESSION = {
    "a length of nothing": b"\x00\x00",
    "an element that is cut off": b"\x02p",
    "an offset of zero": b"\x01p\x81\x00",
    "an offset beyond the output": b"\x01p\x81\x05",
    "more than its length": b"\x03p1x",
    "less than its length": b"\x01p",
}


# What is wanted


def wants_notifies(packet: Packet, p: Speaker) -> None:
    """It holds all of the range, and asked to be notified."""
    number = p.receiving(p.library.shared, 1, end=5)
    p.bad_data(packet(p.library.shared), request=number)


# Verification


def invalid_large_payload(p: Speaker) -> None:
    history = p.library.fresh(large)
    number = p.receiving(history)
    p.bad_data(history.metadata(1), SOLID(LARGE), b"2" * LARGE, request=number)


def invalid_behind_an_end(p: Speaker) -> None:
    """A 32 does not excuse what came before it."""
    history = p.library.fresh(large)
    number = p.receiving(history)
    p.bad_data(
        history.metadata(1),
        SOLID(LARGE),
        b"2" * LARGE,
        encode_request_cancelled(number),
        request=number,
    )


def wrong_link(p: Speaker) -> None:
    """Entry 3 of another log with the same name: its backlink leads elsewhere."""
    history = p.library.fresh()
    forged = History(p.library.author, history.log.log_id, lambda seq: b"forged %d" % seq)
    number = p.receiving(history)
    p.data(history.entries([1, 2]))
    p.bad_data(forged.metadata(3), forged.solid(3), request=number)


def next_piece_instead_of_an_apology(p: Speaker) -> None:
    history = p.library.fresh()
    number = p.receiving(history)
    p.data(history.metadata(1), SOLID(2), b"no")
    p.bad_data(history.metadata(2), request=number)


def verdict_behind_the_next_piece(p: Speaker) -> None:
    history = p.library.fresh()
    number = p.receiving(history)
    p.bad_data(history.bad_signature(1), history.solid(1), history.entries([2]), request=number)


def second_apology(p: Speaker) -> None:
    history = p.library.fresh()
    number = p.receiving(history)
    p.data(history.metadata(1), SOLID(2), b"no", encode_apology())
    p.bad_data(SOLID(2), b"no", encode_apology(), request=number)


def second_apology_inside(p: Speaker) -> None:
    history = p.library.fresh(large)
    number = p.receiving(history)
    p.data(history.metadata(1), SOLID(100), b"x" * 100, encode_apology())
    p.bad_data(SOLID(100), b"1" * 100, encode_apology(), request=number)


def compressed_beyond_the_window(p: Speaker) -> None:
    history = p.library.fresh(lambda _: b"ab" * 1500)
    number = p.receiving(history)
    # A literal of 2,998 bytes, then a copy of 2 from 2,000 back; the window has 1,024 bytes.
    text = b"ab" * 1499
    literal = b"\x79" + len(text).to_bytes(2, "big") + text
    copy = b"\x82" + b"\xf9" + (2000).to_bytes(2, "big")
    p.data(history.metadata(1))
    p.bad_data(encode_compressed(3000, literal + copy), request=number)


def compressed_against_window_0(p: Speaker) -> None:
    history = p.library.fresh()
    number = p.receiving(history)
    p.data(history.metadata(1))
    p.bad_data(encode_compressed(2, b"\x02p1"), request=number)


OFFENCES: list[Offence] = [
    Offence(
        "compression with window 0",
        ("P2P-9.22", "P2P-1.07"),
        compressed_against_window_0,
        S4,
        ("window 0",),
        setup=SAFE,
    ),
    Offence(
        "an offset beyond the window",
        ("P2P-9.23", "P2P-4.11", "P2P-1.07"),
        compressed_beyond_the_window,
        "encodings.md",
        ("2000",),
        setup=NARROW,
    ),
]
for name, compressed in NO_COMPRESSION.items():
    packet = encode_compressed(2, compressed)
    play = receives(meta(1), raw(packet))
    OFFENCES.append(Offence(f"compressed: {name}", ("P2P-9.24",), play, "encodings.md"))

skip4, skip5, skip6 = encode_skip_below(), encode_skip_above(), encode_skip_unavailable()
OFFENCES += [
    Offence(
        "skip 4 for a payload that is not below the minimum",
        ("P2P-9.25",),
        receives(meta(1), raw(skip4)),
        S4,
        ("2 bytes", "minimum 0"),
    ),
    Offence(
        "skip 4 for a payload of the minimum's size",
        ("P2P-9.25",),
        confirming(Adjust(0, min_bytes=2), meta(1), raw(skip4)),
        S4,
        ("minimum 2",),
        needs=SETTINGS,
    ),
    Offence(
        "skip 5 for a payload that is not above the maximum",
        ("P2P-9.26",),
        receives(meta(1), raw(skip5)),
        S4,
        ("2 bytes", "maximum"),
    ),
    Offence(
        "skip 5 for a payload of the maximum's size",
        ("P2P-9.26",),
        confirming(Adjust(0, max_bytes=2), meta(1), raw(skip5)),
        S4,
        ("maximum 2",),
        needs=SETTINGS,
    ),
    Offence(
        "skip 6 for a mandatory payload",
        ("P2P-9.27", "P2P-2.17"),
        confirming(Adjust(0, allow_skip=False), meta(1), raw(skip6)),
        S4,
        ("mandatory",),
        needs=SETTINGS,
    ),
    Offence(
        "a payload above the eager size",
        ("P2P-9.29",),
        confirming(Adjust(0, eagerness=Eagerness.LIMITED, eager_bytes=1), meta(1), body(1)),
        S4,
        ("eagerness",),
        needs=SETTINGS,
    ),
    Offence(
        "a notify of a payload of the eager size",
        ("P2P-9.28", "P2P-4.19"),
        confirming(
            Adjust(0, eagerness=Eagerness.LIMITED, eager_bytes=2),
            meta(1),
            raw(encode_notify(1)),
        ),
        S4,
        ("notify of 1",),
        needs=SETTINGS,
    ),
    Offence(
        "metadata where only notifies are due",
        ("P2P-9.29",),
        partial(wants_notifies, meta(1)),
        S4,
        ("metadata of 1",),
    ),
]
for count in (1, 2, 9):
    play = receives(raw(encode_notify(count)))
    name = f"a notify of {count} where data is due"
    OFFENCES.append(Offence(name, ("P2P-9.28", "P2P-4.19"), play, S4, (f"notify of {count}",)))

apology = raw(APOLOGY)
unsigned: list[Packet] = [
    lambda history: history.bad_signature(1),
    lambda history: history.solid(1),
]
OFFENCES += [
    Offence(
        "a wrong signature in a safe direction",
        ("P2P-8.06", "P2P-1.06"),
        receives(*unsigned),
        S8,
        ("entry 1",),
        setup=SAFE,
    ),
    Offence(
        "a wrong payload in a safe direction",
        ("P2P-8.06",),
        receives(meta(1), raw(SOLID(2) + b"no")),
        S8,
        ("payload of entry 1",),
        setup=SAFE,
    ),
    Offence(
        "a wrong large payload in a safe direction",
        ("P2P-8.06", "P2P-8.22"),
        invalid_large_payload,
        S8,
        ("payload of entry 1",),
        setup=SAFE,
    ),
    Offence(
        "a wrong large payload and a 32 in a safe direction",
        ("P2P-8.06",),
        invalid_behind_an_end,
        S8,
        ("payload of entry 1",),
        setup=SAFE,
    ),
    Offence(
        "an entry of another history in a safe direction",
        ("P2P-8.06", "P2P-4.03"),
        wrong_link,
        S8,
        ("entry 3",),
        setup=SAFE,
    ),
    Offence(
        "the next piece instead of an apology",
        ("P2P-8.12",),
        next_piece_instead_of_an_apology,
        S8,
        ("without an apology",),
    ),
    Offence(
        "invalid metadata and the next entry",
        ("P2P-8.12",),
        verdict_behind_the_next_piece,
        S8,
        ("entry 1",),
    ),
    Offence(
        "an apology for a valid payload",
        ("P2P-8.13",),
        receives(meta(1), body(1), apology),
        S8,
        ("valid data",),
    ),
    Offence(
        "an apology for valid metadata",
        ("P2P-8.13",),
        receives(meta(1), apology),
        S8,
        ("valid data",),
    ),
    Offence(
        "an apology for what was skipped",
        ("P2P-8.13",),
        receives(meta(1), raw(encode_skip_unavailable()), apology),
        S8,
        ("not sent",),
    ),
    Offence(
        "an apology before anything",
        ("P2P-8.13",),
        receives(apology),
        S8,
        ("not sent",),
    ),
    Offence("a second apology", ("P2P-8.14",), second_apology, S8, ("second apology",)),
    Offence(
        "a second apology inside a payload",
        ("P2P-8.14", "P2P-8.16"),
        second_apology_inside,
        S8,
        ("second apology",),
    ),
    Offence(
        "an apology in a safe direction",
        ("P2P-8.15", "P2P-1.06"),
        receives(meta(1), raw(SOLID(1) + b"p"), apology),
        S8,
        ("safe direction",),
        setup=SAFE,
    ),
]


def broken_metadata(index: int, p: Speaker) -> None:
    """Size of another length than needed, and a hash of another type and of another length."""
    history = p.library.fresh()
    number = p.receiving(history)
    good = history.metadata(1)
    bad = (
        good[:1] + b"\xf8" + good[1:],
        good[:2] + b"\x01" + good[3:],
        good[:3] + b"\x20" + good[4:],
    )
    p.bad_data(bad[index], request=number)


names = ("a long size", "another type of hash", "another length of hash")
OFFENCES += [
    Offence(
        f"metadata with {name}",
        ("P2P-9.30",),
        partial(broken_metadata, index),
        "",
        ("size: VarU64 f8" if index == 0 else "payload hash: yamf",),
    )
    for index, name in enumerate(names)
]
