"""Feeds: what somebody says of a topic, again and again, at addresses that can be worked out.

A chunk's address follows from its content, so nothing can be found that is newer than what one
knows. An update of a feed stands at an address that follows from the feed (a topic and a user) and
from an epoch instead. An epoch of level n is 2^n seconds long and begins at a multiple of that, so
that each has two halves of the level below. The first update takes the largest epoch that it is in;
a later one the next smaller than the one before took while it is within that, and outside it the
largest that the one before is not in. So whoever looks for the newest can work out where to look,
from the largest epoch of a moment down. The address proves nothing, anybody can work it out: what
makes an update valid is its user's signature (spec section 2.11).
"""

from typing import Final, NamedTuple

from coincurve import PublicKey

from gateways.reading import CodecError, Reader
from gateways.swarm.keccak import keccak

TOPIC_BYTES: Final = 32
USER_BYTES: Final = 20
TIME_BYTES: Final = 7
TIME_MAX: Final = (1 << 8 * TIME_BYTES) - 1
"""Seconds since 1970."""
LEVEL_MAX: Final = 25
"""Of the epoch that a first update takes: 2^25 seconds, a little more than a year."""
SIGNATURE_BYTES: Final = 65
DATA_BYTES_MAX: Final = 3963
_HEAD: Final = bytes(8)
"""Where a content chunk has its span, which is never zero."""
_AROUND_BYTES: Final = len(_HEAD) + TOPIC_BYTES + USER_BYTES + TIME_BYTES + 1 + SIGNATURE_BYTES


class Feed(NamedTuple):
    """What is spoken of (32 bytes), and who speaks (20 bytes)."""

    topic: bytes
    user: bytes


class Epoch(NamedTuple):
    """2^level seconds, from the second `base` on."""

    base: int
    level: int


class Update(NamedTuple):
    """One that was valid when it was read."""

    feed: Feed
    time: int
    """When it was made, by its author's clock: seconds since 1970."""
    level: int
    data: bytes

    @property
    def epoch(self) -> Epoch:
        """The epoch that it stands in."""
        return epoch_at(self.time, self.level)

    @property
    def address(self) -> bytes:
        """Where it stands: 32 bytes."""
        return address_of(self.feed, self.epoch)


def topic_of(text: str) -> bytes:
    """The topic of a name: 32 bytes. Raises ValueError for a name of more than 32 bytes."""
    name = text.encode()
    if len(name) > TOPIC_BYTES:
        raise ValueError(f"a topic of {len(name)} bytes: {TOPIC_BYTES} are the limit")
    return name.ljust(TOPIC_BYTES, b"\0")


def user_of(public_key: bytes) -> bytes:
    """The user of a key of 64 bytes: 20 bytes (spec section 2.11)."""
    return keccak(public_key)[-USER_BYTES:]


def epoch_at(time: int, level: int) -> Epoch:
    """The epoch of a level that a second lies in."""
    return Epoch(time >> level << level, level)


def next_epoch(last: Epoch | None, now: int) -> Epoch:
    """The epoch for an update that is made now, behind the last one, if there was one.

    It is the last one's own again if both are of one second, at level 0: then the update waits for
    the next second.
    """
    if last is None:
        return epoch_at(now, LEVEL_MAX)
    differing = last.base ^ now
    if last.level:
        # Within the epoch of the last one, its own level is taken.
        differing |= 1 << last.level - 1
    return epoch_at(now, min(max(differing.bit_length() - 1, 0), LEVEL_MAX))


def address_of(feed: Feed, epoch: Epoch) -> bytes:
    """Where a feed's update of an epoch stands: 32 bytes (spec section 2.11)."""
    base = epoch.base.to_bytes(TIME_BYTES, "little")
    return keccak(feed.topic, feed.user, base, bytes((epoch.level,)))


def read_update(chunk: bytes) -> Update:
    """What a chunk says that is an update signed by its feed's user.

    Raises CodecError for any other chunk. Whether it was brought for the address at which it stands
    is left to who compares them.
    """
    size = len(chunk)
    if not _AROUND_BYTES < size <= _AROUND_BYTES + DATA_BYTES_MAX:
        raise CodecError(
            f"an update of {size} bytes: it has {_AROUND_BYTES + 1} to"
            f" {_AROUND_BYTES + DATA_BYTES_MAX}"
        )
    reader = Reader(chunk)
    if reader.take(len(_HEAD)) != _HEAD:
        raise reader.refused("an update", 0, "it does not begin with eight zero bytes")
    feed = Feed(reader.take(TOPIC_BYTES), reader.take(USER_BYTES))
    time = int.from_bytes(reader.take(TIME_BYTES), "little")
    level = reader.take(1)[0]
    data = reader.take(reader.left - SIGNATURE_BYTES)
    at = reader.at
    user = _recovered(reader.take(SIGNATURE_BYTES), keccak(chunk[:at]))
    if user is None:
        raise reader.refused("the signature", at, "it is no signature")
    if user != feed.user:
        raise reader.refused("the signature", at, f"it is {user.hex()}'s, not the feed's user's")
    return Update(feed, time, level, data)


def _recovered(signature: bytes, digest: bytes) -> bytes | None:
    """The user who signed, or None if nobody can have.

    Whatever upstream recovers a user from is taken, a high s too: who is stricter than the others
    would drop honest peers for what they pass on.
    """
    try:
        key = PublicKey.from_signature_and_message(signature, digest, hasher=None)
    except ValueError:
        return None
    return user_of(key.format(compressed=False)[1:])
