"""`OckamServer`: a hub on a store or a peer, over TCP (sections 3 and 5)."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import trio

from gateways import LogHost, Reception, Running, WriterLock, outlasting
from gateways.ockam.server import Rights
from logstore import Store, StoreError
from peer.api import Address, Peer
from peer.node import Observer, address_of, open_listeners, unobserved

from .book import Book
from .conversation import Conversation
from .hub import Hub
from .keeping import Keeper, Rule
from .logs import FIRST_LOG, STREAMS_MAX, Catalog
from .side import Side

LOCK_FILE: Final = "ockam.lock"
CLIENTS_MAX: Final = 1_024
HOLD_S_MAX: Final = 5.0
CONFIRMED_WITHIN_S: Final = 4.0


class OckamServer(Running):
    """A hub of streams, inside an `async with` block; `listen` opens its addresses.

    `of`: authors whose streams are served too, in their order. `share`: authors whose ledgers count
    as this node's own. `keep`: rules of retention, or their texts. `hold_s`: how long a pull that
    finds nothing waits, 5 s at most. `streams_max`: how many logs clients may make. `first_log`:
    where the logs of the gateway begin. `observer` is called in the event loop with events,
    mappings that JSON can hold. Entering raises StoreLocked if another process makes streams in
    this store, and StoreError; ValueError for rules that are none.
    """

    def __init__(
        self,
        peer_or_store: Peer | Store,
        *,
        of: Sequence[bytes] = (),
        share: Sequence[bytes] = (),
        keep: Sequence[Rule | str] = (),
        hold_s: float = 0.0,
        streams_max: int = STREAMS_MAX,
        first_log: int = FIRST_LOG,
        clients_max: int = CLIENTS_MAX,
        observer: Observer = unobserved,
    ) -> None:
        super().__init__()
        if not 0 <= hold_s <= HOLD_S_MAX:
            raise ValueError(f"a pull is held for {HOLD_S_MAX:g} s at most, not {hold_s:g}")
        self._host = LogHost(peer_or_store, observer)
        self._of = tuple(of)
        self._share = tuple(share)
        self._rules = [Rule.parse(each) if isinstance(each, str) else each for each in keep]
        self._hold_s = hold_s
        self._streams_max = streams_max
        self._first_log = first_log
        self._observer = observer
        self._reception = Reception(self._host, clients_max=clients_max, gone=self._gone)
        self._nursery: trio.Nursery | None = None
        self._hub: Hub | None = None

    @property
    def clients(self) -> int:
        """Connections that are open now."""
        return self._reception.clients

    async def listen(
        self, address: str | Address = "127.0.0.1:4000", *, rights: Rights = Rights.ALL
    ) -> Address:
        """Takes clients at an address, port 0 picks a free one; `rights` are what they may do.

        Raises CannotListenError, ValueError for no address.
        """
        if self._nursery is None:
            raise RuntimeError("an OckamServer listens inside `async with`")
        wanted = Address.parse(address) if isinstance(address, str) else address
        listeners = await open_listeners(wanted)
        found = address_of(listeners[0])
        converse = partial(self._converse, rights)
        self._nursery.start_soon(self._reception.run, listeners, converse)
        self._observer({"event": "listening", "address": str(found)})
        return found

    def _converse(self, rights: Rights, stream: trio.SocketStream, name: str) -> Conversation:
        assert self._hub is not None
        return Conversation(self._hub, stream, name, rights, self._hold_s)

    def _gone(self, name: str, reason: str) -> None:
        if reason:
            self._observer({"event": "closed", "address": name, "reason": reason})

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        store = self._host.store
        with WriterLock(store.path, LOCK_FILE, "another process serves Ockam streams here"):
            side = Side(store)
            try:
                hub = self._hub = self._opened(side)
                hub.tell_trimmed(await self._host.call(hub.begin))
                async with outlasting(partial(self._end, hub)) as nursery:
                    self._nursery = nursery
                    nursery.start_soon(partial(hub.run, holds=bool(self._hold_s)))
                    yield
            finally:
                self._nursery = None
                side.close()

    def _opened(self, side: Side) -> Hub:
        catalog = Catalog(
            self._host.store,
            side,
            of=self._of,
            sign=self._host.sign,
            streams_max=self._streams_max,
            first_log=self._first_log,
        )
        book = Book(catalog, self._share)
        keeper = Keeper(catalog, book, self._rules)
        return Hub(self._host, catalog, book, keeper, self._observer)

    async def _end(self, hub: Hub) -> None:
        """Pushes under way are confirmed, positions stored."""
        # A client that does not take its confirms costs nobody the positions.
        with trio.move_on_after(CONFIRMED_WITHIN_S):
            await self._reception.end()
        # One that fails was said; the program is not kept from ending by it.
        with suppress(StoreError):
            await hub.saver.flush()
