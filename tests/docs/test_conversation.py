"""The conversation at the end of docs/protocol.md is one that a real node has."""

import trio
from nacl.signing import SigningKey

from bymux import INFINITE, CloseReceived, Config, Connection, DataReceived, InitialStream, Role
from logstore import Store
from peer.api import NodeConfig, Peer
from tests.docs.pages import blocks_of, page
from tests.docs.test_protocol import LOG, control_messages, to_bytes
from wire import Adjust, decode_setup

TEXT = page("docs/protocol.md")
PATIENCE_S = 30


class Reader:
    """The reader of the page: says what the page says, and takes apart what the node answers."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        streams = (InitialStream(0, INFINITE, INFINITE), InitialStream(1, 0, 1024 * 1024))
        config = Config(initial_streams=streams, streams_creatable=False, answer_close=False)
        self._mux = Connection(Role.PROACTIVE, config)
        self._setup: bytes | None = b""
        self.received = {0: b"", 1: b""}
        self.closes = 0

    async def say(self, text: str) -> None:
        await self._stream.send_all(to_bytes(text))

    async def hear(self) -> bool:
        """Takes what comes next; False if the node has hung up."""
        data = await self._stream.receive_some()
        if not data:
            return False
        if self._setup is not None:
            _, used = decode_setup(data)
            data, self._setup = data[used:], None
        for event in self._mux.receive_data(data):
            if isinstance(event, DataReceived):
                self.received[event.stream] += event.data
            self.closes += isinstance(event, CloseReceived)
        return True


async def test_a_real_node_holds_the_conversation() -> None:
    hello, proposal, goodbye = blocks_of(TEXT, "reader")
    [data] = blocks_of(TEXT, "node data")
    [control] = blocks_of(TEXT, "node control")
    [confirmation] = control_messages(to_bytes(control))
    with trio.fail_after(PATIENCE_S), Store.memory(signing_key=_key()) as store:
        async with Peer(store, config=NodeConfig(workers=0)) as peer:
            await peer.append([b"hello", b"world"])
            address = await peer.listen()
            stream = await trio.open_tcp_stream(address.host, address.port)
            async with stream:
                reader = Reader(stream)
                await reader.say(hello)
                await reader.say(proposal)
                while len(reader.received[1]) < len(to_bytes(data)):
                    assert await reader.hear()
                assert reader.received[1] == to_bytes(data)
                answers = [m for m in control_messages(reader.received[0]) if isinstance(m, Adjust)]
                assert answers == [confirmation]

                await peer.append([b"live"])
                while not reader.received[1].endswith(b"\x08\x04live"):
                    assert await reader.hear()

                await reader.say(goodbye)
                while await reader.hear():
                    pass
                assert reader.closes == 2
                assert [str(log.key) for log in store.logs()] == [str(LOG)]


def _key() -> SigningKey:
    return SigningKey(bytes(range(32)))
