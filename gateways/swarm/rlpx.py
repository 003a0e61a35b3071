"""Encrypted connections between nodes, RLPx with version 4 of its handshake (spec section 2.2).

Who calls knows the key of whom it calls, and nobody else can read its first message; who is called
learns from it who calls, proved by a product that only the two of them can form. Each brings a
fresh key and a nonce: what is sent is lost for who takes the static keys later, and what was heard
once cannot be said again, since the other side's nonce is in every secret.

Then there are frames. Either direction is one run of a cipher and one running hash, so that a
frame that is changed, left out, repeated or moved ends the connection; nothing of it is used, not
its length either. Its header says how long it is, and has a code of its own: what is too long is
refused before it has come.

Sans-io: bytes come in pieces of any size, frames go out, and all that is random is an argument.
"""

import hashlib
import hmac
from collections.abc import Callable
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from gateways.reading import CodecError
from gateways.swarm import rlp
from gateways.swarm.keccak import keccak, running
from gateways.swarm.keys import PUBLIC_BYTES, SECRET_BYTES, SIGNATURE_BYTES, Key, is_secret, recover

VERSION: Final = 4
NONCE_BYTES: Final = 32
IV_BYTES: Final = 16
MAC_BYTES: Final = 16
HEADER_BYTES: Final = 16
HANDSHAKE_BYTES_MAX: Final = 1024
"""An *auth* or an *ack*, its size included (spec section 7)."""
FRAME_BYTES_MAX: Final = (10 << 20) + (1 << 10)
"""The body of a frame (spec section 7)."""
PADDING_BYTES: Final = range(100, 301)
"""So many random bytes stand behind a handshake, so that its length says nothing."""
ECIES_BYTES: Final = 1 + PUBLIC_BYTES + IV_BYTES + 32
"""What sealing adds to a message."""
_SIZE_BYTES: Final = 2
_HEADER_END: Final = b"\xc2\x80\x80" + bytes(HEADER_BYTES - 6)
_UNCOMPRESSED: Final = b"\x04"


class WrongMacError(CodecError):
    """A frame that the other side did not send, here and now: whoever is there is not told why."""


class FrameTooLargeError(CodecError):
    """A frame whose header tells of more than FRAME_BYTES_MAX."""


class Draws(NamedTuple):
    """What one end draws at random for its handshake, each of them for this one connection."""

    ephemeral: bytes
    """Secret key, 32 bytes."""
    nonce: bytes
    """32 bytes."""
    sealing: bytes
    """Secret key, 32 bytes, of the one sealed message."""
    iv: bytes
    """16 bytes, of the same."""
    padding: bytes
    """100 to 300 bytes."""


def draw(random: Callable[[int], bytes]) -> Draws:
    """Draws of a source that gives so many random bytes, such as `secrets.token_bytes`."""
    extra = int.from_bytes(random(4), "big") % len(PADDING_BYTES)
    return Draws(
        _draw_secret(random),
        random(NONCE_BYTES),
        _draw_secret(random),
        random(IV_BYTES),
        random(PADDING_BYTES[extra]),
    )


def _draw_secret(random: Callable[[int], bytes]) -> bytes:
    while not is_secret(secret := random(SECRET_BYTES)):
        pass
    return secret


# --- ECIES --------------------------------------------------------------------------------------


def seal(message: bytes, public: bytes, associated: bytes, secret: bytes, iv: bytes) -> bytes:
    """A message that only who holds the secret of `public` can read (spec section 2.2).

    It has ECIES_BYTES more than the message. `secret`, 32 bytes, and `iv`, 16, are fresh and
    random; `associated` is bound to the message and not sent. Raises CodecError if `public` is no
    point of the curve.
    """
    key = Key(secret)
    cipher_key, mac_key = _sealing_keys(key.dh(public))
    sealed = iv + _ctr(cipher_key, iv).update(message)
    return _UNCOMPRESSED + key.public + sealed + _hmac(mac_key, sealed + associated)


def unseal(data: bytes, key: Key, associated: bytes) -> bytes:
    """The message that was sealed. Raises CodecError if it is not for this key, or changed."""
    if len(data) < ECIES_BYTES or data[:1] != _UNCOMPRESSED:
        raise CodecError(f"{len(data)} bytes that are no sealed message")
    end = len(_UNCOMPRESSED) + PUBLIC_BYTES
    public, sealed, mac = data[len(_UNCOMPRESSED) : end], data[end:-32], data[-32:]
    cipher_key, mac_key = _sealing_keys(key.dh(public))
    if not hmac.compare_digest(_hmac(mac_key, sealed + associated), mac):
        raise CodecError("a sealed message for another key, or a changed one")
    return _ctr(cipher_key, sealed[:IV_BYTES]).update(sealed[IV_BYTES:])


def _sealing_keys(shared: bytes) -> tuple[bytes, bytes]:
    derived = hashlib.sha256(b"\0\0\0\1" + shared).digest()
    return derived[:16], hashlib.sha256(derived[16:]).digest()


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _ctr(key: bytes, iv: bytes) -> CipherContext:
    """A keystream: what it is laid on is encrypted, and a second time decrypted."""
    return Cipher(algorithms.AES(key), modes.CTR(iv)).encryptor()


def _xor(one: bytes, other: bytes) -> bytes:
    mixed = int.from_bytes(one, "big") ^ int.from_bytes(other, "big")
    return mixed.to_bytes(len(one), "big")


# --- frames -------------------------------------------------------------------------------------


class Secrets(NamedTuple):
    """What both sides have once they have shaken hands."""

    aes: bytes
    mac: bytes


def derive(shared: bytes, initiator_nonce: bytes, recipient_nonce: bytes) -> Secrets:
    """The secrets, 32 bytes each, of the product of the two ephemeral keys and the nonces."""
    mixed = keccak(shared, keccak(recipient_nonce, initiator_nonce))
    aes = keccak(shared, mixed)
    return Secrets(aes, keccak(shared, aes))


class _RunningMac:
    """The running hash of one direction, out of which come the codes of its frames."""

    __slots__ = ("_cipher", "_state")

    def __init__(self, secrets: Secrets, nonce: bytes, handshake: bytes) -> None:
        self._state = running(_xor(secrets.mac, nonce) + handshake)
        # One block at a time, and never the same one twice: here it is a permutation, no mode.
        self._cipher = Cipher(algorithms.AES(secrets.mac), modes.ECB()).encryptor()  # noqa: S305

    def of_header(self, header: bytes) -> bytes:
        """The code of an encrypted header."""
        block = self._cipher.update(self._state.digest()[:MAC_BYTES])
        self._state.update(_xor(block, header))
        return self._state.digest()[:MAC_BYTES]

    def feed(self, body: bytes) -> None:
        """A part of an encrypted body."""
        self._state.update(body)

    def of_fed(self) -> bytes:
        """The code of an encrypted body that was fed to its end."""
        return self.of_header(self._state.digest()[:MAC_BYTES])

    def of_body(self, body: bytes) -> bytes:
        """The code of an encrypted body."""
        self.feed(body)
        return self.of_fed()


class Sealer:
    """Makes the frames of one direction.

    `nonce` is that of who receives them, `handshake` the *auth* or *ack* of who sends them.
    """

    __slots__ = ("_cipher", "_mac")

    def __init__(self, secrets: Secrets, nonce: bytes, handshake: bytes) -> None:
        self._cipher = _ctr(secrets.aes, bytes(IV_BYTES))
        self._mac = _RunningMac(secrets, nonce, handshake)

    def seal(self, body: bytes) -> bytes:
        """A frame. Raises ValueError if the body is longer than the other side would take."""
        if len(body) > FRAME_BYTES_MAX:
            raise ValueError(f"a body of {len(body)} bytes, {FRAME_BYTES_MAX} are the limit")
        header = self._cipher.update(len(body).to_bytes(3, "big") + _HEADER_END)
        header_mac = self._mac.of_header(header)
        sealed = self._cipher.update(body + bytes(-len(body) % 16))
        return b"".join((header, header_mac, sealed, self._mac.of_body(sealed)))


class Opener:
    """Cuts what comes in one direction into frames; holds one frame and what came with it at most.

    A body is opened as it comes, so that the largest one costs no more at once than what has come;
    nothing of it is given out before its code was right. After an error there is nothing more to be
    had: the hash has run on.
    """

    __slots__ = ("_body", "_buffer", "_cipher", "_left", "_length", "_mac", "_most")

    def __init__(
        self, secrets: Secrets, nonce: bytes, handshake: bytes, most: int = FRAME_BYTES_MAX
    ) -> None:
        self._cipher = _ctr(secrets.aes, bytes(IV_BYTES))
        self._mac = _RunningMac(secrets, nonce, handshake)
        self._most = most
        self._buffer = bytearray()
        self._body = bytearray()
        self._length: int | None = None
        self._left = 0
        """Bytes of the body that have not come."""

    def allow(self, most: int) -> None:
        """Takes bodies of so many bytes from now on."""
        self._most = most

    def feed(self, data: bytes) -> None:
        """Takes bytes as they come."""
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """The body of the next frame, None until it is whole.

        Raises WrongMacError, or FrameTooLargeError as soon as the header is there.
        """
        if self._length is None:
            if len(self._buffer) < HEADER_BYTES + MAC_BYTES:
                return None
            self._length = self._open_header()
            self._left = self._length + -self._length % 16
        if self._left and self._buffer:
            sealed = self._take(min(self._left, len(self._buffer)))
            self._left -= len(sealed)
            self._mac.feed(sealed)
            self._body += self._cipher.update(sealed)
        if self._left or len(self._buffer) < MAC_BYTES:
            return None
        if not hmac.compare_digest(self._mac.of_fed(), self._take(MAC_BYTES)):
            raise WrongMacError("a frame whose body has the wrong code")
        body = bytes(self._body[: self._length])
        self._body.clear()
        self._length = None
        return body

    def _open_header(self) -> int:
        """The length that it tells. What else is in it upstream does not look at either."""
        header = self._take(HEADER_BYTES)
        if not hmac.compare_digest(self._mac.of_header(header), self._take(MAC_BYTES)):
            raise WrongMacError("a frame whose header has the wrong code")
        length = int.from_bytes(self._cipher.update(header)[:3], "big")
        if length > self._most:
            raise FrameTooLargeError(f"a frame of {length} bytes, {self._most} are the limit")
        return length

    def _take(self, length: int) -> bytes:
        taken = bytes(self._buffer[:length])
        del self._buffer[:length]
        return taken


# --- connections --------------------------------------------------------------------------------


class _Auth(NamedTuple):
    """What the initiator says."""

    signature: bytes
    public: bytes
    nonce: bytes


class _Ack(NamedTuple):
    """What the recipient answers."""

    ephemeral: bytes
    nonce: bytes


def _decode_auth(data: bytes) -> _Auth:
    """Lenient: more elements, and bytes behind the list, are of versions to come."""
    fields = rlp.Reader(data).fields("the auth")
    auth = _Auth(
        fields.data("the signature of the auth", SIGNATURE_BYTES),
        fields.data("the public key of the auth", PUBLIC_BYTES),
        fields.data("the nonce of the auth", NONCE_BYTES),
    )
    fields.integer("the version of the auth")
    return auth


def _decode_ack(data: bytes) -> _Ack:
    """Lenient, as above."""
    fields = rlp.Reader(data).fields("the ack")
    ack = _Ack(
        fields.data("the ephemeral key of the ack", PUBLIC_BYTES),
        fields.data("the nonce of the ack", NONCE_BYTES),
    )
    fields.integer("the version of the ack")
    return ack


class Connection:
    """One end of a connection: who names a `remote`, 64 bytes, calls it; who names none is called.

    What came is fed; then `next_frame` is asked until it gives None, and what `take` gives is sent:
    while the handshake goes on that is how it goes on.
    """

    __slots__ = (
        "_auth",
        "_buffer",
        "_draws",
        "_error",
        "_key",
        "_most",
        "_opener",
        "_out",
        "_sealer",
        "remote",
    )

    remote: bytes | None
    """The public key of the other side, 64 bytes: who is called has it from the *auth*.

    Either side's key is proved by its first frame, since nobody else has the secrets of that.
    """

    def __init__(self, key: Key, draws: Draws, remote: bytes | None = None) -> None:
        """Raises CodecError if `remote` is no point of the curve."""
        self._key = key
        self._draws = draws
        self._auth = b""
        self._most = FRAME_BYTES_MAX
        self._buffer = bytearray()
        self._out = bytearray()
        self._sealer: Sealer | None = None
        self._opener: Opener | None = None
        self._error: CodecError | None = None
        self.remote = remote
        if remote is not None:
            signed = _xor(key.dh(remote), draws.nonce)
            signature = Key(draws.ephemeral).sign(signed)
            self._auth = self._seal((signature, key.public, draws.nonce, VERSION), remote)
            self._out += self._auth

    @property
    def is_established(self) -> bool:
        """Whether both have shaken hands, and frames may be sent."""
        return self._sealer is not None

    def allow(self, most: int) -> None:
        """Takes frames whose bodies have so many bytes from now on; FRAME_BYTES_MAX unless said."""
        self._most = most
        if self._opener is not None:
            self._opener.allow(most)

    def feed(self, data: bytes) -> None:
        """Takes bytes as they come; once the connection is over they are nothing any more."""
        if self._error is not None:
            return
        if self._opener is None:
            self._buffer += data
        else:
            self._opener.feed(data)

    def next_frame(self) -> bytes | None:
        """The body of the next frame, None until there is one.

        Raises CodecError if the other side breaks the rules or is not who it is to be, as a
        WrongMacError or FrameTooLargeError where it is that. The connection is over then, and the
        same is raised ever after.
        """
        if self._error is not None:
            raise self._error
        try:
            if self._opener is None:
                self._shake()
            return None if self._opener is None else self._opener.next_frame()
        except CodecError as error:
            self._error = error
            raise

    def send(self, body: bytes) -> None:
        """Puts a frame behind what is to be sent.

        Raises ValueError if its body is above FRAME_BYTES_MAX, or hands are not shaken yet.
        """
        if self._sealer is None:
            raise ValueError("hands are not shaken yet")
        self._out += self._sealer.seal(body)

    def take(self) -> bytes:
        """The bytes that are to be sent, once."""
        taken = bytes(self._out)
        self._out.clear()
        return taken

    def _seal(self, fields: rlp.Value, public: bytes) -> bytes:
        """An *auth* or an *ack*: its size, which is bound to it, and the sealed list."""
        message = rlp.encode(fields) + self._draws.padding
        size = (len(message) + ECIES_BYTES).to_bytes(_SIZE_BYTES, "big")
        return size + seal(message, public, size, self._draws.sealing, self._draws.iv)

    def _shake(self) -> None:
        """Goes on with the handshake once the other side's part of it is whole.

        Its size is looked at first: a stranger makes us hold HANDSHAKE_BYTES_MAX and no more.
        """
        if len(self._buffer) < _SIZE_BYTES:
            return
        size = bytes(self._buffer[:_SIZE_BYTES])
        end = _SIZE_BYTES + int.from_bytes(size, "big")
        if end > HANDSHAKE_BYTES_MAX:
            raise CodecError(f"a handshake of {end} bytes, {HANDSHAKE_BYTES_MAX} are the limit")
        if len(self._buffer) < end:
            return
        received, rest = bytes(self._buffer[:end]), bytes(self._buffer[end:])
        self._buffer.clear()
        message = unseal(received[_SIZE_BYTES:], self._key, size)
        if self.remote is None:
            self._answer(received, _decode_auth(message))
        else:
            self._conclude(received, _decode_ack(message))
        self.feed(rest)

    def _answer(self, received: bytes, auth: _Auth) -> None:
        """The recipient's part."""
        signed = _xor(self._key.dh(auth.public), auth.nonce)
        # Who signs without the product finds here a key that it has not: its frames tell on it.
        remote_ephemeral = recover(signed, auth.signature)
        ephemeral, nonce = Key(self._draws.ephemeral), self._draws.nonce
        ack = self._seal((ephemeral.public, nonce, VERSION), auth.public)
        secrets = derive(ephemeral.dh(remote_ephemeral), auth.nonce, nonce)
        self._sealer = Sealer(secrets, auth.nonce, ack)
        self._opener = Opener(secrets, nonce, received, self._most)
        self._out += ack
        self.remote = auth.public

    def _conclude(self, received: bytes, ack: _Ack) -> None:
        """The initiator's part, which has sent its *auth*."""
        shared = Key(self._draws.ephemeral).dh(ack.ephemeral)
        secrets = derive(shared, self._draws.nonce, ack.nonce)
        self._sealer = Sealer(secrets, ack.nonce, self._auth)
        self._opener = Opener(secrets, self._draws.nonce, received, self._most)
