"""The local API over streams in memory: what is answered, to whom, and what a client may cost."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import h11
import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from local_api import Access, ApiServer, http, load_token, names, server
from logstore import Store
from peer.api import Address, Peer
from wire import LogKey

TOKEN = "ab" * 32
WHERE = Address("127.0.0.1", 7070)
HOST = {"Host": "127.0.0.1:7070"}
BEARER = HOST | {"Authorization": f"Bearer {TOKEN}"}


class Client:
    """One connection with the server."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream
        self.h11 = h11.Connection(h11.CLIENT)

    async def send(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> None:
        sent = dict(headers)
        if method == "POST":
            sent["Content-Length"] = str(len(body))
        request = h11.Request(method=method, target=target, headers=[*sent.items()])
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            await self.stream.send_all(self.h11.send(event) or b"")

    async def event(self) -> h11.Event:
        while True:
            event = self.h11.next_event()
            if event is not h11.NEED_DATA:
                assert not isinstance(event, type)
                return event
            self.h11.receive_data(bytes(await self.stream.receive_some(1 << 16)))

    async def data(self) -> bytes:
        """What comes next of a body."""
        while not isinstance(event := await self.event(), h11.Data):
            assert isinstance(event, h11.Response)
        return bytes(event.data)

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str] = BEARER, body: bytes = b""
    ) -> "Answered":
        await self.send(method, target, headers, body)
        found: h11.Response | None = None
        data = b""
        while not isinstance(event := await self.event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                found = event
            elif isinstance(event, h11.Data):
                data += event.data
        assert found is not None
        self.h11.start_next_cycle()
        return Answered(found.status_code, dict(found.headers), data)


class Answered:
    def __init__(self, status: int, headers: dict[bytes, bytes], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.body.splitlines()]


class Api:
    """A node with its server, and clients of it."""

    def __init__(
        self, peer: Peer, served: ApiServer, access: Access, nursery: trio.Nursery
    ) -> None:
        self.peer = peer
        self.server = served
        self._access = access
        self._nursery = nursery

    def client(self) -> Client:
        near, far = memory_stream_pair()
        self._nursery.start_soon(self.server.serve, self._access, far)
        return Client(near)

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str] = BEARER, body: bytes = b""
    ) -> Answered:
        return await self.client().ask(method, target, headers, body)


@asynccontextmanager
async def api(
    folder: Path, where: Address = WHERE, hosts: tuple[str, ...] = ()
) -> AsyncIterator[Api]:
    with Store.create(folder / "store") as store:
        async with Peer(store) as peer, trio.open_nursery() as nursery:
            served = ApiServer(peer, await peer.overview())
            yield Api(peer, served, Access(where, TOKEN, hosts), nursery)
            nursery.cancel_scope.cancel()


# What is answered


async def test_how_it_stands_and_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "READ_AGAIN_S", 0.0)
    async with api(tmp_path) as at:
        at.peer.store.append([b"a", b"b"])
        at.peer.store.set_name("mine", at.peer.store.author)
        status = (await at.ask("GET", "/v1/status", HOST)).record
        assert (status["author"], status["serving"]) == (at.peer.store.author.hex(), True)
        [log] = status["logs"]
        assert (log["entries"], log["name"]) == (2, "mine")
        page = await at.ask("GET", "/", HOST)
        assert page.headers[b"content-type"] == b"text/html; charset=utf-8"
        html = page.body.decode()
        for name in ("verdict", "alarms", "peers", "transfers", "events"):
            assert f'id="{name}"' in html
        assert f'data-log="{at.peer.store.author.hex()}/0" data-state="live"' in html
        assert "mine" in html
        for path in ("/page.js", "/page.css"):
            assert (await at.ask("GET", path, HOST)).status == 200


async def test_lines_are_those_of_the_commands(tmp_path: Path) -> None:
    async with api(tmp_path) as at:
        store = at.peer.store
        store.append([b"a"])
        store.peers.block(bytes(32))
        [log] = (await at.ask("GET", "/v1/logs", HOST)).records
        assert (log["author"], log["entries"], log["name"]) == (store.author.hex(), 1, None)
        [peer] = (await at.ask("GET", "/v1/peers", HOST)).records
        assert (peer["peer_id"], peer["state"]) == (bytes(32).hex(), "blocked")
        assert peer["connected"] == 0
        why = (await at.ask("GET", "/v1/why?log=0", HOST)).records
        assert why[0]["text"] == "it is signed here up to entry 1"
        assert (await at.ask("GET", "/v1/why", HOST)).status == 400
        assert (await at.ask("GET", "/v1/why?log=nobody", HOST)).status == 404
        assert (await at.ask("GET", "/v1/why?log=a+b", HOST)).status == 400


async def test_entries_by_arrival_and_by_number(tmp_path: Path) -> None:
    async with api(tmp_path) as at:
        at.peer.store.append([b"a", b"\xff", b"c"])
        at.peer.store.append([b"other"], log_id=1)
        every = (await at.ask("GET", "/v1/entries")).records
        assert [each["text"] for each in every] == ["a", None, "c", "other"]
        assert every[1]["base64"] == "/w=="
        last = (await at.ask("GET", "/v1/entries?n=1&log=0")).records
        assert [each["seq"] for each in last] == [3]
        some = (await at.ask("GET", "/v1/entries?log=0&range=2..")).records
        assert [each["seq"] for each in some] == [2, 3]
        at.peer.store.drop(LogKey(at.peer.store.author, 0), 2, 2)
        until = (await at.ask("GET", "/v1/entries?log=0&range=1..3")).records
        assert [each["seq"] for each in until] == [1]
        without = (await at.ask("GET", "/v1/entries?log=0&no_payload=1")).records
        assert sorted(each["seq"] for each in without) == [1, 2, 3]
        for wrong in ("range=1..2", "log=0&range=x", "n=x", "follow=2", "what=1", "since=x"):
            assert (await at.ask("GET", f"/v1/entries?{wrong}")).status == 400


async def test_entries_follow_what_any_process_appends(tmp_path: Path) -> None:
    async with api(tmp_path) as at:
        client = at.client()
        await client.send("GET", "/v1/entries?n=0&follow=1", BEARER)
        at.peer.store.append([b"live"])
        assert json.loads(await client.data())["text"] == "live"
        await client.stream.aclose()


async def test_a_cursor_says_where_to_begin_and_ack_moves_it(tmp_path: Path) -> None:
    async with api(tmp_path) as at:
        at.peer.store.append([b"a", b"b"])
        for _ in range(2):
            found = (await at.ask("GET", "/v1/entries?cursor=mine")).records
            assert [each["seq"] for each in found] == [1, 2]
        ack = partial(at.ask, "POST", "/v1/ack")
        acked = await ack(body=json.dumps({"cursor": "mine", "ingest": 1}).encode())
        assert acked.record == {"cursor": "mine", "position": 1}
        found = (await at.ask("GET", "/v1/entries?cursor=mine")).records
        assert [each["seq"] for each in found] == [2]
        assert (await ack(body=b'{"cursor": "none", "ingest": 1}')).status == 404
        assert (await ack(body=b'{"cursor": "mine"}')).status == 400
        assert (await at.ask("GET", "/v1/entries?cursor=mine&log=0")).status == 409
        with at.peer.store.cursors.reading("mine", None):
            assert (await ack(body=b'{"cursor": "mine", "ingest": 2}')).status == 409


# Changes


async def test_append_takes_a_payload_of_any_size(tmp_path: Path) -> None:
    async with api(tmp_path) as at:
        large = bytes(range(256)) * (3 << 12)
        for log_id, body in ((0, b"small"), (1, large)):
            done = (await at.ask("POST", f"/v1/append?log_id={log_id}", body=body)).record
            assert (done["log_id"], done["seq"]) == (log_id, 1)
        key = LogKey(at.peer.store.author, 1)
        with at.peer.store.open_payload(key, 1) as reader:
            assert reader.read(0, len(large) + 1) == large
        assert (await at.ask("POST", "/v1/append")).status == 400
        assert (await at.ask("POST", "/v1/append?allow_empty=1")).status == 200
        at.peer.store.append([b"last"], log_id=2, end_of_log=True)
        assert (await at.ask("POST", "/v1/append?log_id=2", body=b"x")).status == 409
        assert (await at.ask("POST", "/v1/append?log_id=-1", body=b"x")).status == 400


async def test_follow_unfollow_and_fetch(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with api(tmp_path) as at:
        author = bytes(32).hex()
        body = json.dumps({"target": author, "policy": "latest:3", "max_payload": 10}).encode()
        assert (await at.ask("POST", "/v1/follow", body=body)).record == {"changed": True}
        assert (await at.ask("POST", "/v1/follow", body=body)).record == {"changed": False}
        [wanted] = at.peer.subscriptions.values()
        assert (str(wanted), wanted.max_bytes) == ("latest:3", 10)
        for wrong in (
            b"{}",
            b'{"target": "a b"}',
            b'{"target": "all", "policy": "some"}',
            b"[",
            b"[]",
        ):
            assert (await at.ask("POST", "/v1/follow", body=wrong)).status == 400
        unfollow = json.dumps({"target": author}).encode()
        assert (await at.ask("POST", "/v1/unfollow", body=unfollow)).record == {"changed": True}
        at.peer.store.append([b"a"])
        here = await at.ask("POST", "/v1/fetch", body=b'{"log": "0", "range": "1"}')
        assert here.record["payloads"] == 0
        late = json.dumps({"log": author, "range": "1..2", "timeout_s": 0.5}).encode()
        assert (await at.ask("POST", "/v1/fetch", body=late)).status == 504
        huge = json.dumps({"target": "x" * (65 << 10)}).encode()
        assert (await at.ask("POST", "/v1/follow", body=huge)).status == 413


# To whom


async def test_what_changes_or_has_payloads_takes_the_token(tmp_path: Path) -> None:
    async with api(tmp_path) as at:
        for method, path in (
            ("GET", "/v1/entries"),
            ("POST", "/v1/append"),
            ("POST", "/v1/ack"),
            ("POST", "/v1/follow"),
            ("POST", "/v1/unfollow"),
            ("POST", "/v1/fetch"),
        ):
            for headers in (HOST, HOST | {"Authorization": f"Bearer {'ac' * 32}"}):
                refused = await at.ask(method, path, headers, b"x" if method == "POST" else b"")
                assert refused.status == 401
                assert refused.headers[b"www-authenticate"] == b"Bearer"
        assert at.peer.store.position() == 0


async def test_beyond_loopback_all_but_the_pages_files_take_the_token(tmp_path: Path) -> None:
    where = Address("192.0.2.1", 7070)
    host = {"Host": "192.0.2.1:7070"}
    async with api(tmp_path, where) as at:
        for path in ("/v1/status", "/v1/logs", "/v1/peers", "/v1/why?log=0", "/v1/events"):
            assert (await at.ask("GET", path, host)).status == 401
        for path in ("/page.js", "/page.css"):
            assert (await at.ask("GET", path, host)).status == 200
        asking = (await at.ask("GET", "/", host)).body.decode()
        assert 'id="token"' in asking
        assert at.peer.store.author.hex() not in asking
        shown = await at.ask("GET", "/", host | {"Authorization": f"bearer {TOKEN}"})
        assert at.peer.store.author.hex() in shown.body.decode()


async def test_a_socket_needs_no_token(tmp_path: Path) -> None:
    async with api(tmp_path, Address.at_path("/run/bamboo.sock")) as at:
        assert (await at.ask("POST", "/v1/append", {"Host": "whatever"}, b"x")).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:7070"}, 200),
        ({"Host": "[::1]:7070"}, 200),
        ({"Host": "logs.example:7070"}, 200),
        ({"Host": "127.0.0.1:7070", "Origin": "http://127.0.0.1:7070"}, 200),
        ({"Host": "127.0.0.1:7070", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Host": "evil.example:7070"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Host": "127.0.0.1:80"}, 421),
        ({"Host": "127.0.0.1:7070", "Origin": "http://evil.example"}, 403),
        ({"Host": "127.0.0.1:7070", "Origin": "null"}, 403),
        ({"Host": "127.0.0.1:7070", "Origin": "https://127.0.0.1:7070"}, 403),
        ({"Host": "127.0.0.1:7070", "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
async def test_foreign_pages(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    async with api(tmp_path, hosts=("logs.example",)) as at:
        for path in ("/", "/v1/status", "/page.js"):
            found = await at.ask("GET", path, headers)
            assert found.status == status
            assert not any(b"access-control" in name for name in found.headers)
            assert found.headers[b"x-content-type-options"] == b"nosniff"
            assert found.headers[b"cache-control"] == b"no-store"
            assert b"default-src 'none'" in found.headers[b"content-security-policy"]


def test_the_token_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    token = load_token(tmp_path)
    assert len(bytes.fromhex(token)) == 32
    assert load_token(tmp_path) == token
    assert (tmp_path / "api.token").stat().st_mode & 0o777 == 0o600


async def test_what_there_is_not(tmp_path: Path) -> None:
    async with api(tmp_path) as at:
        assert (await at.ask("GET", "/v1/nothing", HOST)).status == 404
        assert (await at.ask("POST", "/v1/status", BEARER)).status == 405
        assert (await at.ask("GET", "/v1/append", BEARER)).status == 405
        error = await at.ask("GET", "/%3Cscript%3E", HOST)
        assert list(error.record) == ["error"]


# What a client may cost


async def test_a_connection_serves_one_request_after_the_other(tmp_path: Path) -> None:
    async with api(tmp_path) as at:
        client = at.client()
        for _ in range(3):
            assert (await client.ask("GET", "/v1/status", HOST)).status == 200
            assert (await client.ask("GET", "/v1/nothing", HOST)).status == 404


async def test_who_says_nothing_is_let_go(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with api(tmp_path) as at:
        client = at.client()
        await client.stream.send_all(b"GET / HTTP/1.1\r\nHost: ")
        began = trio.current_time()
        assert await client.stream.receive_some(1) == b""
        assert trio.current_time() - began <= http.HEAD_S + http.LINGER_S


async def test_a_head_without_end_is_refused(tmp_path: Path) -> None:
    async with api(tmp_path) as at:
        client = at.client()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_flood, client)
            assert (await client.stream.receive_some(100)).startswith(b"HTTP/1.1 431")
            nursery.cancel_scope.cancel()


async def _flood(client: Client) -> None:
    await client.stream.send_all(b"GET / HTTP/1.1\r\n")
    while True:
        await client.stream.send_all(b"X: " + b"y" * 1000 + b"\r\n")


async def test_nonsense_is_answered_and_ends_nothing(tmp_path: Path) -> None:
    async with api(tmp_path) as at:
        client = at.client()
        await client.stream.send_all(b"\x16\x03\x01 hello\r\n\r\n")
        assert (await client.stream.receive_some(100)).startswith(b"HTTP/1.1 400")
        assert (await at.ask("GET", "/v1/status", HOST)).status == 200


async def test_beyond_64_connections_new_ones_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CLIENTS_MAX", 2)
    async with api(tmp_path) as at:
        for client in (at.client(), at.client()):
            assert (await client.ask("GET", "/page.css", HOST)).status == 200
        assert await at.client().stream.receive_some(1) == b""


async def test_beyond_16_streams_new_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "STREAMS_MAX", 1)
    async with api(tmp_path) as at:
        first = at.client()
        await first.send("GET", "/v1/events", HOST)
        assert await first.stream.receive_some(100)
        assert (await at.ask("GET", "/v1/events", HOST)).status == 503
        await first.stream.aclose()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (await at.ask("GET", "/v1/entries")).status == 200


# Events


async def test_events_begin_with_how_it_stands_and_go_on(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with api(tmp_path) as at:
        client = at.client()
        await client.send("GET", "/v1/events", HOST)
        first, data, *_ = (await client.data()).decode().splitlines()
        assert first == "event: status"
        assert json.loads(data.removeprefix("data: "))["serving"]
        at.server.observe({"event": "fork", "author": "ab", "log_id": 0, "seq": 1})
        seen: set[str] = set()
        while not {"event: fork", ": still here"} <= seen:
            seen.add((await client.data()).decode().splitlines()[0])
        await client.stream.aclose()


async def test_who_does_not_read_events_is_let_go(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with api(tmp_path) as at:
        client = at.client()
        await client.send("GET", "/v1/events", HOST)
        await client.stream.receive_some(100)
        event = {"event": "storage_failed", "reason": "x" * 1000}
        for _ in range(2000):
            at.server.observe(event)
        with pytest.raises(h11.RemoteProtocolError):
            await _read_on(client)


async def _read_on(client: Client) -> None:
    while await client.data():
        pass


async def test_the_pages_texts_are_escaped(tmp_path: Path) -> None:
    async with api(tmp_path) as at:
        at.server.observe({"event": "x", "reason": "<script>alert(1)</script>\x1b[31m"})
        html = (await at.ask("GET", "/", HOST)).body.decode()
        assert "<script>alert" not in html
        assert "\x1b" not in html
        assert "&lt;script&gt;alert(1)" in html
