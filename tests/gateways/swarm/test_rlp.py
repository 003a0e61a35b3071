"""RLP: each value has one encoding, and any bytes are an item or an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz import harness, swarm_rlp
from gateways.reading import CodecError
from gateways.swarm import rlp


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (b"", "80"),
        (b"\x00", "00"),
        (b"\x7f", "7f"),
        (b"\x80", "8180"),
        (b"dog", "83646f67"),
        (bytes(55), "b7" + "00" * 55),
        (bytes(56), "b838" + "00" * 56),
        (bytes(256), "b90100" + "00" * 256),
        (0, "80"),
        (15, "0f"),
        (1024, "820400"),
        (2**64 - 1, "88" + "ff" * 8),
        (False, "80"),
        (True, "01"),
        ("é", "82c3a9"),
        ((), "c0"),
        (("cat", "dog"), "c88363617483646f67"),
        (((), ((),), ((), ((),))), "c7c0c1c0c3c0c1c0"),
        ([bytes(1)] * 56, "f838" + "00" * 56),
    ],
)
def test_what_is_written(value: rlp.Value, encoded: str) -> None:
    assert rlp.encode(value).hex() == encoded
    assert rlp.encode(rlp.decode(bytes.fromhex(encoded))).hex() == encoded


def _brackets(depth: int) -> bytes:
    """So many lists in each other, each of which claims what it has."""
    heads: list[bytes] = []
    length = 0
    for _ in range(depth):
        whole = rlp.encode([b"\x00"] * length)
        heads.append(whole[: len(whole) - length])
        length += len(heads[-1])
    return b"".join(reversed(heads))


@pytest.mark.parametrize(
    ("encoded", "why"),
    [
        ("", "missing"),
        ("8100", "longer than needed"),
        ("817f", "longer than needed"),
        ("b800", "longer than needed"),
        ("b837" + "00" * 55, "longer than needed"),
        ("b90038" + "00" * 56, "longer than needed"),
        ("f8020000", "longer than needed"),
        ("83646f", "3 bytes are claimed, 2 are left"),
        ("c2", "2 bytes are claimed, 0 are left"),
        ("c283aa", "3 bytes are claimed, 1 are left"),
        ("bf" + "ff" * 8, "18446744073709551615 bytes are claimed, 0 are left"),
        ("ff" + "ff" * 8, "18446744073709551615 bytes are claimed, 0 are left"),
        ("bfffff", "its length is cut off"),
        ("8080", "the end at byte 1: 1 bytes are left over"),
        ("c000", "the end at byte 1: 1 bytes are left over"),
        (_brackets(17).hex(), "16 deep"),
    ],
)
def test_what_is_no_encoding(encoded: str, why: str) -> None:
    with pytest.raises(CodecError, match=why):
        rlp.decode(bytes.fromhex(encoded))


def test_lists_in_each_other_end_before_the_stack_does() -> None:
    nested: rlp.Item = []
    for _ in range(rlp.DEPTH_MAX - 1):
        nested = [nested]
    assert rlp.decode(rlp.encode(nested)) == nested
    for data in (b"\xc1" * 100_000 + b"\xc0", _brackets(1_000)):
        with pytest.raises(CodecError):
            rlp.decode(data)


def _reader(encoded: str) -> rlp.Reader:
    return rlp.Reader(bytes.fromhex(encoded))


def test_fields_say_what_is_wrong_and_where() -> None:
    fields = _reader("c8820400c20500c0817f").fields("the whole")
    assert fields.integer("the first") == 1024
    inner = fields.fields("the inner")
    assert inner.integer("a number") == 5
    with pytest.raises(CodecError, match="the other at byte 6: it has leading zeros"):
        inner.integer("the other")
    with pytest.raises(CodecError, match="the third at byte 7: it is a list"):
        fields.data("the third")
    assert not fields.fields("the third").left
    with pytest.raises(CodecError, match="the fourth at byte 8: 1 bytes are claimed, 0"):
        fields.data("the fourth")
    short = _reader("c101").fields("the whole")
    short.flag("it")
    short.end()
    with pytest.raises(CodecError, match="the next at byte 2: it is missing"):
        short.data("the next")


@pytest.mark.parametrize("encoded", ["00", "820001", "89" + "01" * 9, "c0", ""])
def test_what_is_no_integer(encoded: str) -> None:
    with pytest.raises(CodecError, match="the number at byte 0"):
        _reader(encoded).integer("the number")


def test_limits_of_fields() -> None:
    assert _reader("81ff").integer("it", 255) == 255
    with pytest.raises(CodecError, match="it at byte 0: it is 256, 255 is the limit"):
        _reader("820100").integer("it", 255)
    with pytest.raises(CodecError, match="it is 2, 1 is the limit"):
        _reader("02").flag("it")
    assert _reader("83616263").text("it", 3) == "abc"
    with pytest.raises(CodecError, match="it has 3 bytes, 2 are the limit"):
        _reader("83616263").text("it", 2)
    with pytest.raises(CodecError, match="no UTF-8"):
        _reader("81ff").text("it", 3)
    assert _reader("83616263").data("it", 0, 3) == b"abc"
    with pytest.raises(CodecError, match="it has 3 bytes, not 0 or 32"):
        _reader("83616263").data("it", 0, 32)
    with pytest.raises(CodecError, match="it is no list"):
        _reader("80").fields("it")


def test_who_does_not_end_a_list_is_lenient() -> None:
    reader = _reader("c30102030405")
    assert reader.fields("it").integer("the first") == 1
    assert reader.left == 2


@pytest.mark.parametrize("value", [-1, 2**64, "\ud800", [1, [2**64]]])
def test_what_has_no_encoding(value: rlp.Value) -> None:
    with pytest.raises(ValueError, match=r"64-bit|surrogates"):
        rlp.encode(value)


items: st.SearchStrategy[rlp.Item] = st.recursive(
    st.binary(max_size=70), lambda inner: st.lists(inner, max_size=5), max_leaves=20
)


@given(items)
def test_what_is_written_is_read_as_it_was(item: rlp.Item) -> None:
    assert rlp.decode(rlp.encode(item)) == item


@given(st.integers(0, 2**64 - 1), st.text(max_size=30), st.booleans())
def test_typed_fields_are_read_as_they_were(number: int, text: str, flag: bool) -> None:
    fields = rlp.Reader(rlp.encode((number, text, flag))).fields("it")
    assert (fields.integer("it"), fields.text("it", 120), fields.flag("it")) == (number, text, flag)
    fields.end()


@given(st.binary(max_size=200))
def test_any_bytes_hold(data: bytes) -> None:
    swarm_rlp.check(data)


def test_the_fuzz_target_holds() -> None:
    harness.run_seeded(swarm_rlp.check, swarm_rlp.CORPUS, runs=400, seed=1)


@pytest.mark.long
def test_the_fuzz_target_holds_for_long() -> None:
    harness.run_seeded(swarm_rlp.check, swarm_rlp.CORPUS, runs=100_000, seed=2)
