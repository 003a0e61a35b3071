"""One end of a connection with an upstream Swarm node, made of our codecs and nothing else.

A test sees every message in its order and sends what it likes, things too that our node never
would. Only pings are answered here.
"""

from secrets import token_bytes
from types import TracebackType
from typing import Final, Self

import trio

from gateways.swarm import codec, devp2p
from gateways.swarm.keys import Enode, Key, overlay_of, read_enode
from gateways.swarm.rlpx import Connection, draw

PATIENCE_S: Final = 20.0
QUIET_S: Final = 0.3
_PIECE_BYTES: Final = 1 << 16


class Over(Exception):  # noqa: N818 - what happened to it
    """The other side has closed the connection, without a farewell or after it."""


Received = devp2p.Message | codec.Handshake | codec.Message


class Wire:
    """Who has called an upstream node. Leaving it as a context closes the connection."""

    def __init__(self, tcp: trio.SocketStream, key: Key, remote: Enode) -> None:
        """`dial` makes one."""
        self._tcp = tcp
        self._connection = Connection(key, draw(token_bytes), remote.public)
        self._first: bytes | None = None
        self._shared = devp2p.share(())
        self.key = key
        self.overlay = overlay_of(key.public)
        self.hello = devp2p.Hello("", (), b"")
        """What the other side said first."""

    @classmethod
    async def dial(
        cls,
        enode: str,
        capabilities: tuple[devp2p.Capability, ...] = devp2p.CAPABILITIES,
        key: Key | None = None,
    ) -> Self:
        """Calls a node, shakes hands and says hello; bzz's handshake has not begun."""
        remote = read_enode(enode)
        tcp = await trio.open_tcp_stream(remote.host, remote.port)
        wire = cls(tcp, key or Key(b"\1" + token_bytes(31)), remote)
        await tcp.send_all(wire._connection.take())
        with trio.fail_after(PATIENCE_S):
            while not wire._connection.is_established:
                await wire._feed()
                # The first frame may have come with the *ack*.
                wire._first = wire._connection.next_frame()
            hello = devp2p.Hello("bamboo-peer/test", capabilities, wire.key.public)
            await wire.send_body(devp2p.encode_message(hello))
            answer = await wire.receive()
        assert isinstance(answer, devp2p.Hello), answer
        wire.hello = answer
        common = [each for each in answer.capabilities if each in capabilities]
        wire._shared = devp2p.share(common)
        return wire

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._tcp.aclose()

    @property
    def has_bamboo(self) -> bool:
        """Whether the other side is one of ours."""
        return self._shared.has_bamboo

    async def shake(self, network: int = 3, *, is_light: bool = False) -> codec.Handshake:
        """bzz's handshake."""
        await self.send_handshake(network, is_light=is_light)
        answer = await self.receive()
        assert isinstance(answer, codec.Handshake), answer
        return answer

    async def send_handshake(self, network: int = 3, *, is_light: bool = False) -> None:
        """Our half of it."""
        underlay = str(Enode(self.key.public, "127.0.0.1", 1))
        ours = codec.Handshake(network, self.overlay, underlay, is_light)
        await self.send_raw(devp2p.BZZ, 0, codec.encode_handshake(ours))

    async def send(self, *messages: codec.Message) -> None:
        """Sends messages of stream/8."""
        for message in messages:
            await self.send_raw(devp2p.STREAM, *codec.encode_message(message))

    async def send_raw(self, name: str, number: int, message: bytes) -> None:
        """Sends any bytes as a message of a sub-protocol."""
        code = self._shared.code_of(name, number)
        await self.send_body(devp2p.encode_body(code, codec.encode_envelope(message)))

    async def send_body(self, body: bytes) -> None:
        """Sends a frame."""
        self._connection.send(body)
        try:
            await self._tcp.send_all(self._connection.take())
        except trio.BrokenResourceError:
            raise Over from None

    async def receive(self) -> Received:
        """The next message. Raises Over, and Trio's TooSlowError."""
        with trio.fail_after(PATIENCE_S):
            while True:
                while (body := self._first or self._connection.next_frame()) is None:
                    await self._feed()
                self._first = None
                message = self._decode(*devp2p.decode_body(body))
                if isinstance(message, devp2p.Ping):
                    await self.send_body(devp2p.encode_message(devp2p.Pong()))
                elif message is not None:
                    return message

    async def is_quiet(self) -> bool:
        """Whether nothing comes for a while."""
        with trio.move_on_after(QUIET_S):
            await self.receive()
            return False
        return True

    async def farewell(self) -> int:
        """The reason why the other side hangs up, whatever comes before."""
        while not isinstance(message := await self.receive(), devp2p.Disconnect):
            pass
        return message.reason

    def _decode(self, code: int, payload: bytes) -> Received | None:
        if code < devp2p.BASE_CODES:
            return devp2p.decode_message(code, payload)
        name, number = self._shared.find(code)
        message = codec.decode_envelope(payload)
        if name == devp2p.STREAM:
            return codec.decode_message(number, message)
        assert name == devp2p.BZZ, "with its discovery off nobody sends a message of hive"
        return codec.decode_handshake(message)

    async def _feed(self) -> None:
        try:
            data = await self._tcp.receive_some(_PIECE_BYTES)
        except trio.BrokenResourceError:
            raise Over from None
        if not data:
            raise Over
        self._connection.feed(data)
