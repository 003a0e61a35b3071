"""Messages: upstream's bytes, ours, every bad one, and any bytes at all."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz import cardinal_codec, harness
from gateways.cardinal import codec
from gateways.reading import CodecError

from .vectors import VECTORS

EXAMPLE = VECTORS["example"]
UPSTREAM = [
    (bytes.fromhex(each["key"]), bytes.fromhex(each["value"]))
    for case in (EXAMPLE, *VECTORS["streams"])
    for each in case["messages"]
]
BAD = VECTORS["bad"]


@pytest.mark.parametrize(("number", "encoded"), VECTORS["integers"])
def test_integers(number: int, encoded: str) -> None:
    assert codec.encode_long(number).hex() == encoded
    assert codec.only_integer(bytes.fromhex(encoded), "it") == number


def test_upstream_s_messages_are_read_and_written_again_as_the_same_facts() -> None:
    kinds = set()
    for key, value in UPSTREAM:
        message = codec.decode_message(key, value)
        kinds.add(type(message))
        again = codec.encode_message(message)
        assert again[0] == key
        assert codec.decode_message(*again) == message
        if not isinstance(message, codec.Batch | codec.Part):
            assert again[1] == value
    assert {codec.Batch, codec.SubBatchHeader, codec.Part, codec.Update, codec.Delete} <= kinds


def test_maps_are_written_as_one_plain_run_in_byte_order_of_their_keys() -> None:
    written = [
        (message, codec.encode_message(message)[1])
        for message in (
            codec.decode_message(*each) for each in UPSTREAM[: len(EXAMPLE["messages"])]
        )
        if isinstance(message, codec.Batch | codec.Part)
    ]
    assert [value.hex() for _, value in written[1:]] == EXAMPLE["plain_parts"]
    # The same facts in one run, in another order.
    batch, value = written[0]
    plain = bytes.fromhex(EXAMPLE["plain_batch_value"])
    assert codec.decode_message(b"\0" + batch.hash, plain) == batch
    assert len(value) == len(plain)
    places = [value.index(codec.encode_data(key)) for key in (b"a/", b"b/", b"b/s", b"q/", b"x/19")]
    assert places == sorted(places)


@pytest.mark.parametrize("number", range(len(BAD)), ids=[each["reason"] for each in BAD])
def test_what_breaks_a_rule_is_refused(number: int) -> None:
    case: dict[str, Any] = BAD[number]
    with pytest.raises(CodecError):
        codec.decode_message(bytes.fromhex(case["key"]), bytes.fromhex(case["value"]))


HASH = bytes(range(32))


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (b"", b"", "type and hash"),
        (b"\x03" + HASH + b"k" * ((64 << 10) + 1), b"", "65569 are the limit"),
        (b"\x03" + HASH + b"k", bytes((16 << 20) + 1), "16777216 are the limit"),
        (b"\x02" + HASH * 2 + b"\x80" * 5, b"\0\0", "byte 5"),
        (b"\x00" + HASH, b"\0\0" + HASH + b"\2\0\0\0\0" + HASH + b"\0", "empty"),
        (b"\x00" + HASH, b"\0\0" + HASH + b"\2\2k\0\0\2" + HASH + b"\0", "neither 0 nor 1"),
        (b"\x00" + HASH, b"\0\0" + HASH + b"\1\1", "below 0"),
        (b"\x00" + HASH, b"\xff" * 9 + b"\x7f", "64 bits"),
    ],
)
def test_why(key: bytes, value: bytes, why: str) -> None:
    with pytest.raises(CodecError, match=why):
        codec.decode_message(key, value)


def test_leading_zeros_of_a_weight_are_dropped() -> None:
    for zeros in (0, 1, 40):
        weight = bytes(zeros) + b"\1\0"
        value = b"\0" + codec.encode_data(weight) + HASH + b"\0"
        message = codec.decode_message(b"\0" + HASH, value)
        assert isinstance(message, codec.Batch)
        assert message.weight == 256


hashes = st.binary(min_size=32, max_size=32)
keys = st.text(min_size=1, max_size=8).map(lambda text: text.encode("utf-8", "ignore") or b"k")
ints = st.integers(0, codec.INT_MAX)
items = st.builds(codec.Item, st.binary(max_size=8), ints, st.booleans(), hashes)
messages = st.one_of(
    st.builds(
        codec.Batch,
        hashes,
        st.integers(0, codec.NUMBER_MAX),
        st.integers(0, codec.WEIGHT_MAX),
        hashes,
        st.dictionaries(keys, items, max_size=4),
    ),
    st.builds(codec.SubBatchHeader, hashes, hashes, ints),
    st.builds(
        codec.Part,
        hashes,
        hashes,
        ints,
        st.lists(keys, max_size=4),
        st.dictionaries(keys, st.binary(max_size=8), max_size=4),
    ),
    st.builds(codec.Update, hashes, keys, st.binary(max_size=8)),
    st.builds(codec.Delete, hashes, keys),
    st.builds(codec.Reorg, hashes, ints),
    st.builds(codec.ReorgComplete, hashes, ints),
    st.builds(codec.Ping, hashes, st.binary(max_size=8)),
)


@given(messages)
def test_what_is_written_is_read_as_it_was(message: codec.Message) -> None:
    assert codec.decode_message(*codec.encode_message(message)) == message


@given(st.binary(max_size=120), st.binary(max_size=200))
def test_any_bytes_are_a_message_or_one_error(key: bytes, value: bytes) -> None:
    try:
        message = codec.decode_message(key, value)
    except CodecError:
        return
    assert codec.decode_message(*codec.encode_message(message)) == message


@given(st.sampled_from(UPSTREAM), st.integers(0, 10_000), st.integers(0, 255))
def test_a_byte_that_is_another_one_is_a_message_or_one_error(
    message: tuple[bytes, bytes], place: int, byte: int
) -> None:
    key, value = message
    spoilt = bytearray(value)
    if spoilt:
        spoilt[place % len(spoilt)] = byte
    try:
        found = codec.decode_message(key, bytes(spoilt))
    except CodecError:
        return
    assert codec.decode_message(*codec.encode_message(found)) == found


def test_the_fuzz_target() -> None:
    harness.run_seeded(cardinal_codec.check, cardinal_codec.CORPUS, runs=400, seed=1)


@pytest.mark.long
def test_the_fuzz_target_at_length() -> None:
    harness.run_seeded(cardinal_codec.check, cardinal_codec.CORPUS, runs=100_000, seed=2)
