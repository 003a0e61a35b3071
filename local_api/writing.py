"""What the local API reads of entries and changes in a store (everyday.md 3)."""

import json
import tempfile
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import trio

from logstore import ALL, FULL, Follow, PayloadState, Store, StoredEntry, Subscription, check_name
from peer import json_number, log_fields
from wire import LogKey

from .entry_lines import PAYLOAD_BYTES_MAX, arrival_fields, small_payload
from .http import NDJSON, Answer, AnswerError, Request
from .names import Names, with_names
from .values import SeqRange, moment, seq_range, u64

if TYPE_CHECKING:
    from peer.api import Peer

LOOK_S: Final = 0.1
"""How often who follows is looked for news, which any process may have made."""
READ_ENTRIES: Final = 256
READ_BYTES: Final = 1 << 20
SPOOLED_BYTES_MAX: Final = 1 << 20
"""A payload above this is not held in memory while it comes."""


class Writing:
    """The handlers of `/v1/entries` and of every POST."""

    def __init__(self, peer: "Peer", names: Names) -> None:
        self._peer = peer
        self._store: Store = peer.store
        self._names = names

    # Entries

    async def entries(self, request: Request, answer: Answer) -> None:
        """`GET /v1/entries`: lines as of `tail --json`, or of `cat --json` where a range is asked.

        A cursor only says where to begin; `ack` moves it.
        """
        query = request.query
        unknown = query.keys() - _ENTRIES
        if unknown:
            raise AnswerError(HTTPStatus.BAD_REQUEST, f"what is {min(unknown)!r}?")
        log = await self._log(query["log"]) if query.get("log") else None
        follow = _truth(query.get("follow", "0"))
        if "range" in query:
            if log is None:
                raise AnswerError(HTTPStatus.BAD_REQUEST, "range= is of a log: name it with log=")
            await self._by_number(log, seq_range(query["range"]), answer, follow=follow)
        else:
            await self._by_arrival(log, query, answer, follow=follow)

    async def _by_arrival(
        self, log: LogKey | None, query: dict[str, str], answer: Answer, *, follow: bool
    ) -> None:
        has_payload = not _truth(query.get("no_payload", "0"))
        since = moment(query["since"]) if "since" in query else None
        last = u64(query["n"]) if "n" in query else None
        name = check_name(query["cursor"]) if "cursor" in query else None
        begin = partial(self._begin, log, last, since, name, has_payload=has_payload)
        place = await trio.to_thread.run_sync(begin)
        await answer.begin(NDJSON)
        while True:
            version = self._store.data_version()
            while True:
                read = partial(
                    self._arrivals,
                    place,
                    log,
                    has_payload=has_payload,
                    since=None if name is not None else since,
                )
                data, place, is_end = await trio.to_thread.run_sync(read)
                if data:
                    await answer.piece(data)
                if is_end:
                    break
            if not follow:
                await answer.end()
                return
            await self._until_changed(version, answer)

    def _begin(
        self,
        log: LogKey | None,
        last: int | None,
        since: int | None,
        name: str | None,
        *,
        has_payload: bool,
    ) -> int:
        store = self._store
        place = 0
        if last is not None or since is not None:
            place = store.place_before(last, log, has_payload=has_payload, since=since)
        if name is None:
            return place
        # Made, where it is new: what is acknowledged later has to be for the same log.
        with store.cursors.reading(name, log, place) as cursor:
            return cursor.position

    def _arrivals(
        self, place: int, log: LogKey | None, *, has_payload: bool, since: int | None
    ) -> tuple[bytes, int, bool]:
        found = self._store.read_arrivals(
            place,
            log,
            has_payload=has_payload,
            since=since,
            entries_max=READ_ENTRIES,
            bytes_max=READ_BYTES,
        )
        return self._lines(found.entries), found.position, not found.entries

    async def _by_number(
        self, log: LogKey, span: SeqRange, answer: Answer, *, follow: bool
    ) -> None:
        """None is left out: at what is not held it ends, or waits."""
        due = span.first
        await answer.begin(NDJSON)
        while True:
            version = self._store.data_version()
            while True:
                data, after = await trio.to_thread.run_sync(self._numbered, log, due, span.last)
                if data:
                    await answer.piece(data)
                if after == due:
                    break
                due = after
            if not follow or (span.last is not None and due > span.last):
                await answer.end()
                return
            await self._until_changed(version, answer)

    def _numbered(self, log: LogKey, due: int, last: int | None) -> tuple[bytes, int]:
        if last is not None and due > last:
            return b"", due
        rows = self._store.read(
            log, due, entries_max=READ_ENTRIES, bytes_max=READ_BYTES, end=last, with_payload=False
        )
        found: list[StoredEntry] = []
        for stored in rows:
            if stored.seq != due or stored.payload_state is not PayloadState.PRESENT:
                break
            found.append(stored)
            due += 1
        return self._lines(found), due

    def _lines(self, entries: list[StoredEntry]) -> bytes:
        lines = (
            arrival_fields(
                each, small_payload(self._store, each, PAYLOAD_BYTES_MAX), self._names.of(each.key)
            )
            for each in entries
        )
        return b"".join(json.dumps(each).encode() + b"\n" for each in lines)

    async def _until_changed(self, version: int, answer: Answer) -> None:
        """Returns once anything was committed. Raises BrokenResourceError if nobody reads."""
        is_gone = False

        async def watch() -> None:
            nonlocal is_gone
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await answer.until_gone()
            is_gone = True
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            # What other processes write, nobody tells.
            while self._store.data_version() == version:  # noqa: ASYNC110
                await trio.sleep(LOOK_S)
            nursery.cancel_scope.cancel()
        if is_gone:
            raise trio.BrokenResourceError

    # Changes

    async def append(self, request: Request, answer: Answer) -> None:
        """`POST /v1/append`: the body is a payload of any size, which waits on the disk."""
        log_id = u64(request.query.get("log_id", "0"))
        allow_empty = _truth(request.query.get("allow_empty", "0"))
        folder = self._store.path
        size = 0
        spooled = await trio.to_thread.run_sync(
            partial(tempfile.SpooledTemporaryFile, SPOOLED_BYTES_MAX, dir=folder)
        )
        with spooled as file:
            while piece := await request.piece():
                size += len(piece)
                if size > SPOOLED_BYTES_MAX:
                    await trio.to_thread.run_sync(file.write, piece)
                else:
                    file.write(piece)
            if not size and not allow_empty:
                raise AnswerError(
                    HTTPStatus.BAD_REQUEST, "the body is empty; allow_empty=1 signs that"
                )
            file.seek(0)
            payload: bytes | BinaryIO = cast("BinaryIO", file)
            if size <= SPOOLED_BYTES_MAX:
                payload = file.read()
            [entry] = await self._peer.append([payload], log_id=log_id)
        await self._done(
            answer,
            log_fields(entry.key) | {"seq": json_number(entry.seq), "hash": entry.hash.hex()},
        )

    async def acknowledge(self, request: Request, answer: Answer) -> None:
        """`POST /v1/ack`: everything up to an arrival was taken by who reads by a cursor."""
        fields = await request.json()
        name, ingest = _text(fields, "cursor"), _number(fields, "ingest")
        position = await trio.to_thread.run_sync(self._acknowledge, name, ingest)
        await self._done(answer, {"cursor": name, "position": position})

    def _acknowledge(self, name: str, ingest: int) -> int:
        cursors = self._store.cursors
        known = {each.name: each for each in cursors.all()}
        if name not in known:
            raise AnswerError(HTTPStatus.NOT_FOUND, f"there is no cursor {name}")
        with cursors.reading(name, known[name].target) as cursor:
            cursor.acknowledge(min(ingest, self._store.position()))
            return cursor.position

    async def follow(self, request: Request, answer: Answer) -> None:
        """`POST /v1/follow`."""
        fields = await request.json()
        target = await self._target(fields)
        changed = await self._peer.follow(target, _subscription(fields))
        await self._done(answer, {"changed": changed})

    async def unfollow(self, request: Request, answer: Answer) -> None:
        """`POST /v1/unfollow`."""
        changed = await self._peer.unfollow(await self._target(await request.json()))
        await self._done(answer, {"changed": changed})

    async def fetch(self, request: Request, answer: Answer) -> None:
        """`POST /v1/fetch`: answers when all of it is here, as `fetch --json`."""
        fields = await request.json()
        log = await self._log(_text(fields, "log"))
        span = seq_range(_text(fields, "range"))
        timeout_s = fields.get("timeout_s", 60)
        if not isinstance(timeout_s, int | float) or isinstance(timeout_s, bool) or timeout_s <= 0:
            raise AnswerError(HTTPStatus.BAD_REQUEST, "timeout_s is no number of seconds above 0")
        info = await trio.to_thread.run_sync(self._store.log, log)
        newest = 0 if info is None else info.newest
        last = newest if span.last is None else span.last
        if last < span.first:
            raise AnswerError(
                HTTPStatus.BAD_REQUEST,
                f"nothing is held from {span.first} on: say where the range ends",
            )
        holding = partial(self._store.holding, log, span.first, last)
        before = await trio.to_thread.run_sync(holding)
        try:
            with trio.fail_after(timeout_s):
                await self._peer.fetch(log, span.first, last)
        except trio.TooSlowError:
            raise AnswerError(
                HTTPStatus.GATEWAY_TIMEOUT, f"not all of it has come in {timeout_s:g} s"
            ) from None
        after = await trio.to_thread.run_sync(holding)
        await self._done(
            answer,
            log_fields(log)
            | {
                "first": json_number(span.first),
                "last": json_number(last),
                "entries": after.entries - before.entries,
                "payloads": after.payloads - before.payloads,
            },
        )

    async def _done(self, answer: Answer, fields: dict[str, object]) -> None:
        await answer.json(with_names(fields, self._names))

    async def _log(self, text: str) -> LogKey:
        found = await trio.to_thread.run_sync(self._store.resolve, text)
        return LogKey(found, 0) if isinstance(found, bytes) else found

    async def _target(self, fields: dict[str, Any]) -> Follow:
        text = _text(fields, "target")
        return ALL if text == "all" else await trio.to_thread.run_sync(self._store.resolve, text)


_ENTRIES: Final = frozenset(("log", "range", "n", "since", "follow", "cursor", "no_payload"))


def _subscription(fields: dict[str, Any]) -> Subscription | None:
    """What is wanted, None if nothing is said of it. Raises ValueError."""
    sizes = {
        name: _number(fields, field)
        for name, field in (
            ("min_bytes", "min_payload"),
            ("max_bytes", "max_payload"),
            ("eager_bytes", "eager"),
        )
        if fields.get(field) is not None
    }
    policy = fields.get("policy")
    if policy is None and not sizes:
        return None
    base = FULL if policy is None else Subscription.parse(_text(fields, "policy"))
    from dataclasses import replace

    return replace(base, **sizes)  # type: ignore[arg-type]


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise AnswerError(HTTPStatus.BAD_REQUEST, f"{name!r} is to be a text")
    return value


def _number(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, str):
        return u64(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
        raise AnswerError(HTTPStatus.BAD_REQUEST, f"{name!r} is no number from 0 to 2^64 - 1")
    return value


def _truth(text: str) -> bool:
    if text not in ("0", "1"):
        raise AnswerError(HTTPStatus.BAD_REQUEST, f"{text[:20]!r} is neither 0 nor 1")
    return text == "1"
