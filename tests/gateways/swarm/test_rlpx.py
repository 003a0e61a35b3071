"""Encrypted connections: the vectors, two ends of ours, pieces, and whoever stands in between."""

import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz import harness, swarm_rlpx
from gateways.reading import CodecError
from gateways.swarm import devp2p, rlp, rlpx
from gateways.swarm.keys import Key, recover
from gateways.swarm.rlpx import (
    FRAME_BYTES_MAX,
    HANDSHAKE_BYTES_MAX,
    Connection,
    Draws,
    FrameTooLargeError,
    Opener,
    Sealer,
    Secrets,
    WrongMacError,
)

from .ends import INITIATOR, RECIPIENT, end_of_initiator, end_of_recipient, frames_of, shaken
from .vectors import VECTORS

VECTOR = VECTORS["rlpx"]
FRAMES = VECTOR["initiator_frames"]
BODIES = [devp2p.encode_body(each["code"], bytes.fromhex(each["payload"])) for each in FRAMES]
SEALED = b"".join(bytes.fromhex(each["frame"]) for each in FRAMES)


def of(name: str) -> bytes:
    return bytes.fromhex(VECTOR[name])


SECRETS = Secrets(of("aes_secret"), of("mac_secret"))


def _draws(side: str) -> Draws:
    """What the vectors fix of a side; what it seals with they do not tell."""
    sealing = random.Random(side)
    return Draws(
        of(f"{side}_ephemeral"),
        of(f"{side}_nonce"),
        sealing.randbytes(32),
        sealing.randbytes(16),
        bytes(100),
    )


# --- vectors ------------------------------------------------------------------------------------


def test_the_secrets_of_the_vectors() -> None:
    initiator, recipient = Key(of("initiator_ephemeral")), Key(of("recipient_ephemeral"))
    nonces = of("initiator_nonce"), of("recipient_nonce")
    assert rlpx.derive(initiator.dh(recipient.public), *nonces) == SECRETS
    assert rlpx.derive(recipient.dh(initiator.public), *nonces) == SECRETS


def test_what_the_vectors_have_sealed_is_unsealed() -> None:
    for name, key in (("auth", of("recipient")), ("ack", of("initiator"))):
        size, sealed = of(name)[:2], of(name)[2:]
        assert int.from_bytes(size, "big") == len(sealed)
        assert rlpx.unseal(sealed, Key(key), size) == of(f"{name}_body") + bytes(100)


def test_what_is_said_in_the_vectors_handshakes_is_what_we_say() -> None:
    initiator, recipient = Key(of("initiator")), Key(of("recipient"))
    calling = Connection(initiator, _draws("initiator"), recipient.public)
    called = Connection(recipient, _draws("recipient"))
    auth = calling.take()
    assert len(auth) == len(of("auth"))
    assert rlpx.unseal(auth[2:], recipient, auth[:2]) == of("auth_body") + bytes(100)
    assert frames_of(called, auth) == []
    ack = called.take()
    assert len(ack) == len(of("ack"))
    assert rlpx.unseal(ack[2:], initiator, ack[:2]) == of("ack_body") + bytes(100)


@pytest.mark.parametrize("piece", [0, 1, 7, 400])
def test_the_vectors_recipient(piece: int) -> None:
    called = Connection(Key(of("recipient")), _draws("recipient"))
    assert frames_of(called, of("auth") + SEALED, piece) == BODIES
    assert called.remote == Key(of("initiator")).public
    signed = rlp.Reader(of("auth_body")).fields("the auth").data("the signature")
    shared = int.from_bytes(Key(of("recipient")).dh(called.remote), "big")
    digest = (shared ^ int.from_bytes(of("initiator_nonce"), "big")).to_bytes(32, "big")
    assert recover(digest, signed) == Key(of("initiator_ephemeral")).public


@pytest.mark.parametrize("piece", [0, 1, 100])
def test_the_vectors_initiator(piece: int) -> None:
    calling = Connection(Key(of("initiator")), _draws("initiator"), Key(of("recipient")).public)
    calling.take()
    # As if it had sent the vector's auth, whose sealing key nobody tells.
    calling._auth = of("auth")
    answer = Sealer(SECRETS, of("initiator_nonce"), of("ack")).seal(b"\x03\xc0")
    assert frames_of(calling, of("ack") + answer, piece) == [b"\x03\xc0"]
    sent = []
    for body in BODIES:
        calling.send(body)
        sent.append(calling.take().hex())
    assert sent == [each["frame"] for each in FRAMES]


def test_the_vectors_frames() -> None:
    sealer = Sealer(SECRETS, of("recipient_nonce"), of("auth"))
    assert [sealer.seal(body).hex() for body in BODIES] == [each["frame"] for each in FRAMES]


# --- two ends -----------------------------------------------------------------------------------


def test_who_calls_and_who_is_called_know_each_other() -> None:
    initiator, recipient = shaken()
    assert initiator.remote == RECIPIENT.public
    assert recipient.remote == INITIATOR.public
    assert initiator.next_frame() is None
    hello = devp2p.Hello("bamboo-peer/1", devp2p.CAPABILITIES, INITIATOR.public)
    initiator.send(devp2p.encode_message(hello))
    [body] = frames_of(recipient, initiator.take())
    read = devp2p.decode_message(*devp2p.decode_body(body))
    assert isinstance(read, devp2p.Hello)
    assert recipient.remote is not None
    assert devp2p.agree(read, recipient.remote).has_bamboo
    assert initiator.take() == b""


def test_no_frame_before_the_handshake() -> None:
    for end in (end_of_initiator(), end_of_recipient()):
        assert not end.is_established
        assert end.next_frame() is None
        with pytest.raises(ValueError, match="not shaken"):
            end.send(b"\x02\xc0")


def test_two_connections_of_the_same_two_are_strangers() -> None:
    one, other = shaken(1)[0], shaken(3)[0]
    one.send(b"\x02\xc0")
    other.send(b"\x02\xc0")
    assert one.take() != other.take()


bodies = st.lists(
    st.binary(max_size=60) | st.integers(0, 70).map(bytes) | st.just(bytes(5000)), max_size=5
)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.booleans(), bodies), max_size=4), st.integers(1, 700))
def test_any_cutting_of_a_conversation_gives_the_same(
    turns: list[tuple[bool, list[bytes]]], piece: int
) -> None:
    heard = []
    for step in (0, piece):
        initiator, recipient = end_of_initiator(), end_of_recipient()
        assert frames_of(recipient, initiator.take(), step) == []
        assert frames_of(initiator, recipient.take(), step) == []
        said: list[list[bytes]] = []
        for by_initiator, sent in turns:
            ends = (initiator, recipient) if by_initiator else (recipient, initiator)
            for body in sent:
                ends[0].send(body)
            said.append(frames_of(ends[1], ends[0].take(), step))
        assert said == [sent for _, sent in turns]
        heard.append(said)
    assert heard[0] == heard[1]


def test_what_comes_with_the_handshake_is_not_lost() -> None:
    initiator, recipient = end_of_initiator(), end_of_recipient()
    frames_of(recipient, initiator.take())
    recipient.send(b"\x02\xc0")
    recipient.send(b"\x03\xc0")
    assert frames_of(initiator, recipient.take()) == [b"\x02\xc0", b"\x03\xc0"]


# --- who stands in between ------------------------------------------------------------------------


def _sent(*said: bytes) -> tuple[Connection, list[bytes]]:
    """Who is to receive, and the frames for it one by one."""
    initiator, recipient = shaken()
    frames = []
    for body in said:
        initiator.send(body)
        frames.append(initiator.take())
    return recipient, frames


@pytest.mark.parametrize("at", range(32 + 32 + 16))
def test_a_frame_with_another_bit_ends_the_connection(at: int) -> None:
    recipient, [good, bad] = _sent(b"\x02\xc0", bytes(17))
    forged = bad[:at] + bytes((bad[at] ^ 1,)) + bad[at + 1 :]
    with pytest.raises(WrongMacError, match="wrong code"):
        frames_of(recipient, good + forged)
    # It is over: neither the true frame nor anything else is taken after that.
    for more in (bad, b"", good):
        recipient.feed(more)
        with pytest.raises(WrongMacError, match="wrong code"):
            recipient.next_frame()


def test_what_came_before_a_forged_frame_counts() -> None:
    recipient, [good, bad] = _sent(b"\x02\xc0", bytes(17))
    recipient.feed(good + bad[:-1] + bytes((bad[-1] ^ 128,)))
    assert recipient.next_frame() == b"\x02\xc0"
    with pytest.raises(WrongMacError):
        recipient.next_frame()


ORDERS: list[Callable[[list[bytes]], bytes]] = [
    lambda frames: frames[0] * 2,
    lambda frames: frames[1] + frames[0],
    lambda frames: frames[1],
    lambda frames: frames[0] + frames[2],
    lambda frames: frames[0] + frames[1] + frames[0],
    lambda frames: frames[0][:32] + frames[1][32:] + frames[2],
    lambda frames: frames[0] + bytes(32),
]


@pytest.mark.parametrize("order", range(len(ORDERS)))
def test_frames_that_are_repeated_left_out_or_moved(order: int) -> None:
    recipient, frames = _sent(b"\x02\xc0", b"\x02\xc0", b"\x03\xc0")
    with pytest.raises(WrongMacError):
        frames_of(recipient, ORDERS[order](frames))


def test_a_frame_that_is_cut_off_is_none() -> None:
    recipient, [frame] = _sent(bytes(100))
    assert frames_of(recipient, frame[:-1], 1) == []
    assert frames_of(recipient, frame[-1:]) == [bytes(100)]


def test_what_one_side_said_is_not_said_back() -> None:
    initiator, recipient = shaken()
    initiator.send(b"\x02\xc0")
    frame = initiator.take()
    assert frames_of(recipient, frame) == [b"\x02\xc0"]
    with pytest.raises(WrongMacError):
        frames_of(initiator, frame)


def test_a_conversation_that_was_overheard_is_no_use_a_second_time() -> None:
    initiator, recipient = end_of_initiator(), end_of_recipient()
    auth = initiator.take()
    frames_of(recipient, auth)
    frames_of(initiator, recipient.take())
    initiator.send(b"\x02\xc0")
    frame = initiator.take()
    assert frames_of(recipient, frame) == [b"\x02\xc0"]
    later = end_of_recipient(seed=99)
    with pytest.raises(WrongMacError):
        frames_of(later, auth + frame)


def test_who_is_not_called_understands_nothing() -> None:
    other = end_of_recipient(key=Key(bytes(31) + b"\x09"))
    with pytest.raises(CodecError, match="for another key"):
        frames_of(other, end_of_initiator().take())
    assert other.remote is None
    assert other.take() == b""


def test_who_answers_in_the_place_of_another_says_nothing_that_counts() -> None:
    initiator = end_of_initiator()
    # It can seal an ack, but has not read the auth: neither nonce nor ephemeral key.
    ack = _sealed(INITIATOR, rlp.encode((RECIPIENT.public, bytes(32), 4)))
    guess = rlpx.derive(bytes(32), bytes(32), bytes(32))
    frame = Sealer(guess, bytes(32), ack).seal(b"\x02\xc0")
    with pytest.raises(WrongMacError):
        frames_of(initiator, ack + frame)


def test_who_calls_by_the_name_of_another_says_nothing_that_counts() -> None:
    recipient, impostor = end_of_recipient(), Key(bytes(31) + b"\x09")
    # Without the product of the two static keys it signs something else, and so the key that is
    # found from its signature is not the one that it has.
    signed = impostor.sign(impostor.dh(RECIPIENT.public))
    auth = _sealed(RECIPIENT, rlp.encode((signed, INITIATOR.public, bytes(32), 4)))
    assert frames_of(recipient, auth) == []
    ack = recipient.take()
    fields = rlp.Reader(rlpx.unseal(ack[2:], INITIATOR, ack[:2])).fields("the ack")
    ephemeral, nonce = fields.data("the key"), fields.data("the nonce")
    secrets = rlpx.derive(impostor.dh(ephemeral), bytes(32), nonce)
    with pytest.raises(WrongMacError):
        frames_of(recipient, Sealer(secrets, nonce, auth).seal(b"\x02\xc0"))


def test_who_is_called_is_a_point_of_the_curve() -> None:
    with pytest.raises(CodecError, match="no point"):
        Connection(INITIATOR, _draws("initiator"), bytes(64))


def test_a_handshake_with_another_bit_is_refused() -> None:
    auth = end_of_initiator().take()
    for at in range(0, len(auth), 13):
        forged = auth[:at] + bytes((auth[at] ^ 1,)) + auth[at + 1 :]
        recipient = end_of_recipient()
        with suppress(CodecError):
            frames_of(recipient, forged)
        assert not recipient.is_established
        assert recipient.take() == b""


# --- what is in a handshake -----------------------------------------------------------------------


def _sealed(key: Key, message: bytes) -> bytes:
    size = (len(message) + rlpx.ECIES_BYTES).to_bytes(2, "big")
    return size + rlpx.seal(message, key.public, size, bytes(31) + b"\x11", bytes(16))


def _auth(*changes: tuple[int, rlp.Value]) -> list[rlp.Value]:
    fields = rlp.decode(of("auth_body"))
    assert isinstance(fields, list)
    changed: list[rlp.Value] = [*fields]
    for at, value in changes:
        changed[at] = value
    return changed


RECEIVER = Key(of("recipient"))


@pytest.mark.parametrize("version", [0, 4, 5, 1000])
def test_handshakes_are_read_leniently(version: int) -> None:
    auth = rlp.encode([*_auth((3, version)), b"more", ["of", "it"]]) + b"\xff behind"
    called = Connection(RECEIVER, _draws("recipient"))
    assert frames_of(called, _sealed(RECEIVER, auth)) == []
    assert called.is_established
    initiator = end_of_initiator()
    ack = rlp.encode((RECIPIENT.public, bytes(32), version, b"more")) + b"\xff behind"
    assert frames_of(initiator, _sealed(INITIATOR, ack)) == []
    assert initiator.is_established


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "the auth at byte 0: it is missing"),
        (b"\x80", "the auth at byte 0: it is no list"),
        (rlp.encode(_auth((0, bytes(64)))), "the signature of the auth .* 64 bytes, not 65"),
        (rlp.encode(_auth((0, bytes(65)))), "a signature that nobody can have made"),
        (rlp.encode(_auth((0, b"\x01" * 64 + b"\x04"))), "a signature that is not"),
        (rlp.encode(_auth((1, bytes(63)))), "the public key of the auth .* 63 bytes, not 64"),
        (rlp.encode(_auth((1, bytes(64)))), "no point"),
        (rlp.encode(_auth((2, bytes(31)))), "the nonce of the auth .* 31 bytes, not 32"),
        (rlp.encode(_auth((3, b"\x00\x04"))), "the version of the auth .* leading zeros"),
        (rlp.encode(_auth()[:3]), "the version of the auth .* missing"),
        (rlp.encode(_auth())[:-1], "the auth at byte 0: .* claimed"),
    ],
)
def test_what_is_no_auth(message: bytes, why: str) -> None:
    called = Connection(RECEIVER, _draws("recipient"))
    with pytest.raises(CodecError, match=why):
        frames_of(called, _sealed(RECEIVER, message))
    assert called.take() == b""
    assert called.remote is None
    called.feed(of("auth"))
    with pytest.raises(CodecError, match=why):
        called.next_frame()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ((bytes(64), bytes(32), 4), "no point"),
        ((bytes(65), bytes(32), 4), "the ephemeral key of the ack .* 65 bytes"),
        ((RECIPIENT.public, bytes(33), 4), "the nonce of the ack .* 33 bytes"),
        ((RECIPIENT.public, bytes(32)), "the version of the ack .* missing"),
        ((RECIPIENT.public, bytes(32), ()), "the version of the ack .* it is a list"),
    ],
)
def test_what_is_no_ack(fields: rlp.Value, why: str) -> None:
    with pytest.raises(CodecError, match=why):
        frames_of(end_of_initiator(), _sealed(INITIATOR, rlp.encode(fields)))


def test_sealed_messages_are_bound_to_what_goes_with_them() -> None:
    sealed = rlpx.seal(b"message", RECEIVER.public, b"one", bytes(31) + b"\x11", bytes(16))
    assert len(sealed) == 7 + rlpx.ECIES_BYTES == 7 + 113
    assert rlpx.unseal(sealed, RECEIVER, b"one") == b"message"
    for data, associated in (
        (sealed, b"other"),
        (sealed[:-1], b"one"),
        (b"\x02" + sealed[1:], b"one"),
        (b"\x04" + bytes(64) + sealed[65:], b"one"),
        (sealed[:112], b"one"),
        (b"", b"one"),
    ):
        with pytest.raises(CodecError):
            rlpx.unseal(data, RECEIVER, associated)


# --- limits ---------------------------------------------------------------------------------------


def test_a_handshake_is_refused_from_its_size() -> None:
    for end in (end_of_recipient(), end_of_initiator()):
        end.feed((HANDSHAKE_BYTES_MAX - 1).to_bytes(2, "big"))
        with pytest.raises(CodecError, match="1025 bytes, 1024 are the limit"):
            end.next_frame()
    longest = rlp.encode(_auth())
    longest += bytes(HANDSHAKE_BYTES_MAX - 2 - rlpx.ECIES_BYTES - len(longest))
    called = Connection(RECEIVER, _draws("recipient"))
    assert len(_sealed(RECEIVER, longest)) == HANDSHAKE_BYTES_MAX
    assert frames_of(called, _sealed(RECEIVER, longest), 100) == []
    assert called.is_established


@pytest.mark.parametrize("size", [0, 1, 112, 113])
def test_a_handshake_that_is_too_small_for_one(size: int) -> None:
    with pytest.raises(CodecError):
        frames_of(end_of_recipient(), size.to_bytes(2, "big") + b"\x04" * size)


def test_a_frame_of_as_much_as_there_may_be() -> None:
    recipient, [frame] = _sent(bytes(FRAME_BYTES_MAX))
    assert frames_of(recipient, frame, 1 << 20) == [bytes(FRAME_BYTES_MAX)]
    initiator, _ = shaken()
    with pytest.raises(ValueError, match=f"{FRAME_BYTES_MAX} are the limit"):
        initiator.send(bytes(FRAME_BYTES_MAX + 1))
    assert initiator.take() == b""


def test_a_longer_one_is_refused_from_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    initiator, recipient = shaken()
    monkeypatch.setattr(rlpx, "FRAME_BYTES_MAX", FRAME_BYTES_MAX + 1)
    initiator.send(bytes(FRAME_BYTES_MAX + 1))
    monkeypatch.undo()
    frame = initiator.take()
    assert frames_of(recipient, frame[:31]) == []
    with pytest.raises(FrameTooLargeError, match="10486785 bytes, 10486784 are the limit"):
        frames_of(recipient, frame[31:32])
    assert recipient.take() == b""


def test_a_header_makes_nobody_hold_what_has_not_come() -> None:
    recipient, [frame] = _sent(bytes(FRAME_BYTES_MAX))
    tracemalloc.start()
    try:
        assert frames_of(recipient, frame[:40_000], 1000) == []
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 200_000


def test_what_else_a_header_says_is_ignored_and_so_is_padding() -> None:
    sealer = Sealer(SECRETS, bytes(32), b"said")
    header = sealer._cipher.update(b"\0\0\x02" + b"\xc3\x01\x02\x03" + bytes(9))
    header_mac = sealer._mac.of_header(header)
    body = sealer._cipher.update(b"\x02\xc0" + b"\xff" * 14)
    opener = Opener(SECRETS, bytes(32), b"said")
    opener.feed(header + header_mac + body + sealer._mac.of_body(body))
    assert opener.next_frame() == b"\x02\xc0"
    assert opener.next_frame() is None


# --- chance, and any bytes ------------------------------------------------------------------------


def test_draws_are_what_a_source_gives_and_keys_are_keys() -> None:
    source = random.Random(1)
    drawn = [rlpx.draw(source.randbytes) for _ in range(400)]
    assert len({each.ephemeral for each in drawn}) == 400
    assert {len(each.padding) for each in drawn} <= {*range(100, 301)}
    assert min(len(each.padding) for each in drawn) < 110
    assert max(len(each.padding) for each in drawn) > 290
    for each in drawn[0]:
        assert isinstance(each, bytes)
    assert [len(each) for each in drawn[0][:4]] == [32, 32, 32, 16]
    # What is no key is drawn again.
    given = [b"\0\0\0\0", bytes(32), b"\xff" * 32, b"\1" * 32, b"n" * 32, b"\2" * 32, b"i" * 16]
    answers = iter([*given, bytes(100)])
    few = rlpx.draw(lambda _: next(answers))
    assert (few.ephemeral, few.sealing, few.padding) == (b"\1" * 32, b"\2" * 32, bytes(100))


@given(st.binary(max_size=1200))
def test_any_bytes_of_a_stranger_end_it_or_wait_for_more(data: bytes) -> None:
    for end in (end_of_recipient(), end_of_initiator()):
        with suppress(CodecError):
            frames_of(end, data)
        assert not end.is_established


@given(st.integers(0, 4), st.binary(max_size=400))
def test_any_bytes_hold(kind: int, data: bytes) -> None:
    swarm_rlpx.check(bytes((kind,)) + data)


def test_the_fuzz_target_holds() -> None:
    harness.run_seeded(swarm_rlpx.check, swarm_rlpx.CORPUS, runs=250, seed=1)


@pytest.mark.long
def test_the_fuzz_target_holds_for_long() -> None:
    harness.run_seeded(swarm_rlpx.check, swarm_rlpx.CORPUS, runs=20_000, seed=2)
