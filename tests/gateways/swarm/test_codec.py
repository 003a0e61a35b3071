"""Messages of bzz, hive and stream: upstream's bytes, each limit, and any bytes at all."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz import harness, swarm_codec
from gateways.reading import CodecError
from gateways.swarm import codec, rlp
from gateways.swarm.codec import Proof, Range, Statement, Stream
from gateways.swarm.keys import Key, overlay_of

from .vectors import VECTORS

MESSAGES = VECTORS["messages"]
LISTED: list[dict[str, Any]] = MESSAGES["list"]
OF_STREAM = [each for each in LISTED if "protocol" not in each]
HASH1, HASH2 = bytes.fromhex(MESSAGES["hash1"]), bytes.fromhex(MESSAGES["hash2"])
ROOT = bytes.fromhex(MESSAGES["root"])
LIVE, HISTORY = Stream("SYNC", "6", live=True), Stream("SYNC", "6", live=False)
SIGNATURE = bytes(range(1, 66))
PROOF = Proof(SIGNATURE, Statement(HISTORY, 1, 300, ROOT))
RETRIEVE = Stream("RETRIEVE_REQUEST", "", live=True)
DATA = bytes(each * 7 % 256 for each in range(64))

# What upstream's bytes say, in the order of the vectors.
EXPECTED: list[codec.Message] = [
    codec.Unsubscribe(LIVE),
    codec.OfferedHashes(HISTORY, 1, 2, HASH1 + HASH2),
    codec.OfferedHashes(LIVE, 300, 300, HASH1, PROOF),
    codec.OfferedHashes(HISTORY, 1, 0, b""),
    codec.WantedHashes(HISTORY, b"\x05", 129, 2**64 - 1),
    codec.WantedHashes(LIVE, b"\x01\x02" + bytes(13) + b"\x80\x00", 65536, 0),
    codec.TakeoverProof(SIGNATURE, PROOF.statement),
    codec.Subscribe(LIVE, Range(0, 0), codec.HIGH),
    codec.Subscribe(RETRIEVE, None, codec.TOP),
    codec.RetrieveRequest(HASH1, True, 1),
    codec.RetrieveDelivery(HASH1, DATA[:40]),
    codec.SubscribeError("stream bar not registered"),
    codec.RequestSubscription(LIVE, Range(0, 0), codec.HIGH),
    codec.Quit(LIVE),
    codec.StreamDelivery(HASH2, DATA[:9]),
]


def test_every_message_of_stream_has_a_vector() -> None:
    assert {each["code"] for each in OF_STREAM} == set(range(11)) == set(codec.NUMBERS.values())
    assert len(OF_STREAM) == len(EXPECTED)


@pytest.mark.parametrize(
    ("vector", "expected"),
    [*zip(OF_STREAM, EXPECTED, strict=True)],
    ids=[each["message"] for each in OF_STREAM],
)
def test_upstream_s_messages(vector: dict[str, Any], expected: codec.Message) -> None:
    message = bytes.fromhex(vector["rlp"])
    read = codec.decode_message(vector["code"], message)
    assert type(read) is type(expected)
    assert read == expected
    assert codec.encode_message(read) == (vector["code"], message)
    assert codec.encode_envelope(message).hex() == vector["enveloped"]
    assert codec.decode_envelope(bytes.fromhex(vector["enveloped"])) == message


def test_upstream_s_handshake_and_hive() -> None:
    bzz, hive = (each for each in LISTED if "protocol" in each)
    for vector in (bzz, hive):
        message = bytes.fromhex(vector["rlp"])
        assert codec.encode_envelope(message).hex() == vector["enveloped"]
        assert codec.decode_envelope(bytes.fromhex(vector["enveloped"])) == message
    message = bytes.fromhex(bzz["rlp"])
    handshake = codec.Handshake(3, HASH1, "enode://x", is_light=False)
    assert codec.decode_handshake(message) == handshake
    assert codec.encode_handshake(handshake) == message
    codec.check_hive(hive["code"], bytes.fromhex(hive["rlp"]))


def test_the_empty_proof() -> None:
    _, message = codec.encode_message(codec.OfferedHashes(HISTORY, 1, 0, b""))
    assert message.hex().endswith("c980c7c3808080808080")


def test_handshakes_are_checked() -> None:
    key = Key(bytes(31) + b"\x07")
    handshake = codec.Handshake(3, overlay_of(key.public), "enode://x", is_light=True)
    codec.check_handshake(handshake, 3, key.public)
    codec.check_handshake(handshake._replace(overlay=HASH1), 3, None)
    for changed, why in (
        (handshake._replace(version=9), "the version is 9, ours is 8"),
        (handshake._replace(network=4), "the network is 4, ours is 3"),
        (handshake._replace(overlay=HASH1), "the overlay b3c9.* is not that of its key"),
    ):
        with pytest.raises(CodecError, match=why):
            codec.check_handshake(changed, 3, key.public)


def test_hive_is_one_list_and_nothing_is_made_of_it() -> None:
    codec.check_hive(0, rlp.encode([[HASH1, "enode://x"]] * 1000))
    for number, message in ((2, b"\xc0"), (-1, b"\xc0"), (0, b"\x80"), (0, b"\xc0\xc0"), (1, b"")):
        with pytest.raises(CodecError):
            codec.check_hive(number, message)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (rlp.encode((b"", 2, b"\xc0")), "the size of the message at byte 2: it is 2, not 1"),
        (rlp.encode((b"", 10 << 20 | 1, b"")), "10485760 is the limit"),
        (rlp.encode((b"", 1)), "the message at byte .* missing"),
        (rlp.encode((b"", 0, b"", b"")), "left over"),
        (rlp.encode((b"", 0, b"")) + b"\x00", "left over"),
        (rlp.encode(((), 0, b"")), "the context"),
        (b"", "the envelope"),
    ],
)
def test_what_is_no_envelope(payload: bytes, why: str) -> None:
    with pytest.raises(CodecError, match=why):
        codec.decode_envelope(payload)


def test_the_context_is_ignored_and_the_largest_message_taken() -> None:
    assert codec.decode_envelope(rlp.encode((b"traced", 1, b"\xc0"))) == b"\xc0"
    largest = bytes(10 << 20)
    assert codec.decode_envelope(codec.encode_envelope(largest)) == largest
    with pytest.raises(ValueError, match="10485760 are the limit"):
        codec.encode_envelope(largest + b"\x00")


EMPTY: list[rlp.Value] = ["", "", 0]
STATEMENT: list[rlp.Value] = [EMPTY, 0, 0, b""]
LONG = "x" * 257


@pytest.mark.parametrize(
    ("number", "value", "why"),
    [
        (0, ((LONG, "", 1),), "the name of the stream .* 257 bytes, 256 are the limit"),
        (0, (("", LONG, 1),), "the key of the stream .* 257 bytes, 256 are the limit"),
        (0, ((b"\xff", "", 1),), "the name of the stream .* no UTF-8"),
        (0, (("", "", 2),), "whether the stream is live .* it is 2"),
        (0, (("", "", 0, 0),), "left over"),
        (0, (("", ""),), "whether the stream is live .* missing"),
        (0, (EMPTY, 0), "left over"),
        (0, (), "the stream .* missing"),
        (1, (EMPTY, 1, 1, bytes(33), (b"", STATEMENT)), "the hashes .* 33 bytes"),
        (1, (EMPTY, 1, 1, bytes(1025 * 32), (b"", STATEMENT)), "the hashes .* 1024 of 32"),
        (1, (EMPTY, 1, 1, b"", (bytes(64), STATEMENT)), "the signature .* 64 bytes, not 0 or 65"),
        (1, (EMPTY, 1, 1, b"", (b"", [EMPTY, 0, 0, bytes(31)])), "the root .* 31 bytes"),
        (1, (EMPTY, 1, 1, b"", (b"", [["", "", 1], 0, 0, b""])), "it is live"),
        (1, (EMPTY, 1, 1, b""), "the proof .* missing"),
        (2, (EMPTY, b"", 1, b"\x00"), "the end .* leading zeros"),
        (2, (EMPTY, b"", 1, b"\x01" * 9), "the end .* 9 bytes, 8 are the limit"),
        (3, (bytes(66), STATEMENT), "the signature .* 66 bytes"),
        (3, (b"", STATEMENT, 1), "left over"),
        (4, (EMPTY, (1,), 1), "the end .* missing"),
        (4, (EMPTY, (1, 2, 3), 1), "left over"),
        (4, (EMPTY, b"", 1), "the range .* no list"),
        (4, (EMPTY, (), 256), "the priority .* 255 is the limit"),
        (5, (bytes(31), 0, 0), "the address .* 31 bytes, not 32"),
        (5, (bytes(32), 0, 256), "the hop count .* 255 is the limit"),
        (5, (bytes(32), 2, 0), "whether the check is skipped"),
        (6, (bytes(33), b""), "the address .* 33 bytes, not 32"),
        (7, (LONG,), "the text .* 256 are the limit"),
        (8, (EMPTY, (), 256), "the priority"),
        (9, (LONG,), "the stream"),
        (10, (b"", b""), "the address .* 0 bytes, not 32"),
        (11, (), "the unknown number 11"),
        (-1, (), "the unknown number -1"),
    ],
)
def test_what_breaks_a_rule(number: int, value: rlp.Value, why: str) -> None:
    with pytest.raises(CodecError, match=why):
        codec.decode_message(number, rlp.encode(value))


def test_nothing_stands_behind_a_message() -> None:
    _, message = codec.encode_message(codec.Quit(LIVE))
    with pytest.raises(CodecError, match="left over"):
        codec.decode_message(9, message + b"\x80")


OF_LONG = Stream(LONG, "", live=False)


@pytest.mark.parametrize(
    "message",
    [
        codec.Unsubscribe(OF_LONG),
        codec.Quit(Stream("", "é" * 129, live=False)),
        codec.OfferedHashes(HISTORY, 1, 1, bytes(31)),
        codec.OfferedHashes(HISTORY, 1, 1, bytes(1025 * 32)),
        codec.OfferedHashes(HISTORY, 1, 1, b"", Proof(bytes(64), PROOF.statement)),
        codec.OfferedHashes(HISTORY, 1, 1, b"", Proof(b"", Statement(LIVE, 1, 1, ROOT))),
        codec.OfferedHashes(HISTORY, 1, 2**64, b""),
        codec.WantedHashes(HISTORY, b"", -1, 0),
        codec.TakeoverProof(SIGNATURE, Statement(HISTORY, 1, 1, ROOT[1:])),
        codec.Subscribe(LIVE, Range(0, 2**64), 0),
        codec.Subscribe(LIVE, None, 256),
        codec.RetrieveRequest(HASH1[1:], True, 0),
        codec.RetrieveRequest(HASH1, True, 256),
        codec.RetrieveDelivery(HASH1 * 2, b""),
        codec.SubscribeError(LONG),
        codec.RequestSubscription(LIVE, None, -1),
        codec.StreamDelivery(b"", b""),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_may_not_leave(message: codec.Message) -> None:
    with pytest.raises(ValueError, match=r"limit|not|live|64-bit|most"):
        codec.encode_message(message)


@pytest.mark.parametrize(
    "handshake",
    [
        codec.Handshake(3, HASH1[1:], "", is_light=False),
        codec.Handshake(3, HASH1, LONG, is_light=False),
        codec.Handshake(2**64, HASH1, "", is_light=False),
    ],
)
def test_handshakes_that_may_not_leave(handshake: codec.Handshake) -> None:
    with pytest.raises(ValueError, match=r"limit|not"):
        codec.encode_handshake(handshake)


def test_an_offer_of_as_many_as_there_may_be() -> None:
    offer = codec.OfferedHashes(
        HISTORY, 1, 1024, b"".join(bytes((n % 256,)) * 32 for n in range(1024))
    )
    read = codec.decode_message(*codec.encode_message(offer))
    assert isinstance(read, codec.OfferedHashes)
    assert len(read.addresses) == 1024
    assert read.addresses[258] == b"\x02" * 32


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 127, 128, 1024])
def test_bits(count: int) -> None:
    wanted = [at % 3 == 0 for at in range(count)]
    bits = codec.encode_bits(wanted)
    assert len(bits) == count // 8 + 1
    assert codec.decode_bits(bits, count) == wanted
    assert codec.decode_bits(bits + b"\xff" * 9, count) == wanted
    least = -(-count // 8)
    assert codec.decode_bits(bits[:least], count) == wanted
    if count:
        with pytest.raises(CodecError, match="bytes of bits"):
            codec.decode_bits(bits[: least - 1], count)


def test_upstream_s_bits() -> None:
    three, many = (each for each in EXPECTED if isinstance(each, codec.WantedHashes))
    assert codec.decode_bits(three.bits, 3) == [True, False, True]
    assert codec.encode_bits([True, False, True]) == three.bits
    wanted = codec.decode_bits(many.bits, 128)
    assert [at for at, is_wanted in enumerate(wanted) if is_wanted] == [0, 9, 127]
    assert codec.encode_bits(wanted) == many.bits


def test_keys_of_bins_are_of_base_36() -> None:
    keys = [codec.bin_key(number) for number in range(17)]
    assert "".join(keys) == "0123456789abcdefg"
    assert [codec.read_bin_key(key) for key in keys] == [*range(17)]
    assert codec.bin_key(int(MESSAGES["bin"], 36)) == "6"
    for number in (-1, 17):
        with pytest.raises(ValueError, match="no bin"):
            codec.bin_key(number)
    for key in ("", "h", "A", "G", "00", "01", "10", "-1", "٣"):
        with pytest.raises(CodecError, match="no bin"):
            codec.read_bin_key(key)


def test_keys_of_files_and_feeds_are_hex() -> None:
    assert codec.read_hex_key(codec.hex_key(ROOT), codec.ADDRESS_BYTES) == ROOT
    feed = HASH1 + bytes(20)
    assert len(codec.hex_key(feed)) == 104
    assert codec.read_hex_key(codec.hex_key(feed), codec.FEED_BYTES) == feed
    for key in ("", "00", ROOT.hex().upper(), ROOT.hex()[1:], ROOT.hex() + "0", "g" * 64):
        with pytest.raises(CodecError, match="no key of 32 bytes"):
            codec.read_hex_key(key, codec.ADDRESS_BYTES)


u8, u64 = st.integers(0, 255), st.integers(0, 2**64 - 1)
texts = st.text(max_size=30)
hashes = st.binary(min_size=32, max_size=32)
streams = st.builds(Stream, texts, texts, st.booleans())
stills = st.builds(Stream, texts, texts, st.just(False))
signatures = st.just(b"") | st.binary(min_size=65, max_size=65)
statements = st.builds(Statement, stills, u64, u64, st.just(b"") | hashes)
proofs = st.builds(Proof, signatures, statements)
ranges = st.none() | st.builds(Range, u64, u64)
messages = st.one_of(
    st.builds(codec.Unsubscribe, streams),
    st.builds(
        codec.OfferedHashes, streams, u64, u64, st.lists(hashes, max_size=4).map(b"".join), proofs
    ),
    st.builds(codec.WantedHashes, streams, st.binary(max_size=20), u64, u64),
    st.builds(codec.TakeoverProof, signatures, statements),
    st.builds(codec.Subscribe, streams, ranges, u8),
    st.builds(codec.RetrieveRequest, hashes, st.booleans(), u8),
    st.builds(codec.RetrieveDelivery, hashes, st.binary(max_size=80)),
    st.builds(codec.SubscribeError, texts),
    st.builds(codec.RequestSubscription, streams, ranges, u8),
    st.builds(codec.Quit, streams),
    st.builds(codec.StreamDelivery, hashes, st.binary(max_size=80)),
)


@given(messages)
def test_what_is_written_is_read_as_it_was(message: codec.Message) -> None:
    number, encoded = codec.encode_message(message)
    read = codec.decode_message(number, codec.decode_envelope(codec.encode_envelope(encoded)))
    assert read == message
    assert type(read) is type(message)


@given(st.builds(codec.Handshake, u64, hashes, texts, st.booleans(), u64))
def test_a_handshake_is_read_as_it_was(handshake: codec.Handshake) -> None:
    assert codec.decode_handshake(codec.encode_handshake(handshake)) == handshake


@given(st.integers(0, 40), st.binary(max_size=200))
def test_any_bytes_are_a_message_or_one_error(kind: int, data: bytes) -> None:
    swarm_codec.check(bytes((kind,)) + data)


@given(st.sampled_from(LISTED), st.integers(0, 10_000), st.integers(0, 255))
def test_a_byte_that_is_another_one(vector: dict[str, Any], place: int, byte: int) -> None:
    spoilt = bytearray.fromhex(vector["rlp"])
    spoilt[place % len(spoilt)] = byte
    kind = {"bzz": 16, "hive": 20}.get(vector.get("protocol", ""), vector["code"])
    swarm_codec.check(bytes((kind,)) + spoilt)


def test_the_fuzz_target_holds() -> None:
    harness.run_seeded(swarm_codec.check, swarm_codec.CORPUS, runs=600, seed=1)


@pytest.mark.long
def test_the_fuzz_target_holds_for_long() -> None:
    harness.run_seeded(swarm_codec.check, swarm_codec.CORPUS, runs=100_000, seed=2)
