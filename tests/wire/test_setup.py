"""The setup bytes (point2point.md 1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire import U64_MAX, NeedMore, Negotiated, Setup, decode_setup, encode_setup, negotiate

SETUPS = st.builds(
    Setup, st.booleans(), st.booleans(), st.integers(0, U64_MAX), st.integers(0, U64_MAX)
)


@pytest.mark.parametrize(
    ("setup", "encoding"),
    [
        (Setup(True, True, 65536, 65536), "03 fa010000 fa010000"),
        (Setup(False, False, 0, 0), "00 00 00"),
        (Setup(True, False, 1, 248), "02 01 f8f8"),
        (Setup(False, True, U64_MAX, 0), "01 ffffffffffffffffff 00"),
    ],
)
@pytest.mark.rule("P2P-1.03")
def test_setups_have_the_specified_bytes(setup: Setup, encoding: str) -> None:
    data = bytes.fromhex(encoding)
    assert encode_setup(setup) == data
    assert decode_setup(data) == (setup, len(data))


@given(SETUPS, st.binary(max_size=3), st.integers(0, 63))
def test_setups_are_read_whole_with_a_trailer_or_asked_for(
    setup: Setup, around: bytes, high_bits: int
) -> None:
    data = bytearray(encode_setup(setup))
    data[0] |= high_bits << 2  # which are ignored
    for length in range(len(data)):
        with pytest.raises(NeedMore):
            decode_setup(bytes(data[:length]))
    end = len(around) + len(data)
    assert decode_setup(around + data + around, len(around)) == (setup, end)


def test_long_window_sizes_are_read() -> None:
    assert decode_setup(bytes.fromhex("03f800f90001")) == (Setup(True, True, 0, 1), 6)


@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("accepted", [False, True])
def test_a_side_sends_greedily_if_it_wants_to_and_the_other_is_willing(
    wanted: bool, accepted: bool
) -> None:
    ours = Setup(wanted, False, 0, 0)
    theirs = Setup(False, accepted, 0, 0)
    assert negotiate(ours, theirs).send_greedily == (wanted and accepted)
    assert negotiate(theirs, ours).receive_greedily == (wanted and accepted)
    assert not negotiate(ours, theirs).receive_greedily


def test_a_window_is_the_smaller_of_sending_and_receiving() -> None:
    ours, theirs = Setup(False, False, 10, 200), Setup(False, False, 300, 7)
    assert negotiate(ours, theirs) == Negotiated(False, False, 7, 200)


@given(SETUPS, SETUPS)
def test_one_side_s_sending_is_the_other_s_receiving(ours: Setup, theirs: Setup) -> None:
    here, there = negotiate(ours, theirs), negotiate(theirs, ours)
    assert here.send_greedily == there.receive_greedily
    assert here.compression_window == there.decompression_window
