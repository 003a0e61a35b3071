"""What waits inside the block of a Peer ends with it, and what makes no sense is refused."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial

import pytest
import trio
import trio.lowlevel

from logstore import LogClosed, NewEntry, Store, StoreClosed, Subscription
from peer.api import NodeConfig, Peer
from wire import LogKey

from .support import PATIENCE_S, Author

CONFIG = NodeConfig(workers=0, poll_s=0.001)
NOBODYS = LogKey(bytes(32), 0)
OUTSIDE = r"^a Peer runs inside `with Peer\(\.\.\.\)` or `async with Peer\(\.\.\.\)`$"

Call = Callable[[Peer], Awaitable[object]]


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.memory() as made:
        yield made


async def take_all(peer: Peer) -> None:
    async for _ in peer.entries():
        pass


async def take_new(peer: Peer) -> None:
    async for _ in peer.entries(after=None):
        pass


async def wait_in_sync(peer: Peer) -> None:
    peer.connect("127.0.0.1:1")
    await peer.wait_in_sync()


WAITING: list[Call] = [
    lambda peer: peer.wait_for(NOBODYS, 9),
    lambda peer: peer.fetch(NOBODYS, 7),
    take_all,
    take_new,
    wait_in_sync,
]


@pytest.mark.parametrize("call", WAITING)
async def test_what_waits_raises_at_the_end_of_the_block(store: Store, call: Call) -> None:
    said: list[str] = []

    async def run(peer: Peer) -> None:
        try:
            await call(peer)
        except RuntimeError as error:
            said.append(str(error))

    store.append([b"one"])
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery, Peer(store, config=CONFIG) as peer:
            nursery.start_soon(run, peer)
            await trio.sleep(0.05)
            assert said == []
    assert said == ["a Peer runs inside `with Peer(...)` or `async with Peer(...)`"]
    assert store.wants() == {}
    with pytest.raises(RuntimeError, match=OUTSIDE):
        await call(peer)


async def test_whoever_is_at_an_entry_when_the_block_ends_is_told_at_the_next(store: Store) -> None:
    store.append([b"one"])
    async with Peer(store, config=CONFIG) as peer:
        entries = peer.entries()
        assert (await anext(entries)).payload == b"one"
    with trio.fail_after(PATIENCE_S), pytest.raises(RuntimeError, match=OUTSIDE):
        await anext(entries)


async def test_a_fetch_cancelled_with_the_block_asks_no_more(store: Store) -> None:
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery, Peer(store, config=CONFIG) as peer:
            nursery.start_soon(peer.fetch, NOBODYS, 7)
            while not store.wants():
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert store.wants() == {}


async def test_a_fetch_of_a_node_that_ends_by_a_fault_asks_no_more(store: Store) -> None:
    def observe(event: Mapping[str, object]) -> None:
        raise LookupError(event["event"])

    failures: list[RuntimeError] = []

    async def fetch(peer: Peer) -> None:
        try:
            await peer.fetch(NOBODYS, 7)
        except RuntimeError as error:
            failures.append(error)

    async def run(nursery: trio.Nursery) -> None:
        async with Peer(store, config=CONFIG, observer=observe) as peer:
            nursery.start_soon(fetch, peer)
            while not store.wants():
                await trio.lowlevel.checkpoint()
            await peer.append([b"one"])

    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            with pytest.raises(LookupError, match="log_advanced"):
                await run(nursery)
    assert len(failures) == 1
    assert store.wants() == {}


async def test_a_peer_is_entered_once(store: Store) -> None:
    peer = Peer(store, config=CONFIG)
    async with peer:
        with pytest.raises(RuntimeError, match=r"entered once: make a new one, Peer\(store\)"):
            await peer.__aenter__()
        assert peer.connections() == []
    with pytest.raises(RuntimeError, match="entered once"):
        async with peer:
            pass


@pytest.mark.parametrize("log_id", [-1, 1 << 64])
async def test_a_log_id_beyond_its_range_is_refused_by_its_name(store: Store, log_id: int) -> None:
    log = LogKey(bytes(32), log_id)
    async with Peer(store, config=CONFIG) as peer:
        calls: list[Callable[[], Awaitable[object]]] = [
            partial(peer.append, [b"x"], log_id=log_id),
            partial(peer.follow, log),
            partial(peer.unfollow, log),
            partial(peer.fetch, log, 1),
            partial(peer.wait_for, log, 1),
            partial(peer.newest, "127.0.0.1:1", [log]),
            partial(peer.why, log),
            lambda: anext(peer.entries(log)),
        ]
        for call in calls:
            with pytest.raises(ValueError, match=rf"^log_id={log_id}: .* from 0 to 2\^64 - 1$"):
                await call()


async def test_an_author_of_another_size_is_refused(store: Store) -> None:
    async with Peer(store, config=CONFIG) as peer:
        for target in (b"short", LogKey(b"short", 0)):
            with pytest.raises(ValueError, match="an author has 32 bytes, not 5"):
                await peer.follow(target)
        assert peer.subscriptions == {}


@pytest.mark.parametrize("seq", [0, -1, 1 << 64])
async def test_an_entry_that_cannot_be_is_not_waited_for(store: Store, seq: int) -> None:
    async with Peer(store, config=CONFIG) as peer:
        with pytest.raises(ValueError, match=rf"^seq={seq} is no entry: .* from 1 to 2\^64 - 1$"):
            await peer.wait_for(NOBODYS, seq)
        with pytest.raises(ValueError, match="is no range of entries"):
            await peer.fetch(NOBODYS, seq)


async def test_what_is_behind_the_end_of_a_log_is_not_waited_for(store: Store) -> None:
    log = store.append([b"1", b"2"], end_of_log=True)[0].key
    async with Peer(store, config=CONFIG) as peer:
        assert (await peer.wait_for(log, 2)).height == 2
        with pytest.raises(LogClosed, match="no valid entry behind 2"):
            await peer.wait_for(log, 3)


async def test_a_store_that_is_closed_inside_ends_the_block_with_one_clear_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store.memory()

    async def run() -> None:
        async with Peer(store, config=CONFIG):
            store.close()
            await trio.sleep_forever()

    with trio.fail_after(PATIENCE_S), pytest.raises(StoreClosed, match="the store was closed"):
        await run()
    assert caplog.records == []


@pytest.mark.parametrize(
    ("policy", "held", "waits_for"),
    [
        ("full", [1, 2, 3, 4, 5], {5: True, 6: False}),
        ("full", [1, 4, 8], {1: True, 2: False, 8: False}),
        ("metadata", [1, 2, 4], {2: True, 3: False, 4: False}),
        ("latest:2", [1, 4, 8, 12, 13], {3: True, 12: True, 13: True, 14: False}),
        ("latest:3", [1, 4, 8, 12, 13], {11: False, 10: True, 13: False}),
        ("sparse", [1, 4, 8, 12, 13], {8: True, 13: True, 14: False}),
        ("range:4..5", [1, 4], {3: True, 4: True, 5: False, 9: False}),
        ("range:4..5", [1, 4, 5], {5: True, 9: True}),
        ("range:12..", [1, 4, 8, 12, 13], {2: True, 13: True, 14: False}),
    ],
)
async def test_waiting_is_for_what_is_wanted_up_to_an_entry(
    store: Store, policy: str, held: list[int], waits_for: dict[int, bool]
) -> None:
    author = Author()
    for seq in range(1, 14):
        author.sign(seq, b"")
    store.follow(author.log, Subscription.parse(policy))
    rows = [NewEntry(seq, author.encoded[seq], author.hash(seq), None) for seq in held]
    store.put_entries(author.log, rows, source="test")
    async with Peer(store, config=CONFIG) as peer:
        for seq, returns in waits_for.items():
            with trio.move_on_after(PATIENCE_S if returns else 0.05) as scope:
                assert (await peer.wait_for(author.log, seq)).newest == held[-1]
            assert scope.cancelled_caught is not returns, seq


async def test_wanting_less_ends_a_wait(store: Store) -> None:
    author = Author()
    for seq in range(1, 5):
        author.sign(seq, b"")
    rows = [NewEntry(seq, author.encoded[seq], author.hash(seq), None) for seq in (1, 4)]
    store.put_entries(author.log, rows, source="test")
    store.follow(author.log)
    with trio.fail_after(PATIENCE_S):
        async with Peer(store, config=CONFIG) as peer, trio.open_nursery() as nursery:
            nursery.start_soon(peer.wait_for, author.log, 4)
            await trio.sleep(0.05)
            await peer.follow(author.log, Subscription.parse("latest:1"))


async def test_who_is_cancelled_before_the_node_runs_is_not_kept(store: Store) -> None:
    with trio.fail_after(PATIENCE_S), trio.CancelScope() as scope:
        scope.cancel()
        async with Peer(store, config=CONFIG):
            pytest.fail("entered")
    assert scope.cancelled_caught
    async with Peer(store, config=CONFIG) as peer:
        assert (await peer.statistics()).entries == 0
