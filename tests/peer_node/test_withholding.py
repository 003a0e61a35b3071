"""A key that two machines sign with: the second one notices before its entries have spread."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio
from nacl.signing import SigningKey
from trio.testing import MockClock

from logstore import ALL, OwnLogsReadOnly, Store
from peer import NewestLearned, PeerHolds, RequestConfirmed
from peer.api import NodeConfig, Peer, memory_link
from peer.node import Dialler, asking
from peer.node.links.knowledge import Knowledge
from tests.machines import Machine
from wire import LogKey

from .support import PATIENCE_S, synced

KEY = SigningKey(b"k" * 32)
LOG = LogKey(bytes(KEY.verify_key), 0)


class Machines:
    """Two stores with one key, whose logs agree up to an entry; and a friend who follows them.

    Tests take a clock besides. Of the delays of a sync, which are many here, none is sat out then;
    and none is over before the threads of a busy machine have done what it waits for.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.first = stack.enter_context(Store.create(folder / "first", signing_key=KEY))
        elsewhere = Machine(folder / "state of the second")
        self.second = stack.enter_context(
            Store.create(folder / "second", signing_key=KEY, imported=True, system=elsewhere)
        )
        self.friend = stack.enter_context(Store.create(folder / "friend"))
        self.friend.follow(ALL)

    async def agree(self, newest: int) -> None:
        """Both machines, and the friend, hold so many entries."""
        if newest:
            self.first.append([b"both %d" % n for n in range(1, newest + 1)])
            assert await synced(self.first, self.friend) is None
            assert await synced(self.friend, self.second) is None
            assert self.second.log(LOG).height == newest  # type: ignore[union-attr]
        self.second.confirm_identity()

    def unharmed(self, store: Store) -> None:
        """Nobody has seen what the second one signed, and the first one's entries go on."""
        assert store.fork(LOG) is None
        held = store.read(LOG, 1, entries_max=100, bytes_max=1 << 20, with_payload=False)
        assert not any(each.payload.startswith(b"second") for each in held if each.payload)

    def noticed(self, newest: int) -> None:
        """The second one has noticed, says so, and signs nothing more."""
        (contested,) = self.second.contested()
        assert contested.key == LOG
        assert newest < contested.seq <= newest + 3
        with pytest.raises(OwnLogsReadOnly, match="this key signs on two machines"):
            self.second.append([b"second again"])
        with pytest.raises(OwnLogsReadOnly, match="this key signs on two machines"):
            self.second.append([b"second again"], log_id=1)
        assert not list(self.second.forks())


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with ExitStack() as stack:
        yield Machines(tmp_path, stack)


async def connected(left: Store, right: Store, *, giving_nothing: Store | None = None) -> None:
    """Two nodes that stay, the first of which calls, until one of them has noticed something.

    `giving_nothing`: no entry and no payload of this one leaves.
    """
    ends = memory_link()
    noticed = trio.Event()

    def observe(event: Mapping[str, object]) -> None:
        if event["event"] == "contested":
            noticed.set()

    config = NodeConfig(workers=0)
    async with (
        Peer(left, config=config, observer=observe) as caller,
        Peer(right, config=config, observer=observe) as called,
        trio.open_nursery() as nursery,
    ):
        for peer, end, proactive in ((caller, ends[0], True), (called, ends[1], False)):
            serve = partial(peer.serve_stream, end, proactive=proactive, name="the other")
            nursery.start_soon(serve)
        with trio.fail_after(PATIENCE_S):
            await noticed.wait()
        await trio.sleep(0.2)  # what would spread would do so now
        for peer in (caller, called):
            if peer.store is giving_nothing:
                (info,) = peer.connections()
                assert (info.entries_sent, info.payload_bytes_sent) == (0, 0)
        nursery.cancel_scope.cancel()


HEIGHTS = [0, 1, 4, 6, 7, 12]


@pytest.mark.parametrize(
    ("newest", "firsts", "seconds", "calls"),
    [
        pytest.param(*case, marks=() if number % 5 == 0 else pytest.mark.long)
        for number, case in enumerate(
            (newest, firsts, seconds, calls)
            for newest in HEIGHTS
            for firsts, seconds in [(1, 1), (3, 1), (1, 3)]
            for calls in (True, False)
        )
    ],
)
async def test_a_node_notices_at_its_first_contact_with_who_has_the_others(
    autojump_clock: MockClock,
    machines: Machines,
    newest: int,
    firsts: int,
    seconds: int,
    calls: bool,
) -> None:
    """Whoever proposes first, and whether or not their links name what differs."""
    await machines.agree(newest)
    machines.first.append([b"first %d" % n for n in range(firsts)])
    assert await synced(machines.first, machines.friend) is None
    machines.second.append([b"second %d" % n for n in range(seconds)])
    pair = (machines.second, machines.friend)
    await connected(*(pair if calls else pair[::-1]), giving_nothing=machines.second)
    machines.noticed(newest)
    machines.unharmed(machines.friend)
    machines.first.append([b"first goes on"])
    assert await synced(machines.first, machines.friend) is None
    machines.unharmed(machines.friend)
    machines.unharmed(machines.first)
    assert machines.friend.log(LOG).height == newest + firsts + 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("newest", "calls", "spread"),
    [(0, True, True), (4, False, True), (7, True, False), (4, True, False), (0, False, False)],
)
async def test_of_two_machines_that_meet_each_other_one_notices_and_one_goes_on(
    autojump_clock: MockClock, machines: Machines, newest: int, calls: bool, spread: bool
) -> None:
    """Also where nobody else has seen the entries of either."""
    await machines.agree(newest)
    machines.first.append([b"first"])
    if spread:
        assert await synced(machines.first, machines.friend) is None
    machines.second.append([b"second"])
    pair = (machines.second, machines.first)
    await connected(*(pair if calls else pair[::-1]))
    stores = (machines.first, machines.second)
    assert [len(store.contested()) for store in stores] in (
        [[0, 1]] if spread else [[0, 1], [1, 0]]
    )
    assert not any(list(store.forks()) for store in stores)
    goes_on = next(store for store in stores if not store.contested())
    goes_on.append([b"and on"])
    assert await synced(goes_on, machines.friend) is None
    assert not list(machines.friend.forks())
    assert machines.friend.log(LOG).height == newest + 2  # type: ignore[union-attr]


@pytest.mark.parametrize("newest", [0, 4, 7])
async def test_a_one_time_sync_gives_nothing_either(
    autojump_clock: MockClock, machines: Machines, newest: int
) -> None:
    await machines.agree(newest)
    machines.first.append([b"first", b"first"])
    assert await synced(machines.first, machines.friend) is None
    machines.second.append([b"second"])
    await synced(machines.second, machines.friend)
    machines.unharmed(machines.friend)
    machines.noticed(newest)


async def test_what_agrees_goes_on_and_is_remembered(
    autojump_clock: MockClock, machines: Machines
) -> None:
    """Entries of which the store does not know that others have them, and new ones behind them."""
    await machines.agree(3)
    for text in (b"4", b"5"):
        machines.first.append([text])
        assert await synced(machines.first, machines.friend) is None
    assert machines.first.shared() == {LOG: 5}
    machines.first.remember("shared/0", None)
    machines.first.append([b"6"])
    assert await synced(machines.first, machines.friend) is None
    assert machines.friend.log(LOG).height == 6  # type: ignore[union-attr]
    assert machines.first.shared() == {LOG: 6}
    assert not machines.first.contested()


async def test_a_node_that_has_just_begun_hears_its_peers_before_it_signs(
    autojump_clock: MockClock, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one has not got what the first one signed; its program appends at once."""
    # How long it waits is bounded, and on a busy machine its peer may take longer than that.
    monkeypatch.setattr(asking, "WITHIN_S", PATIENCE_S)
    monkeypatch.setattr(asking, "TELL_S", PATIENCE_S)
    await machines.agree(3)
    machines.first.append([b"first"])
    assert await synced(machines.first, machines.friend) is None
    config = NodeConfig(workers=0)
    async with Peer(machines.friend, config=config) as friend:
        address = await friend.listen()
        async with Peer(machines.second, config=config) as second:
            second.connect(address)
            (appended,) = await second.append([b"behind that"])
            assert appended.seq == 5
            await friend.wait_for(LOG, 5)
        async with Peer(machines.second, config=config, ask_first=False) as second:
            second.connect(address)
            assert (await second.append([b"at once"]))[0].seq == 6
    assert not list(machines.friend.forks())


async def test_who_has_nobody_to_call_is_not_slowed_down(
    autojump_clock: MockClock, machines: Machines
) -> None:
    await machines.agree(1)
    async with Peer(machines.first, config=NodeConfig(workers=0)) as peer:
        started = trio.current_time()
        await peer.append([b"x"])
        assert trio.current_time() - started < 1


async def test_several_logs_are_heard_of_together(
    autojump_clock: MockClock, machines: Machines
) -> None:
    """Who is called says nothing, and is waited for as long as for one of them."""
    await machines.agree(1)
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, Peer(machines.first, config=NodeConfig(workers=0)) as peer:
        host, port = listener.socket.getsockname()
        peer.connect(f"{host}:{port}")
        started = trio.current_time()
        await peer.append_many([(log_id, [b"x"]) for log_id in range(5)])
        assert 0.9 * asking.WITHIN_S < trio.current_time() - started < 2 * asking.WITHIN_S


async def test_that_a_request_is_confirmed_tells_not_yet_what_is_held() -> None:
    """On a busy machine what it holds comes later; the number after that would be signed twice."""
    knowledge = Knowledge()
    established = trio.Event()
    established.set()
    member = SimpleNamespace(
        established=established, knowledge=knowledge, since_s=trio.current_time()
    )
    dialler = cast(Dialler, SimpleNamespace(member=member))
    knowledge.take(RequestConfirmed(1, LOG, ours=True, start=4, end=None), trio.current_time())
    assert asking._is_about_to_tell(dialler, [LOG])
    knowledge.take(PeerHolds(LOG, 4, 3), trio.current_time())
    assert asking._is_about_to_tell(dialler, [LOG])
    knowledge.take(NewestLearned(LOG, 5), trio.current_time())
    assert not asking._is_about_to_tell(dialler, [LOG])
