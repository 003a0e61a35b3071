"""A peer in a program without an event loop, from any thread, and with Ctrl-C."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from logstore import Store, StoreLocked
from peer.api import NodeConfig
from peer.blocking import Peer
from peer.bridge import THREAD_NAME
from wire import LogKey

from .support import PATIENCE_S

CONFIG = NodeConfig(workers=0, poll_s=0.001)
NOBODYS = LogKey(bytes(32), 0)
OUTSIDE = r"^a Peer runs inside `with Peer\(\.\.\.\)` or `async with Peer\(\.\.\.\)`$"


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert threads() == []


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == THREAD_NAME]


def until(true: Callable[[], object]) -> None:
    never = threading.Event()
    while not true():
        never.wait(0.001)


def interrupt_main_thread_once(true: Callable[[], object]) -> None:
    until(true)
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


def test_entries_reach_a_follower_from_any_thread(pool: ThreadPoolExecutor) -> None:
    with (
        Store.memory() as mine,
        Store.memory() as yours,
        Peer(mine, config=CONFIG) as here,
        Peer(yours, config=CONFIG) as there,
    ):
        assert [each.daemon for each in threads()] == [True, True]
        assert there.follow(mine.author)
        assert there.subscriptions.keys() == {mine.author}
        there.connect(here.listen())
        several = [pool.submit(here.append, [b"x"] * 100) for _ in range(6)]
        found = list(islice(there.entries(), 600))
        assert [entry.seq for entry in found] == list(range(1, 601))
        assert sum(len(each.result(PATIENCE_S)) for each in several) == 600
        assert len(pool.submit(there.connections).result(PATIENCE_S)) == 1
        here.append([b"more"])
        assert next(there.entries(after=found[-1].ingest)).payload == b"more"


def test_it_runs_under_a_loop_that_runs() -> None:
    async def main() -> None:
        with Store.memory() as store, Peer(store, config=CONFIG) as peer:
            peer.append([b"one"])
            assert peer.statistics().entries == 1

    asyncio.run(main())


def test_ctrl_c_cancels_a_call_and_comes_out_when_that_has_ended(pool: ThreadPoolExecutor) -> None:
    with Store.memory() as store, Peer(store, config=CONFIG) as peer:
        watching = pool.submit(interrupt_main_thread_once, store.wants)
        with pytest.raises(KeyboardInterrupt):
            peer.fetch(NOBODYS, 1)
        assert store.wants() == {}
        watching.result(PATIENCE_S)
        assert peer.statistics().entries == 0


def test_ctrl_c_ends_an_iteration(pool: ThreadPoolExecutor) -> None:
    with Store.memory() as store, Peer(store, config=CONFIG) as peer:
        watchers = peer._peer.node.host.watchers
        before = len(watchers)
        pool.submit(interrupt_main_thread_once, lambda: len(watchers) > before)
        with pytest.raises(KeyboardInterrupt):
            next(peer.entries())
        assert len(watchers) == before


def test_leaving_an_iteration_ends_the_reading() -> None:
    with Store.memory() as store, Peer(store, config=CONFIG) as peer:
        store.append([b"x"] * 1000)
        watchers = peer._peer.node.host.watchers
        before = len(watchers)
        for entry in peer.entries():
            assert len(watchers) == before + 1
            assert entry.seq == 1
            break
        assert len(watchers) == before


def test_what_still_waits_where_the_block_ends_raises(pool: ThreadPoolExecutor) -> None:
    with Store.memory() as store:
        peer = Peer(store, config=CONFIG)
        with pytest.raises(RuntimeError, match=OUTSIDE):
            peer.status()
        with pytest.raises(RuntimeError, match=OUTSIDE):
            peer.connections()
        with peer:
            fetching = pool.submit(peer.fetch, NOBODYS, 1)
            taking = pool.submit(next, peer.entries())
            until(store.wants)
        for waiting in (fetching, taking):
            with pytest.raises(RuntimeError, match=OUTSIDE):
                waiting.result(PATIENCE_S)
        assert store.wants() == {}
        for late in (peer.status, peer.connections, lambda: next(peer.entries())):
            with pytest.raises(RuntimeError, match=OUTSIDE):
                late()
        with pytest.raises(RuntimeError, match="entered once"):
            peer.__enter__()


def test_an_observer_may_ask_what_does_not_wait() -> None:
    seen: list[tuple[str, int]] = []
    with Store.memory() as store:

        def observe(_: Mapping[str, object]) -> None:
            seen.append((threading.current_thread().name, len(peer.connections())))

        peer = Peer(store, config=CONFIG, observer=observe)
        with peer:
            peer.listen()
    assert seen == [(THREAD_NAME, 0)]


def test_an_observer_that_would_wait_for_itself_ends_the_peer() -> None:
    with Store.memory() as store:
        peer = Peer(store, config=CONFIG, observer=lambda _: peer.status()).__enter__()
        peer.listen()
        with pytest.raises(RuntimeError, match=OUTSIDE):
            peer.wait_for(NOBODYS, 1)
        with pytest.raises(RuntimeError, match="thread of the peer"):
            peer.__exit__(None, None, None)


def test_what_is_raised_comes_out(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s") as one, Store.open(tmp_path / "s") as other:
        with Peer(one, config=CONFIG), pytest.raises(StoreLocked):
            Peer(other, config=CONFIG).__enter__()
        with Peer(other, config=CONFIG) as peer:
            with pytest.raises(ValueError, match="port"):
                peer.connect("host:99999")
            with pytest.raises(ValueError, match="seq=0"):
                peer.wait_for(NOBODYS, 0)
            with pytest.raises(ZeroDivisionError):
                raise ZeroDivisionError
        with pytest.raises(ZeroDivisionError), Peer(one, config=CONFIG):
            raise ZeroDivisionError
