"""Feeds: upstream's updates and epochs, and what is no update."""

from typing import Any

import pytest
from coincurve import PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from gateways.reading import CodecError
from gateways.swarm.feeds import (
    Epoch,
    Feed,
    Update,
    address_of,
    epoch_at,
    next_epoch,
    read_update,
    topic_of,
    user_of,
)
from gateways.swarm.keccak import keccak

from .vectors import VECTORS

FEEDS = VECTORS["feeds"]
EPOCHS = VECTORS["epochs"]
KEY = PrivateKey(bytes.fromhex(VECTORS["key"]["secret"]))
USER = bytes.fromhex(VECTORS["key"]["user"][2:])
FEED = Feed(topic_of("weather"), USER)
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def signed(
    data: bytes, *, feed: Feed = FEED, time: int = 1, level: int = 0, head: bytes = bytes(8)
) -> bytes:
    said = head + feed.topic + feed.user + time.to_bytes(7, "little") + bytes((level,)) + data
    return said + KEY.sign_recoverable(keccak(said), hasher=None)


def test_the_user_of_a_key() -> None:
    assert user_of(bytes.fromhex(VECTORS["key"]["public"])[1:]) == USER


@pytest.mark.parametrize("vector", FEEDS, ids=lambda each: str(each["name"]))
def test_updates_of_upstream(vector: dict[str, Any]) -> None:
    chunk = bytes.fromhex(vector["chunk"])
    update = read_update(chunk)
    feed = Feed(topic_of(vector["name"]), USER)
    assert update == Update(feed, vector["time"], vector["level"], vector["data"].encode())
    assert update.feed.topic.hex() == vector["topic"][2:]
    assert update.address.hex() == vector["address"]
    assert update.address == address_of(feed, update.epoch)
    assert keccak(chunk[:-65]).hex() == vector["digest"][2:]
    assert chunk[-65:].hex() == vector["signature"]


@pytest.mark.parametrize("vector", FEEDS, ids=lambda each: str(each["name"]))
def test_no_byte_of_an_update_can_be_another(vector: dict[str, Any]) -> None:
    chunk = bytes.fromhex(vector["chunk"])
    for at in range(len(chunk)):
        spoilt = bytearray(chunk)
        spoilt[at] ^= 1
        with pytest.raises(CodecError):
            read_update(bytes(spoilt))


@pytest.mark.parametrize("size", [1, 3963])
def test_data_of_the_first_and_the_last_length(size: int) -> None:
    assert read_update(signed(b"d" * size)).data == b"d" * size


@pytest.mark.parametrize("size", [0, 3964])
def test_data_of_other_lengths_is_refused(size: int) -> None:
    with pytest.raises(CodecError, match=f"an update of {size + 133} bytes: it has 134 to 4096"):
        read_update(signed(b"d" * size))


def test_another_s_feed_is_refused() -> None:
    with pytest.raises(CodecError, match=f"it is {USER.hex()}'s, not the feed's user's"):
        read_update(signed(b"d", feed=Feed(FEED.topic, bytes(20))))


def test_a_span_is_no_beginning_of_an_update() -> None:
    with pytest.raises(CodecError, match="it does not begin with eight zero bytes"):
        read_update(signed(b"d", head=b"\1" + bytes(7)))


@pytest.mark.parametrize("end", [bytes(64), b"\xff" * 64], ids=["zero", "beyond"])
def test_what_is_no_signature_is_refused(end: bytes) -> None:
    chunk = signed(b"d")
    for v in (0, 4, 27, 255):
        with pytest.raises(CodecError, match="it is no signature"):
            read_update(chunk[:-65] + end + bytes((v,)))


def test_a_high_s_is_taken_as_upstream_takes_it() -> None:
    chunk = signed(b"d")
    high = (ORDER - int.from_bytes(chunk[-33:-1], "big")).to_bytes(32, "big")
    assert read_update(chunk[:-33] + high + bytes((chunk[-1] ^ 1,))) == read_update(chunk)


def test_a_level_above_all_that_time_has_is_an_epoch_from_zero_on() -> None:
    update = read_update(signed(b"d", time=(1 << 56) - 1, level=255))
    assert update.epoch == Epoch(0, 255)
    assert update.address == address_of(FEED, Epoch(0, 255))


def test_topics_of_names() -> None:
    assert topic_of("") == bytes(32)
    assert topic_of("ä" * 16) == "ä".encode() * 16
    with pytest.raises(ValueError, match="a topic of 33 bytes: 32 are the limit"):
        topic_of("ä" * 16 + "a")


def test_the_first_epoch_of_upstream() -> None:
    first = EPOCHS["first"]
    assert next_epoch(None, first["now"]) == Epoch(first["base"], first["level"])


@pytest.mark.parametrize("vector", EPOCHS["next"])
def test_later_epochs_of_upstream(vector: dict[str, Any]) -> None:
    last = epoch_at(vector["last_time"], vector["last_level"])
    assert next_epoch(last, vector["now"]) == Epoch(vector["base"], vector["level"])


@given(
    st.integers(0, 1 << 33),
    st.lists(st.integers(0, 3) | st.integers(0, 1 << 12) | st.integers(0, 1 << 27), max_size=40),
)
def test_no_epoch_is_taken_twice(now: int, waits: list[int]) -> None:
    taken: list[Epoch] = []
    for wait in waits:
        now += wait
        epoch = next_epoch(taken[-1] if taken else None, now)
        assert epoch.base <= now < epoch.base + (1 << epoch.level)
        assert 0 <= epoch.level <= 25
        if epoch in taken:
            assert epoch == taken[-1] == Epoch(now, 0)
        else:
            taken.append(epoch)
