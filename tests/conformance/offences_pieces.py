"""Violations on the data channel: switches, and pieces out of their sequence (point2point.md 9)."""

from functools import partial

from wire import (
    Adjust,
    CancelReason,
    Eagerness,
    encode_apology,
    encode_compressed,
    encode_notify,
    encode_request_cancelled,
    encode_skip_above,
    encode_skip_below,
    encode_skip_bytes,
    encode_skip_unavailable,
    encode_switch,
)

from .cases import Offence
from .phrases import (
    S3,
    S4,
    S6,
    S8,
    S9,
    SETTINGS,
    SOLID,
    TOGETHER,
    UNWANTED,
    Packet,
    Play,
    large,
    meta,
    raw,
    receives,
)
from .script import Speaker

ONLY_NOTIFIES = Adjust(0, eagerness=Eagerness.NOTIFY)
APOLOGY = encode_apology()
UNUSED = (1, *range(10, 16), *range(17, 32), *range(33, 128), *range(130, 256))
EDGES = frozenset((1, 10, 15, 17, 31, 33, 127, 130, 255))
"""Of the unused first bytes, those that are tried over sockets too."""
EMPTY_PACKETS = {
    "packet 7": encode_skip_bytes(0),
    "packet 9": encode_compressed(0, b""),
}


# Switching


def switch_to_nothing(p: Speaker) -> None:
    p.bad_data(encode_switch(98), request=98)


def switch_to_unconfirmed(p: Speaker) -> None:
    number = p.number
    p.together(p.library.fresh().propose(number), encode_switch(number), request=number)


def data_for_a_refused_request(p: Speaker) -> None:
    history = p.library.fresh(unwanted=True)
    number = p.propose(history)
    p.expect_cancel(number, CancelReason.NOT_WANTED)
    p.bad_data(encode_switch(number) + history.metadata(1), request=number)


def data_for_a_proposal_that_gave_way(p: Speaker) -> None:
    """point2point.md 7: it was never sent."""
    history = p.library.fresh()
    own = p.asked_behind(history, 4)
    p.data(encode_switch(own.request))
    number = p.number
    p.bad_control(history.propose(number, 4), request=own.request)


def switch_after_ones_own_end(p: Speaker) -> None:
    """Its 32 was the last word on that channel."""
    number = p.receiving(p.library.fresh())
    other = p.open(p.library.fresh())
    p.data(encode_request_cancelled(number), encode_switch(other))
    p.bad_data(encode_switch(number), request=number)


def end_of_nothing(p: Speaker) -> None:
    p.bad_data(encode_request_cancelled(98), request=98)


def second_end(p: Speaker) -> None:
    number = p.open(p.library.fresh())
    other = p.open(p.library.fresh())
    p.data(encode_switch(other))
    p.bad_data(encode_request_cancelled(number) * 2, request=number)


def after_the_end(packet: bytes, p: Speaker) -> None:
    number = p.receiving(p.library.fresh())
    p.bad_data(encode_request_cancelled(number), packet)


def end_after_the_end(p: Speaker) -> None:
    """Of another request that is active: even that needs a switch first."""
    first = p.receiving(p.library.fresh())
    second = p.open(p.library.fresh())
    p.bad_data(encode_request_cancelled(first), encode_request_cancelled(second), request=second)


def after_the_end_of_a_number_in_use_again(p: Speaker) -> None:
    history = p.library.fresh()
    number = p.receiving(history)
    p.cancel(number)
    p.expect_end(number)
    p.data(encode_request_cancelled(number))
    p.control(history.propose(number))
    p.expect_answer(number)  # the cancel
    p.expect_answer(number)  # the confirmation
    p.bad_data(history.metadata(1))


def before_the_first_switch(packet: bytes, p: Speaker) -> None:
    p.open(p.library.fresh())
    p.bad_data(packet)


# Pieces


def past_the_end(packet: Packet, p: Speaker) -> None:
    number = p.receiving(p.library.shared, 1, end=2, eagerness=Eagerness.NOTIFY)
    p.data(encode_notify(4))
    p.bad_data(packet(p.library.shared), request=number)


def past_the_last_seqnum(p: Speaker) -> None:
    """2^64 - 1 entries have twice as many pieces, and no range has more."""
    number = p.receiving_with(p.library.fresh(), ONLY_NOTIFIES)
    p.data(encode_notify(2**64 - 1), encode_notify(2**64 - 1))
    p.bad_data(encode_notify(1), request=number)


def past_a_cut(p: Speaker) -> None:
    """A cut ends what has to be sent, not the base sequence; that has an end too."""
    history = p.library.fresh()
    number = p.receiving(history, 1, end=2)
    p.control(Adjust(number, end=1))
    p.data(history.entries([1, 2]))
    p.bad_data(history.metadata(3), request=number)


def too_much_in_pieces(p: Speaker) -> None:
    history = p.library.fresh(large)
    number = p.receiving(history)
    p.data(history.metadata(1), SOLID(150), b"1" * 150)
    p.bad_data(SOLID(51), request=number)


def payload_ends_before_the_offset(p: Speaker) -> None:
    """A range that begins inside a payload has only the rest of it."""
    history = p.library.fresh(large)
    p.deliver(history, 1)
    number = p.receiving(history, 1, offset=150)
    p.bad_data(SOLID(51), request=number)


def empty(packet: bytes, p: Speaker) -> None:
    history = p.library.fresh(lambda _: b"")
    number = p.receiving(history)
    p.data(history.metadata(1))
    p.bad_data(packet, request=number)


OFFENCES: list[Offence] = [
    Offence("a switch to nothing", ("P2P-9.14",), switch_to_nothing, S9, ("not active",)),
    Offence(
        "a switch to an own unanswered proposal",
        ("P2P-8.01", "P2P-9.14"),
        switch_to_unconfirmed,
        S8,
        ("not confirmed",),
        needs=TOGETHER,
    ),
    Offence(
        "data for a refused proposal",
        ("P2P-8.01",),
        data_for_a_refused_request,
        S8,
        ("not confirmed",),
        needs=UNWANTED,
    ),
    Offence(
        "data for a proposal that gave way",
        ("P2P-7.01", "P2P-9.14"),
        data_for_a_proposal_that_gave_way,
        "point2point.md 7",
        ("gave way",),
    ),
    Offence(
        "a switch to a request behind one's own 32 for it",
        ("P2P-9.14", "P2P-6.02"),
        switch_after_ones_own_end,
        S9,
        ("not active",),
    ),
    Offence("a 32 of nothing", ("P2P-9.15",), end_of_nothing, S9, ("not active",)),
    Offence("a second 32", ("P2P-9.15",), second_end, S9, ("not active",)),
    Offence(
        "another 32 behind that of the current request",
        ("P2P-9.16", "P2P-6.11"),
        end_after_the_end,
        S6,
        ("only a switch",),
    ),
    Offence(
        "data behind the 32, of a number that is in use again",
        ("P2P-9.16", "P2P-6.10"),
        after_the_end_of_a_number_in_use_again,
        S9,
        ("after the end",),
    ),
]
for name, packet in {
    "a notify": encode_notify(1),
    "a skip": encode_skip_unavailable(),
    "an apology": APOLOGY,
}.items():
    play: Play = partial(after_the_end, packet)
    rules = ("P2P-9.16", "P2P-6.10")
    OFFENCES.append(Offence(f"{name} behind the 32", rules, play, S9, ("after the end",)))
    play = partial(before_the_first_switch, packet)
    full = f"{name} before the first switch"
    OFFENCES.append(Offence(full, ("P2P-9.17",), play, S9, ("before a switch",)))

OFFENCES += [
    Offence(
        "metadata where a payload is due",
        ("P2P-9.18",),
        receives(meta(1), meta(2)),
        S3,
        ("payload of entry 1",),
    ),
    Offence(
        "more payload than the metadata said",
        ("P2P-9.21",),
        receives(meta(1), raw(SOLID(3) + b"abc")),
        S4,
        ("3 bytes", "2 are left"),
    ),
    Offence("more payload, in pieces", ("P2P-9.21",), too_much_in_pieces, S4, ("51 bytes",)),
    Offence(
        "more payload than is left behind the offset",
        ("P2P-9.21", "P2P-3.03"),
        payload_ends_before_the_offset,
        S4,
        ("51 bytes", "50 are left"),
    ),
    Offence(
        "notifies beyond the last seqnum",
        ("P2P-9.20",),
        past_the_last_seqnum,
        S3,
        ("past the end",),
        needs=SETTINGS,
    ),
    Offence("metadata beyond the base's end", ("P2P-9.20",), past_a_cut, S3, ("past the end",)),
    Offence(
        "a skip behind the first byte",
        ("P2P-4.13",),
        receives(meta(1), raw(SOLID(1) + b"p" + encode_skip_unavailable())),
        S4,
        ("after the first byte",),
    ),
    Offence(
        "bytes passed that the reader has not sent",
        ("P2P-4.22",),
        receives(meta(1), raw(encode_skip_bytes(1))),
        S4,
        ("1 bytes",),
    ),
]
for name, packet in {
    "a payload": SOLID(1),
    "skip 4": encode_skip_below(),
    "skip 5": encode_skip_above(),
    "skip 6": encode_skip_unavailable(),
    "skip 7": encode_skip_bytes(1),
}.items():
    play = receives(raw(packet))
    full = f"{name} where metadata is due"
    OFFENCES.append(Offence(full, ("P2P-9.19",), play, S3, ("metadata of entry 1",)))
for name, make in {
    "metadata": meta(3),
    "a payload": raw(SOLID(1)),
    "a notify": raw(encode_notify(1)),
    "many notifies": raw(encode_notify(2**64 - 1)),
    "a skip": raw(encode_skip_unavailable()),
}.items():
    play = partial(past_the_end, make)
    OFFENCES.append(Offence(f"{name} past the end", ("P2P-9.20",), play, S3, ("past the end",)))
for name, packet in {"packet 8": SOLID(0), **EMPTY_PACKETS}.items():
    play = receives(meta(1), raw(packet))
    OFFENCES.append(Offence(f"{name} of length 0", ("P2P-3.14",), play, S4, ("0",)))
for name, packet in EMPTY_PACKETS.items():
    full = f"{name} for an empty payload"
    OFFENCES.append(Offence(full, ("P2P-3.14",), partial(empty, packet), S4, ("0",)))
for first in UNUSED:
    play = receives(raw(bytes((first,))))
    name = f"first byte {first} of a data packet"
    inner = first not in EDGES
    OFFENCES.append(Offence(name, ("P2P-4.02",), play, S4, (str(first),), in_memory_only=inner))
