"""Compression between two engines: windows stay equal whatever happens (point2point.md 1, 4, 8)."""

import random
import tracemalloc
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.signing import SigningKey

from peer.protocol.commands import ClosePayload, FinishPayload, OpenPayload, WritePayload
from peer.protocol.config import Compression, SessionConfig
from peer.protocol.errors import RemoteViolation
from peer.protocol.events import Interests, PayloadWritten
from tests.records import replace
from wire import (
    Cancel,
    CancelReason,
    DataDecoder,
    LogKey,
    LZFooEncoder,
    PayloadBytes,
    PayloadStart,
    RequestCancelled,
    Setup,
    encode_apology,
    encode_compressed,
    encode_request_cancelled,
    encode_switch,
    encode_varu64,
    sign_entry,
    yamf_hash,
)

from .impolite import LOG, SMALL, Impolite, cancel, log_of, metadata_packet
from .rig import Author, Held, Pair, Store

AUTHOR = Author(SigningKey(b"c" * 32))
MODES = st.sampled_from(get_args(Compression))
WINDOWS = st.sampled_from([0, 1, 2, 17, 65536])
NOISE = random.Random(9).randbytes(3000)
WINDOW = 65536
GREEDY = Setup(send_greedily=True, accept_greedily=True, send_window=WINDOW, receive_window=WINDOW)
SAFE = replace(GREEDY, send_greedily=False, accept_greedily=False)


def text(seed: int, size: int) -> bytes:
    """Text that shares its lines with all others."""
    lines = [b"entry %d of a log of bamboo" % (n % 7) for n in range(seed, seed + size // 20)]
    return b"\n".join(lines)[:size]


PAYLOADS = st.one_of(
    st.builds(text, st.integers(0, 9), st.integers(0, 3000)),
    st.integers(0, 1500).map(lambda n: NOISE[:n]),
)


@given(
    st.lists(st.tuples(st.integers(0, 2), PAYLOADS), max_size=8),
    MODES,
    st.tuples(WINDOWS, WINDOWS),
    st.sampled_from([700, 5000, 1 << 20]),
    st.sampled_from([SMALL, SessionConfig()]),
)
@settings(max_examples=30, deadline=None)
def test_what_arrives_is_what_was_sent(
    entries: list[tuple[int, bytes]],
    mode: Compression,
    windows: tuple[int, int],
    credit: int,
    config: SessionConfig,
) -> None:
    """Several logs at once, so that their payloads take turns in the one window."""
    stores = (Store(), Store())
    for log_id, payload in entries:
        stores[0].append(AUTHOR, log_id, payload)
    pair = Pair(
        replace(config, compression=mode),
        credit=credit,
        stores=stores,
        setup=replace(GREEDY, send_window=windows[0], receive_window=windows[1]),
    )
    everything = Interests(everything=True)
    pair.connect((everything, everything))
    pair.run(advance_s=0.1)
    assert stores[1].logs == stores[0].logs


@given(
    st.lists(PAYLOADS, min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(1, 400)), max_size=60),
)
@settings(max_examples=30, deadline=None)
def test_what_is_appended_while_data_is_under_way_arrives_too(
    payloads: list[bytes], steps: list[tuple[int, int, int]]
) -> None:
    stores = (Store(), Store())
    pair = Pair(replace(SMALL, compression="always"), stores=stores)
    follows = Interests(logs=frozenset((LogKey(AUTHOR.id, 0), LogKey(AUTHOR.id, 1))))
    left = [(n % 2, payload) for n, payload in enumerate(payloads * 2)]
    pair.connect((follows, follows))
    for side, kind, size in steps:
        if kind == 0:
            pair.pump(side, data_max=size)
        elif kind == 1:
            pair.deliver_data(side, size)
            pair.deliver_control(side, size)
        elif not pair.hosts[side].step(size) and left:
            log_id, payload = left.pop()
            stores[log_id].append(AUTHOR, log_id, payload)
    pair.run(advance_s=2.0)
    assert stores[1].logs == stores[0].logs


def server(held: dict[int, Held]) -> Impolite:
    config = replace(SMALL, compression="always")
    return Impolite(held, follows=False, setup=GREEDY, config=config)


class Opened:
    """Reads the data of one connection with one window, for all its requests."""

    def __init__(self) -> None:
        self._decoder = DataDecoder(WINDOW)
        self.payload = bytearray()
        self.compressed_packets = 0

    def read(self, data: bytes) -> list[object]:
        self._decoder.feed(data)
        packets: list[object] = []
        while (packet := self._decoder.next_packet(with_backlink=False)) is not None:
            packets.append(packet)
            if isinstance(packet, PayloadBytes):
                self.payload += packet.data
            if isinstance(packet, PayloadStart):
                self.compressed_packets += packet.compressed
        return packets


def test_the_window_of_what_we_send_outlives_requests_and_cancels() -> None:
    """The same payload again costs next to nothing, also after a cancel in its middle."""
    words = [NOISE[at : at + 7].hex().encode() for at in range(0, 2800, 7)]
    essay = b" ".join(random.Random(3).choices(words, k=2000))
    held = log_of(2, lambda _: essay)
    payload = held[1].payload or b""
    peer, opened = server(held), Opened()
    peer.open_request(end=1)
    first = peer.sent()
    opened.read(first)
    assert bytes(opened.payload) == payload
    peer.number += 2
    peer.open_request(start=2, lower_info=2, end=2, starting_hash=held[1].hash)
    at_first = opened.compressed_packets
    assert at_first
    part = b"".join(peer.engine.data_to_send(300))
    peer.run()
    part += b"".join(peer.engine.data_to_send(300))
    peer.control(cancel(peer.number, CancelReason.NOT_WANTED))
    part += peer.sent()
    assert any(isinstance(packet, RequestCancelled) for packet in opened.read(part))
    opened.payload.clear()
    peer.number += 2
    peer.open_request(end=1)
    again = peer.sent()
    opened.read(again)
    assert bytes(opened.payload) == payload
    assert len(again) < len(first) / 8
    assert opened.compressed_packets > at_first


def packet(encoder: LZFooEncoder, data: bytes) -> bytes:
    return encode_compressed(len(data), encoder.encode(data))


def test_what_is_thrown_away_is_in_the_window_all_the_same() -> None:
    """A payload too large for us, given up; the next one refers to it."""
    held = log_of(2, lambda seq: NOISE[: 3000 // seq**2])
    peer = Impolite(setup=GREEDY, config=replace(SMALL, payload_bytes_max=1000))
    encoder = LZFooEncoder(WINDOW)
    peer.open_request(end=1)
    peer.data(encode_switch(0), metadata_packet(held, 1), packet(encoder, NOISE[:2000]))
    assert Cancel(0, CancelReason.NO_RESOURCES) in peer.messages()
    peer.data(packet(encoder, NOISE[2000:]), encode_request_cancelled(0))
    peer.control(cancel(0))
    peer.number += 2
    peer.open_request(start=2, lower_info=2, end=2, starting_hash=held[1].hash)
    small = packet(encoder, NOISE[:750])
    assert len(small) < 20
    peer.data(encode_switch(peer.number), metadata_packet(held, 2), small)
    assert peer.store.logs[LOG][2].payload == NOISE[:750]


def test_what_was_apologised_for_is_in_the_window_all_the_same() -> None:
    held = log_of(1, lambda _: NOISE)
    peer = Impolite(setup=GREEDY)
    encoder = LZFooEncoder(WINDOW)
    peer.open_request()
    wrong = packet(encoder, NOISE[1000:2000])
    peer.data(encode_switch(0), metadata_packet(held, 1), wrong, encode_apology())
    right = packet(encoder, NOISE)
    assert len(right) < len(NOISE) - 900
    peer.data(right)
    assert peer.store.logs[LOG][1].payload == NOISE


# Bombs: a few bytes that stand for very many


def bomb_entry(payload_bytes: int) -> Held:
    encoded = sign_entry(
        SigningKey(b"i" * 32),
        log_id=0,
        seq=1,
        is_end=False,
        lipmaalink=None,
        backlink=None,
        payload_bytes=payload_bytes,
        payload_hash=yamf_hash(b"something else"),
    )
    return Held(encoded, yamf_hash(encoded), None)


def bomb(declared: int) -> bytes:
    """Packet 9: a literal of one byte, and a copy of it as often as is declared."""
    copy = b"\xff" + (declared - 1).to_bytes(8, "big") + b"\x01"
    return encode_compressed(declared, b"\x01z" + copy)


def test_a_bomb_is_read_in_flat_memory_at_the_speed_of_the_disk() -> None:
    """30 bytes declare 2^40: what is not written yet is bounded, and nothing is read beyond it."""
    config = SessionConfig()
    peer = Impolite(setup=GREEDY, config=config)
    peer.open_request()
    held = {1: bomb_entry(2**40)}
    written = waiting_max = 0
    tracemalloc.start()
    peer.engine.receive_data(encode_switch(0) + metadata_packet(held, 1) + bomb(2**40))
    while written < 100 * 2**20:
        waiting = 0
        for command in peer.engine.commands():
            assert not isinstance(command, FinishPayload | ClosePayload)
            if isinstance(command, WritePayload):
                waiting += len(command.data)
                peer.engine.handle(PayloadWritten(command.sink, len(command.data)))
            elif isinstance(command, OpenPayload):
                pass
            else:
                for event in peer.host._replies(command):
                    peer.engine.handle(event)
        assert waiting > 0
        written += waiting
        waiting_max = max(waiting_max, waiting)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert waiting_max < config.data_credit_bytes + 2**20
    assert peak < 2 * config.data_credit_bytes + 2**20
    peer.engine.ended()
    assert any(isinstance(command, ClosePayload) for command in peer.engine.commands())


def test_a_bomb_larger_than_its_entry_ends_the_connection_before_it_is_read() -> None:
    peer = Impolite(setup=GREEDY)
    peer.open_request()
    with pytest.raises(RemoteViolation, match="payload"):
        peer.data(encode_switch(0), metadata_packet({1: bomb_entry(1000)}, 1), bomb(2**60)[:12])


def test_a_bomb_that_is_not_what_was_signed_ends_the_connection() -> None:
    peer = Impolite(setup=SAFE)
    peer.open_request()
    with pytest.raises(RemoteViolation, match="hash"):
        peer.data(encode_switch(0), metadata_packet({1: bomb_entry(10**6)}, 1), bomb(10**6))


def test_more_compressed_bytes_than_any_encoder_needs_end_the_connection() -> None:
    """A mill of elements of one byte would cost us time and its sender nothing."""
    peer = Impolite(setup=GREEDY)
    peer.open_request()
    header = b"\x09" + encode_varu64(1000) + encode_varu64(4 * 1000 + 65)
    with pytest.raises(RemoteViolation, match="refused"):
        peer.data(encode_switch(0), metadata_packet({1: bomb_entry(1000)}, 1), header)
