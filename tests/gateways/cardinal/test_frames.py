"""Payloads: frames one behind the other, cut off, or claimed to be longer than there is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.cardinal.frames import (
    ENTRY_BYTES,
    Frame,
    channel_of,
    encode_frame,
    encode_frames,
    encode_note,
    frames_of,
    payloads,
)
from gateways.reading import CodecError

from .vectors import VECTORS

PAYLOADS = VECTORS["payloads"]
frames = st.builds(Frame, st.binary(max_size=300), st.binary(max_size=300))


def test_the_vectors() -> None:
    found = [*frames_of(bytes.fromhex(PAYLOADS["topic_q_of_the_example"]))]
    assert [each.key[33:] for each in found] == [b"q/17", b"q/18"]
    assert [each.value.hex() for each in found] == ["1234", "5678"]
    reorg = PAYLOADS["reorg_entry"]
    note, message = frames_of(bytes.fromhex(reorg["payload"]))
    assert note.key == b""
    assert channel_of(note.value) == reorg["channel"]
    assert message.key == b"\5" + bytes.fromhex(reorg["hash"])
    written = encode_note({"channel": reorg["channel"]}) + encode_frame(*message)
    assert written.hex() == reorg["payload"]


@pytest.mark.parametrize("payload", PAYLOADS["cut_off"], ids=PAYLOADS["cut_off_why"])
def test_what_is_cut_off_is_one_error(payload: str) -> None:
    good = encode_frame(b"k", b"v")
    read = frames_of(good + bytes.fromhex(payload))
    assert next(read) == Frame(b"k", b"v")
    with pytest.raises(CodecError):
        next(read)


def test_every_cut_is_an_error_or_whole() -> None:
    payload = encode_frame(b"key", b"v" * 300) + encode_frame(b"k" * 300, b"")
    whole = {0: 0, len(encode_frame(b"key", b"v" * 300)): 1, len(payload): 2}
    for length in range(len(payload) + 1):
        if length in whole:
            assert len([*frames_of(payload[:length])]) == whole[length]
        else:
            with pytest.raises(CodecError):
                [*frames_of(payload[:length])]


def test_a_payload_that_is_too_large_is_not_looked_into() -> None:
    with pytest.raises(CodecError, match="33554432"):
        next(frames_of(bytes((32 << 20) + 1)))


@given(st.lists(frames, max_size=8))
def test_what_is_written_is_read(given_frames: list[Frame]) -> None:
    payload = b"".join(encode_frame(*each) for each in given_frames)
    assert [*frames_of(payload)] == given_frames


@given(st.binary(max_size=600))
def test_any_bytes_are_frames_or_one_error(payload: bytes) -> None:
    found: list[Frame] = []
    is_whole = True
    try:
        found.extend(frames_of(payload))
    except CodecError:
        is_whole = False
    written = b"".join(encode_frame(*each) for each in found)
    assert payload.startswith(written)
    assert is_whole == (written == payload)


@given(st.binary(max_size=80))
def test_any_note_names_a_log_or_none(note: bytes) -> None:
    channel = channel_of(note)
    assert channel is None or 0 <= channel < 1 << 64


@pytest.mark.parametrize(
    ("note", "channel"),
    [
        (b'{"channel":77}', 77),
        (b'{"channel":"18446744073709551615","x":[]}', (1 << 64) - 1),
        (b'{"channel":null}', None),
        (b'{"channel":true}', None),
        (b'{"channel":-1}', None),
        (b'{"channel":"18446744073709551616"}', None),
        (b"[]", None),
        (b"[" * 100_000, None),
    ],
)
def test_what_a_note_names(note: bytes, channel: int | None) -> None:
    assert channel_of(note) == channel


def test_an_entry_has_1_mib_or_one_frame() -> None:
    small, large = b"s" * 1_000, b"l" * (2 * ENTRY_BYTES)
    found = payloads([small, large, *[small] * 1_100])
    assert b"".join(found) == small + large + small * 1_100
    assert [len(each) for each in found[:2]] == [1_000, 2 * ENTRY_BYTES]
    assert all(len(each) <= ENTRY_BYTES for each in found[2:])
    assert len(found) == 4
    assert payloads([]) == []


def test_many_frames_are_those_that_each_message_has() -> None:
    sizes = (0, 1, 246, 247, 248, 300)
    messages = [(b"k" * key, b"v" * value) for key in sizes for value in sizes]
    for some in (messages, messages[:1], []):
        keys, values = ([each[place] for each in some] for place in range(2))
        for head in (b"h" * 33, b""):
            assert encode_frames(head, keys, values) == [
                encode_frame(head + key, value) for key, value in some
            ]
