"""The frame of all gateways: declarations, locks, log ids, side tables, visible prefixes."""

import errno
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from gateways import (
    LogHost,
    Reception,
    SideTable,
    Standing,
    WriterLock,
    create_logs,
    entries_from,
    free_ids,
    standing_of,
)
from gateways.datastream import DataStreamServer
from gateways.declaration import (
    DeclarationError,
    canonical_json,
    json_u64,
    read_any_declaration,
    read_declaration,
    u64_field,
)
from gateways.ockam import OckamServer
from logstore import (
    Appended,
    LogClosed,
    LogMoved,
    OwnLogsReadOnly,
    Store,
    StoreFailed,
    StoreFull,
    StoreLocked,
)
from peer.api import Address, CannotListenError, Peer
from wire import LogKey

from .streams import declare

TABLES = ("CREATE TABLE facts(name TEXT PRIMARY KEY)",)


def test_a_declaration_reads_as_it_was_written() -> None:
    fields = {"stream": "test", "version": 1, "number": json_u64(2**64 - 1), "small": json_u64(5)}
    read = read_declaration(canonical_json(fields), stream="test", version=1)
    assert read == fields
    assert u64_field(read, "number") == 2**64 - 1
    assert u64_field(read, "small") == 5


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b'{"stream": "test","version":1}', "canonical"),
        (b'{"version":1,"stream":"test"}', "canonical"),
        (b'{"stream":"test","stream":"test","version":1}', "canonical"),
        (b'{"stream":"\\ud800","version":1}', "canonical"),
        (b'{"a":NaN,"stream":"test","version":1}', "canonical"),
        (b'{"stream":"other","version":1}', "other"),
        (b'{"stream":"test","version":2}', "later than this program"),
        (b'{"stream":"test","version":true}', "version"),
        (b"[" * 4000, "canonical"),
        (b'{"a":"' + b"x" * 4096 + b'"}', "4096"),
        (b"\xff", "canonical"),
    ],
)
def test_what_declares_nothing_is_refused_by_name(payload: bytes, why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        read_declaration(payload, stream="test", version=1)


@given(st.binary(max_size=200))
def test_any_bytes_declare_something_or_nothing(payload: bytes) -> None:
    try:
        fields = read_any_declaration(payload)
    except DeclarationError:
        return
    assert canonical_json(fields) == payload


@pytest.mark.parametrize("value", [-1, 2**53, "5", "09007199254740993", True, None, 1.0, "x"])
def test_a_number_has_one_form(value: object) -> None:
    with pytest.raises(DeclarationError):
        u64_field({"n": value}, "n")


@pytest.mark.parametrize(
    "names",
    ["gateways.ockam import Book, Catalog, Keeper, Side", "gateways.datastream import StreamLog"],
)
def test_what_commands_do_with_a_store_alone_loads_no_network(names: str) -> None:
    code = (
        f"import sys; from {names};"
        " print(sorted({'trio', 'ssl', 'OpenSSL', 'peer.api'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"


def test_two_writers_of_one_thing_are_told_of_each_other(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from gateways import WriterLock;"
        "WriterLock(Path(sys.argv[1]), 'test.lock', 'taken'); print('held', flush=True);"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StoreLocked, match=f"process {other.pid}"):
            WriterLock(tmp_path, "test.lock", "taken")
        other.kill()
    with WriterLock(tmp_path, "test.lock", "taken"):
        pass


def test_expected_seq_is_compared_where_it_is_signed() -> None:
    with Store.memory() as store:
        store.append([b"one"], expected_seq=1)
        with pytest.raises(LogMoved, match="holds 1 entries, and 0 were expected"):
            store.append([b"again"], expected_seq=1)
        with pytest.raises(LogMoved):
            store.append([b"gap"], expected_seq=3)
        assert [each.seq for each in store.append([b"two", b"three"], expected_seq=2)] == [2, 3]


def test_log_ids_are_given_out_once() -> None:
    with Store.memory() as store:
        store.append([b"taken"], log_id=8)

        def made(begins: int | Iterable[int], logs: int = 1, last: int = 20) -> list[int]:
            created = create_logs(store.append_many, [b"{}"] * logs, begins, last=last)
            return [each.key.log_id for each in created]

        assert made(free_ids(store, 7)) == [7]
        assert made(free_ids(store, 7)) == [9]
        # Two in a row: whoever has appended to the second of them is stepped over.
        store.append([b"taken"], log_id=11)
        assert made(count(10), 2) == [12, 13]
        with pytest.raises(LogClosed, match="no run of log ids is free: up to 14"):
            made(count(10), 2, last=14)
        assert store.log(LogKey(store.author, 14)) is None
        with pytest.raises(LogClosed):
            made([8])
        # As given: it is that run or none, and which log keeps it from that is said.
        assert made(15, 2) == [15, 16]
        with pytest.raises(LogMoved) as refused:
            made(14, 2)
        assert refused.value.log == LogKey(store.author, 15)
        assert store.log(LogKey(store.author, 14)) is None


@pytest.mark.parametrize("over", ["store", "peer"])
async def test_several_logs_are_appended_to_from_the_event_loop_and_from_threads(over: str) -> None:
    with Store.memory() as store:
        async with AsyncExitStack() as stack:
            peer = await stack.enter_async_context(Peer(store)) if over == "peer" else None
            host = LogHost(peer or store)
            batches = [(1, [b"a", b"b"]), (2, [b"c"])]
            found = await host.append_many(batches, expected_seqs=[1, 1])
            assert [[each.seq for each in entries] for entries in found] == [[1, 2], [1]]
            ending = partial(host.sign, [(1, [b""]), (2, [b"d"])], ending=[1])
            found = await host.call(ending)
            assert [[each.seq for each in entries] for entries in found] == [[3], [2]]
            with pytest.raises(LogClosed):
                await host.append_many(batches)


def test_who_creates_logs_through_a_peer_is_told_what_keeps_it_from_that() -> None:
    with Store.memory() as store:

        def sign(*_: object, **how: object) -> list[list[Appended]]:
            assert how == {"expected_seqs": [1]}
            raise OwnLogsReadOnly("peers hold more", "log 3", "append again")

        with pytest.raises(OwnLogsReadOnly):
            create_logs(sign, [b"{}"], free_ids(store))


class TwoAddresses(trio.abc.HostnameResolver):
    """Knows one host, with two addresses."""

    async def getaddrinfo(
        self,
        host: bytes | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,  # noqa: A002
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        assert host == b"two.example"
        assert isinstance(port, int)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in ("127.0.0.1", "127.0.0.2")
        ]

    async def getnameinfo(
        self, sockaddr: tuple[str, int] | tuple[str, int, int, int], flags: int
    ) -> tuple[str, str]:
        raise AssertionError(sockaddr)


@pytest.mark.parametrize("gateway", ["datastream", "ockam"])
async def test_a_host_with_several_addresses_gets_one_port(gateway: str) -> None:
    trio.socket.set_custom_hostname_resolver(TwoAddresses())
    with Store.memory() as store:
        key = declare(store)
        if gateway == "ockam":
            async with OckamServer(store) as hub:
                await reach_both(await hub.listen("two.example:0"))
        else:
            async with DataStreamServer(store, key, listen="two.example:0") as server:
                await reach_both(server.address)


async def reach_both(named: Address) -> None:
    """Somebody listens at both addresses, at the port that was named."""
    for host in ("127.0.0.1", "127.0.0.2"):
        await (await trio.open_tcp_stream(host, named.port)).aclose()


@pytest.mark.parametrize("gateway", ["datastream", "ockam"])
async def test_an_address_that_is_taken_is_one_clear_line(gateway: str) -> None:
    with Store.memory() as store:
        key = declare(store)
        async with OckamServer(store) as hub:
            taken = await hub.listen("127.0.0.1:0")
            server = DataStreamServer(store, key, listen=taken)
            listen = server.__aenter__ if gateway == "datastream" else partial(hub.listen, taken)
            with pytest.raises(CannotListenError, match=f"on {taken}: Address already in use"):
                await listen()


class Talk:
    """Says hello, and ends."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream

    async def run(self) -> None:
        await self._stream.send_all(b"hello")

    async def finish(self) -> None:
        """There is nothing to finish."""


@pytest.mark.parametrize("where", ["came", "converse", "gone", "storage_failed"])
async def test_what_fails_with_one_client_takes_in_the_next(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [where]

    def fail_once(here: str) -> None:
        if here in failures:
            failures.remove(here)
            raise KeyError(here)

    def converse(stream: trio.SocketStream, _: str) -> Talk:
        fail_once("converse")
        if "storage_failed" in failures:
            raise StoreFailed("the disk failed", "here", "look at the disk")
        return Talk(stream)

    with Store.memory() as store:
        reception = Reception(
            LogHost(store, observer=lambda _: fail_once("storage_failed")),
            clients_max=1,
            came=lambda _: fail_once("came"),
            gone=lambda *_: fail_once("gone"),
        )
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(reception.run, listeners, converse)
            place = listeners[0].socket.getsockname()
            for said in (b"hello" if where == "gone" else b"", b"hello"):
                async with await trio.open_tcp_stream(*place[:2]) as client:
                    assert b"".join([bytes(each) async for each in client]) == said
            nursery.cancel_scope.cancel()
    assert caplog.text.count("KeyError") >= 1
    assert reception.clients == 0


class Waits:
    """Says that it is there, and is for ever."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream

    async def run(self) -> None:
        await self.stream.send_all(b"here")
        await trio.sleep_forever()

    async def finish(self) -> None:
        """Nothing is under way."""


async def test_clients_that_are_too_many_are_closed_and_said_once_a_minute(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> list[str]:
        texts = [each.getMessage().partition(" connections")[0] for each in caplog.records]
        caplog.clear()
        return texts

    with Store.memory() as store:
        reception = Reception(LogHost(store), clients_max=1)
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(reception.run, listeners, lambda stream, _: Waits(stream))
            place = listeners[0].socket.getsockname()[:2]

            async def refused() -> None:
                async with await trio.open_tcp_stream(*place) as client:
                    assert await client.receive_some() == b""

            async with await trio.open_tcp_stream(*place) as client:
                assert await client.receive_some() == b"here"
                for _ in range(5):
                    await refused()
                assert said() == ["1"]
                mock_clock.jump(60)
                await refused()
                assert said() == ["5"]
            nursery.cancel_scope.cancel()


def facts(db: apsw.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM facts")]


def insert(name: str) -> Callable[[apsw.Connection], object]:
    return lambda db: db.execute("INSERT INTO facts VALUES (?)", (name,))


@pytest.mark.parametrize("damage", ["missing", "text", "version", "page"])
def test_a_side_table_is_made_anew(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "side.sqlite3"
    table = SideTable(path, 1, TABLES)
    for number in range(2000):
        table.run(insert(f"fact {number}"))
    table.close()
    version = 1
    match damage:
        case "missing":
            path.unlink()
        case "text":
            path.write_bytes(b"no database" * 1000)
        case "version":
            version = 2
        case _:
            data = bytearray(path.read_bytes())
            data[4096:] = b"\xee" * (len(data) - 4096)
            path.write_bytes(data)
    table = SideTable(path, version, TABLES)
    assert table.look(facts) == []
    table.run(insert("new"))
    assert table.look(facts) == ["new"]
    table.close()


def test_a_failed_transaction_changes_nothing(tmp_path: Path) -> None:
    table = SideTable(tmp_path / "side.sqlite3", 1, TABLES)

    def fail(db: apsw.Connection) -> None:
        db.execute("INSERT INTO facts VALUES ('x')")
        raise KeyError

    with pytest.raises(KeyError):
        table.run(fail)
    assert table.look(facts) == []
    other = SideTable(tmp_path / "side.sqlite3", 1, TABLES)
    other.run(insert("seen by both"))
    assert table.look(facts) == ["seen by both"]
    other.close()
    table.close()


@pytest.mark.parametrize("what", ["no folder", "a full disk", "no lock for a new file"])
def test_a_side_table_is_in_memory_until_its_file_can_be_written(
    tmp_path: Path,
    what: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "folder"
    path = folder / "side.sqlite3"
    if what != "no folder":
        folder.mkdir()
    if what == "no lock for a new file":
        path.write_bytes(b"no database" * 1000)
        monkeypatch.setattr(os, "open", full_disk)

    def insert_on_full_disk(db: apsw.Connection) -> None:
        insert("kept")(db)
        if what == "a full disk" and db.filename:
            raise apsw.FullError

    table = SideTable(path, 1, TABLES)
    table.run(insert_on_full_disk)
    table.run(insert("and more"))
    assert table.look(facts) == ["kept", "and more"]
    assert table.in_memory
    table.close()
    assert caplog.text.count(str(path)) == 1
    monkeypatch.undo()
    folder.mkdir(exist_ok=True)
    table = SideTable(path, 1, TABLES)
    table.run(insert("on disk"))
    assert table.look(facts) == ["on disk"]
    assert not table.in_memory
    table.close()


def full_disk(*_: object, **__: object) -> None:
    """A call of the system that finds no room."""
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_side_table_that_was_written_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = SideTable(tmp_path / "side.sqlite3", 1, TABLES)
    table.run(insert("before"))

    def fail(_: apsw.Connection) -> None:
        raise apsw.FullError

    with pytest.raises(StoreFull):
        table.run(fail)
    (tmp_path / "side.sqlite3").write_bytes(b"no database" * 1000)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", full_disk)
        with pytest.raises(StoreFull):
            table.run(insert("lost"))
    table.run(insert("after"))
    assert table.look(facts) == ["after"]
    table.close()


def test_a_lock_is_held_without_the_number_of_its_process_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full_disk)
        with (
            WriterLock(tmp_path, "test.lock", "taken"),
            pytest.raises(StoreLocked, match="process unknown"),
        ):
            WriterLock(tmp_path, "test.lock", "taken")
        patched.setattr(os, "open", full_disk)
        with pytest.raises(StoreFull):
            WriterLock(tmp_path, "test.lock", "taken")
    with WriterLock(tmp_path, "test.lock", "taken"):
        pass


def test_a_lock_that_the_file_system_has_not_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(StoreFailed, match="No locks available"):
        WriterLock(tmp_path, "test.lock", "taken")
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_a_prefix_ends_where_a_payload_is_missing() -> None:
    with Store.memory() as store:
        key = LogKey(store.author, 0)
        assert standing_of(store, key, 0).standing is Standing.WAITING
        store.append([b"1", b"2", b"3", b"4"])
        store.drop(key, 3, 3)
        found = entries_from(store, key, 1, entries_max=10, bytes_max=1 << 20)
        assert [each.seq for each in found] == [1, 2]
        place = standing_of(store, key, 2)
        assert place == (Standing.LIVE, "the payload of entry 3 was deleted here", 4)
        assert standing_of(store, key, 4) == (Standing.LIVE, "", 4)
        store.append([b"5"], end_of_log=True)
        assert standing_of(store, key, 5).standing is Standing.ENDED


@pytest.mark.trio
async def test_a_store_that_is_written_is_not_asked_each_millisecond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.create(tmp_path / "store") as store:
        asked, seen = 0, trio.Event()
        version = store.data_version

        def count_it() -> int:
            nonlocal asked
            asked += 1
            return version()

        monkeypatch.setattr(store, "data_version", count_it)
        host = LogHost(store)

        def look() -> bool:
            return store.log(LogKey(store.author, 1)) is not None

        async with trio.open_nursery() as nursery:
            nursery.start_soon(host.watch, look, lambda is_there: is_there and seen.set())
            await trio.sleep(0.2)
            before = asked
            await host.append([b"new"], log_id=1)
            with trio.fail_after(5):
                await seen.wait()
            await trio.sleep(0.2)
            nursery.cancel_scope.cancel()
        # Each millisecond of the tenth of a second that it is waited for made 40 and more.
        assert asked - before <= 30
