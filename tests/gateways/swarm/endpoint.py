"""A node of the tests' own, for what neither ours nor upstream's would ever do.

It shares nothing with `gateways.swarm`: what both got wrong in the same way would go unseen. It is
written after the specification's sections 2.1 to 2.5, says whatever a test has it say, and
understands as much as it needs.
"""

import hashlib
import hmac
import secrets
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio
from coincurve import PrivateKey, PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from sha3 import keccak_256

Value = bytes | str | int | bool | list["Value"]
"""What RLP encodes."""
Decoded = bytes | list["Decoded"]

HELLO, DISCONNECT, PING, PONG = range(4)
BZZ: Final = 16
STREAM: Final = 19
NO_PROOF: Final[Value] = [b"", [["", "", False], 0, 0, b""]]
EVERYTHING: Final = (1 << 64) - 1


def keccak(*parts: bytes) -> bytes:
    return bytes(keccak_256(b"".join(parts)).digest())


def xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def rlp(value: Value) -> bytes:
    if isinstance(value, list):
        body = b"".join(map(rlp, value))
        return _headed(0xC0, body)
    if isinstance(value, str):
        value = value.encode()
    elif isinstance(value, int):
        value = value.to_bytes((value.bit_length() + 7) // 8, "big")
    if len(value) == 1 and value[0] < 0x80:
        return value
    return _headed(0x80, value)


def _headed(base: int, body: bytes) -> bytes:
    if len(body) <= 55:
        return bytes([base + len(body)]) + body
    size = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    return bytes([base + 55 + len(size)]) + size + body


def unrlp(data: bytes) -> tuple[Decoded, bytes]:
    """A value, and what is behind it."""
    first = data[0]
    if first < 0x80:
        return data[:1], data[1:]
    base = 0xC0 if first >= 0xC0 else 0x80
    size, at = first - base, 1
    if size > 55:
        at += size - 55
        size = int.from_bytes(data[1:at], "big")
    body, rest = data[at : at + size], data[at + size :]
    if base == 0x80:
        return body, rest
    found: list[Decoded] = []
    while body:
        value, body = unrlp(body)
        found.append(value)
    return found, rest


def number(value: Decoded) -> int:
    assert isinstance(value, bytes)
    return int.from_bytes(value, "big")


def _public(key: PrivateKey) -> bytes:
    return key.public_key.format(compressed=False)[1:]


def _shared(key: PrivateKey, public: bytes) -> bytes:
    """The x coordinate of the product."""
    point = PublicKey(b"\x04" + public).multiply(key.secret)
    return point.format(compressed=False)[1:33]


def _ctr(key: bytes, iv: bytes) -> Cipher[modes.CTR]:
    return Cipher(algorithms.AES(key), modes.CTR(iv))


def _seal(message: bytes, public: bytes, bound: bytes) -> bytes:
    key = PrivateKey()
    mixed = hashlib.sha256(b"\0\0\0\1" + _shared(key, public)).digest()
    iv = secrets.token_bytes(16)
    sealed = iv + _ctr(mixed[:16], iv).encryptor().update(message)
    mac_key = hashlib.sha256(mixed[16:]).digest()
    mac = hmac.digest(mac_key, sealed + bound, "sha256")
    return b"\x04" + _public(key) + sealed + mac


def _unseal(data: bytes, key: PrivateKey) -> bytes:
    mixed = hashlib.sha256(b"\0\0\0\1" + _shared(key, data[1:65])).digest()
    sealed = data[65:-32]
    return _ctr(mixed[:16], sealed[:16]).decryptor().update(sealed[16:])


class _Direction:
    """One way of a connection."""

    def __init__(self, aes: bytes, mac: bytes, begin: bytes) -> None:
        self.cipher = _ctr(aes, bytes(16)).encryptor()
        self.block = Cipher(algorithms.AES(mac), modes.ECB()).encryptor()
        self.state = keccak_256(begin)

    def step(self, seed: bytes) -> bytes:
        self.state.update(xor(self.block.update(self.state.digest()[:16]), seed))
        return bytes(self.state.digest()[:16])

    def body(self, sealed: bytes) -> bytes:
        self.state.update(sealed)
        return self.step(self.state.digest()[:16])


class Endpoint:
    """A connection that this side has made. `connected` makes one."""

    def __init__(self, stream: trio.SocketStream, key: PrivateKey) -> None:
        self._stream = stream
        self.key = key
        self.overlay = keccak(b"\x04", _public(key))
        self.is_mute = False
        """Whether it answers no ping."""
        self._buffer = b""
        self._heard: deque[tuple[int, Decoded]] = deque()
        self._out: _Direction
        self._in: _Direction

    @classmethod
    @asynccontextmanager
    async def connected(
        cls,
        enode: str,
        key: bytes | None = None,
        *,
        network: int = 3,
        is_light: bool = False,
        overlay: bytes | None = None,
        greet: bool = True,
    ) -> AsyncIterator["Endpoint"]:
        """One that has shaken hands, and unless it is told not to, said and heard all of bzz."""
        public, _, where = enode.removeprefix("enode://").partition("@")
        host, _, port = where.rpartition(":")
        stream = await trio.open_tcp_stream(host, int(port))
        # What waits in a socket nothing can overtake: as little of it as nodes have.
        stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 256 << 10)
        async with stream:
            peer = cls(stream, PrivateKey(key) if key else PrivateKey())
            await peer._shake(bytes.fromhex(public))
            if greet:
                await peer.hello()
                overlay = peer.overlay if overlay is None else overlay
                await peer.enveloped(BZZ, [8, network, [overlay, ""], is_light])
                await peer.heard(BZZ)
            yield peer

    async def _shake(self, remote: bytes) -> None:
        ephemeral, nonce = PrivateKey(), secrets.token_bytes(32)
        signature = ephemeral.sign_recoverable(xor(_shared(self.key, remote), nonce), hasher=None)
        message = rlp([signature, _public(self.key), nonce, 4]) + bytes(150)
        size = (len(message) + 113).to_bytes(2, "big")
        auth = size + _seal(message, remote, size)
        await self._stream.send_all(auth)
        head = await self._exactly(2)
        ack = head + await self._exactly(int.from_bytes(head, "big"))
        fields, _ = unrlp(_unseal(ack[2:], self.key))
        assert isinstance(fields, list)
        their_ephemeral, their_nonce = fields[0], fields[1]
        assert isinstance(their_ephemeral, bytes)
        assert isinstance(their_nonce, bytes)
        product = _shared(ephemeral, their_ephemeral)
        aes = keccak(product, keccak(product, keccak(their_nonce, nonce)))
        mac = keccak(product, aes)
        self._out = _Direction(aes, mac, xor(mac, their_nonce) + auth)
        self._in = _Direction(aes, mac, xor(mac, nonce) + ack)

    # Frames --------------------------------------------------------------------------------------

    async def _exactly(self, size: int) -> bytes:
        """Raises EOFError where it has hung up."""
        while len(self._buffer) < size:
            data = await self._stream.receive_some(1 << 16)
            if not data:
                raise EOFError
            self._buffer += bytes(data)
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def frame(self, body: bytes, size: int | None = None) -> bytes:
        """A frame, whose header tells of `size`."""
        told = len(body) if size is None else size
        header = self._out.cipher.update(told.to_bytes(3, "big") + b"\xc2\x80\x80" + bytes(10))
        header_mac = self._out.step(header)
        sealed = self._out.cipher.update(body + bytes(-len(body) % 16))
        return header + header_mac + sealed + self._out.body(sealed)

    async def send(self, data: bytes) -> None:
        """Sends bytes as they are."""
        await self._stream.send_all(data)

    async def _body(self) -> bytes:
        sealed = await self._exactly(16)
        header_mac = await self._exactly(16)
        assert self._in.step(sealed) == header_mac
        size = int.from_bytes(self._in.cipher.update(sealed)[:3], "big")
        sealed = await self._exactly(size + -size % 16)
        body_mac = await self._exactly(16)
        assert self._in.body(sealed) == body_mac
        return self._in.cipher.update(sealed)[:size]

    # Messages ------------------------------------------------------------------------------------

    async def base(self, code: int, value: Value) -> None:
        """Says something of the base protocol."""
        await self.send(self.frame(rlp(code) + rlp(value)))

    async def hello(self) -> None:
        """Says who it is, and what it speaks."""
        named: Value = [["bzz", 8], ["hive", 8], ["stream", 8]]
        await self.base(HELLO, [4, "an endpoint", named, 0, _public(self.key)])

    async def enveloped(self, code: int, value: Value) -> None:
        """Says something of a sub-protocol."""
        message = rlp(value)
        await self.send(self.frame(rlp(code) + rlp([b"", len(message), message])))

    async def say(self, message: int, value: Value) -> None:
        """Says something of stream/8, by the number of the message there."""
        await self.enveloped(STREAM + message, value)

    async def heard(self, code: int) -> Decoded:
        """The next message of a code; what comes before it is kept for later."""
        for at, (each, value) in enumerate(self._heard):
            if each == code:
                del self._heard[at]
                return value
        while True:
            found, value = await self._next()
            if found == code:
                return value
            self._heard.append((found, value))

    async def next(self) -> tuple[int, Decoded]:
        """The next message, whatever it is: its code and value."""
        return self._heard.popleft() if self._heard else await self._next()

    async def _next(self) -> tuple[int, Decoded]:
        code, payload = unrlp(await self._body())
        value, rest = unrlp(payload)
        assert rest == b""
        if number(code) >= 16:
            assert isinstance(value, list)
            message = value[2]
            assert isinstance(message, bytes)
            value, rest = unrlp(message)
            assert rest == b""
        elif number(code) == PING and not self.is_mute:
            await self.base(PONG, [])
        return number(code), value

    async def hear(self, message: int) -> list[Decoded]:
        """The next message of stream/8 of a number: its fields."""
        value = await self.heard(STREAM + message)
        assert isinstance(value, list)
        return value

    async def farewell(self) -> int:
        """The reason that the other side gives for its end."""
        value = await self.heard(DISCONNECT)
        assert isinstance(value, list)
        return number(value[0])

    async def is_over(self) -> bool:
        """Whether the other side hangs up, whatever it says before."""
        try:
            while True:
                await self._next()
        except (EOFError, trio.BrokenResourceError):
            return True
