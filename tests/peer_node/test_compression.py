"""What compression saves on a real socket, and that a sync tells (point2point.md 1, 4)."""

import random
from collections.abc import Iterator

import pytest
import trio

from logstore import ALL, Store
from peer import Compression, SessionConfig
from peer.api import NodeConfig, Peer, SyncSummary, sync
from wire import LogKey, Setup

PATIENCE_S = 30
WORDS = [b"bamboo", b"grows", b"bends", b"shoots", b"leaves", b"in", b"the", b"wind"]
TEXT = b" ".join(random.Random(7).choices(WORDS, k=800_000))[: 4 << 20]


@pytest.fixture
def stores() -> Iterator[tuple[Store, Store]]:
    with Store.memory() as here, Store.memory() as there:
        yield here, there


def config(compression: Compression, window: int = 65536) -> NodeConfig:
    setup = Setup(
        send_greedily=True, accept_greedily=True, send_window=window, receive_window=window
    )
    session = SessionConfig(setup=setup, compression=compression)
    return NodeConfig(session=session, workers=0, poll_s=0.001)


async def moved(
    stores: tuple[Store, Store], payloads: list[bytes], sender: NodeConfig, receiver: NodeConfig
) -> SyncSummary:
    """What the receiver's sync says, once it holds the payloads as they are."""
    author, follower = stores
    author.append(payloads)
    follower.follow(ALL)
    with trio.fail_after(PATIENCE_S):
        async with Peer(author, config=sender) as peer:
            summary = await sync(follower, await peer.listen(), config=receiver)
    for seq, payload in enumerate(payloads, 1):
        with follower.open_payload(LogKey(author.author, 0), seq) as reader:
            assert reader.read(0, len(payload) + 1) == payload
    return summary


async def test_a_payload_that_shrinks_costs_less_than_half_its_bytes(
    stores: tuple[Store, Store],
) -> None:
    summary = await moved(stores, [TEXT], config("always"), config("never"))
    assert summary.payload_bytes_received == len(TEXT)
    assert 2 * summary.bytes_received < len(TEXT)


@pytest.mark.parametrize(
    ("sender", "receiver"),
    [(config("never"), config("always")), (config("always"), config("always", window=0))],
)
async def test_nothing_is_compressed_that_one_side_does_not_want_compressed(
    stores: tuple[Store, Store], sender: NodeConfig, receiver: NodeConfig
) -> None:
    summary = await moved(stores, [TEXT[:300_000]], sender, receiver)
    assert summary.bytes_received > 300_000


async def test_by_default_the_beginning_is_compressed_and_small_payloads_are_not(
    stores: tuple[Store, Store],
) -> None:
    summary = await moved(stores, [TEXT[:300_000]], config("auto"), config("auto"))
    assert 2 * summary.bytes_received < 300_000
    stores[0].append([TEXT[:900]] * 100)
    async with Peer(stores[0], config=config("auto")) as peer:
        summary = await sync(stores[1], await peer.listen(), config=config("auto"))
    assert summary.bytes_received > summary.payload_bytes_received == 90_000


@pytest.mark.parametrize("window", [1, 2, 17, 16 << 20])
async def test_windows_of_any_size_up_to_the_largest_work(
    stores: tuple[Store, Store], window: int
) -> None:
    noise = random.Random(8).randbytes(100_000)
    payload = b"b" * 300_000 + noise + TEXT[:100_000]
    summary = await moved(stores, [payload], config("always", window), config("never", window))
    assert summary.bytes_received < len(noise) + len(TEXT[:100_000]) + 20_000
