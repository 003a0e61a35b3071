"""`Publisher` and `Consumer`: clients of any hub, over TCP (section 3.7)."""

import logging
import random
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

import trio

from gateways import Running, again, beside
from gateways.ockam.client import (
    ANSWER_S,
    CREATOR,
    KEEPER,
    OWN,
    PULL_LIMIT,
    ConsumerEnd,
    PublisherEnd,
    Refused,
    Silent,
)
from gateways.ockam.codec import (
    CREATE_PARTITIONED,
    DATA_BYTES_MAX,
    Create,
    Created,
    Failure,
    FrameDecoder,
    GetIndex,
    Index,
    Request,
    Response,
    Route,
    SaveIndex,
    decode_message,
    decode_payload,
    decode_response,
    encode_frame,
    encode_message,
    encode_request,
)
from gateways.ockam.codec import Message as RoutingMessage
from gateways.reading import CodecError
from logstore import ExplainedError
from peer.api import Address
from peer.node import Backoff, CannotConnectError, open_stream, words_of

log = logging.getLogger(__name__)

DEFAULT_PORT: Final = 4000
RETRY_MAX_S: Final = 30.0
_SEND_S: Final = 30.0
_READ_BYTES: Final = 1 << 16
_LOST: Final = (
    OSError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
    Silent,
    CodecError,
)


class HubError(ExplainedError):
    """What a hub does not do."""


class HubUnreachable(HubError):  # noqa: N818 - what it is
    """Nobody could be connected to, or nobody answers any more."""

    is_no_answer = True


class HubRefused(HubError):  # noqa: N818 - what it has done
    """The hub will not do what it was asked."""


def hub_address(text: str) -> Address:
    """`HOST:PORT` or `HOST`, whose port is 4000. Raises ValueError."""
    has_port = text.rpartition("]")[2].count(":") == 1
    return Address.parse(text if has_port else f"{text}:{DEFAULT_PORT}")


class _Remote(Running):
    """A connection that comes again when it is lost.

    `timeout_s`: for how long a hub that was there may be lost, None for ever.
    """

    def __init__(
        self, hub: str | Address, end: PublisherEnd | ConsumerEnd, timeout_s: float | None
    ) -> None:
        super().__init__()
        self._hub = hub_address(hub) if isinstance(hub, str) else hub
        self._remote_end = end
        self._timeout_s = timeout_s
        self._failure: Exception | None = None
        self._wake = trio.Event()
        self._news = trio.Event()
        self._answered = False
        self._connections = 0

    @property
    def address(self) -> str | None:
        """Of the stream at this hub, once it is known."""
        return self._remote_end.address

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        stream = await _connect(self._hub)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stay_connected, stream)
            yield
            await self._finish()
            nursery.cancel_scope.cancel()

    async def _stay_connected(self, stream: trio.SocketStream) -> None:
        first = [stream]

        async def connect() -> trio.SocketStream:
            return first.pop() if first else await open_stream(self._hub)

        backoff = Backoff(random.Random(), RETRY_MAX_S)  # noqa: S311 - jitter
        where = str(self._hub)
        try:
            await again(connect, self._talk, backoff, timeout_s=self._timeout_s)
        except CannotConnectError as error:
            self._failure = HubUnreachable(str(error), where, "try again later")
        except Refused as error:
            self._failure = HubRefused(str(error), where, "look at the hub's log")
        self._tell()

    async def _talk(self, stream: trio.SocketStream) -> bool:
        """Until the connection is lost; whether the hub has said anything. Raises Refused."""
        self._remote_end.connected(trio.current_time())
        self._connections += 1
        self._answered = False
        why = "the hub has closed it"
        try:
            async with stream:
                await beside(partial(self._read, stream), partial(self._write, stream))
        except _LOST as error:
            why = words_of(error)
        self._tell()
        log.info("the connection to %s was lost: %s", self._hub, why)
        return self._answered

    async def _read(self, stream: trio.SocketStream) -> None:
        while data := await stream.receive_some(_READ_BYTES):
            self._answered = True
            self._take(bytes(data))
            self._tell()

    async def _write(self, stream: trio.SocketStream) -> None:
        end = self._remote_end
        while True:
            if out := end.take():
                with trio.fail_after(_SEND_S):
                    await stream.send_all(out)
                continue
            self._wake = trio.Event()
            due = end.due_s
            with trio.move_on_at(float("inf") if due is None else due):
                await self._wake.wait()
            if due is not None and trio.current_time() >= due:
                end.tick(trio.current_time())

    def _tell(self) -> None:
        """Something has changed: wakes the caller, and what writes."""
        self._wake.set()
        news, self._news = self._news, trio.Event()
        news.set()

    async def _change(self) -> None:
        """Returns once something has changed. Raises HubError."""
        if self._failure is None:
            await self._news.wait()
        if self._failure is not None:
            raise self._failure

    @abstractmethod
    def _take(self, data: bytes) -> None: ...

    @abstractmethod
    async def _finish(self) -> None: ...


async def create_stream(
    hub: str | Address, name: str, *, partitions: int | None = None, timeout_s: float = ANSWER_S
) -> list[tuple[int, str]]:
    """Creates a stream, or finds it: the number and the address of each partition, ascending.

    `partitions`: None asks in the protocol that has none. Raises HubError.
    """
    request = Create(name)
    if partitions is not None:
        request = Create(name, partitions, CREATE_PARTITIONED)
    found: dict[int, str] = {}

    def take(message: RoutingMessage, response: Response) -> bool:
        if isinstance(response, Created) and response.name == name:
            address = message.back[-1].value.decode("utf-8", "replace") if message.back else ""
            found[response.partition or 0] = address
        return len(found) == (partitions or 1)

    await _exchange(hub, CREATOR, [request], take, timeout_s)
    return sorted(found.items())


async def ask_position(
    hub: str | Address,
    name: str,
    client: str,
    *,
    partition: int = 0,
    save: int | None = None,
    timeout_s: float = ANSWER_S,
) -> int | None:
    """What a hub says of a position, after `save` was saved, if it is a number. Raises HubError."""
    number = partition or None
    requests: list[Request] = [GetIndex(client, name, number)]
    if save is not None:
        requests.insert(0, SaveIndex(client, name, save, number))
    answers: list[int | None] = []

    def take(_: RoutingMessage, response: Response) -> bool:
        if isinstance(response, Index) and (response.client, response.name) == (client, name):
            answers.append(response.index)
        return bool(answers)

    await _exchange(hub, KEEPER, requests, take, timeout_s)
    return answers[0]


async def _exchange(
    hub: str | Address,
    onward: Route,
    requests: Sequence[Request],
    take: Callable[[RoutingMessage, Response], bool],
    timeout_s: float,
) -> None:
    """Sends requests over a connection of its own, until `take` has had enough of the answers."""
    where = hub_address(hub) if isinstance(hub, str) else hub
    why = f"no answer in {timeout_s:g} s"
    async with await _connect(where) as stream:
        with trio.move_on_after(timeout_s):
            try:
                for request in requests:
                    payload = encode_request(request)
                    await stream.send_all(encode_frame(encode_message(onward, (OWN,), payload)))
                frames = FrameDecoder()
                while data := await stream.receive_some(_READ_BYTES):
                    frames.feed(bytes(data))
                    if _take_frames(frames, take, where):
                        return
                why = "the hub has closed the connection"
            except _LOST as error:
                why = words_of(error)
    raise HubUnreachable(f"no answer ({why})", str(where), "look whether it is a hub of streams")


def _take_frames(
    frames: FrameDecoder, take: Callable[[RoutingMessage, Response], bool], where: Address
) -> bool:
    """Whether `take` has had enough. Raises CodecError, HubRefused."""
    while (frame := frames.next_frame()) is not None:
        message = decode_message(frame)
        response = decode_response(*decode_payload(message.payload))
        if isinstance(response, Failure):
            raise HubRefused(f"the hub says {response.reason!r}", str(where), "ask its operator")
        if take(message, response):
            return True
    return False


async def _connect(address: Address) -> trio.SocketStream:
    """Raises HubUnreachable."""
    try:
        return await open_stream(address)
    except CannotConnectError as error:
        raise HubUnreachable(
            "cannot connect", str(error), "look at the address, and whether a hub runs"
        ) from None


class Receipt:
    """A push that is under way."""

    def __init__(self, publisher: "Publisher") -> None:
        self._publisher = publisher
        self.index: int | None = None
        """Its index, once it is confirmed."""

    async def wait(self) -> int:
        """The index, once the message is on the hub's disk. Raises HubError."""
        while self.index is None:
            await self._publisher._change()  # noqa: SLF001
        return self.index


class Publisher(_Remote):
    """Pushes to one partition of a stream, at least once, in order; inside an `async with` block.

    Entering raises HubUnreachable. Leaving the block waits for what is unconfirmed.
    """

    def __init__(
        self,
        hub: str | Address,
        name: str,
        *,
        partition: int = 0,
        timeout_s: float | None = None,
    ) -> None:
        self._end = PublisherEnd(name, partition)
        super().__init__(hub, self._end, timeout_s)
        self._receipts: dict[int, Receipt] = {}

    async def push(self, data: bytes) -> int:
        """Pushes a message; its index, once it is confirmed. Raises HubError, ValueError."""
        return await (await self.submit(data)).wait()

    async def submit(self, data: bytes) -> Receipt:
        """Pushes a message without waiting for it, 256 or 1 MiB ahead. Raises as `push` does."""
        if len(data) > DATA_BYTES_MAX:
            raise ValueError(f"a message of {len(data)} bytes, {DATA_BYTES_MAX} are the limit")
        while not self._end.has_room:
            await self._change()
        if self._failure is not None:
            raise self._failure
        token = self._end.push(data, trio.current_time())
        receipt = self._receipts[token] = Receipt(self)
        self._wake.set()
        return receipt

    def _take(self, data: bytes) -> None:
        try:
            self._end.receive(data, trio.current_time())
        finally:
            for token, index in self._end.confirmed():
                self._receipts.pop(token).index = index

    async def _finish(self) -> None:
        while self._end.unconfirmed:
            await self._change()


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a stream."""

    index: int
    data: bytes


class Consumer(_Remote):
    """The messages of one partition of a stream; inside an `async with` block.

    `client`: whose position is gone on from, and saved once the next message is asked for. `start`:
    the first index, in place of that. `follow`: goes on at the end of the stream. Entering raises
    HubUnreachable. Leaving the block returns once the position is on the hub's disk.
    """

    def __init__(
        self,
        hub: str | Address,
        name: str,
        *,
        partition: int = 0,
        client: str | None = None,
        start: int | None = None,
        follow: bool = False,
        pull_limit: int = PULL_LIMIT,
        timeout_s: float | None = None,
    ) -> None:
        self._end = ConsumerEnd(name, partition, client=client, start=start, limit=pull_limit)
        super().__init__(hub, self._end, timeout_s)
        self._follow = follow
        self._given: int | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """The next message. Raises HubError."""
        self.done()
        end = self._end
        while not end.messages:
            if end.at_end and not self._follow:
                raise StopAsyncIteration
            await self._change()
        index, data = end.messages.popleft()
        if end.paused and len(end.messages) < end.limit:
            end.resume(trio.current_time())
            self._wake.set()
        self._given = index
        return Message(index, data)

    def done(self) -> None:
        """The message that was given out last was dealt with, though no other is asked for yet."""
        if self._given is not None:
            self._end.handled(self._given, trio.current_time())
            self._given = None
            self._wake.set()

    def _take(self, data: bytes) -> None:
        end = self._end
        end.receive(data, trio.current_time())
        # One answer ahead of the caller, and no more.
        if len(end.messages) > end.limit or (end.at_end and not self._follow):
            end.paused = True

    async def _finish(self) -> None:
        end = self._end
        while self._failure is None and end.needs_settling:
            before = self._connections
            asked = end.finish(trio.current_time())
            self._wake.set()
            with trio.move_on_after(ANSWER_S) as waiting:
                await self._change()
                while asked and not end.is_finished and self._connections == before:
                    await self._change()
            if waiting.cancelled_caught and self._timeout_s is None:
                raise HubUnreachable(
                    "the position is not known to be saved", str(self._hub), "go on from before it"
                )
