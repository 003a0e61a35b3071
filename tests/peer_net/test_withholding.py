"""A key that two machines sign with: the second one notices before its entries have spread."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
from nacl.signing import SigningKey

from logstore import ALL, OwnLogsReadOnly, Store
from peer.api import NodeConfig, Peer, memory_link
from wire import LogKey

from .support import PATIENCE_S, synced

KEY = SigningKey(b"k" * 32)
LOG = LogKey(bytes(KEY.verify_key), 0)


class Machines:
    """Two stores with one key, whose logs agree up to an entry; and a friend who follows them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.first = stack.enter_context(Store.create(folder / "first", signing_key=KEY))
        self.second = stack.enter_context(
            Store.create(folder / "second", signing_key=KEY, imported=True)
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
        held = store.read(LOG, 1, entries_max=100, bytes_max=1 << 20)
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


async def connected(left: Store, right: Store, until: Store) -> None:
    """Two nodes that stay, the first of which calls, until the store has noticed something."""
    left_end, right_end = memory_link()
    config = NodeConfig(workers=1)
    async with Peer(left, config=config) as caller, Peer(right, config=config) as called:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: caller.serve_stream(left_end, proactive=True, name="called"))
            nursery.start_soon(
                lambda: called.serve_stream(right_end, proactive=False, name="caller")
            )
            with trio.fail_after(PATIENCE_S):
                while not until.contested():
                    await trio.sleep(0.02)
            await trio.sleep(0.3)  # what would spread would do so now
            nursery.cancel_scope.cancel()


HEIGHTS = [0, 1, 3, 4, 6, 7, 12]
MORE = [(1, 1), (3, 1), (1, 3), (2, 2)]


@pytest.mark.parametrize("newest", HEIGHTS)
@pytest.mark.parametrize(("firsts", "seconds"), MORE)
@pytest.mark.parametrize("calls", [True, False])
async def test_a_node_notices_at_its_first_contact_with_who_has_the_others(
    machines: Machines, newest: int, firsts: int, seconds: int, calls: bool
) -> None:
    await machines.agree(newest)
    machines.first.append([b"first %d" % n for n in range(firsts)])
    assert await synced(machines.first, machines.friend) is None
    machines.second.append([b"second %d" % n for n in range(seconds)])
    pair = (machines.second, machines.friend)
    await connected(*(pair if calls else pair[::-1]), until=machines.second)
    machines.noticed(newest)
    machines.unharmed(machines.friend)
    machines.first.append([b"first goes on"])
    assert await synced(machines.first, machines.friend) is None
    machines.unharmed(machines.friend)
    machines.unharmed(machines.first)
    assert machines.friend.log(LOG).height == newest + firsts + 1  # type: ignore[union-attr]
