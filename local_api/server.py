"""The local API and its page: one small server beside a node (everyday.md 3).

It has no state but what the node and the store have: a viewer that comes again after a restart
finds all of it, and nothing is replayed to who was away. What is asked about all logs is read in a
thread, a page of rows at a time, and what is shown again and again is made once for all who look.
"""

import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import h11
import trio

from logstore import (
    CursorBusy,
    CursorMismatch,
    ExplainedError,
    LogClosed,
    LogMoved,
    NothingSoCalled,
    OwnLogsReadOnly,
    Store,
    StoreError,
)
from peer.node import Address, Observer, address_of, open_listeners
from wire import LogKey

from .access import Access, AccessDeniedError
from .http import NDJSON, Answer, AnswerError, Exchange, Request
from .log_lines import held_logs, log_line
from .names import Names, with_names
from .page import PAGE_CSS, PAGE_JS, page_html, token_html
from .peer_lines import connected_counts, peer_line
from .standing import is_held, log_standings, standing_record
from .writing import Writing

if TYPE_CHECKING:
    from peer.api import Peer
    from peer.node import MetricsServer, Overview

CLIENTS_MAX: Final = 64
STREAMS_MAX: Final = 16
UNREAD_BYTES_MAX: Final = 1 << 20
COMMENT_S: Final = 15.0
STATUS_S: Final = 1.0
SHARE: Final = 30
"""Finding out how it stands takes one part in so many of the time at most, whoever looks."""
EVENTS_KEPT: Final = 100
LINES_AT_ONCE: Final = 256

Handler = Callable[[Request, Answer], Awaitable[None]]


class ApiServer:
    """Answers requests about a node. `observe` is to be given every event of it."""

    def __init__(
        self,
        peer: "Peer",
        overview: "Overview",
        metrics: "MetricsServer | None" = None,
    ) -> None:
        self._peer = peer
        self._store: Store = peer.store
        self._overview = overview
        self._metrics = metrics
        self._names = Names(self._store)
        self._clients = 0
        self._streams = 0
        self._listeners: set[_Listener] = set()
        self._recent: deque[Mapping[str, object]] = deque(maxlen=EVENTS_KEPT)
        self._status_lock = trio.Lock()
        self._status: tuple[float, dict[str, Any]] | None = None
        writing = Writing(peer, self._names)
        self._routes: dict[tuple[str, str], Handler] = {
            ("GET", "/page.js"): partial(_static, PAGE_JS, "text/javascript; charset=utf-8"),
            ("GET", "/page.css"): partial(_static, PAGE_CSS, "text/css; charset=utf-8"),
            ("GET", "/v1/status"): self._answer_status,
            ("GET", "/v1/logs"): self._logs,
            ("GET", "/v1/peers"): self._peers,
            ("GET", "/v1/why"): self._why,
            ("GET", "/v1/entries"): partial(self._streamed, writing.entries),
            ("GET", "/v1/events"): partial(self._streamed, self._events),
            ("POST", "/v1/append"): writing.append,
            ("POST", "/v1/ack"): writing.acknowledge,
            ("POST", "/v1/follow"): writing.follow,
            ("POST", "/v1/unfollow"): writing.unfollow,
            ("POST", "/v1/fetch"): writing.fetch,
        }
        self._paths = {"/", *(path for _, path in self._routes)}

    def observe(self, event: Mapping[str, object]) -> None:
        """Tells who listens. Is called in the event loop."""
        self._recent.append(event)
        if self._listeners:
            named = with_names(event, self._names)
            data = _sent(str(event["event"]), named)
            for each in self._listeners:
                each.put(data)

    async def serve(self, access: Access, stream: trio.abc.HalfCloseableStream) -> None:
        """One connection, to its end. Raises nothing but Cancelled."""
        try:
            if self._clients >= CLIENTS_MAX:
                return
            self._clients += 1
            try:
                await Exchange(stream).serve(partial(self._judged, access))
            finally:
                self._clients -= 1
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            pass  # it has gone, or does not read
        except h11.LocalProtocolError:
            pass  # it has gone in the middle of a request that was being answered
        except Exception as error:  # noqa: BLE001 - whoever looks at a page ends no node
            self._peer.node.host.faults.tell("a request to the local API", error)
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async def _judged(self, access: Access, request: Request, answer: Answer) -> None:
        try:
            access.check_place(request.headers)
            handler = self._handler(access, request)
            needs_token = request.method == "POST" or request.path == "/v1/entries"
            if request.path not in ("/", "/page.js", "/page.css"):
                access.check_token(request.headers, always=needs_token)
        except AccessDeniedError as error:
            raise AnswerError(error.status, str(error)) from None
        try:
            await handler(request, answer)
        except (CursorBusy, CursorMismatch, LogClosed, LogMoved, OwnLogsReadOnly) as error:
            raise AnswerError(HTTPStatus.CONFLICT, str(error)) from None
        except NothingSoCalled as error:
            raise AnswerError(HTTPStatus.NOT_FOUND, str(error)) from None
        except StoreError as error:
            raise AnswerError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None
        except ExplainedError as error:
            raise AnswerError(HTTPStatus.CONFLICT, str(error)) from None
        except ValueError as error:
            raise AnswerError(HTTPStatus.BAD_REQUEST, str(error)) from None

    def _handler(self, access: Access, request: Request) -> Handler:
        if request.method == "GET" and request.path == "/":
            return partial(self._page, access)
        handler = self._routes.get((request.method, request.path))
        if handler is not None:
            return handler
        is_get = request.method == "GET"
        if self._metrics is not None and is_get and request.path in self._metrics.paths:
            return self._measured
        if request.path in self._paths:
            raise AnswerError(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method} is not for this")
        raise AnswerError(HTTPStatus.NOT_FOUND, "there is nothing of that name")

    async def _measured(self, request: Request, answer: Answer) -> None:
        assert self._metrics is not None
        page = await self._metrics.page_for(request.path)
        await answer.whole(page.body, page.content_type, page.status)

    # How it stands

    async def status(self) -> dict[str, Any]:
        """The object of `status --json`, at most a second old, or older where it takes long."""
        async with self._status_lock:
            now = trio.current_time()
            if self._status is None or now >= self._status[0]:
                record = await trio.to_thread.run_sync(
                    _standing, self._store, self._overview.state(), self._names
                )
                took_s = trio.current_time() - now
                self._status = (now + max(STATUS_S / 2, SHARE * took_s), record)
            return self._status[1]

    async def _answer_status(self, _: Request, answer: Answer) -> None:
        await answer.json(await self.status())

    async def _page(self, access: Access, request: Request, answer: Answer) -> None:
        try:
            access.check_token(request.headers, always=False)
        except AccessDeniedError:
            html = token_html()
        else:
            html = page_html(await self.status(), list(self._recent), self._called)
        await answer.whole(html.encode(), "text/html; charset=utf-8")

    def _called(self, fields: Mapping[str, Any]) -> str:
        try:
            key = LogKey(bytes.fromhex(fields["author"]), int(fields["log_id"]))
        except ValueError:
            # In an event of a kind that knows its logs by other names.
            return f"{fields['author']}/{fields['log_id']}"
        return self._names.shown(key)

    async def _logs(self, _: Request, answer: Answer) -> None:
        lines = (log_line(self._store, info, wanted) for info, wanted in held_logs(self._store))
        await self._lines(lines, answer)

    async def _peers(self, _: Request, answer: Answer) -> None:
        connected = connected_counts(self._overview.state())
        known = await trio.to_thread.run_sync(self._store.peers.known)
        await self._lines((peer_line(each, connected) for each in known), answer)

    async def _why(self, request: Request, answer: Answer) -> None:
        log, peer = request.query.get("log"), request.query.get("peer")
        if (log is None) == (peer is None):
            raise AnswerError(HTTPStatus.BAD_REQUEST, "either log= or peer= is asked about")
        subject: LogKey | str = peer or ""
        if log is not None:
            found = await trio.to_thread.run_sync(self._store.resolve, log)
            subject = LogKey(found, 0) if isinstance(found, bytes) else found
        reasons = await self._peer.why(subject)
        fields = (
            {"text": each.text, "wrong": each.wrong, "advice": each.advice} for each in reasons
        )
        await self._lines(fields, answer)

    async def _lines(self, lines: Iterator[Mapping[str, object]], answer: Answer) -> None:
        """Lines of JSON, made in a thread, some at a time: each may be read from the disk."""
        await answer.begin(NDJSON)
        while data := await trio.to_thread.run_sync(self._some, lines):
            await answer.piece(data)
        await answer.end()

    def _some(self, lines: Iterator[Mapping[str, object]]) -> bytes:
        found = islice(lines, LINES_AT_ONCE)
        return b"".join(
            json.dumps(with_names(each, self._names)).encode() + b"\n" for each in found
        )

    # Streams

    async def _streamed(self, stream: Handler, request: Request, answer: Answer) -> None:
        if self._streams >= STREAMS_MAX:
            raise AnswerError(HTTPStatus.SERVICE_UNAVAILABLE, f"{STREAMS_MAX} streams are open")
        self._streams += 1
        try:
            await stream(request, answer)
        finally:
            self._streams -= 1

    async def _events(self, _: Request, answer: Answer) -> None:
        """Server-sent events: how it stands, whenever that changes, and what happens."""
        await answer.begin("text/event-stream")
        listener = _Listener()
        self._listeners.add(listener)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tell_status, listener)
                nursery.start_soon(_until_gone, answer, nursery.cancel_scope)
                while data := await listener.take():
                    await answer.piece(data)
                # It does not read: whoever comes again finds how it stands.
                nursery.cancel_scope.cancel()
        finally:
            self._listeners.discard(listener)
        raise trio.BrokenResourceError

    async def _tell_status(self, listener: "_Listener") -> None:
        told: dict[str, Any] | None = None
        while True:
            status = await self.status()
            if status != told:
                told = status
                listener.put(_sent("status", _in_trouble(status)))
            await trio.sleep(STATUS_S)


class _Listener:
    """What somebody who listens has still to read."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._is_over = False
        self._news = trio.Event()

    def put(self, data: bytes) -> None:
        """Some more; of who has left too much unread, that is the end."""
        self._bytes += len(data)
        self._is_over = self._is_over or self._bytes > UNREAD_BYTES_MAX
        self._waiting.append(data)
        self._news.set()

    async def take(self) -> bytes:
        """What is to be sent next, b"" if nothing is any more.

        A comment where nothing happens for long, so that nobody takes it for dead.
        """
        if not self._waiting:
            self._news = trio.Event()
            with trio.move_on_after(COMMENT_S):
                await self._news.wait()
        if self._is_over:
            return b""
        if not self._waiting:
            return b": still here\n\n"
        data = self._waiting.popleft()
        self._bytes -= len(data)
        return data


async def _until_gone(answer: Answer, scope: trio.CancelScope) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await answer.until_gone()
    scope.cancel()


async def _static(data: bytes, content_type: str, _: Request, answer: Answer) -> None:
    await answer.whole(data, content_type)


def _sent(name: str, fields: Mapping[str, object]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(fields)}\n\n".encode()


def _in_trouble(status: dict[str, Any]) -> dict[str, Any]:
    """Without the logs that are well, of which there may be ten thousand."""
    logs = [
        each
        for each in status["logs"]
        if each["state"] not in ("live", "ended")
        or int(each["behind"])
        or int(each["missing_payloads"])
    ]
    return status | {"logs": logs}


def _standing(store: Store, state: Mapping[str, Any], names: Names) -> dict[str, Any]:
    logs = log_standings(store, state, None)
    waiting = [target for target in store.follows() if not is_held(store, target)]
    return with_names(standing_record(store, state, logs, waiting), names)


@asynccontextmanager
async def serving_api(
    server: ApiServer,
    address: Address,
    token: str,
    observer: Observer,
    hosts: Collection[str] = (),
) -> AsyncIterator[Address]:
    """Serves inside the block; tells the event `page`, and yields where. Raises CannotListenError.

    `token`: of the store (access.py); `hosts`: other names by which the page is looked at.
    """
    listeners = await open_listeners(address)
    where = address_of(listeners[0])
    access = Access(where, token, hosts)
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, partial(server.serve, access), listeners)
        observer({"event": "page", "address": str(where) if where.path else f"http://{where}/"})
        try:
            yield where
        except BaseException as error:  # noqa: BLE001 - raised again below, in no group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
