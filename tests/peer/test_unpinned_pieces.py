"""What somebody sends who holds other entries than we do: none of it is his fault, if he may.

The engine has asked for the payloads of entries 5 to 7, and they come from somebody who holds other
entries from 5 on. Neither sizes nor ends of payloads mean anything then (point2point.md 2, 3).
"""

import pytest

from peer.protocol.errors import RemoteViolation
from wire import (
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Grant,
    Propose,
    Setup,
    encode_payload_header,
    encode_request_cancelled,
    encode_switch,
)

from .impolite import GREEDY, LOG, SAFE, Impolite, log_of, metadata_packet
from .rig import Held

SORRY, SKIPPED = b"\x10", b"\x06"
SIZES = {5: 10, 6: 4, 7: 10}
WHOLE = log_of(12, lambda seq: b"%d" % (seq % 10) * SIZES.get(seq, 5))


def payload(size: int, of: bytes = b"x") -> bytes:
    return encode_payload_header(size) + of * size


class Mending(Impolite):
    """An engine that lacks some payloads, and has asked for them in one request."""

    def __init__(self, *seqs: int, setup: Setup) -> None:
        lacks = {seq: Held(WHOLE[seq].encoded, WHOLE[seq].hash, None) for seq in seqs}
        super().__init__({**WHOLE, **lacks}, proactive=True, setup=setup)
        self.given = 0
        self.released = 0
        self.control(Grant(20))
        [behind] = self.asked()
        self.confirm(behind)
        [self.ask] = self.asked()
        assert (self.ask.start, self.ask.end) == (seqs[0], seqs[-1])

    def asked(self) -> list[Propose]:
        self.said = self.messages()
        return [each for each in self.said if isinstance(each, Propose)]

    def confirm(self, proposal: Propose) -> None:
        self.control(Adjust(proposal.request, eagerness=Eagerness.NOTIFY, allow_skip=True))

    def data(self, *packets: bytes) -> None:
        self.given += sum(map(len, packets))
        super().data(*packets)
        self.released += self.engine.data_credit_to_release()

    def end(self, reason: CancelReason) -> list[Propose]:
        """The other side ends the request; what is asked for then."""
        self.control(Cancel(self.ask.request, reason))
        self.data(encode_request_cancelled(self.ask.request))
        self.sent()
        return self.asked()

    @property
    def held(self) -> set[int]:
        return {seq for seq, held in self.store.logs[LOG].items() if held.payload is not None}


def mending(*seqs: int, setup: Setup = GREEDY) -> Mending:
    peer = Mending(*seqs, setup=setup)
    peer.confirm(peer.ask)
    peer.data(encode_switch(peer.ask.request))
    return peer


OTHERS = {
    "longer": (5, [payload(25)]),
    "shorter": (5, [payload(3), payload(3), payload(6)]),
    "empty": (5, [payload(0)]),
    "as long": (5, [payload(10), payload(4), payload(10)]),
    "in several packets": (5, [payload(10), payload(10)]),
    "more in all": (5, [payload(10), payload(4), payload(10), payload(3)]),
    "skipped after a shorter one": (5, [payload(3), SKIPPED]),
    "the first one alike": (6, [payload(10, b"5"), payload(7)]),
    "two alike": (7, [payload(10, b"5"), payload(4, b"6"), payload(0)]),
}
"""The first entry that differs, and what comes."""


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("setup", [SAFE, GREEDY])
def test_payloads_of_other_entries_are_asked_for_one_by_one(kind: str, setup: Setup) -> None:
    first, packets = OTHERS[kind]
    peer = mending(5, 6, 7, setup=setup)
    peer.data(*packets)
    more = [payload(30), SKIPPED, payload(9), *([SORRY] if setup is GREEDY else [])]
    peer.data(*more)
    asked = peer.end(CancelReason.YOU_CANCELLED)
    assert Cancel(peer.ask.request, CancelReason.NO_RESOURCES) in peer.said
    assert [(each.start, each.end, each.offset) for each in asked] == [
        (seq, seq, 0) for seq in range(first, 8)
    ]
    assert [each.starting_hash for each in asked] == [WHOLE[n].hash for n in range(first, 8)]
    assert peer.held == set(WHOLE) - set(range(first, 8))
    assert peer.given == peer.released
    assert not peer.store.partial.get((LOG, first))


TAKEN_BACK = {
    "twice what is one to us": [payload(3), SORRY, payload(3), payload(3), SORRY],
    "what is right to us": [payload(6, b"5"), payload(4, b"5"), SORRY],
    "what is nothing to us": [payload(3), SORRY, SORRY],
}


@pytest.mark.parametrize("kind", TAKEN_BACK)
def test_apologies_for_what_is_another_piece_to_the_other_side(kind: str) -> None:
    peer = mending(5, 6, 7)
    peer.data(*TAKEN_BACK[kind])
    peer.data(SORRY, payload(30))
    asked = peer.end(CancelReason.YOU_CANCELLED)
    assert {each.start for each in asked} >= {6, 7}
    assert peer.given == peer.released


def test_a_payload_that_is_taken_back_in_time_is_no_reason_to_give_up() -> None:
    peer = mending(5, 6, 7)
    peer.data(payload(10), SORRY, payload(10, b"5"), payload(4, b"6"), payload(10, b"7"))
    assert peer.end(CancelReason.COMPLETE) == []
    assert peer.held == set(WHOLE)


@pytest.mark.parametrize("setup", [SAFE, GREEDY])
def test_what_is_found_wrong_when_the_request_is_over(setup: Setup) -> None:
    """Nothing behind it shows that anything is wrong, and no verdict comes before the end."""
    peer = mending(5, 6, setup=setup)
    packets = payload(10, b"5") + payload(4)
    peer.engine.receive_data(packets + encode_request_cancelled(peer.ask.request))
    peer.control(Cancel(peer.ask.request, CancelReason.COMPLETE))
    peer.sent()
    assert [(each.start, each.offset) for each in peer.asked()] == [(6, 0)]
    assert peer.held == set(WHOLE) - {6}


WRONG = {
    "longer": ("11 bytes of a payload of which 10 are left", [payload(11)]),
    "empty": ("payload packet of length 0", [payload(0)]),
    "skipped": ("skip after the first byte", [payload(3), SKIPPED]),
    "too many": ("payload past the end", [payload(10, b"5"), payload(1)]),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("setup", [SAFE, GREEDY])
def test_who_was_told_the_hash_of_the_entry_has_to_send_its_payload(
    kind: str, setup: Setup
) -> None:
    detail, packets = WRONG[kind]
    peer = mending(5, setup=setup)
    assert peer.ask.offset == 0
    with pytest.raises(RemoteViolation, match=detail):
        peer.data(*packets)


def test_who_was_told_the_hash_of_the_entry_has_to_send_the_right_bytes() -> None:
    peer = mending(5, setup=SAFE)
    with pytest.raises(RemoteViolation, match="invalid data"):
        peer.data(payload(10))


PASSED = {
    "notified": ("moves past the end", [b"\x03\x04"]),
    "skipped": ("skip past the end", [SKIPPED] * 4),
    "taken back": ("apology for a piece not sent", [SKIPPED, SORRY]),
}


@pytest.mark.parametrize("kind", PASSED)
def test_what_is_wrong_whatever_sizes_payloads_have(kind: str) -> None:
    detail, packets = PASSED[kind]
    peer = mending(5, 6, 7)
    with pytest.raises(RemoteViolation, match=detail):
        peer.data(*packets)


@pytest.mark.parametrize("packets", [[payload(25)], [payload(10), payload(4)]])
def test_metadata_is_wrong_whatever_the_other_side_holds(packets: list[bytes]) -> None:
    peer = mending(5, 6, 7)
    for packet in packets:
        peer.data(packet)
    with pytest.raises(RemoteViolation, match="metadata"):
        peer.data(metadata_packet(WHOLE, 6))
