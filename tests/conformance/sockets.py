"""A real node on a real store as the endpoint under test, and sockets to talk to it.

The node runs in a thread of its own, so that scripts stay plain functions; every wait has an end.
"""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import trio
from nacl.signing import SigningKey

from logstore import Follow, LogVerdict, Store
from peer.api import NodeConfig, Peer, SyncError, sync
from peer.node import Limits
from wire import LogKey, Setup, encode_switch

from .histories import SHARED_COUNT, History, Library
from .script import GREEDY, Speaker, UnmetError

PATIENCE_S = 10.0
CONFIG = NodeConfig(workers=0, poll_s=0.5, limits=Limits(unestablished_max=1000))
T = TypeVar("T")
EventOf = Mapping[str, object]


class SocketLink:
    """A TCP connection to an endpoint, of either side's making."""

    def __init__(self, connection: socket.socket, *, patience_s: float = PATIENCE_S) -> None:
        self._socket = connection
        self._patience_s = patience_s
        self._socket.settimeout(patience_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ended = False

    def send(self, data: bytes) -> None:
        # An endpoint that has hung up is found out when it is listened to.
        with suppress(ConnectionError):
            self._socket.sendall(data)

    def receive(self) -> bytes:
        try:
            data = self._socket.recv(1 << 18)
        except ConnectionError:
            data = b""
        except TimeoutError:
            raise UnmetError(f"the endpoint says nothing for {self._patience_s:.0f} s") from None
        self.ended = self.ended or not data
        return data

    def wait(self, seconds: float) -> None:
        raise NotImplementedError("no clock can be turned here")

    def author(self, history: History, count: int) -> None:
        raise NotImplementedError("nobody here has the endpoint's key")

    def close(self) -> None:
        self._socket.close()


class MeetingLink(SocketLink):
    """A connection to a node in this process."""

    def __init__(self, connection: socket.socket, node: "NodeThread") -> None:
        super().__init__(connection)
        self._node = node

    def author(self, history: History, count: int) -> None:
        payloads = [history.payload(seq) for seq in range(1, count + 1)]
        self._node.store.append(payloads, log_id=history.log.log_id)


class NodeThread:
    """A `Peer` that serves a store on disk and follows an author, in a thread."""

    def __init__(
        self, path: Path, follows: tuple[Follow, ...], *, signing_key: SigningKey | None = None
    ) -> None:
        self.store = Store.create(path, signing_key=signing_key)
        for target in follows:
            self.store.follow(target)
        self.events: list[EventOf] = []
        self.address: tuple[str, int] = ("", 0)
        self._told = threading.Condition()
        self._ready = threading.Event()
        self._peer: Peer | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._stop: trio.Event | None = None
        self._thread = threading.Thread(target=trio.run, args=(self._run,))

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        async with Peer(self.store, config=CONFIG, observer=self._observe) as peer:
            address = await peer.listen()
            self.address = (address.host, address.port)
            self._peer = peer
            self._ready.set()
            await self._stop.wait()

    def _observe(self, event: EventOf) -> None:
        with self._told:
            self.events.append(dict(event))
            self._told.notify_all()

    def wait_for(self, fits: Callable[[EventOf], bool], since: int = 0) -> EventOf:
        """The first event that fits, of those from `since` on."""

        def find() -> EventOf | None:
            return next((event for event in self.events[since:] if fits(event)), None)

        with self._told:
            found = self._told.wait_for(find, timeout=PATIENCE_S)
        if found is None:
            raise UnmetError(f"no such event; there were {self.events[since:]}")
        return found

    def call(self, function: Callable[[Peer], T]) -> T:
        """Run something in the node's thread."""
        peer = self._peer
        assert peer is not None
        return trio.from_thread.run_sync(lambda: function(peer), trio_token=self._token)

    def faults(self, log: LogKey | None = None) -> list[object]:
        """What a check of the whole store, or of one log, finds."""
        return [each for each in self.store.verify(log) if not isinstance(each, LogVerdict)]

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(PATIENCE_S):
            raise UnmetError("the node does not start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stop is not None:
            stop = self._stop
            trio.from_thread.run_sync(stop.set, trio_token=self._token)
        self._thread.join(PATIENCE_S)
        self.store.close()


class Meeting:
    """How scripts meet a node in one of its roles: by as many connections as they like."""

    def __init__(self, node: NodeThread, library: Library, *, node_is_proactive: bool) -> None:
        self.node = node
        self.library = library
        self.node_is_proactive = node_is_proactive
        self.sync_error = ""
        """Why the last one-time sync failed."""

    @contextmanager
    def speaker(self, setup: Setup = GREEDY, *, one_time_sync: bool = False) -> Iterator[Speaker]:
        """A script's connection, open until the end of the block.

        `one_time_sync`: the node is proactive, but only to sync once.
        """
        with self._connection(one_time_sync=one_time_sync) as connection:
            link = MeetingLink(connection, self.node)
            proactive = not self.node_is_proactive
            try:
                yield Speaker(link, self.library, proactive=proactive, setup=setup)
            finally:
                link.close()

    @contextmanager
    def _connection(self, *, one_time_sync: bool) -> Iterator[socket.socket]:
        if not self.node_is_proactive:
            yield socket.create_connection(self.node.address, timeout=PATIENCE_S)
            return
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(PATIENCE_S)
            host, port = listener.getsockname()
            calls = self._syncs if one_time_sync else self._called
            with calls(f"{host}:{port}"):
                connection, _ = listener.accept()
                yield connection

    @contextmanager
    def _called(self, address: str) -> Iterator[None]:
        """The node calls an address, until the end of the block.

        It hears that the connection has ended before it is told to end it: what it says of that
        would depend on which was first.
        """
        before = len(self.node.events)
        self.node.call(lambda peer: peer.connect(address))
        try:
            yield
            self.node.wait_for(
                lambda event: event.get("address") == address and _ends(event), before
            )
        finally:
            self.node.call(lambda peer: peer.disconnect(address))

    @contextmanager
    def _syncs(self, address: str) -> Iterator[None]:
        """A one-time sync with an address, in a thread of its own; it is over behind the block."""
        self.sync_error = ""

        async def run() -> None:
            try:
                await sync(self.node.store, address, config=CONFIG)
            except SyncError as error:
                self.sync_error = str(error)

        thread = threading.Thread(target=trio.run, args=(run,))
        thread.start()
        try:
            yield
        finally:
            thread.join(PATIENCE_S)


def _ends(event: EventOf) -> bool:
    """Whether it tells of the end of a connection, or of a call."""
    return event["event"] in {"disconnected", "violation", "connect_failed"}


def bring_shared(speaker: Speaker) -> None:
    """Deliver the log that every case takes for held."""
    if speaker.newest(speaker.library.shared) < SHARED_COUNT:
        speaker.deliver(speaker.library.shared, SHARED_COUNT)


class Bystander:
    """An honest connection that is open all the time, and goes on replicating."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._history: History = speaker.library.fresh()
        self._number = speaker.open(self._history)
        self._count = 0

    def goes_on(self) -> None:
        """Send one more entry of the open request, and see it kept."""
        self._count += 1
        self._speaker.data(encode_switch(self._number), self._history.entries([self._count]))
        self._speaker.wait_until_held(self._history, self._count)
