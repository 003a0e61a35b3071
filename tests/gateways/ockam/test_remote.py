"""Clients of a hub over sockets, against hubs that do what hubs may do."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from gateways.ockam import Publisher, ask_position, codec, create_stream
from peer.api import Address

HEARTBEAT = b"\0\0"
Answer = Callable[[codec.Request], bytes]


def answered(response: codec.Response, back: str = "ST_S_0c127aefd2ce913b") -> bytes:
    """A reply of a hub, as a frame."""
    payload = codec.encode_response(response)
    message = codec.encode_message((codec.local("bamboo"),), (codec.local(back),), payload)
    return codec.encode_frame(message)


@asynccontextmanager
async def hub(answer: Answer) -> AsyncIterator[Address]:
    """A hub that sends a heartbeat first, and `answer`s each request."""

    async def serve(stream: trio.SocketStream) -> None:
        await stream.send_all(HEARTBEAT)
        frames = codec.FrameDecoder()
        async for data in stream:
            frames.feed(bytes(data))
            while (frame := frames.next_frame()) is not None:
                message = codec.decode_message(frame)
                request = codec.decode_request(*codec.decode_payload(message.payload))
                await stream.send_all(answer(request))

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield Address(*listener.socket.getsockname()[:2])
        nursery.cancel_scope.cancel()


async def test_a_heartbeat_before_an_answer_is_passed_over() -> None:
    created = HEARTBEAT + answered(codec.Created("orders")) + HEARTBEAT
    async with hub(lambda _: created) as address:
        found = await create_stream(address, "orders", timeout_s=60)
        assert found == [(0, "ST_S_0c127aefd2ce913b")]
    known = HEARTBEAT + answered(codec.Index("web", "orders", 7))
    async with hub(lambda _: known) as address:
        assert await ask_position(address, "orders", "web", timeout_s=60) == 7


async def test_what_is_confirmed_before_what_nobody_understands_is_confirmed() -> None:
    pushes: list[codec.Request] = []

    def answer(request: codec.Request) -> bytes:
        if not isinstance(request, codec.Push):
            return answered(codec.Created("orders"))
        pushes.append(request)
        return answered(codec.Pushed(request.request, True, 7)) + b"\0\1\xff"

    async with hub(answer) as address, Publisher(address, "orders") as publisher:
        with trio.fail_after(60):
            assert await publisher.push(b"tea") == 7
    assert len(pushes) == 1
