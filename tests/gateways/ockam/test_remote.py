"""Clients of a hub over sockets, against hubs that do what hubs may do."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from gateways.ockam import Consumer, HubRefused, Publisher, ask_position, codec, create_stream
from peer.api import Address

from .memory_hub import Fate, MemoryHub, listening

HEARTBEAT = b"\0\0"
PASSING_S = 0.02
"""Virtual time goes on once nothing has happened for so long: bytes pass through sockets."""
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


def drawn(seed: int, *fates: Fate) -> Callable[[codec.Request], Fate]:
    """Each fate for one push or pull in twenty; nothing happens to others."""
    rng = random.Random(seed)

    def fate(request: codec.Request) -> Fate:
        place = rng.randrange(20)
        is_spared = not isinstance(request, codec.Push | codec.Pull) or place >= len(fates)
        return Fate.ANSWERED if is_spared else fates[place]

    return fate


@pytest.mark.parametrize("fates", [(Fate.LOST, Fate.CUT), (Fate.LOST, Fate.REFUSED, Fate.CUT)])
async def test_what_a_hub_loses_refuses_and_cuts_off_comes_again(
    fates: tuple[Fate, ...], autojump_clock: MockClock
) -> None:
    autojump_clock.autojump_threshold = PASSING_S
    hub = MemoryHub(drawn(1, *fates))
    sent = [b"%d" % number for number in range(60)]
    async with listening(hub) as address, Publisher(address, "orders") as publisher:
        receipts = [await publisher.submit(data) for data in sent]
        indexes = [await receipt.wait() for receipt in receipts]
    stored = hub.streams["orders"]
    assert [stored[index] for index in indexes] == sent
    assert len(stored) > len(sent), "some came twice"
    # What was on its way behind a push that is refused stands before it; nothing else is passed.
    if Fate.REFUSED not in fates:
        assert list(dict.fromkeys(stored)) == sent


async def test_a_consumer_gets_every_message_in_order_from_a_hub_that_hangs_up(
    autojump_clock: MockClock,
) -> None:
    autojump_clock.autojump_threshold = PASSING_S
    hub = MemoryHub(drawn(1, Fate.LOST, Fate.CUT, Fate.CUT, Fate.CUT))
    hub.streams["orders"] = [b"%d" % number for number in range(300)]
    found = []
    async with (
        listening(hub) as address,
        Consumer(address, "orders", client="billing", pull_limit=7) as consumer,
    ):
        async for message in consumer:
            found.append(message.index)
            assert message.data == b"%d" % message.index
    assert found == list(range(300))
    assert hub.positions == {("billing", "orders"): 300}


async def test_what_is_refused_six_times_fails_and_says_by_whom(autojump_clock: MockClock) -> None:
    autojump_clock.autojump_threshold = PASSING_S
    hub = MemoryHub(lambda each: Fate.REFUSED if isinstance(each, codec.Push) else Fate.ANSWERED)
    async with listening(hub) as address:
        with pytest.raises(HubRefused, match=f"{address.port}"):
            async with Publisher(address, "orders") as publisher:
                await publisher.push(b"tea")
    assert hub.streams["orders"] == []
