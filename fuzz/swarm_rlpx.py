"""Encrypted connections: what a stranger says ends one, and nothing that was not sent comes out.

An input's first byte says what follows: frames as they come in, a handshake as it comes in, or what
the other side has sealed in its own.
"""

from collections.abc import Callable
from typing import NamedTuple

from fuzz.harness import main
from gateways.reading import CodecError
from gateways.swarm import rlp
from gateways.swarm.keccak import keccak
from gateways.swarm.keys import Key
from gateways.swarm.rlpx import ECIES_BYTES, Connection, Draws, Opener, Sealer, Secrets, draw, seal

FRAMES, AUTH, ACK, SEALED_AUTH, SEALED_ACK = range(5)


def _random(seed: str) -> Callable[[int], bytes]:
    """The same bytes every time."""
    given = 0

    def random(count: int) -> bytes:
        nonlocal given
        given += 1
        return b"".join(keccak(f"{seed} {given} {at}".encode()) for at in range(count // 32 + 1))[
            :count
        ]

    return random


INITIATOR, RECIPIENT = Key(keccak(b"initiator")), Key(keccak(b"recipient"))
_DRAWS = {AUTH: draw(_random("auth")), ACK: draw(_random("ack"))}
_SECRETS = Secrets(keccak(b"aes"), keccak(b"mac"))
_BODIES = [b"\x80\xc0", b"\x02\xc0", b"", bytes(15), bytes(16), bytes(300), b"\x14" + bytes(1200)]


def _end_for(kind: int) -> Connection:
    """Who is to receive an auth, or who has sent one and is to receive an ack."""
    if kind == AUTH:
        return Connection(RECIPIENT, _DRAWS[ACK])
    return Connection(INITIATOR, _DRAWS[AUTH], RECIPIENT.public)


def _sealed_frames() -> list[bytes]:
    sealer = Sealer(_SECRETS, bytes(32), b"said before")
    return [sealer.seal(body) for body in _BODIES]


def _handshakes() -> tuple[bytes, bytes]:
    auth = _end_for(ACK).take()
    recipient = _end_for(AUTH)
    recipient.feed(auth)
    assert recipient.next_frame() is None
    return auth, recipient.take()


_FRAMES = _sealed_frames()
_AUTH, _ACK = _handshakes()
_SIGNATURE = INITIATOR.sign(keccak(b"anything"))
_NONCE = keccak(b"nonce")
_BAD_POINT = bytes(64)
CORPUS = [
    bytes((FRAMES,)) + b"".join(_FRAMES),
    bytes((FRAMES,)) + b"".join(_FRAMES[:2]),
    bytes((FRAMES,)) + b"".join(_FRAMES[3:]),
    *_FRAMES,
    bytes((AUTH,)) + _AUTH,
    bytes((ACK,)) + _ACK,
    bytes((AUTH,)) + b"\x03\xff" + bytes(1000),
    bytes((SEALED_AUTH,)) + rlp.encode((_SIGNATURE, INITIATOR.public, _NONCE, 4)),
    bytes((SEALED_AUTH,)) + rlp.encode((_SIGNATURE, _BAD_POINT, _NONCE, 4)),
    bytes((SEALED_AUTH,)) + rlp.encode((bytes(64) + b"\x02", INITIATOR.public, _NONCE, 4)),
    bytes((SEALED_ACK,)) + rlp.encode((INITIATOR.public, _NONCE, 4)),
    bytes((SEALED_ACK,)) + rlp.encode((INITIATOR.public, _NONCE, 5, b"more")) + b"behind it",
    bytes((SEALED_ACK,)) + rlp.encode((_BAD_POINT, _NONCE, 4)),
]


class Outcome(NamedTuple):
    """What became of some bytes."""

    frames: tuple[bytes, ...]
    error: str
    established: bool
    said: bytes


def outcome(end: Connection | Opener, data: bytes, piece: int) -> Outcome:
    """What becomes of bytes that come in pieces; what an end has said before is not part of it."""
    frames: list[bytes] = []
    error = ""
    if isinstance(end, Connection):
        end.take()
    try:
        for at in range(0, len(data), piece):
            end.feed(data[at : at + piece])
            while (frame := end.next_frame()) is not None:
                frames.append(frame)
    except CodecError as refusal:
        error = str(refusal)
    if isinstance(end, Opener):
        return Outcome(tuple(frames), error, established=True, said=b"")
    return Outcome(tuple(frames), error, end.is_established, end.take())


def check(data: bytes) -> None:
    """The invariants, for any bytes."""
    kind, rest = (data[0] % 5, data[1:]) if data else (FRAMES, b"")
    piece = 1 + len(rest) % 37
    if kind == FRAMES:
        _check_frames(rest, piece)
    elif kind in (AUTH, ACK):
        _check_handshake(kind, rest, piece)
    else:
        _check_sealed(AUTH if kind == SEALED_AUTH else ACK, rest[:800])


def _check_frames(data: bytes, piece: int) -> None:
    """Only what was sent comes out, in its order, and all of it where nothing was changed."""
    found = outcome(Opener(_SECRETS, bytes(32), b"said before"), data, piece)
    assert found == outcome(Opener(_SECRETS, bytes(32), b"said before"), data, max(1, len(data)))
    assert found.frames == tuple(_BODIES[: len(found.frames)])
    genuine = b"".join(_FRAMES[: len(found.frames)])
    assert data.startswith(genuine)


def _check_handshake(kind: int, data: bytes, piece: int) -> None:
    """Nobody who does not know the key shakes hands, and no bytes behind do any harm."""
    found = outcome(_end_for(kind), data, piece)
    assert found == outcome(_end_for(kind), data, max(1, len(data)))
    assert found.established == data.startswith(_AUTH if kind == AUTH else _ACK)
    assert not found.frames
    assert bool(found.said) == (kind == AUTH and found.established)


def _check_sealed(kind: int, message: bytes) -> None:
    """Any list at all, from who knows the key."""
    end = _end_for(kind)
    size = (len(message) + ECIES_BYTES).to_bytes(2, "big")
    public = RECIPIENT.public if kind == AUTH else INITIATOR.public
    sealing: Draws = _DRAWS[kind]
    sealed = seal(message, public, size, sealing.sealing, sealing.iv)
    found = outcome(end, size + sealed, 1024)
    assert found.established != bool(found.error)


if __name__ == "__main__":
    main(check, CORPUS)
