"""`SwarmServer`: a node on a store or a peer, over TCP (spec section 5)."""

import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

import trio

from gateways import LogHost, Reception, Running, WriterLock, outlasting
from gateways.reading import CodecError
from gateways.swarm.files import FileError, FileReader
from gateways.swarm.keys import Enode, read_enode
from gateways.swarm.link import Identity
from logstore import Store, StoreError
from peer.api import Address, Peer
from peer.node import Observer, StatusFile, address_of, alone, open_listeners, unobserved

from .bins import Bins
from .callers import Callers
from .conversation import Conversation
from .hub import Hub
from .logs import Chunks, Node, node_of
from .side import Side
from .wishes import WISHES_MAX, Wish, decode_wish

log = logging.getLogger(__name__)

LOCK_FILE: Final = "swarm.lock"
STATUS_FILE: Final = "swarm.status.json"
NETWORK: Final = 3
CHUNKS_MAX: Final = 1_000_000
AHEAD_MAX: Final = 16
"""Chunks of a file that are looked for at once."""
_READ_BYTES: Final = 1 << 18
_NOWHERE: Final = ("127.0.0.1", 1)
"""Of the enode of a node that does not listen; nobody is to call it."""


def parse_enode(text: str) -> Enode:
    """Where a peer is, and who is to be there. Raises ValueError, with a message for people."""
    try:
        return read_enode(text)
    except CodecError as error:
        raise ValueError(str(error)) from None


class SwarmServer(Running):
    """A node among others, inside an `async with` block; `listen` opens its addresses.

    The store has the logs of a node (`make_node`). `network`: whose peers are talked with.
    `light`: it syncs nothing, and looks chunks up. `chunks_max`: beyond so many nothing more is
    synced to here. `observer` is called in the event loop with events, mappings that JSON can hold.
    Entering raises StoreLocked if another process serves the node in this store, NotANode where
    there is none, and StoreError.
    """

    def __init__(
        self,
        peer_or_store: Peer | Store,
        *,
        network: int = NETWORK,
        light: bool = False,
        chunks_max: int = CHUNKS_MAX,
        observer: Observer = unobserved,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__()
        self._host = LogHost(peer_or_store, observer)
        self._network = network
        self._is_light = light
        self._chunks_max = chunks_max
        self._observer = observer
        self._rng = rng or random.Random()  # noqa: S311 - how long to wait
        self._reception = Reception(self._host, clients_max=0, gone=self._gone)
        self._callers: Callers | None = None
        self._nursery: trio.Nursery | None = None
        self._hub: Hub | None = None
        self._node: Node | None = None
        self._wishes: dict[str, trio.CancelScope] = {}
        self._waiting: dict[str, bytes] = {}
        """Those that there were when they were looked at last."""

    # What it does --------------------------------------------------------------------------------

    async def listen(self, address: str | Address = "127.0.0.1:7017") -> str:
        """Takes peers at an address, port 0 picks a free one; the enode under which it is reached.

        Raises CannotListenError, ValueError for no address.
        """
        nursery, hub = self._inside()
        wanted = Address.parse(address) if isinstance(address, str) else address
        listeners = await open_listeners(wanted)
        found = address_of(listeners[0])
        enode = str(Enode(hub.identity.key.public, found.host, found.port))
        hub.identity = hub.identity._replace(underlay=enode)
        nursery.start_soon(self._reception.run, listeners, self._converse)
        self._observer(
            {
                "event": "listening",
                "address": str(found),
                "enode": enode,
                "overlay": hub.identity.overlay.hex(),
            }
        )
        return enode

    def connect(self, enode: str) -> None:
        """Calls a peer, again and again. Raises ValueError for no enode, and for our own."""
        _, hub = self._inside()
        where = parse_enode(enode)
        if where.public == hub.identity.key.public:
            raise ValueError(f"{enode} is this node itself")
        assert self._callers is not None
        self._callers.want(where)

    async def put(self, path: str | Path) -> bytes:
        """Puts a file into the node's log of chunks; its hash, 32 bytes.

        Raises OSError, ValueError for an empty file, StoreError.
        """
        self._inside()
        return await self._host.call(partial(self._put, Path(path)))

    def _put(self, path: Path) -> bytes:
        assert self._node is not None
        side = Side(self._host.store)
        try:
            side.refresh()
            with path.open("rb") as file:
                parts = iter(partial(file.read, _READ_BYTES), b"")
                chunks = Chunks(self._host.store, side)
                return chunks.put(self._host.sign, self._node.chunk_log, parts).hash
        finally:
            side.close()

    async def get(
        self, root: bytes, *, first: int = 0, last: int | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes `first` to `last` of a file, from the store, and from peers what is lacking.

        What comes from peers is kept. Raises FileError, which names the first chunk that nobody
        has, or that does not belong there; ValueError for a range that is none; StoreError.
        """
        _, hub = self._inside()
        reader = FileReader(root, first, last, check_addresses=False)
        ahead: dict[bytes, bytes | None] = {}
        while (wanted := reader.wanted) is not None:
            if wanted not in ahead:
                ahead = await self._chunks(hub, reader.ahead(AHEAD_MAX))
            data = reader.take(ahead.pop(wanted))
            if data:
                yield data

    async def fetch(self, root: bytes, *, first: int = 0, last: int | None = None) -> None:
        """Has a file, or a part of it, in the store. Raises as `get` does."""
        _, hub = self._inside()
        async for _ in self.get(root, first=first, last=last):
            pass
        await hub.keeper.flush()

    async def _chunks(self, hub: Hub, addresses: list[bytes]) -> dict[bytes, bytes | None]:
        found: dict[bytes, bytes | None] = {}

        async def find(address: bytes) -> None:
            found[address] = await hub.chunk(address)

        try:
            async with trio.open_nursery() as nursery:
                for each in addresses:
                    nursery.start_soon(find, each)
        except BaseExceptionGroup as group:
            raise alone(group) from None
        return found

    @property
    def chunks(self) -> int:
        """How many chunks are held."""
        return self._inside()[1].chunks

    @property
    def is_synced(self) -> bool:
        """Whether there is a full peer, and all is here that the peers have."""
        return self._inside()[1].is_synced

    async def moved(self) -> None:
        """Returns once anything has happened that may have changed these two."""
        await self._inside()[1].moved()

    async def wait_synced(self) -> None:
        """Returns once `is_synced`."""
        while not self.is_synced:
            await self.moved()

    def _inside(self) -> tuple[trio.Nursery, Hub]:
        if self._nursery is None or self._hub is None:
            raise RuntimeError("a SwarmServer is used inside `async with`")
        return self._nursery, self._hub

    # Connections ---------------------------------------------------------------------------------

    def _converse(self, stream: trio.SocketStream, name: str) -> Conversation:
        assert self._hub is not None
        return Conversation(self._hub, stream, name)

    def _gone(self, name: str, reason: str) -> None:
        self._observer(
            {"event": "disconnected", "address": name, "reason": reason or "it has hung up"}
        )

    # What other processes want -------------------------------------------------------------------

    def _wished(self, wishes: dict[str, bytes]) -> None:
        assert self._nursery is not None
        self._waiting = wishes
        for name, scope in self._wishes.items():
            if name not in wishes:
                scope.cancel()
        for name, value in wishes.items():
            if name not in self._wishes and len(self._wishes) < WISHES_MAX:
                scope = self._wishes[name] = trio.CancelScope()
                self._nursery.start_soon(self._grant, name, value, scope)

    async def _grant(self, name: str, value: bytes, scope: trio.CancelScope) -> None:
        """Fetches what is wanted; over with it, however it went, the wish is taken out."""
        with scope:
            try:
                await self._fetch(decode_wish(value))
            except (FileError, ValueError, StoreError) as error:
                log.info("the wish %s is not granted: %s", name, error)
            except Exception:
                # Whoever may write into the store is not to end whoever serves it.
                log.exception("the wish %s has failed", name)
        try:
            await self._host.call(partial(self._host.store.remember, name, None))
        except StoreError as error:
            self._host.storage_failed(error)
        del self._wishes[name]
        # If more were waiting than are granted at once, it is another one's turn.
        self._wished({each: value for each, value in self._waiting.items() if each != name})

    async def _fetch(self, wish: Wish) -> None:
        assert self._callers is not None
        enode = None if wish.enode is None else parse_enode(wish.enode)
        if enode is not None:
            self._callers.want(enode)
        try:
            await self.fetch(wish.root, first=wish.first, last=wish.last)
        finally:
            if enode is not None:
                self._callers.unwant(enode)

    # Its life ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        store = self._host.store
        with WriterLock(store.path, LOCK_FILE, "another process serves the Swarm node here"):
            side = Side(store)
            try:
                hub = self._hub = await self._host.call(partial(self._opened, side))
                async with outlasting(self._end) as nursery:
                    self._nursery = nursery
                    self._callers = Callers(
                        self._host, hub, self._observer, self._rng, nursery.start_soon
                    )
                    nursery.start_soon(hub.run, self._wished)
                    if store.path is not None:
                        nursery.start_soon(StatusFile(store.path, hub.state, STATUS_FILE).run)
                    yield
            finally:
                self._nursery = None
                side.close()

    def _opened(self, side: Side) -> Hub:
        store = self._host.store
        side.refresh()
        node = self._node = node_of(store, side)
        bins = Bins(store, side, node, self._host.sign)
        bins.begin()
        identity = Identity(
            node.key,
            f"bamboo-peer/{version('bamboo-peer')}",
            self._network,
            node.overlay,
            str(Enode(node.key.public, *_NOWHERE)),
            self._is_light,
        )
        return Hub(self._host, bins, identity, chunks_max=self._chunks_max, observer=self._observer)

    async def _end(self) -> None:
        """Peers hear that the node ends; what has come is on disk."""
        assert self._hub is not None
        assert self._callers is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._reception.end)
            nursery.start_soon(self._callers.end)
        await self._hub.keeper.flush()
