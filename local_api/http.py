"""HTTP/1.1 by h11 on Trio streams: requests in, answers out, and what a client may cost.

Nobody is trusted to read or to speak: a head comes within ten seconds and 16 KiB or the connection
ends, an answer that is not taken for as long ends it as well, and of a stream that falls behind by
more than 1 MiB it is closed rather than kept. Beyond 64 connections new ones are closed at once.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import trio

HEAD_BYTES_MAX: Final = 16 << 10
HEAD_S: Final = 10.0
WRITE_S: Final = 10.0
READ_BYTES: Final = 64 << 10
JSON_BYTES_MAX: Final = 64 << 10
LINGER_S: Final = 1.0
NDJSON: Final = "application/x-ndjson"
_SECURITY: Final = [
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
    (
        "Content-Security-Policy",
        (
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
            " frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
        ),
    ),
]


class AnswerError(Exception):
    """A request that cannot be done: the status, and one line that says why."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Request:
    """A request whose head has come; its body is read by whoever wants it."""

    def __init__(self, event: h11.Request, exchange: "Exchange") -> None:
        parts = urlsplit(event.target.decode("latin-1"))
        self.method = event.method.decode("latin-1")
        self.path = unquote(parts.path)
        self.headers = {bytes(name): bytes(value) for name, value in event.headers}
        self._exchange = exchange
        try:
            pairs = parse_qsl(parts.query, keep_blank_values=True, errors="strict")
        except ValueError:
            raise AnswerError(HTTPStatus.BAD_REQUEST, "the query is no UTF-8") from None
        self.query = dict(pairs)

    async def piece(self) -> bytes:
        """The next piece of the body, b"" at its end."""
        return await self._exchange.piece()

    async def json(self) -> dict[str, Any]:
        """An object of JSON. Raises AnswerError."""
        data = bytearray()
        while piece := await self.piece():
            data += piece
            if len(data) > JSON_BYTES_MAX:
                raise AnswerError(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"above {JSON_BYTES_MAX >> 10} KiB of JSON"
                )
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            raise AnswerError(HTTPStatus.BAD_REQUEST, "the body is no JSON") from None
        if not isinstance(found, dict):
            raise AnswerError(HTTPStatus.BAD_REQUEST, "the body is no object of JSON")
        return found


class Exchange:
    """The requests of one connection, one after the other."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self._stream = stream
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def serve(self, answer: Callable[[Request, "Answer"], Awaitable[None]]) -> None:
        """Has every request answered, until either side ends. Raises what the stream raises."""
        while True:
            reply = Answer(self)
            try:
                request = await self._next()
                if request is None:
                    return
                await answer(request, reply)
            except AnswerError as error:
                await reply.error(error.status, str(error))
            except h11.RemoteProtocolError as error:
                if self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    status = HTTPStatus(error.error_status_hint)
                    await reply.error(status, str(error))
            if not await self._finish():
                return

    async def _next(self) -> Request | None:
        with trio.move_on_after(HEAD_S) as deadline:
            while True:
                event = self._h11.next_event()
                if event is h11.NEED_DATA:
                    await self._receive()
                elif isinstance(event, h11.Request):
                    return Request(event, self)
                else:
                    return None
        assert deadline.cancelled_caught
        return None

    async def _receive(self) -> None:
        if self._h11.they_are_waiting_for_100_continue:
            await self.send(h11.InformationalResponse(status_code=100, headers=[]))
        self._h11.receive_data(bytes(await self._stream.receive_some(READ_BYTES)))

    async def piece(self) -> bytes:
        """What comes next of the body, b"" at its end."""
        while True:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                await self._receive()
            elif not isinstance(event, h11.Data):
                return b""
            elif event.data:
                return bytes(event.data)

    async def send(self, event: h11.Event) -> None:
        """Sends a part of an answer; TooSlowError if nobody takes it."""
        data = self._h11.send(event)
        if data:
            with trio.fail_after(WRITE_S):
                await self._stream.send_all(data)

    async def until_gone(self) -> None:
        """Returns once the other side has ended, of whom nothing else is expected meanwhile."""
        while await self._stream.receive_some(READ_BYTES):
            pass

    async def _finish(self) -> bool:
        """Gets ready for the next request; False if there can be none."""
        left = READ_BYTES
        with trio.move_on_after(LINGER_S):
            # Of a body that nobody has wanted, what is there already is passed over.
            while self._h11.their_state is h11.SEND_BODY and left > 0:
                left -= len(await self.piece())
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
            return True
        # Closing with bytes unread resets the connection, and the answer may be lost with it.
        with trio.move_on_after(LINGER_S):
            await self._stream.send_eof()
            await self.until_gone()
        return False


class Answer:
    """An answer that is being made. Every one is of a kind that no browser shows elsewhere."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.is_begun = False

    async def whole(
        self,
        body: bytes,
        content_type: str,
        status: HTTPStatus = HTTPStatus.OK,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """All of it at once."""
        await self._begin(
            status, content_type, [("Content-Length", str(len(body))), *(headers or {}).items()]
        )
        await self._exchange.send(h11.Data(data=body))
        await self._exchange.send(h11.EndOfMessage())

    async def json(self, fields: Mapping[str, object]) -> None:
        """An object of JSON."""
        await self.whole(json.dumps(fields).encode() + b"\n", "application/json")

    async def error(self, status: HTTPStatus, text: str) -> None:
        """`{"error": "one line"}`; nothing of what was asked comes back but in that line."""
        if self.is_begun:
            raise trio.BrokenResourceError
        headers = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else {}
        body = json.dumps({"error": " ".join(text.split())}).encode() + b"\n"
        await self.whole(body, "application/json", status, headers)

    async def begin(self, content_type: str) -> None:
        """The head of an answer that comes piece by piece."""
        await self._begin(HTTPStatus.OK, content_type, [("Transfer-Encoding", "chunked")])

    async def piece(self, data: bytes) -> None:
        """A part of it, not empty."""
        await self._exchange.send(h11.Data(data=data))

    async def end(self) -> None:
        """That was all."""
        await self._exchange.send(h11.EndOfMessage())

    async def until_gone(self) -> None:
        """Returns once whoever asked has gone."""
        await self._exchange.until_gone()

    async def _begin(
        self, status: HTTPStatus, content_type: str, headers: list[tuple[str, str]]
    ) -> None:
        self.is_begun = True
        await self._exchange.send(
            h11.Response(
                status_code=status.value,
                reason=status.phrase.encode(),
                headers=[("Content-Type", content_type), *_SECURITY, *headers],
            )
        )
