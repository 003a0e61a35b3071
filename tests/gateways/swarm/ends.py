"""Two ends of a connection, and what goes between them, in memory."""

import random

from gateways.swarm.keys import Key
from gateways.swarm.rlpx import Connection, draw

INITIATOR = Key(bytes(31) + b"\x05")
RECIPIENT = Key(bytes(31) + b"\x06")


def end_of_initiator(seed: int = 1, remote: Key = RECIPIENT) -> Connection:
    """Who calls `remote`."""
    return Connection(INITIATOR, draw(random.Random(seed).randbytes), remote.public)


def end_of_recipient(seed: int = 2, key: Key = RECIPIENT) -> Connection:
    """Who is called."""
    return Connection(key, draw(random.Random(seed).randbytes))


def frames_of(end: Connection, data: bytes, piece: int = 0) -> list[bytes]:
    """What comes out of bytes that come in pieces. Raises CodecError."""
    found: list[bytes] = []
    step = piece or max(1, len(data))
    for at in range(0, len(data), step):
        end.feed(data[at : at + step])
        while (frame := end.next_frame()) is not None:
            found.append(frame)
    return found


def shaken(seed: int = 1) -> tuple[Connection, Connection]:
    """Both ends, once they have shaken hands."""
    initiator, recipient = end_of_initiator(seed), end_of_recipient(seed + 1)
    assert frames_of(recipient, initiator.take()) == []
    assert frames_of(initiator, recipient.take()) == []
    assert initiator.is_established
    assert recipient.is_established
    return initiator, recipient
