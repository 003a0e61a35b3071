"""One relay against a script: what it passes on, and takes back, at every point (section 8)."""

import random

import pytest

from peer.protocol.config import SessionConfig
from peer.protocol.errors import RemoteViolation
from peer.protocol.events import Interests, InterestsChanged, LogChanged
from wire import (
    Adjust,
    Apology,
    Cancel,
    CancelReason,
    DataDecoder,
    DataPacket,
    Eagerness,
    LogKey,
    Metadata,
    Notify,
    PayloadBytes,
    PayloadStart,
    RequestCancelled,
    Setup,
    SkipUnavailable,
    Switch,
    encode_apology,
    encode_payload_header,
    encode_skip_bytes,
    encode_switch,
)

from .impolite import AUTHOR, GREEDY, LOG, Impolite, cancel, log_of, metadata_packet
from .relay import RelayHost, RelayStore
from .rig import Held

BIG = random.Random(2).randbytes(600)
HISTORY = log_of(4, lambda seq: BIG if seq == 2 else b"p%d" % seq)
PLACE = (LOG, 2)
NEVER_PACKED = SessionConfig(small_payload_bytes_max=64, quantum_bytes=256, compression="never")
SAFE = Setup(send_greedily=False, accept_greedily=True, send_window=0, receive_window=0)


class Relay(Impolite):
    """A relay that holds the entries up to `newest`, but for the payload of entry 2."""

    def __init__(
        self,
        newest: int = 2,
        *,
        setup: Setup = GREEDY,
        config: SessionConfig = NEVER_PACKED,
        follows: bool = False,
    ) -> None:
        super().__init__(setup=setup, config=config, follows=follows)
        self.relayed = RelayStore()
        for seq in range(1, newest + 1):
            each = HISTORY[seq]
            self.relayed.logs[LOG][seq] = Held(
                each.encoded, each.hash, None if seq == 2 else each.payload
            )
        host = RelayHost(self.relayed)
        host.engine = self.engine
        interests = Interests(logs=frozenset((LOG,) if follows else ()))
        host.todo.append(InterestsChanged(interests, ()))
        self.host = host
        self._packets = DataDecoder(1024)

    def arrives(self, data: bytes = b"") -> None:
        """Somebody begins to send the payload, or goes on with it."""
        if PLACE not in self.relayed.arrivals:
            self.relayed.begin(PLACE, "somebody", 0)
        self.relayed.feed(PLACE, data)

    def packets(self) -> list[DataPacket]:
        """What the relay sends now; bytes of a payload that follow each other are one piece."""
        self._packets.feed(self.sent())
        found: list[DataPacket] = []
        while (packet := self._packets.next_packet(with_backlink=False)) is not None:
            if isinstance(packet, PayloadStart):
                continue
            last = found[-1] if found else None
            if isinstance(packet, PayloadBytes) and isinstance(last, PayloadBytes):
                found[-1] = PayloadBytes(b"".join((last.data, packet.data)))
            else:
                found.append(packet)
        return found

    def opens(self, **fields: object) -> list[DataPacket]:
        """The script asks for the log; what is sent before the payload of entry 2."""
        self.open_request(**fields)  # type: ignore[arg-type]
        return self.packets()


def kinds(packets: list[DataPacket]) -> list[type[DataPacket]]:
    return [type(packet) for packet in packets]


BEFORE = [Switch, Metadata, PayloadBytes, Metadata]


def relaying(sent: int = 300, **options: object) -> Relay:
    """A relay that has passed on so many bytes of the payload."""
    relay = Relay(**options)  # type: ignore[arg-type]
    relay.arrives()
    assert kinds(relay.opens()) == BEFORE
    relay.arrives(BIG[:sent])
    assert relay.packets() == [PayloadBytes(BIG[:sent])]
    return relay


def test_bytes_are_passed_on_as_they_come_and_the_last_one_when_all_are_verified() -> None:
    relay = relaying()
    relay.arrives(BIG[300:400])
    assert relay.packets() == [PayloadBytes(BIG[300:400])]
    relay.arrives(BIG[400:])
    assert relay.packets() == [PayloadBytes(BIG[400:-1])]
    relay.relayed.complete(PLACE)
    assert relay.packets() == [PayloadBytes(BIG[-1:])]


def test_what_was_wrong_before_its_first_byte_was_sent_is_nothing_to_apologise_for() -> None:
    relay = Relay()
    assert kinds(relay.opens()) == BEFORE
    relay.arrives(b"wrong")
    relay.relayed.spoil(PLACE)
    assert relay.packets() == []
    relay.arrives(BIG[:10])
    assert relay.packets() == [PayloadBytes(BIG[:10])]


@pytest.mark.parametrize("sent", [1, 300, 599])
def test_after_an_apology_the_payload_is_sent_once_it_is_verified(sent: int) -> None:
    relay = relaying(sent)
    relay.relayed.spoil(PLACE)
    assert relay.packets() == [Apology()]
    relay.arrives(BIG[:500])
    assert relay.packets() == []
    relay.arrives(BIG[500:])
    relay.relayed.complete(PLACE)
    assert relay.packets() == [PayloadBytes(BIG)]


def test_what_was_read_and_not_sent_is_not_sent_any_more() -> None:
    relay = Relay()
    relay.opens()
    relay.arrives(BIG[:500])
    part = b""
    while not part:
        part = b"".join(relay.engine.data_to_send(100))
        relay.run()
    relay.relayed.spoil(PLACE)
    relay._packets.feed(part)
    sent = [packet for packet in relay.packets() if not isinstance(packet, PayloadBytes)]
    assert sent == [Apology()]


def test_a_payload_found_right_in_its_middle_needs_no_apology_for_ever() -> None:
    relay = relaying()
    relay.arrives(BIG[300:])
    relay.relayed.complete(PLACE)
    assert relay.packets() == [PayloadBytes(BIG[300:])]
    assert not relay.relayed.arrivals


def test_the_window_of_compression_outlives_an_apology() -> None:
    text = b"the same words again and again, " * 40
    held = log_of(2, lambda seq: text if seq == 2 else b"p")
    config = SessionConfig(small_payload_bytes_max=64, quantum_bytes=256, compression="always")
    relay = Relay(config=config)
    relay.relayed.logs[LOG][2] = Held(held[2].encoded, held[2].hash, None)
    relay.relayed.logs[LOG][1] = held[1]
    relay.opens()
    relay.arrives(text[:700])
    assert relay.packets() == [PayloadBytes(text[:700])]
    relay.relayed.spoil(PLACE)
    relay.arrives(text)
    relay.relayed.complete(PLACE)
    assert relay.packets() == [Apology(), PayloadBytes(text)]


def test_an_apology_switches_back_to_its_request() -> None:
    relay = relaying()
    other = LogKey(AUTHOR.id, 7)
    relay.relayed.logs[other][1] = AUTHOR.entry({}, 7, b"other")[1]
    relay.number += 2
    relay.open_request(log=other)
    assert kinds(relay.packets()) == [Switch, Metadata, PayloadBytes]
    relay.relayed.spoil(PLACE)
    assert relay.packets() == [Switch(relay.number - 2), Apology()]


def test_an_apology_follows_the_end_of_another_request() -> None:
    """Only a switch may follow that."""
    relay = relaying()
    relay.number += 2
    relay.open_request(end=1)
    assert kinds(relay.packets()) == [Switch, Metadata, PayloadBytes, RequestCancelled]
    relay.relayed.spoil(PLACE)
    assert relay.packets() == [Switch(relay.number - 2), Apology()]


@pytest.mark.parametrize("reason", [CancelReason.NOT_WANTED, CancelReason.NO_RESOURCES])
def test_after_its_cancel_a_relay_apologises_for_nothing(reason: CancelReason) -> None:
    relay = relaying()
    relay.control(cancel(relay.number, reason))
    relay.relayed.spoil(PLACE)
    assert relay.packets() == [RequestCancelled(relay.number)]
    assert not relay.relayed.arrivals


def test_a_request_that_ends_leaves_no_read_behind() -> None:
    relay = relaying()
    assert relay.relayed.arrivals[PLACE].reached
    relay.control(cancel(relay.number, CancelReason.NOT_WANTED))
    relay.run()
    assert not relay.relayed.arrivals[PLACE].reached


def test_a_fork_in_the_middle_ends_the_request_and_says_no_more() -> None:
    relay = relaying()
    fork = AUTHOR.entry({1: HISTORY[1]}, 0, b"another")[1]
    relay.relayed.record_fork(LOG, 2, (HISTORY[2].encoded, fork.encoded))
    relay.relayed.spoil(PLACE)
    packets = relay.packets()
    assert packets in ([RequestCancelled(0)], [Apology(), RequestCancelled(0)])
    assert Cancel(0, CancelReason.FORKED, (HISTORY[2].encoded, fork.encoded)) in relay.messages()


def test_the_rest_of_a_payload_is_sent_though_only_notifies_are_wanted_by_now() -> None:
    relay = relaying()
    relay.control(Adjust(relay.number, eagerness=Eagerness.NOTIFY))
    relay.arrives(BIG[300:])
    relay.relayed.complete(PLACE)
    assert relay.packets() == [PayloadBytes(BIG[300:])]


def test_a_payload_that_was_taken_back_is_notified_of_if_only_that_is_wanted_by_now() -> None:
    relay = relaying()
    relay.control(Adjust(relay.number, eagerness=Eagerness.NOTIFY))
    relay.relayed.spoil(PLACE)
    assert relay.packets() == [Apology()]
    relay.arrives(BIG)
    assert relay.packets() == []
    relay.relayed.complete(PLACE)
    assert relay.packets() == [Notify(1)]


def test_a_range_that_is_cut_inside_the_payload_is_complete_after_an_apology() -> None:
    relay = relaying()
    relay.control(Adjust(relay.number, end=1))
    assert relay.packets() == [Apology(), RequestCancelled(relay.number)]
    assert relay.messages() == [Cancel(relay.number, CancelReason.COMPLETE)]


def test_a_range_is_complete_when_its_last_payload_is_verified() -> None:
    relay = Relay()
    relay.arrives(BIG[:300])
    assert kinds(relay.opens(end=2)) == [*BEFORE, PayloadBytes]
    relay.arrives(BIG[300:])
    assert relay.packets() == [PayloadBytes(BIG[300:-1])]
    assert relay.messages() == []
    relay.relayed.complete(PLACE)
    assert relay.packets() == [PayloadBytes(BIG[-1:]), RequestCancelled(relay.number)]
    assert relay.messages() == [Cancel(relay.number, CancelReason.COMPLETE)]


def test_the_next_piece_waits_for_the_verdict() -> None:
    relay = relaying(599, newest=4)
    assert relay.packets() == []
    relay.arrives(BIG[-1:])
    assert relay.packets() == []
    relay.relayed.complete(PLACE)
    assert kinds(relay.packets()) == [PayloadBytes, Metadata, PayloadBytes, Metadata, PayloadBytes]


def test_when_the_source_is_lost_the_rest_is_waited_for() -> None:
    relay = relaying()
    relay.relayed.leave(PLACE)
    assert relay.packets() == []
    relay.relayed.begin(PLACE, "another", 300)
    relay.arrives(BIG[300:])
    relay.relayed.complete(PLACE)
    assert relay.packets() == [PayloadBytes(BIG[300:])]


def test_a_source_that_goes_on_from_further_back_makes_what_was_sent_doubtful() -> None:
    relay = relaying()
    relay.relayed.leave(PLACE)
    relay.relayed.begin(PLACE, "another", 200)
    assert relay.packets() == [Apology()]


@pytest.mark.parametrize("newest", [2, 4])
def test_a_payload_that_nobody_goes_on_with_is_given_up_if_something_waits(newest: int) -> None:
    relay = relaying(newest=newest)
    relay.relayed.leave(PLACE)
    assert relay.packets() == []
    relay.wait(NEVER_PACKED.unfed_timeout_s - 1)
    assert relay.packets() == []
    relay.wait(1)
    packets = relay.packets()
    if newest == 2:
        assert packets == []
        assert relay.engine.next_deadline() == 2 * NEVER_PACKED.unfed_timeout_s
    else:
        assert kinds(packets)[:3] == [Apology, SkipUnavailable, Metadata]


def test_a_payload_that_goes_on_in_time_is_not_given_up() -> None:
    relay = relaying(newest=4)
    relay.relayed.leave(PLACE)
    relay.packets()
    relay.relayed.begin(PLACE, "another", 300)
    relay.packets()
    relay.wait(2 * NEVER_PACKED.unfed_timeout_s)
    assert relay.packets() == []
    assert relay.engine.next_deadline() is None


def test_in_a_safe_direction_nothing_is_sent_before_it_is_verified() -> None:
    relay = Relay(setup=SAFE)
    assert kinds(relay.opens()) == BEFORE
    relay.arrives(BIG)
    assert relay.packets() == []
    relay.relayed.complete(PLACE)
    assert relay.packets() == [PayloadBytes(BIG)]


def test_a_small_payload_is_not_sent_before_it_is_verified() -> None:
    held = log_of(2, lambda seq: b"%d" % seq * 64)
    relay = Relay()
    relay.relayed.logs[LOG][1], relay.relayed.logs[LOG][2] = held[1], held[2]
    held[2].payload = None
    assert kinds(relay.opens()) == BEFORE
    relay.arrives(b"2" * 60)
    assert relay.packets() == []
    relay.arrives(b"2" * 4)
    relay.relayed.complete(PLACE)
    assert relay.packets() == [PayloadBytes(b"2" * 64)]


def test_a_payload_that_may_not_come_is_skipped_only_where_something_is_behind_it() -> None:
    waiting, going_on, finite = Relay(), Relay(newest=4), Relay()
    assert kinds(waiting.opens()) == BEFORE
    assert SkipUnavailable in kinds(going_on.opens())
    assert SkipUnavailable in kinds(finite.opens(end=2))


def test_a_request_that_begins_inside_the_payload_is_relayed_from_there() -> None:
    relay = Relay()
    relay.arrives(BIG[:150])
    relay.open_request(2, offset=200, starting_hash=HISTORY[2].hash)
    assert relay.packets() == []
    relay.arrives(BIG[150:400])
    assert relay.packets() == [Switch(relay.number), PayloadBytes(BIG[200:400])]
    relay.relayed.spoil(PLACE)
    assert relay.packets() == [Apology()]
    relay.arrives(BIG)
    relay.relayed.complete(PLACE)
    assert relay.packets() == [PayloadBytes(BIG[200:])]


def test_a_skip_of_what_we_took_back_meanwhile_blames_nobody() -> None:
    """Packet 7 crosses our apology."""
    relay = relaying(follows=True)
    relay.relayed.spoil(PLACE)
    assert relay.packets() == [Apology()]
    [request] = relay.engine.actor.requests_of(LOG)
    request.incoming.position = 3
    relay.data(encode_switch(relay.number), encode_skip_bytes(300))
    with pytest.raises(RemoteViolation):
        relay.data(encode_skip_bytes(1))


def test_news_of_a_log_while_its_payload_is_relayed_change_nothing() -> None:
    relay = relaying()
    relay.engine.handle(LogChanged(LOG, 2, 2))
    relay.arrives(BIG[300:])
    relay.relayed.complete(PLACE)
    assert relay.packets() == [PayloadBytes(BIG[300:])]


def test_an_apology_that_waits_for_a_verdict_is_counted_once() -> None:
    """However often the engine looks whether the verdict is there."""
    config = SessionConfig(small_payload_bytes_max=64, quantum_bytes=256, idle_work_max=3)
    relay = Relay(newest=0, follows=True, config=config)
    relay.number = 0
    relay.open_request()
    held = log_of(1, lambda _: BIG)
    wrong = encode_payload_header(600) + BIG[:-1] + b"?"
    relay.engine.receive_data(
        encode_switch(0) + metadata_packet(held, 1) + wrong + encode_apology()
    )
    for _ in range(20):
        relay.engine.handle(LogChanged(LogKey(AUTHOR.id, 9), 1, 1))
    relay.run()
    relay.data(encode_payload_header(600), BIG)
    assert relay.relayed.logs[LOG][1].payload == BIG
