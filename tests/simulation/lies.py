"""What a peer may say against the rules, one thing at a time (point2point.md 9).

A lie is made from the state of the engine that begins to lie, so that it breaks the one rule and
no other before. The other side has to end the connection and name a rule; after its lie a liar says
nothing more.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from peer.engine import Engine
from peer.protocol.request import Request
from peer.protocol.sequence import METADATA, PAYLOAD, PieceKind
from tests.records import replace
from wire import (
    U64_MAX,
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Grant,
    LogKey,
    Propose,
    encode_apology,
    encode_control,
    encode_notify,
    encode_payload_header,
    encode_request_cancelled,
    encode_skip_above,
    encode_skip_below,
    encode_skip_unavailable,
    encode_switch,
    encode_varu64,
)

UNKNOWN = 1 << 40
"""A number that no request of these worlds has; one more is of the other side."""

NOWHERE = LogKey(bytes(32), 3)

NO_HASH = b"\x00\x40" + bytes(64)
"""The hash of nothing that anybody knows."""

_END_3 = {"end": 3, "upper_info": 3}


@dataclass(frozen=True, slots=True)
class Liar:
    """An engine about to lie; `first`: whether its own request numbers are even."""

    engine: Engine
    first: bool
    rng: random.Random

    @property
    def own(self) -> int:
        """A new number of its own."""
        return UNKNOWN if self.first else UNKNOWN + 1

    def requests(self, fits: Callable[[Request], bool]) -> list[Request]:
        return [request for request in self.engine._table.all() if fits(request)]

    def active(self) -> Request | None:
        """One that both sides know, and that neither has begun to end."""
        found = self.requests(lambda request: request.active)
        return self.rng.choice(found) if found else None

    def at(self, kind: PieceKind) -> Request | None:
        """The request that it sends data of, if a piece of this kind is due."""
        request = self.engine._outbound._current
        if request is None or not request.active or request.base is None:
            return None
        outgoing = request.outgoing
        length = request.base.length
        if outgoing.in_piece or (length is not None and outgoing.position >= length):
            return None
        return request if request.base.piece(outgoing.position).kind is kind else None

    def propose(self, **fields: object) -> bytes:
        made = Propose(self.own, NOWHERE, 1, 1, 0, U64_MAX, None, Eagerness.ALL)
        return encode_control(replace(made, **fields))


Lie = Callable[[Liar], bytes | None]
"""The bytes to say; None if this cannot be said now."""


def _adjusting(**fields: object) -> Lie:
    def lie(liar: Liar) -> bytes | None:
        request = liar.active()
        if request is None:
            return None
        return encode_control(replace(Adjust(request.number), **fields))

    return lie


def _too_much_credit(liar: Liar) -> bytes:
    return 2 * encode_control(Grant(U64_MAX))


def _proposals_without_credit(liar: Liar) -> bytes:
    """One more than was ever granted at a time: refused ones give nothing back so soon.

    To begin inside a payload that the other side does not hold is always refused.
    """
    count = liar.engine._config.request_credit + 1
    inside: dict[str, object] = {"lower_info": None, "offset": 0, "starting_hash": NO_HASH}
    made = (liar.propose(request=liar.own + 2 * n, **inside) for n in range(count))
    return b"".join(made)


def _wrong_parity(liar: Liar) -> bytes | None:
    if not liar.engine._table.credit:
        return None
    return liar.propose(request=liar.own ^ 1)


def _number_in_use(liar: Liar) -> bytes | None:
    found = liar.requests(lambda request: request.ours and request.active)
    if not found or not liar.engine._table.credit:
        return None
    return liar.propose(request=liar.rng.choice(found).number)


def _proposing(**fields: object) -> Lie:
    return lambda liar: liar.propose(**fields) if liar.engine._table.credit else None


def _adjust_unknown(liar: Liar) -> bytes:
    return encode_control(Adjust(liar.own, Eagerness.ALL))


def _cancel_unknown(liar: Liar) -> bytes:
    return encode_control(Cancel(liar.own, CancelReason.NOT_WANTED))


def _adjust_after_cancel(liar: Liar) -> bytes | None:
    request = liar.active()
    if request is None:
        return None
    number = request.number
    cancel = encode_control(Cancel(number, CancelReason.NO_RESOURCES))
    return cancel + encode_control(Adjust(number, allow_skip=True))


def _confirm_without_eagerness(liar: Liar) -> bytes | None:
    found = liar.requests(lambda r: not r.ours and not r.answered and r.cancel_received is None)
    return encode_control(Adjust(found[0].number, allow_skip=True)) if found else None


def _smaller_minimum(liar: Liar) -> bytes | None:
    request = liar.active()
    if request is None or request.our_interest.min_bytes:
        return None
    adjusts = [Adjust(request.number, min_bytes=size) for size in (9, 3)]
    return b"".join(map(encode_control, adjusts))


def _end_below_start(liar: Liar) -> bytes | None:
    found = liar.requests(lambda request: request.active and request.proposal.start > 1)
    if not found:
        return None
    return encode_control(Adjust(found[0].number, end=found[0].proposal.start - 1))


def _unused_message(liar: Liar) -> bytes:
    return bytes((liar.rng.randint(136, 159),))


def _broken_evidence(liar: Liar) -> bytes | None:
    request = liar.active()
    return None if request is None else b"\x85" + encode_varu64(request.number) + b"\x07" * 99


CONTROL_LIES: dict[str, Lie] = {
    "credit above the limit": _too_much_credit,
    "a proposal without credit": _proposals_without_credit,
    "a number of the wrong parity": _wrong_parity,
    "a number in use": _number_in_use,
    "a start of 0": _proposing(start=0),
    "lower info above start": _proposing(lower_info=2, start=1, starting_hash=NO_HASH),
    "end below start": _proposing(start=4, lower_info=4, starting_hash=NO_HASH, **_END_3),
    "adjusting what is not there": _adjust_unknown,
    "cancelling what is not there": _cancel_unknown,
    "adjusting after a cancel": _adjust_after_cancel,
    "a confirmation without eagerness": _confirm_without_eagerness,
    "an end of 0": _adjusting(end=0),
    "an upper info without an end": _adjusting(upper_info=0),
    "a minimum that goes down": _smaller_minimum,
    "an end below start, later": _end_below_start,
    "an unused message": _unused_message,
    "evidence that does not parse": _broken_evidence,
}


def _at_metadata(packet: bytes) -> Lie:
    return lambda liar: None if liar.at(METADATA) is None else packet


def _at_payload(packet: bytes) -> Lie:
    return lambda liar: None if liar.at(PAYLOAD) is None else packet


def _proves_size(request: Request) -> bool:
    """Whether the other side cannot but know the size of a payload of this request.

    What was notified of proves none, and in a request for payloads alone no entry is named.
    """
    return not (request.their_interest.notify_only_ever or request.proposal.payloads_only)


def _wrong_skip(packet: bytes) -> Lie:
    """Where payloads of all sizes are wanted; else it might be true."""

    def lie(liar: Liar) -> bytes | None:
        request = liar.at(PAYLOAD)
        if request is None or not _proves_size(request):
            return None
        sizes = request.their_interest.min_bytes, request.their_interest.max_bytes
        return packet if sizes == (0, U64_MAX) else None

    return lie


def _nothing_after_the_end(liar: Liar) -> bytes | None:
    return encode_notify(1) if liar.engine._outbound._current is None else None


def _forged_entry(liar: Liar) -> bytes | None:
    """Metadata that nobody signed, and more: in a greedy direction an apology would do."""
    request = liar.at(METADATA)
    if request is None or request.base is None or request.their_interest.eagerness is None:
        return None
    if not request.their_interest.metadata_ever:
        return None
    if liar.engine._inbound._receiver.with_backlink(request):
        return None
    kinds = [request.base.piece(request.outgoing.position + n).kind for n in (0, 1)]
    if kinds != [METADATA, PAYLOAD]:
        return None
    # Whatever is read of a packet 128 without its backlink ends after so many bytes.
    empty = b"\x80\x00" + NO_HASH + bytes(64) + encode_payload_header(0)
    return empty + b"\x0a"


def _notify_of_everything(liar: Liar) -> bytes | None:
    request = liar.at(METADATA)
    if request is None or not request.their_interest.metadata_ever:
        return None
    return encode_notify(U64_MAX)


def _payload_too_long(liar: Liar) -> bytes | None:
    """Where only notifies were ever wanted, any payload is."""
    request = liar.at(PAYLOAD)
    if request is None or not (_proves_size(request) or request.their_interest.data_up_to < 0):
        return None
    return encode_payload_header(1 << 60)


DATA_LIES: dict[str, Lie] = {
    "switching to what is not there": lambda liar: encode_switch(liar.own),
    "ending what is not there": lambda liar: encode_request_cancelled(liar.own),
    "data of no request": _nothing_after_the_end,
    "an unused packet": lambda liar: bytes((liar.rng.choice((1, 10, 33, 130, 255)),)),
    "a payload where metadata is due": _at_metadata(encode_payload_header(0)),
    "metadata where a payload is due": _at_payload(b"\x80\x05" + bytes(400)),
    "more payload than there is": _payload_too_long,
    "a skip where metadata is due": _at_metadata(encode_skip_unavailable()),
    "a payload below no minimum": _wrong_skip(encode_skip_below()),
    "a payload above no maximum": _wrong_skip(encode_skip_above()),
    "a notify of everything": _notify_of_everything,
    "a forged entry": _forged_entry,
    "two apologies": lambda liar: None if liar.at(METADATA) is None else 2 * encode_apology(),
}


RARE = {
    "a confirmation without eagerness",
    "metadata where a payload is due",
    "more payload than there is",
    "a payload below no minimum",
    "a payload above no maximum",
}


def lies(rng: random.Random) -> Iterator[tuple[str, str, Lie]]:
    """All of them, those for which there is rarely an occasion first: channel, name, lie."""
    found = [("control", name, lie) for name, lie in CONTROL_LIES.items()]
    found += [("data", name, lie) for name, lie in DATA_LIES.items()]
    rng.shuffle(found)
    yield from sorted(found, key=lambda each: each[1] not in RARE)
