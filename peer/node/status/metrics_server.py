"""`/metrics`, `/healthz` and `/readyz` over HTTP, beside a node and in its event loop.

Whoever asks is told and sent away: a connection is one request, within a deadline, and only some
are open at a time. Without names or passwords, so it is for loopback and networks of one's own.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Final

import trio

from logstore import Statistics, StoreError
from peer.node.links.addresses import Address
from peer.node.links.listening import address_of, open_listeners
from peer.node.links.records import Observer
from peer.node.node import Node

from .meter import Meter
from .overview import Overview
from .pages import Page, Request, encoded
from .readiness import Readiness

CLIENTS_MAX: Final = 16
"""Beyond these whoever has not said its request for longest gives way, else the new one is closed:
connections that say nothing keep no monitor out."""
DEADLINE_S: Final = 10.0
"""For a request and its answer, from when the connection was taken; Prometheus waits as long."""
PAGE_KNOWN_S: Final = 1.0
SUMS_KNOWN_S: Final = 10.0
"""How old sums over all logs may be: they are read from the store, a row of each log."""
LINGER_BYTES_MAX: Final = 64 * 1024
READ_BYTES: Final = 4096
LOOPBACK: Final = "127.0.0.1"


def metrics_address(text: str) -> Address:
    """`PORT`, which is on 127.0.0.1, or `HOST:PORT`. Raises ValueError."""
    if text.isdecimal():
        text = f"{LOOPBACK}:{text}"
    elif not text.rpartition(":")[2].isdecimal() or text.endswith("]"):
        raise ValueError(f"{text[:100]!r} is no address: expected PORT or HOST:PORT")
    return Address.parse(text)


class _Metrics:
    """Makes the page, from sums that are kept, so that reading it often costs little."""

    def __init__(self, node: Node, overview: Overview, meter: Meter) -> None:
        self._node = node
        self._overview = overview
        self._meter = meter
        self._lock = trio.Lock()
        self._page: tuple[float, Page] | None = None
        self._sums: tuple[float, Statistics | None] | None = None

    async def page(self) -> Page:
        async with self._lock:
            now = trio.current_time()
            if self._page is None or now - self._page[0] >= PAGE_KNOWN_S:
                self._page = (now, await self._made(now))
            return self._page[1]

    async def _made(self, now: float) -> Page:
        from .metrics import CONTENT_TYPE, rendered, snapshot  # a quarter of a second of loading

        store = self._node.host.store
        if self._sums is None or now - self._sums[0] >= SUMS_KNOWN_S:
            self._sums = (now, await trio.to_thread.run_sync(_sums_of, store.statistics))
        taken = snapshot(self._node, self._overview, self._meter)
        make = partial(rendered, taken, self._sums[1], store.path)
        return Page(HTTPStatus.OK, await trio.to_thread.run_sync(make), CONTENT_TYPE)


def _sums_of(statistics: Callable[[], Statistics]) -> Statistics | None:
    try:
        return statistics()
    except StoreError:
        return None


class MetricsServer:
    """Answers requests about a node."""

    def __init__(
        self, node: Node, overview: Overview, meter: Meter, readiness: Readiness | None = None
    ) -> None:
        self._node = node
        self._clients = 0
        self._asking: dict[trio.CancelScope, None] = {}
        """Of the connections whose request is not whole, the oldest first."""
        self._readiness = readiness or Readiness(node)
        self._pages: Mapping[str, Callable[[], Awaitable[Page]]] = {
            "/metrics": _Metrics(node, overview, meter).page,
            "/healthz": _healthy,
            "/readyz": self._ready,
        }

    @property
    def paths(self) -> frozenset[str]:
        """What there is to be asked for."""
        return frozenset(self._pages)

    async def serve(self, stream: trio.abc.HalfCloseableStream) -> None:
        """One connection, to its end. Raises nothing but Cancelled."""
        if self._clients >= CLIENTS_MAX and not self._make_room():
            await trio.aclose_forcefully(stream)
            return
        self._clients += 1
        try:
            with trio.move_on_after(DEADLINE_S):
                await self._answer(stream)
        except trio.BrokenResourceError:
            pass  # it has gone
        except Exception as error:  # noqa: BLE001 - whoever reads metrics ends no node
            self._node.host.faults.tell("a request for metrics", error)
        finally:
            self._clients -= 1
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    def _make_room(self) -> bool:
        """Has a connection give way; False if all of them wait for their answers."""
        oldest = next(iter(self._asking), None)
        if oldest is None:
            return False
        del self._asking[oldest]
        oldest.cancel()
        return True

    async def _asked(self, stream: trio.abc.HalfCloseableStream) -> Request | None:
        """The request; None if there is none, or it had to give way."""
        request = Request()
        with trio.CancelScope() as scope:
            self._asking[scope] = None
            try:
                while data := await stream.receive_some(READ_BYTES):
                    if request.take(data):
                        return request
            finally:
                self._asking.pop(scope, None)
        return None

    async def _answer(self, stream: trio.abc.HalfCloseableStream) -> None:
        request = await self._asked(stream)
        if request is None:
            return
        page = await self.page_for(request.path())
        await stream.send_all(encoded(page, with_body=request.wants_body))
        # Closing with bytes unread resets the connection, and the answer may be lost with it.
        await stream.send_eof()
        left = LINGER_BYTES_MAX
        while left > 0 and (data := await stream.receive_some(READ_BYTES)):
            left -= len(data)

    async def page_for(self, path: str | Page) -> Page:
        """The answer to a path, or the one that it is already."""
        if isinstance(path, Page):
            return path
        make = self._pages.get(path)
        return Page.of(HTTPStatus.NOT_FOUND) if make is None else await make()

    async def _ready(self) -> Page:
        reasons = await self._readiness.reasons()
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return Page(status, "".join(f"{each}\n" for each in reasons or ["ready"]).encode())


async def _healthy() -> Page:
    """That it is answered is the answer: the event loop runs."""
    return Page.of(HTTPStatus.OK)


@asynccontextmanager
async def serving_metrics(
    server: MetricsServer, address: Address, observer: Observer
) -> AsyncIterator[None]:
    """Serves inside the block. Raises CannotListenError; what the block raises comes as it is."""
    listeners = await open_listeners(address)
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, server.serve, listeners)
        for listener in listeners:
            observer({"event": "metrics_listening", "address": str(address_of(listener))})
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - raised again below, in no group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
