"""A payload behind metadata that was only notified of may be that of another entry than ours.

The other side asks for notifies only. We notify it of entries and skip the payloads that we lack;
it passes our metadata by notifies, and sends its own payloads. If the author has forked the log
these are others. Pieces are counted all the same: metadata is between them (point2point.md 3, 4).
"""

from collections import Counter

import pytest

from logstore import FULL, Subscription
from peer.protocol.errors import RemoteViolation
from peer.protocol.events import Interests, InterestsChanged
from wire import (
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Grant,
    Propose,
    Setup,
    encode_notify,
    encode_payload_header,
    encode_request_cancelled,
    encode_switch,
)

from .impolite import (
    AUTHOR,
    GREEDY,
    LOG,
    SAFE,
    Impolite,
    cancel,
    entry_packets,
    log_of,
    metadata_packet,
)
from .impolite import payload_packet as packet_of
from .rig import Held

SORRY, SKIPPED = b"\x10", b"\x06"


def ours(size: int) -> dict[int, Held]:
    """Our branch; the payload of entry 3 has that size."""
    return log_of(7, lambda seq: b"%d" % seq * {3: size, 6: 4}.get(seq, 5))


SMALL, LARGE, EMPTY = ours(10), ours(200), ours(0)
"""A payload above 64 bytes goes to a file as it comes."""


def _theirs() -> dict[int, Held]:
    known = {seq: SMALL[seq] for seq in (1, 2)}
    for seq in range(3, 13):
        known[seq] = AUTHOR.entry(known, 0, b"y" * seq)[1]
    return known


THEIRS = _theirs()
"""The other branch. Metadata of 4, 8 and 12 carries a backlink if the entry before was not sent."""


def payload(size: int, of: bytes = b"x") -> bytes:
    return encode_payload_header(size) + of * size


class Meeting(Impolite):
    """An engine in an open request for everything, and then entries come from somebody else."""

    def __init__(
        self,
        held: dict[int, Held] = SMALL,
        *,
        setup: Setup = GREEDY,
        last: int = 7,
        eagerness: Eagerness = Eagerness.NOTIFY,
        wanted: Subscription = FULL,
        credit: int = 20,
    ) -> None:
        super().__init__(setup=setup)
        self.given = self.released = 0
        interests = Interests(logs=frozenset((LOG,)), subscriptions={LOG: wanted})
        self.host.todo.append(InterestsChanged(interests, ()))
        self.control(Grant(credit))
        self.open_request(eagerness=eagerness)
        for seq in range(1, last + 1):
            each = held[seq]
            mine = None if seq in (3, 6) else each.payload
            self.store.logs[LOG][seq] = Held(each.encoded, each.hash, mine)
        self.store.changed(LOG)
        self.sent()
        self.messages()
        self.data(encode_switch(self.number))

    @property
    def position(self) -> int:
        """How many pieces the other side has passed, as the engine counts."""
        [request] = [r for r in self.engine.actor.requests_of(LOG) if r.number == self.number]
        return request.incoming.position

    def data(self, *packets: bytes) -> None:
        self.given += sum(map(len, packets))
        super().data(*packets)
        self.released += self.engine.data_credit_to_release()

    def asked(self) -> list[Propose]:
        return [each for each in self.messages() if isinstance(each, Propose)]

    def end(self) -> list[Propose]:
        """The other side ends the request; what is asked for then."""
        self.control(cancel(self.number))
        self.data(encode_request_cancelled(self.number))
        self.sent()
        return self.asked()


UP_TO_THE_PAYLOAD = encode_notify(5)
"""Entries 1 and 2, and the metadata of 3."""
TO_THE_NEXT_PAYLOAD = encode_notify(5)
"""Entries 4 and 5, and the metadata of 6."""

OTHERS = {
    "longer": (SMALL, [payload(25)]),
    "shorter": (SMALL, [payload(3)]),
    "shorter, in several packets": (SMALL, [payload(3), payload(4)]),
    "nothing": (SMALL, [payload(0)]),
    "as long": (SMALL, [payload(10)]),
    "longer, in packets like ours": (SMALL, [payload(10), payload(10), payload(3)]),
    "right as far as it goes": (SMALL, [payload(10, b"3"), payload(2)]),
    "large and longer": (LARGE, [payload(60), payload(141)]),
    "large and shorter": (LARGE, [payload(60), payload(60)]),
    "large and as long": (LARGE, [payload(200)]),
    "large and longer, in packets like ours": (LARGE, [payload(200), payload(1)]),
    "large and right as far as it goes": (LARGE, [payload(200, b"3"), payload(1)]),
    "something": (EMPTY, [payload(5)]),
    "something, after nothing": (EMPTY, [payload(0), payload(5)]),
}

TAKEN_BACK = {
    "shorter": (SMALL, [payload(3), SORRY, payload(3)]),
    "longer": (SMALL, [payload(25), SORRY, SKIPPED]),
    "longer, twice": (SMALL, [payload(25), SORRY, payload(20), payload(5)]),
    "as long": (SMALL, [payload(10), SORRY, SKIPPED]),
    "as long, and notified": (SMALL, [payload(10), SORRY, encode_notify(1)]),
    "longer, in packets like ours": (SMALL, [payload(10), payload(10), SORRY, payload(30)]),
    "right": (SMALL, [payload(10, b"3"), SORRY, payload(9)]),
    "large and longer": (LARGE, [payload(201), SORRY, SKIPPED]),
    "large and as long": (LARGE, [payload(200), SORRY, payload(200)]),
    "large and right": (LARGE, [payload(200, b"3"), SORRY, SKIPPED]),
}


@pytest.mark.parametrize(
    ("held", "packets", "setup"),
    [
        *((*each, setup) for each in OTHERS.values() for setup in (SAFE, GREEDY)),
        *((*each, GREEDY) for each in TAKEN_BACK.values()),
    ],
    ids=[
        *(f"{name}, {way}" for name in OTHERS for way in ("safe", "greedy")),
        *(f"{name}, taken back" for name in TAKEN_BACK),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_a_payload_of_another_entry_blames_nobody_and_shows_the_fork(
    held: dict[int, Held], packets: list[bytes], setup: Setup, at_once: bool
) -> None:
    peer = Meeting(held, setup=setup)
    both = [UP_TO_THE_PAYLOAD, *packets, TO_THE_NEXT_PAYLOAD, payload(9), payload(9)]
    # Entry 7, and what is behind ours: a backlink, and later one that the request has brought.
    both += [encode_notify(2), metadata_packet(THEIRS, 8, True), packet_of(THEIRS, 8)]
    both += [metadata_packet(THEIRS, n) + packet_of(THEIRS, n) for n in range(9, 13)]
    peer.data(*([b"".join(both)] if at_once else both))
    assert peer.position == 2 * 12
    messages = peer.messages()
    assert cancel(peer.number, CancelReason.NO_RESOURCES) in messages
    asked = [each for each in messages if isinstance(each, Propose)] + peer.end()
    assert peer.given == peer.released
    assert set(peer.store.logs[LOG]) == set(held)
    assert not peer.store.partial.get((LOG, 3))
    assert peer.engine.drained
    if peer.store.logs[LOG][3].payload is not None:
        # What came first was the right one for us.
        assert asked == []
        return
    [ask] = asked
    assert (ask.start, ask.end, ask.offset) == (3, 3, 0)
    assert ask.starting_hash == held[3].hash
    entry = (THEIRS[3].encoded,)
    peer.control(Cancel(ask.request, CancelReason.HASH_MISMATCH, entries=entry))
    assert peer.store.forks[LOG][0] == 3


@pytest.mark.parametrize("packets", [each for _, each in OTHERS.values()], ids=OTHERS)
def test_metadata_behind_it_is_read_with_its_backlink(packets: list[bytes]) -> None:
    """It comes right behind the payload, as we hold nothing that it could notify of."""
    peer = Meeting(last=3)
    peer.data(UP_TO_THE_PAYLOAD, *packets)
    peer.data(metadata_packet(THEIRS, 4, True), packet_of(THEIRS, 4))
    peer.data(metadata_packet(THEIRS, 5), packet_of(THEIRS, 5))
    assert peer.position == 2 * 5
    assert cancel(peer.number, CancelReason.NO_RESOURCES) in peer.messages()


@pytest.mark.parametrize("size", [5, 25])
def test_what_is_read_past_is_not_judged_by_our_sizes(size: int) -> None:
    """The request was cancelled for another reason, before and in the middle of the payload."""
    for before in ([], [payload(5)]):
        peer = Meeting()
        peer.data(UP_TO_THE_PAYLOAD, *before)
        [request] = peer.engine.actor.requests_of(LOG)
        peer.engine._inbound.discard(request)
        peer.engine.actor.cancel(request, Cancel(request.number, CancelReason.NOT_WANTED))
        peer.data(payload(size), payload(1), TO_THE_NEXT_PAYLOAD, SKIPPED, encode_notify(2))
        assert peer.position == 2 * 7


@pytest.mark.parametrize("packets", [[payload(3), SORRY], [SKIPPED]])
def test_a_payload_that_never_came_is_no_reason_to_give_up(packets: list[bytes]) -> None:
    peer = Meeting()
    peer.data(UP_TO_THE_PAYLOAD, *packets, payload(10, b"3") if SORRY in packets else b"")
    peer.data(TO_THE_NEXT_PAYLOAD, payload(4, b"6"), encode_notify(2))
    peer.data(metadata_packet(SMALL_MORE, 8, True), packet_of(SMALL_MORE, 8))
    assert peer.messages() == []
    assert peer.store.logs[LOG][6].payload == b"6666"
    assert peer.store.logs[LOG][8].payload == SMALL_MORE[8].payload


SMALL_MORE = log_of(8, lambda seq: b"%d" % seq * {3: 10, 6: 4}.get(seq, 5))

SIZES_WANTED = {
    "below the minimum": (Subscription(min_bytes=8), b"\x04"),
    "above the maximum": (Subscription(max_bytes=20), b"\x05"),
    "above the eager size": (Subscription(eager_bytes=20), encode_notify(1)),
}


@pytest.mark.parametrize("kind", SIZES_WANTED)
def test_a_payload_may_be_passed_for_a_size_that_ours_has_not(kind: str) -> None:
    wanted, packet = SIZES_WANTED[kind]
    peer = Meeting(wanted=wanted, last=3)
    peer.data(UP_TO_THE_PAYLOAD, packet, metadata_packet(THEIRS, 4, True), packet_of(THEIRS, 4))
    assert peer.position == 2 * 4


WRONG = {
    "skipped after its first byte": ("skip after the first byte", [payload(3), SKIPPED]),
    "skipped after too many": ("skip after the first byte", [payload(25), SKIPPED]),
    "metadata before it": ("metadata where the payload", [metadata_packet(THEIRS, 4)]),
    "passed and begun": ("payload where the metadata", [encode_notify(1), payload(3)]),
    "behind it a second one": ("skip where", [payload(10), SORRY, SKIPPED, SKIPPED]),
    "taken back twice": ("second apology", [payload(25), SORRY, payload(3), SORRY]),
    "taken back behind it": ("a piece not sent", [payload(25), encode_notify(1), SORRY]),
    "compressed nothing": ("compressed packet of length 0", [payload(25), b"\x09\x00\x00"]),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_whatever_entry_it_is(kind: str) -> None:
    detail, packets = WRONG[kind]
    peer = Meeting()
    with pytest.raises(RemoteViolation, match=detail):
        peer.data(UP_TO_THE_PAYLOAD, *packets, b"\x00" * 300)


PINNED = {
    "longer": ("11 bytes of a payload of which 10 are left", [payload(11)]),
    "shorter": ("metadata where the payload", [payload(3), metadata_packet(THEIRS, 4)]),
    "as long": ("invalid data", [payload(10), encode_notify(1)]),
    "below the minimum": ("not below the minimum", [b"\x04"]),
}


@pytest.mark.parametrize("kind", PINNED)
@pytest.mark.parametrize("setup", [SAFE, GREEDY])
def test_who_was_sent_the_metadata_has_to_send_its_payload(kind: str, setup: Setup) -> None:
    """It has passed our metadata, so that it verified there."""
    detail, packets = PINNED[kind]
    peer = Meeting(setup=setup, eagerness=Eagerness.ALL)
    with pytest.raises(RemoteViolation, match=detail):
        peer.data(UP_TO_THE_PAYLOAD, *packets)


def test_who_sent_the_metadata_has_to_send_its_payload() -> None:
    """The verdict comes when other metadata has come."""
    peer = Impolite(setup=SAFE)
    peer.open_request()
    packets = [encode_switch(peer.number), entry_packets(LARGE, [1, 2]), metadata_packet(LARGE, 3)]
    with pytest.raises(RemoteViolation, match="invalid data"):
        peer.data(*packets, payload(200), metadata_packet(LARGE, 4))


def test_who_was_told_the_hash_of_the_entry_has_to_send_its_payload() -> None:
    """The same, where no metadata comes before it."""
    peer = Impolite({1: Held(LARGE[1].encoded, LARGE[1].hash, None)}, setup=SAFE)
    peer.control(Grant(20))
    [own] = [each for each in peer.messages() if isinstance(each, Propose)]
    assert (own.start, own.offset, own.end) == (1, 0, None)
    peer.control(Adjust(own.request, eagerness=Eagerness.NOTIFY))
    with pytest.raises(RemoteViolation, match="invalid data"):
        peer.data(encode_switch(own.request), payload(5), metadata_packet(LARGE, 2))


def test_what_was_given_up_twice_is_asked_for_once() -> None:
    peer = Meeting(credit=0)
    first = peer.number
    for _ in range(2):
        peer.data(UP_TO_THE_PAYLOAD, payload(25), encode_notify(1))
        assert peer.end() == []
        peer.number += 2
        peer.open_request(eagerness=Eagerness.NOTIFY)
        peer.sent()
        peer.data(encode_switch(peer.number))
    assert peer.number == first + 4
    peer.control(Grant(20))
    assert [each.start for each in peer.asked() if each.offset == 0] == [3]


def test_what_was_given_up_is_asked_for_with_patience() -> None:
    peer = Meeting()
    peer.data(UP_TO_THE_PAYLOAD, payload(25), encode_notify(1))
    asked = [*peer.asked(), *peer.end()]
    refused = 0
    for _ in range(120):
        # Whatever is asked for is refused for want of resources, and so is to be tried again.
        while refused < len(asked):
            number = asked[refused].request
            refused += 1
            peer.control(cancel(number, CancelReason.NO_RESOURCES), Grant(1))
            peer.data(encode_switch(number), encode_request_cancelled(number))
            peer.sent()
        peer.wait(1.0)
        peer.sent()
        asked += peer.asked()
    counts = Counter((each.start, each.end) for each in asked)
    assert set(counts) == {(3, 3), (6, 6), (8, None)}
    assert all(2 <= count <= 8 for count in counts.values())
