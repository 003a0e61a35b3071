"""Our codecs and the machines of a peer's streams, over a socket, with an upstream Swarm node.

And what upstream does with what it is sent: our node has to reckon with all of it.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from gateways.swarm import codec, devp2p
from gateways.swarm.bmt import content_address
from gateways.swarm.book import Book
from gateways.swarm.client import Client
from gateways.swarm.codec import (
    BINS,
    HIGH,
    OPEN_END,
    RETRIEVE_REQUEST,
    SYNC,
    TOP,
    OfferedHashes,
    Quit,
    Range,
    RequestSubscription,
    RetrieveDelivery,
    RetrieveRequest,
    Statement,
    Stream,
    StreamDelivery,
    Subscribe,
    SubscribeError,
    TakeoverProof,
    Unsubscribe,
    WantedHashes,
    bin_key,
    encode_bits,
)
from gateways.swarm.commands import Keep, Read, Save, Send
from gateways.swarm.devp2p import Capability, Reason
from gateways.swarm.intervals import Intervals
from gateways.swarm.proximity import proximity
from gateways.swarm.server import Server
from tests.gateways.swarm.memory import Bins, Items

from .swarm_go import PROGRAM, UpstreamNode, made_up
from .swarm_wire import Over, Wire

# All of them in one line.
if not PROGRAM.exists():
    pytest.skip("not built: `make interop`", allow_module_level=True)

LIVE = Stream(SYNC, "0", live=True)
HISTORY = Stream(SYNC, "0", live=False)
ANSWERS = Stream(RETRIEVE_REQUEST, "", live=True)
ALL = Range(0, 0)
UNKNOWN = bytes(32)
CHUNKS = 600


@pytest.fixture(name="node", scope="module")
def _node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpstreamNode]:
    """One that many tests call; each has a key of its own."""
    with UpstreamNode.start(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture(name="fresh")
def _fresh(tmp_path: Path) -> Iterator[UpstreamNode]:
    with UpstreamNode.start(tmp_path / "fresh") as node:
        yield node


@asynccontextmanager
async def called(node: UpstreamNode, *, is_light: bool = False) -> AsyncIterator[Wire]:
    """A connection on which all is said that both say by themselves."""
    async with await Wire.dial(node.enode) as wire:
        await wire.shake(is_light=is_light)
        if not is_light:
            assert await wire.receive() == Subscribe(ANSWERS, None, TOP)
        yield wire


def without(name: str) -> tuple[Capability, ...]:
    return tuple(each for each in devp2p.CAPABILITIES if each.name != name)


# --- beginnings ---------------------------------------------------------------------------------


async def test_it_says_hello_and_knows_nothing_of_our_rules(node: UpstreamNode) -> None:
    async with await Wire.dial(node.enode) as wire:
        assert wire.hello.capabilities == without("bamboo")
        # Compression is of version 5: it leaves it out, since we say 4.
        assert (wire.hello.version, wire.hello.port) == (5, 0)
        assert not wire.has_bamboo


async def test_who_calls_says_the_first_word_of_bzz(node: UpstreamNode) -> None:
    async with await Wire.dial(node.enode) as wire:
        assert await wire.is_quiet()
        theirs = await wire.shake()
        overlay = bytes.fromhex(node.overlay)
        assert theirs == codec.Handshake(3, overlay, node.enode, is_light=False)
        assert await wire.receive() == Subscribe(ANSWERS, None, TOP)
        assert await wire.is_quiet()
        [there] = [each for each in node.peers().values() if each["overlay"] == wire.overlay.hex()]
        assert there["capabilities"] == ["bamboo/1", "bzz/8", "hive/8", "stream/8"]


async def test_of_a_light_node_nothing_is_wanted(node: UpstreamNode) -> None:
    async with called(node, is_light=True) as wire:
        assert await wire.is_quiet()


async def test_who_has_no_hive_is_talked_with_and_never_asked_for_a_chunk(
    node: UpstreamNode,
) -> None:
    async with await Wire.dial(node.enode, without("hive")) as wire:
        await wire.shake()
        assert await wire.receive() == Subscribe(ANSWERS, None, TOP)
        assert wire.overlay.hex() not in node.peers()


async def test_it_hangs_up_on_who_speaks_nothing_of_it_or_is_of_another_network(
    node: UpstreamNode,
) -> None:
    async with await Wire.dial(node.enode, (Capability("bamboo", 1),)) as wire:
        assert await wire.farewell() == Reason.USELESS_PEER
    async with await Wire.dial(node.enode) as wire:
        await wire.send_handshake(network=4)
        assert await wire.farewell() == Reason.SUBPROTOCOL_ERROR
    async with await Wire.dial(node.enode) as wire:
        # Three seconds for it.
        assert await wire.farewell() == Reason.SUBPROTOCOL_ERROR


# --- what it does with messages -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (SubscribeError("text"), "subscribe to peer .*: text"),
        (Unsubscribe(LIVE), "server not found"),
        (WantedHashes(LIVE, b"\0", 1, 0), "server not found"),
        (TakeoverProof(b"", Statement(HISTORY, 0, 0, b"")), "server not found"),
        (RetrieveRequest(UNKNOWN, True, 0), "server not found"),
        (Quit(LIVE), "client not found"),
        (OfferedHashes(LIVE, 1, 1, UNKNOWN), "client params .* not provided"),
        (OfferedHashes(ANSWERS, 0, 0, b""), "bitvector of length 0"),
        (StreamDelivery(UNKNOWN, b"no chunk of it"), "EOF"),
        (RetrieveDelivery(UNKNOWN, b"no chunk of it"), "EOF"),
    ],
)
async def test_it_hangs_up(fresh: UpstreamNode, message: codec.Message, why: str) -> None:
    async with called(fresh) as wire:
        await wire.send(message)
        assert await wire.farewell() == Reason.SUBPROTOCOL_ERROR
    end = await trio.to_thread.run_sync(fresh.wait_ended)
    assert end["peer"] == wire.key.public.hex()
    assert re.search(why, end["why"])


async def test_a_second_handshake_and_an_unknown_code_end_it(node: UpstreamNode) -> None:
    async with called(node) as wire:
        await wire.send_handshake()
        assert await wire.farewell() == Reason.SUBPROTOCOL_ERROR
    async with called(node) as wire:
        await wire.send_body(devp2p.encode_body(60, b"\xc0"))
        with pytest.raises(Over):
            await wire.farewell()


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        (
            Subscribe(Stream("NO", "0", True), None, HIGH),
            SubscribeError("stream NO not registered"),
        ),
        (
            Subscribe(Stream(RETRIEVE_REQUEST, "", False), ALL, HIGH),
            SubscribeError("only live retrieval requests supported"),
        ),
        (
            RequestSubscription(Stream("NO", "0", True), ALL, HIGH),
            SubscribeError("stream NO not registered"),
        ),
        (RequestSubscription(LIVE, ALL, 4), SubscribeError("bad priority")),
        (RequestSubscription(LIVE, Range(5, 9), HIGH), Subscribe(LIVE, Range(5, 9), HIGH)),
        # Bins that no chunk can be in are as good as others.
        (Subscribe(Stream(SYNC, "h", True), ALL, HIGH), None),
        # It is never sent anything, and not told so.
        (Subscribe(LIVE, ALL, 4), None),
    ],
)
async def test_it_answers_and_stays(
    node: UpstreamNode, message: codec.Message, answer: codec.Message | None
) -> None:
    async with called(node) as wire:
        await wire.send(message)
        if answer is not None:
            assert await wire.receive() == answer
        assert await wire.is_quiet()


async def test_a_subscription_is_installed_once(node: UpstreamNode) -> None:
    async with called(node) as wire:
        await wire.send(Subscribe(LIVE, ALL, HIGH), Subscribe(LIVE, ALL, HIGH))
        assert await wire.receive() == SubscribeError("server SYNC|0|l already registered")
        # What both twins let out is taken for good.
        await wire.send(Unsubscribe(LIVE), Unsubscribe(HISTORY), Subscribe(LIVE, ALL, HIGH))
        assert await wire.is_quiet()


async def test_takeovers_are_taken_of_a_stream_that_is_subscribed(node: UpstreamNode) -> None:
    async with called(node) as wire:
        proof = TakeoverProof(b"\1" * 65, Statement(HISTORY, 1, 9, bytes(32)))
        await wire.send(Subscribe(LIVE, ALL, HIGH), proof)
        assert await wire.is_quiet()


# --- chunks, message by message -----------------------------------------------------------------


async def test_a_bin_is_offered_and_delivered_and_behind_its_end_is_silence(
    fresh: UpstreamNode,
) -> None:
    fresh.put(CHUNKS, "a bin")
    left = [
        (index, bytes.fromhex(each)) for each, (bin_, index) in fresh.held().items() if not bin_
    ]
    offers, chunks = list[OfferedHashes](), dict[bytes, bytes]()

    async def take() -> None:
        match await wire.receive():
            case OfferedHashes() as offer:
                offers.append(offer)
            case StreamDelivery(address, chunk):
                chunks[address] = chunk
            case other:
                raise AssertionError(other)

    async with called(fresh) as wire:
        await wire.send(Subscribe(HISTORY, ALL, HIGH))
        start, due = 0, set[bytes]()
        while left:
            batch, left = left[:128], left[128:]
            addresses, last = [address for _, address in batch], batch[-1][0]
            while not offers:
                await take()
            assert offers.pop() == OfferedHashes(HISTORY, start, last, b"".join(addresses))
            start = last + 1
            bits = encode_bits([True] * len(addresses))
            await wire.send(WantedHashes(HISTORY, bits, start, OPEN_END))
            due.update(addresses)
            while chunks.keys() < due:
                await take()
        assert await wire.is_quiet()
    assert all(content_address(chunk) == address for address, chunk in chunks.items())


async def test_live_begins_with_the_newest_item_again(fresh: UpstreamNode) -> None:
    fresh.put(CHUNKS // 10, "live")
    index, address = newest(fresh)
    async with called(fresh) as wire:
        await wire.send(Subscribe(LIVE, None, HIGH))
        assert await wire.receive() == OfferedHashes(LIVE, index, index, address)
        # Looked for once a second, and offered without what is not there.
        await wire.send(WantedHashes(LIVE, b"\0", index + 1, 0))
        await trio.to_thread.run_sync(fresh.put, CHUNKS // 10, "more")
        offer = await wire.receive()
        assert isinstance(offer, OfferedHashes)
        assert offer.start == index + 1
        last, address = newest(fresh)
        assert (offer.end, offer.addresses[-1]) == (last, address)


def newest(node: UpstreamNode) -> tuple[int, bytes]:
    """Index and address of the newest chunk in bin 0."""
    index, address = max((at, each) for each, (bin_, at) in node.held().items() if not bin_)
    return index, bytes.fromhex(address)


async def test_a_request_is_answered_at_once_or_by_an_offer(fresh: UpstreamNode) -> None:
    address = bytes.fromhex(fresh.put(1, "asked")["addresses"][0])
    chunk = made_up("asked", 0)
    async with called(fresh) as wire:
        await wire.send(Subscribe(ANSWERS, None, TOP), RetrieveRequest(address, True, 0))
        assert await wire.receive() == RetrieveDelivery(address, chunk)
        await wire.send(RetrieveRequest(address, False, 0))
        # Its indexes on this stream are bytes.
        assert await wire.receive() == OfferedHashes(ANSWERS, 0, 32, address)
        await wire.send(WantedHashes(ANSWERS, b"\1", 33, 0))
        assert await wire.receive() == StreamDelivery(address, chunk)
        await wire.send(RetrieveRequest(UNKNOWN, True, 0))
        assert await wire.is_quiet()


@pytest.mark.parametrize("is_offered", [False, True])
async def test_what_it_asks_for_is_taken_of_us(fresh: UpstreamNode, is_offered: bool) -> None:
    chunk = made_up("ours", 0)
    address = content_address(chunk)
    async with called(fresh) as wire, trio.open_nursery() as nursery:
        get = partial(fresh.command, "chunk", address.hex(), 10)
        nursery.start_soon(trio.to_thread.run_sync, get)
        request = await wire.receive()
        assert request == RetrieveRequest(address, True, 1)
        if is_offered:
            await wire.send(OfferedHashes(ANSWERS, 1, 1, address))
            # It asks the one who has offered it again, and says that it wants it.
            came = [await wire.receive(), await wire.receive()]
            assert WantedHashes(ANSWERS, b"\1", 2, 0) in came
            assert request in came
            await wire.send(StreamDelivery(address, chunk))
        else:
            await wire.send(RetrieveDelivery(address, chunk))
    assert fresh.command("has", address.hex()) == {"held": True}


# --- our machines -------------------------------------------------------------------------------


class Ours:
    """What our node makes of the streams of one peer, with a store in memory."""

    def __init__(self, wire: Wire, chunks: dict[bytes, bytes]) -> None:
        self.wire = wire
        self.chunks = chunks
        bins: list[list[bytes]] = [[] for _ in range(BINS)]
        for address in chunks:
            bins[proximity(address, wire.overlay)].append(address)
        self.bins = [Items(each) for each in bins]
        opened = Bins(**{bin_key(at): each for at, each in enumerate(self.bins)})
        holds = chunks.__contains__
        self.server = Server({SYNC: opened.open}, holds, lambda _: True)
        self.book = Book(holds)
        self.client = Client(self.book)
        self.saved: dict[str, str] = {}

    def add(self, chunks: dict[bytes, bytes]) -> None:
        self.chunks.update(chunks)
        for address in chunks:
            self.bins[proximity(address, self.wire.overlay)].items.append(address)

    def subscribe_all(self) -> None:
        for at in range(BINS):
            stream = Stream(SYNC, bin_key(at), live=True)
            self.client.subscribe(stream, ALL, HIGH, Intervals(0), trio.current_time())

    async def talk(self, is_done: Callable[[], bool]) -> None:
        """Goes on until it is."""
        while not is_done():
            await self._flush()
            message = None
            with trio.move_on_after(0.02):
                message = await self.wire.receive()
            now = trio.current_time()
            match message:
                case Subscribe() | WantedHashes() | Unsubscribe() | RetrieveRequest():
                    self.server.receive(message, now)
                case (
                    OfferedHashes()
                    | StreamDelivery()
                    | RetrieveDelivery()
                    | SubscribeError()
                    | Quit()
                ):
                    self.client.receive(message, now)
                case RequestSubscription(stream, range_, priority):
                    self.client.subscribe(stream, range_, priority, Intervals(0), now)
                case None:
                    pass
                case _:
                    raise AssertionError(message)
            self.server.advance(now)
            self.client.advance(now)
        await self._flush()

    async def _flush(self) -> None:
        now = trio.current_time()
        while commands := [*self.server.commands(), *self.client.commands()]:
            for command in commands:
                match command:
                    case Send(_, message):
                        await self.wire.send(message)
                    case Read(number, _, addresses):
                        self.server.read(number, [self.chunks.get(each) for each in addresses], now)
                    case Keep(address, chunk):
                        self.chunks[address] = chunk
                        self.book.recorded([address], now)
                    case Save(_, key, text):
                        self.saved[key] = text
                    case _:
                        raise AssertionError(command)


def addressed(seed: str, count: int) -> dict[bytes, bytes]:
    chunks = [made_up(seed, number) for number in range(count)]
    return {content_address(each): each for each in chunks}


@pytest.mark.parametrize("is_requested", [False, True])
async def test_our_client_syncs_all_bins_of_it(fresh: UpstreamNode, is_requested: bool) -> None:
    due = addressed("history", CHUNKS)
    fresh.put(CHUNKS, "history")
    async with called(fresh) as wire:
        ours = Ours(wire, {})
        if is_requested:
            fresh.sync(wire.overlay.hex(), to=True)
        else:
            ours.subscribe_all()
        with trio.fail_after(20):
            await ours.talk(lambda: ours.chunks == due)
            due |= addressed("live", 50)
            await trio.to_thread.run_sync(fresh.put, 50, "live")
            await ours.talk(lambda: ours.chunks == due)
        # All that has come is covered, whatever holes there are.
        covered = {bin_key(bin_): Intervals(0) for bin_, _ in fresh.held().values()}
        for bin_, index in fresh.held().values():
            covered[bin_key(bin_)].add(0, index)
        assert ours.saved == {key: each.encode() for key, each in covered.items()}
        assert ours.client.ignored == 0
    assert not [each for each in fresh.ended() if each["why"] != "EOF"]


async def test_our_server_is_synced_by_it(fresh: UpstreamNode) -> None:
    due = addressed("history", CHUNKS)
    async with called(fresh) as wire, trio.open_nursery() as nursery:
        ours = Ours(wire, dict(due))
        fresh.sync(wire.overlay.hex())
        is_done = trio.Event()

        async def wait(count: int) -> None:
            await trio.to_thread.run_sync(fresh.wait, count)
            is_done.set()

        for seed, count in (("", 0), ("live", 50)):
            more = addressed(seed, count)
            due |= more
            ours.add(more)
            is_done = trio.Event()
            nursery.start_soon(wait, len(due))
            await ours.talk(is_done.is_set)
    assert {*fresh.held()} == {each.hex() for each in due}
    assert not [each for each in fresh.ended() if each["why"] != "EOF"]


async def test_it_subscribes_at_us_when_we_request_it(fresh: UpstreamNode) -> None:
    due = addressed("requested", CHUNKS)
    async with called(fresh) as wire, trio.open_nursery() as nursery:
        ours = Ours(wire, dict(due))
        for at in range(BINS):
            stream = Stream(SYNC, bin_key(at), live=True)
            await wire.send(RequestSubscription(stream, ALL, HIGH))
        is_done = trio.Event()

        async def wait() -> None:
            await trio.to_thread.run_sync(fresh.wait, len(due))
            is_done.set()

        nursery.start_soon(wait)
        await ours.talk(is_done.is_set)
    assert {*fresh.held()} == {each.hex() for each in due}
