"""A stream that takes its time holds nobody up but the one who appends it."""

import io
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest
import trio
import trio.lowlevel

from logstore import Store, StoreFailed
from peer.api import NodeConfig, Peer
from tests.payload_files import payload_files
from wire import LogKey

CONFIG = NodeConfig(workers=0, poll_s=0.01)
PATIENCE_S = 30
LARGE = b"z" * 100_000


class Pipe(io.RawIOBase):
    """A stream that gives what is put into it, and waits for more; b"" is its end."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: Queue[bytes] = Queue()
        self.reads = 0

    def read(self, size: int = -1, /) -> bytes:
        self.reads += 1
        return self.pieces.get(timeout=PATIENCE_S)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / "s") as store:
        yield store


async def test_others_append_while_a_stream_is_read(store: Store) -> None:
    pipe, added = Pipe(), []

    async def append(peer: Peer) -> None:
        added.extend(await peer.append([b"first", pipe]))  # type: ignore[list-item]

    with trio.fail_after(PATIENCE_S):
        async with Peer(store, config=CONFIG) as peer, trio.open_nursery() as nursery:
            nursery.start_soon(append, peer)
            pipe.pieces.put(LARGE)
            while not pipe.reads:
                await trio.lowlevel.checkpoint()
            assert (await peer.append([b"x"], log_id=1))[0].seq == 1
            assert not added
            pipe.pieces.put(b"")
    assert [each.seq for each in added] == [1, 2]
    assert store.open_payload(LogKey(store.author, 0), 2).read(0, 1 << 20) == LARGE


@pytest.mark.parametrize("how", ["cancelled", "the end of the block"])
async def test_what_is_given_up_is_read_no_further_and_leaves_nothing(
    store: Store, how: str
) -> None:
    pipe, scope = Pipe(), trio.CancelScope()
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery, Peer(store, config=CONFIG) as peer:

            async def append() -> None:
                if how == "cancelled":
                    with scope:
                        await peer.append([LARGE, pipe])  # type: ignore[list-item]
                    assert scope.cancelled_caught
                else:
                    with pytest.raises(RuntimeError):
                        await peer.append([LARGE, pipe])  # type: ignore[list-item]

            nursery.start_soon(append)
            while not pipe.reads:
                await trio.lowlevel.checkpoint()
            if how == "cancelled":
                scope.cancel()
                while nursery.child_tasks:
                    await trio.lowlevel.checkpoint()
        pipe.pieces.put(LARGE)
        assert store.path is not None
        while payload_files(store.path):
            await trio.lowlevel.checkpoint()
    assert not list(store.logs())
    assert pipe.reads == 1


class Broken(io.RawIOBase):
    def read(self, size: int = -1, /) -> bytes:
        raise OSError("bad stream")


async def test_a_stream_that_fails_says_nothing_of_the_disk(store: Store) -> None:
    async with Peer(store, config=CONFIG) as peer:
        with pytest.raises(StoreFailed, match=r"payload cannot be read \(bad stream\)"):
            await peer.append([Broken()])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="has to give bytes, not str"):
            await peer.append([io.StringIO("text")])  # type: ignore[list-item]
        assert (await peer.append([b"x"]))[0].seq == 1
