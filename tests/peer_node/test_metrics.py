"""Metrics of a node: what they count, and that whoever asks for them costs it little."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing
from prometheus_client.parser import text_string_to_metric_families

from logstore import ALL, OverQuota, Store, StoreError
from peer.api import Address, CannotListenError, NodeConfig, Peer, memory_link
from peer.node import Meter, MetricsServer, Overview, metrics_address
from peer.node.links.entrance import Refused
from peer.node.links.gate import TooManyConnectionsError
from peer.node.links.limits import Limits, limit_table
from peer.node.links.roster import PEER_CONNECTIONS
from peer.node.status import metrics_server
from peer.node.status.meter import MOVED, OTHERS
from peer.node.status.metrics_server import CLIENTS_MAX, DEADLINE_S
from peer.node.status.readiness import KNOWN_S, PATIENCE_S, Readiness, write_trouble
from tests.records import replace
from wire import LogKey

from .support import PATIENCE_S as TEST_S

CONFIG = NodeConfig(workers=0, poll_s=0.001)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.memory() as store:
        yield store


@asynccontextmanager
async def measured(
    store: Store, config: NodeConfig = CONFIG
) -> AsyncIterator[tuple[Peer, MetricsServer, Meter]]:
    meter = Meter()
    observer = meter.observing(lambda _: None)
    async with Peer(store, config=config, observer=observer) as peer:
        meter.watch(peer.node)
        overview = Overview(peer.node)
        await overview.load()
        yield peer, MetricsServer(peer.node, overview, meter), meter


async def get(server: MetricsServer, path: str) -> tuple[int, bytes]:
    """Status and body."""
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, far)
        await near.send_all(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await near.send_eof()
        received = b""
        while data := await near.receive_some():
            received += data
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body


def values(body: bytes) -> dict[str, float]:
    return {
        "".join([sample.name, *(f" {value}" for value in sample.labels.values())]): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


async def test_what_a_connection_has_moved_is_counted_beyond_its_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "PAGE_KNOWN_S", 0)
    monkeypatch.setattr(metrics_server, "SUMS_KNOWN_S", 0)
    store.follow(ALL)
    with trio.fail_after(TEST_S), Store.memory() as other:
        other.append([b"hello", b"world"])
        async with Peer(other, config=CONFIG) as giver, measured(store) as (peer, server, _):
            peer.connect(await giver.listen())
            while (info := store.log(next(iter(other.logs())).key)) is None or info.height < 2:
                await trio.lowlevel.checkpoint()
            # What is stored, the session that brought it hears of a moment later.
            while sum(each.entries_received for each in peer.connections()) < 2:
                await trio.lowlevel.checkpoint()
            found = values((await get(server, "/metrics"))[1])
            assert found["bamboo_peer_connections outgoing established"] == 1
            assert found[f"bamboo_peer_peer_connections {OTHERS}"] == 1
            assert found[f"bamboo_peer_received_entries_total {OTHERS}"] == 2
            assert found["bamboo_peer_entries"] == 2
            assert found["bamboo_peer_logs"] == 1
            assert found["bamboo_peer_behind_entries"] == found["bamboo_peer_lag_seconds"] == 0
            [member] = peer.node.members
            peer.disconnect(peer.node.called[0])
            await member.ended.wait()
            found = values((await get(server, "/metrics"))[1])
            assert found["bamboo_peer_disconnections_total closed"] == 1
            assert found["bamboo_peer_connections outgoing established"] == 0
            assert found[f"bamboo_peer_received_entries_total {OTHERS}"] == 2
            assert all(name.startswith("bamboo_peer_") for name in found)


class Moved:
    """What is asked of a member that has moved so many of everything."""

    def __init__(self, peer_id: bytes | None, count: int) -> None:
        self.peer_id = peer_id
        self.ended = trio.Event()
        moved = SimpleNamespace(**dict.fromkeys(MOVED, count))
        self.connection = SimpleNamespace(session=SimpleNamespace(statistics=lambda: moved))


async def test_peers_that_are_allowed_by_name_have_a_label_and_all_others_one(
    store: Store,
) -> None:
    ann, bob = b"a" * 32, b"b" * 32
    rules: dict[bytes, object] = {
        ann: SimpleNamespace(allowed=True),
        bob: SimpleNamespace(allowed=False),
    }
    members = [Moved(ann, 1), Moved(bob, 10), Moved(None, 100), Moved(b"c" * 32, 1000)]
    admission = SimpleNamespace(rules=rules)
    node: Any = SimpleNamespace(members=members, entrance=SimpleNamespace(admission=admission))
    meter = Meter()
    meter.watch(node)

    def sent() -> Mapping[str, int]:
        return {peer: counts["bytes_sent"] for peer, counts in meter.moved().items()}

    assert sent() == {ann.hex(): 1, OTHERS: 1110}
    members[0].ended.set()
    members[2].ended.set()
    node.members = [members[1], members[3]]
    assert sent() == {ann.hex(): 1, OTHERS: 1110}
    # Whoever is removed counts among the others, and what these have moved gets no less.
    del rules[ann]
    assert sent() == {OTHERS: 1111}


def test_events_count_by_their_kind() -> None:
    meter = Meter()
    told: list[Mapping[str, object]] = []
    take = meter.observing(told.append)
    take({"event": "disconnected", "kind": "lost"})
    take({"event": "disconnected", "kind": "closed"})
    take({"event": "disconnected", "kind": "lost"})
    take({"event": "exported"})
    assert meter.events == {("disconnections", "lost"): 2, ("disconnections", "closed"): 1}
    assert len(told) == 4


async def test_each_refusal_counts_though_it_is_told_of_now_and_then(store: Store) -> None:
    async with measured(store) as (peer, server, _):
        for _ in range(3):
            peer.node.entrance.refused(Refused.LIMIT, "too many", "192.0.2.1:7")
        peer.node.entrance.refused(Refused.UNKNOWN, "is not allowed", "192.0.2.1:7", b"a" * 32)
        found = values((await get(server, "/metrics"))[1])
    assert found["bamboo_peer_refusals_total limit"] == 3
    assert found["bamboo_peer_refusals_total unknown"] == 1
    assert found["bamboo_peer_refusals_total blocked"] == 0


async def test_each_time_that_a_limit_is_met_counts_by_its_key(store: Store) -> None:
    key = LogKey(b"a" * 32, 0)
    limits = Limits(connections_max=1, outgoing_reserved=0, accepts_burst=3.0)
    config = replace(CONFIG, limits=limits)
    async with measured(store, config) as (peer, server, _):
        gate, host = peer.node.gate, peer.node.host
        for _ in range(3):
            gate.count_stranger(gate.enter("192.0.2.1", 0.0, lambda _: None))
        with pytest.raises(TooManyConnectionsError):
            gate.enter("192.0.2.1", 0.0, lambda _: None)
        for _ in range(2):
            for watch in host.quota_watchers:
                watch(OverQuota("author-bytes", key, 5, b"p" * 32, "too much"))
        found = values((await get(server, "/metrics"))[1])
    hits = {name.split()[1]: count for name, count in found.items() if "limit_hits" in name}
    assert {key: count for key, count in hits.items() if count} == {
        "connections": 2,
        "accepts": 1,
        "author-bytes": 2,
    }
    # All that are counted stand in the table of limits, but for the one in a peer's row.
    assert hits.keys() - {limit.key for limit in limit_table()} == {PEER_CONNECTIONS}


async def test_sums_over_all_logs_are_read_now_and_then(
    store: Store, monkeypatch: pytest.MonkeyPatch, mock_clock: trio.testing.MockClock
) -> None:
    calls = 0
    real = store.statistics

    def statistics() -> object:
        nonlocal calls
        calls += 1
        return real()

    monkeypatch.setattr(store, "statistics", statistics)
    async with measured(store) as (_, server, _):
        for _ in range(5):
            await get(server, "/metrics")
        assert calls == 1
        # By hand: a clock that jumps by itself does so while a thread makes the page, past the
        # deadline of the request.
        mock_clock.jump(metrics_server.SUMS_KNOWN_S)
        await get(server, "/metrics")
        assert calls == 2


async def test_a_store_that_cannot_be_read_is_told_of(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise StoreError("broken", Path("x"), "mend it")

    monkeypatch.setattr(store, "statistics", broken)
    async with measured(store) as (_, server, _):
        found = values((await get(server, "/metrics"))[1])
        assert found["bamboo_peer_store_readable"] == 0
        assert "bamboo_peer_entries" not in found


async def test_who_is_slow_gives_way_and_is_left_in_the_end(
    store: Store, autojump_clock: trio.testing.MockClock
) -> None:
    async with measured(store) as (_, server, _), trio.open_nursery() as nursery:
        ends = [trio.testing.memory_stream_pair() for _ in range(CLIENTS_MAX)]
        for near, far in ends:
            nursery.start_soon(server.serve, far)
            await near.send_all(b"GET /healthz")
            await trio.testing.wait_all_tasks_blocked()
        # Whoever says a request is answered; the one that has said nothing more for longest is not.
        assert await get(server, "/healthz") == (200, b"OK\n")
        assert await ends[0][0].receive_some() == b""
        # One that says nothing more, or reads nothing, has its place for so long and no longer.
        await trio.sleep(DEADLINE_S + 1)
        assert await ends[1][0].receive_some() == b""
        assert server._clients == 0


async def test_who_is_too_many_is_sent_away(
    store: Store, autojump_clock: trio.testing.MockClock
) -> None:
    async with measured(store) as (_, server, _), trio.open_nursery() as nursery:
        ends = [trio.testing.memory_stream_pair() for _ in range(CLIENTS_MAX)]
        for near, far in ends:
            nursery.start_soon(server.serve, far)
            # All of them have asked, and do not hang up.
            await near.send_all(b"GET /healthz HTTP/1.1\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked()
        near, far = trio.testing.memory_stream_pair()
        await server.serve(far)
        assert await near.receive_some() == b""
        assert (await ends[0][0].receive_some()).startswith(b"HTTP/1.1 200 OK")


async def test_a_fault_is_no_end_of_the_node(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async with measured(store) as (_, server, _):
        monkeypatch.setattr(Overview, "behind", broken)
        near, far = trio.testing.memory_stream_pair()
        await near.send_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        await server.serve(far)
        assert await near.receive_some() == b""
        assert "a request for metrics: ZeroDivisionError" in caplog.text
        assert (await get(server, "/nothing"))[0] == 404


async def test_a_node_is_ready_when_it_listens_and_its_store_can_be_written(
    tmp_path: Path,
) -> None:
    with trio.fail_after(TEST_S), Store.create(tmp_path / "store") as store:
        async with measured(store) as (peer, server, _):
            assert await get(server, "/readyz") == (503, b"nothing listens\n")
            await peer.listen()
            assert await get(server, "/readyz") == (200, b"ready\n")
    assert write_trouble(tmp_path / "gone") == (
        "the store cannot be written: No such file or directory"
    )


@pytest.fixture
def impatient_clock() -> trio.testing.MockClock:
    """Waits for no thread, as time does not where one of them hangs."""
    return trio.testing.MockClock(autojump_threshold=0)


async def test_a_disk_that_hangs_is_asked_once(
    tmp_path: Path, impatient_clock: trio.testing.MockClock
) -> None:
    import threading

    released, begun, calls = threading.Event(), threading.Event(), []

    def hang(folder: Path) -> None:
        calls.append(folder)
        begun.set()
        released.wait()

    host = SimpleNamespace(store=SimpleNamespace(path=tmp_path))
    node: Any = SimpleNamespace(host=host, addresses=["a"])
    readiness = Readiness(node, hang)
    trouble = [f"the store took no write in {PATIENCE_S:.0f} s"]
    try:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(readiness.reasons)
        assert await readiness.reasons() == trouble
        await trio.sleep(KNOWN_S)
        assert await readiness.reasons() == trouble
        # The clock of the test is ahead of the thread.
        await trio.to_thread.run_sync(begun.wait)
        assert calls == [tmp_path]
    finally:
        released.set()


async def test_a_peer_serves_metrics_where_it_is_told_to(store: Store) -> None:
    events: list[Mapping[str, object]] = []
    with trio.fail_after(TEST_S):
        async with Peer(store, config=CONFIG, observer=events.append, metrics="0") as peer:
            [told] = events
            assert told["event"] == "metrics_listening"
            where = Address.parse(str(told["address"]))
            assert where.host == "127.0.0.1"
            stream = await trio.open_tcp_stream(where.host, where.port)
            await stream.send_all(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 OK\r\n")
            await stream.aclose()
            assert (await peer.status())["behind_since"] is None
            with Store.memory() as other, pytest.raises(CannotListenError):
                async with Peer(other, config=CONFIG, metrics=where):
                    pass
        with pytest.raises(ExceptionGroup, match="mine"), Store.memory() as other:
            async with Peer(other, config=CONFIG, metrics="0"):
                raise ExceptionGroup("mine", [ValueError()])


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9100", Address("127.0.0.1", 9100)),
        ("0.0.0.0:9100", Address("0.0.0.0", 9100)),
        ("[::1]:0", Address("::1", 0)),
    ],
)
def test_metrics_are_on_loopback_unless_told_otherwise(text: str, address: Address) -> None:
    assert metrics_address(text) == address


@pytest.mark.parametrize("text", ["", "localhost", "[::1]", "::1", "a:b", "99999", "a,b:1"])
def test_what_is_no_place_for_metrics_is_said(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        metrics_address(text)


async def test_a_memory_link_counts_among_the_others(store: Store) -> None:
    with trio.fail_after(TEST_S), Store.memory() as other:
        async with (
            Peer(other, config=CONFIG) as there,
            measured(store) as (here, _, meter),
            trio.open_nursery() as nursery,
        ):
            one, two = memory_link()
            nursery.start_soon(partial(there.serve_stream, one, proactive=True))
            nursery.start_soon(partial(here.serve_stream, two, proactive=False))
            while not meter.events["connections_opened", ""]:
                await trio.lowlevel.checkpoint()
            assert meter.moved()[OTHERS]["bytes_sent"] > 0
            nursery.cancel_scope.cancel()
