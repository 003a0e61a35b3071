"""Violations on the control channel (point2point.md 9, Control)."""

from collections.abc import Callable
from functools import partial

from wire import (
    U64_MAX,
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Grant,
    Propose,
    encode_control,
    encode_request_cancelled,
    encode_varu64,
)

from .cases import Need, Offence
from .script import Speaker

Play = Callable[[Speaker], None]
S2, S3, S5, S9 = ("point2point.md 2", "point2point.md 3", "point2point.md 5", "point2point.md 9")


def credit_overflow(p: Speaker) -> None:
    # Twice, since the endpoint may have used some of the first grant.
    p.control(Grant(U64_MAX))
    p.bad_control(Grant(U64_MAX))


def no_credit(p: Speaker) -> None:
    # What is refused costs credit for longer than this takes: nothing here answers the cancels.
    p.expect(Grant)
    first = p.number
    for index in range(p.granted):
        p.control(p.library.fresh(unwanted=True).propose(first + 2 * index))
    over = first + 2 * p.granted
    p.bad_control(p.library.fresh(unwanted=True).propose(over), request=over)


def wrong_parity(p: Speaker) -> None:
    number = p.number + 1
    p.bad_control(p.library.fresh().propose(number), request=number)


def number_in_use(p: Speaker) -> None:
    number = p.open(p.library.fresh())
    p.bad_control(p.library.fresh().propose(number), request=number)


def number_waits_already(p: Speaker) -> None:
    """point2point.md 6: one proposal per number may wait for the 32."""
    history = p.library.fresh()
    number = p.open(history)
    p.cancel(number)
    p.expect_end(number)
    p.control(history.propose(number))
    p.bad_control(history.propose(number), request=number)


def inactive(what: str, offset: int, p: Speaker) -> None:
    number = 90 + offset
    message = Adjust(number, end=3) if what == "adjust" else Cancel(number, CancelReason.COMPLETE)
    p.bad_control(message, request=number)


def after_own_cancel(what: str, p: Speaker) -> None:
    number = p.open(p.library.fresh())
    p.cancel(number)
    again = Adjust(number, end=3) if what == "adjust" else Cancel(number, CancelReason.COMPLETE)
    p.bad_control(again, request=number)


def confirmation_without_eagerness(p: Speaker) -> None:
    number = p.asked(p.library.fresh()).request
    p.bad_control(Adjust(number, allow_skip=True), request=number)


def open_sparse_without_end(p: Speaker) -> None:
    p.grant()
    number = p.expect(Propose, lambda found: found.sparse and found.end is None).request
    p.bad_control(Adjust(number, eagerness=Eagerness.NOTIFY), request=number)


def proposal_outside_limits(fields: dict[str, object], p: Speaker) -> None:
    values: dict[str, object] = {"start": 1, "starting_hash": p.library.shared.hash(1), **fields}
    if values.get("lower_info", values["start"]) in {0, 1}:
        values["starting_hash"] = None
    number = p.number
    p.bad_control(p.library.shared.propose(number, **values), request=number)  # type: ignore[arg-type]


def adjust_outside_limits(fields: dict[str, int], p: Speaker) -> None:
    number = p.open(
        p.library.shared, 5, lower_info=1, end=15, upper_info=40, min_bytes=10, max_bytes=100
    )
    p.bad_control(Adjust(number, **fields), request=number)  # type: ignore[arg-type]


def confirmation_outside_limits(fields: dict[str, int], p: Speaker) -> None:
    """The same limits hold for the first adjust of a proposal that the endpoint made."""
    number = p.asked_behind(p.library.fresh(), 4).request
    p.bad_control(Adjust(number, eagerness=Eagerness.ALL, **fields), request=number)  # type: ignore[arg-type]


def leaving_notify_only(to: Eagerness, p: Speaker) -> None:
    number = p.open(p.library.shared, eagerness=Eagerness.NOTIFY)
    size = 9 if to is Eagerness.LIMITED else None
    p.bad_control(Adjust(number, eagerness=to, eager_bytes=size), request=number)


def off_the_sparse_path(p: Speaker) -> None:
    # The path from 13 to 1 is 13, 4, 1.
    number = p.open(p.library.shared, sparse=True, end=13)
    p.control(Adjust(number, end=4))
    p.bad_control(Adjust(number, end=3), request=number)


def offset_beyond(offset: int, p: Speaker) -> None:
    number = p.number
    p.bad_control(p.library.shared.propose(number, 3, offset=offset), request=number)


def unused_first_byte(first: int, p: Speaker) -> None:
    p.bad_control(bytes((first, 0)))


def broken_entry(reason: int, raw: bytes, p: Speaker) -> None:
    number = p.asked(p.library.fresh()).request
    good = p.library.shared.entry(1).encoded if reason == 135 else b""
    p.bad_control(bytes((reason,)) + encode_varu64(number) + good + raw, request=number)


def starting_hash_of_another_type(p: Speaker) -> None:
    proposal = encode_control(p.library.shared.propose(p.number, 5))
    at = proposal.index(b"\x00\x40", 34)
    p.bad_control(proposal[:at] + b"\x01" + proposal[at + 1 :])


def end_cannot_wait(p: Speaker) -> None:
    """point2point.md 6: an own proposal without an answer has no 32 yet."""
    number = p.number
    proposal = p.library.fresh().propose(number)
    p.together(proposal, encode_request_cancelled(number), request=number)


PROPOSAL_LIMITS: list[tuple[str, str, dict[str, object], str]] = [
    ("start 0", "P2P-5.08", {"start": 0, "lower_info": 0}, "seqnum 0"),
    ("lower info 0", "P2P-5.08", {"start": 5, "lower_info": 0}, "seqnum 0"),
    ("end 0", "P2P-5.08", {"start": 5, "lower_info": 1, "end": 0}, "seqnum 0"),
    ("lower info above start", "P2P-5.07", {"start": 5, "lower_info": 6}, "6 above start 5"),
    ("lower info in no pool", "P2P-5.09", {"start": 5, "lower_info": 2}, "lower pool"),
    ("end below start", "P2P-5.05", {"start": 5, "lower_info": 1, "end": 4}, "4 below start 5"),
    (
        "upper info below end",
        "P2P-5.06",
        {"start": 5, "lower_info": 1, "end": 6, "upper_info": 5},
        "5 below end 6",
    ),
    (
        "upper info in no pool",
        "P2P-5.10",
        {"start": 5, "lower_info": 1, "end": 6, "upper_info": 14},
        "upper pool",
    ),
    (
        "upper info 2^64 - 1",
        "P2P-5.10",
        {"start": 1, "end": 5, "upper_info": U64_MAX},
        "upper pool",
    ),
]
ADJUST_LIMITS = [
    ("end 0", "P2P-5.08", {"end": 0}, "seqnum 0"),
    ("upper info 0", "P2P-5.08", {"upper_info": 0}, "seqnum 0"),
    ("end below start", "P2P-5.05", {"end": 4}, "4 below start 5"),
    ("upper info below new end", "P2P-5.06", {"end": 10, "upper_info": 9}, "9 below end 10"),
    ("upper info in no pool", "P2P-5.10", {"end": 10, "upper_info": 14}, "upper pool"),
    ("upper info below end", "P2P-5.06", {"upper_info": 14}, "14 below end 15"),
    ("minimum goes down", "P2P-5.03", {"min_bytes": 9}, "from 10 to 9"),
    ("maximum goes up", "P2P-5.04", {"max_bytes": 101}, "from 100 to 101"),
]
CONFIRMATION_LIMITS = [
    ("end 0", "P2P-5.08", {"end": 0}, "seqnum 0"),
    ("end below start", "P2P-5.05", {"end": 4, "upper_info": 4}, "4 below start 5"),
    ("upper info below end", "P2P-5.06", {"end": 9, "upper_info": 8}, "8 below end 9"),
    ("upper info in no pool", "P2P-5.10", {"end": 9, "upper_info": 15}, "upper pool"),
]
BROKEN_ENTRIES = [
    ("tag", b"\x02" + bytes(321), "tag"),
    ("author and seqnum", b"\x00" + bytes(32) + b"\x00\x00" + bytes(300), "seqnum"),
    ("long number", b"\x00" + bytes(32) + b"\xf8\x01" + bytes(300), "log id"),
]


OFFENCES: list[Offence] = [
    Offence("credit above 2^64 - 1", ("P2P-2.12",), credit_overflow, S2, (str(U64_MAX),)),
    Offence(
        "a proposal without credit",
        ("P2P-9.05",),
        no_credit,
        S2,
        ("credit",),
        needs=frozenset((Need.UNWANTED,)),
    ),
    Offence("a number of the wrong parity", ("P2P-9.06",), wrong_parity, S2, ("parity",)),
    Offence("a number in use", ("P2P-9.07",), number_in_use, S2, ("in use",)),
    Offence(
        "a second proposal for a number that waits for its 32",
        ("P2P-6.20", "P2P-9.07"),
        number_waits_already,
        S2,
        ("in use",),
    ),
    Offence(
        "a confirmation without eagerness",
        ("P2P-9.12", "P2P-2.18"),
        confirmation_without_eagerness,
        S2,
        ("eagerness",),
    ),
    Offence(
        "an open sparse request confirmed without an end",
        ("P2P-3.10",),
        open_sparse_without_end,
        S3,
        ("no end",),
        needs=frozenset((Need.SYNC,)),
    ),
    Offence("an end off the sparse path", ("P2P-3.12",), off_the_sparse_path, S3, ("end 3",)),
    Offence(
        "a 32 for an own unanswered proposal",
        ("P2P-6.06", "P2P-9.15"),
        end_cannot_wait,
        "point2point.md 6",
        ("no answer",),
        needs=frozenset((Need.TOGETHER,)),
    ),
    Offence(
        "a starting hash of another type",
        ("P2P-2.08",),
        starting_hash_of_another_type,
        "encodings.md",
        ("1",),
    ),
]
for name, rule, fields, word in PROPOSAL_LIMITS:
    play = partial(proposal_outside_limits, fields)
    OFFENCES.append(Offence(f"a proposal: {name}", (rule,), play, S5, (word,)))
for name, rule, limits, word in ADJUST_LIMITS:
    play = partial(adjust_outside_limits, limits)
    OFFENCES.append(Offence(f"an adjust: {name}", (rule,), play, S5, (word,)))
for name, rule, limits, word in CONFIRMATION_LIMITS:
    play = partial(confirmation_outside_limits, limits)
    OFFENCES.append(Offence(f"a confirmation: {name}", (rule, "P2P-5.11"), play, S5, (word,)))
for to in (Eagerness.LIMITED, Eagerness.ALL):
    play = partial(leaving_notify_only, to)
    OFFENCES.append(Offence(f"from notify only to {to.name}", ("P2P-5.16",), play, S5, (to.name,)))
for offset in (2, 3, U64_MAX):
    play = partial(offset_beyond, offset)
    name = f"offset {offset} in a payload of 2 bytes"
    OFFENCES.append(Offence(name, ("P2P-3.05",), play, S3, (str(offset),)))
for number in (0, 1):
    for what, rule in (("adjust", "P2P-9.08"), ("cancel", "P2P-9.09")):
        play = partial(inactive, what, number)
        parity = ("even", "odd")[number]
        name = f"{what} of an {parity} number that is not active"
        OFFENCES.append(Offence(name, (rule,), play, S9, ("not active",)))
for what, rule in (("adjust", "P2P-9.10"), ("cancel", "P2P-9.11")):
    play = partial(after_own_cancel, what)
    OFFENCES.append(Offence(f"{what} after one's own cancel", (rule,), play, S9, ("not active",)))
for first in range(136, 160):
    play = partial(unused_first_byte, first)
    name = f"first byte {first} of a control message"
    inner = first not in {136, 159}
    OFFENCES.append(Offence(name, ("P2P-2.02",), play, S2, (str(first),), in_memory_only=inner))
for reason in (133, 135):
    for name, raw, word in BROKEN_ENTRIES:
        play = partial(broken_entry, reason, raw)
        full = f"{reason} with an entry of a broken {name}"
        page = "encodings.md" if name == "long number" else "bamboo.md"
        OFFENCES.append(Offence(full, ("P2P-9.13",), play, page, (word,)))
