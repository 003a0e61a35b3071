"""`CardinalProducer` and `CardinalConsumer`: together, apart, begun again, and with a full disk."""

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from gateways.cardinal import (
    CardinalConsumer,
    CardinalProducer,
    Conflict,
    NotAStream,
    Ready,
    Reorg,
    SubBatch,
    Update,
)
from gateways.cardinal.headers import Head
from gateways.cardinal.producing import Block, BlockRefused
from logstore import Store, StoreFull, StoreLocked
from peer.api import Peer
from wire import LogKey

from .chains import Replica, block, hash_of

GENESIS = bytes(32)
PATTERNS = [("a/", "accounts"), ("s/", "storage")]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    with Store.create(tmp_path / "store") as made:
        yield made


def producing(store: Store | Peer, **more: object) -> CardinalProducer:
    return CardinalProducer(store, "demo", patterns=PATTERNS, **more)  # type: ignore[arg-type]


def chain(first: int, last: int) -> list[Block]:
    return [
        block(number, number, hash_of(number - 1) if number > 1 else GENESIS, number)
        for number in range(first, last + 1)
    ]


async def test_what_is_written_is_told_at_once_and_once(store: Store) -> None:
    async with producing(store) as producer:
        for each in chain(1, 3):
            await producer.add_block(each)
        async with CardinalConsumer(store, ["demo"]) as consumer:
            found: list[object] = []
            with trio.fail_after(20):
                async for event in consumer.events():
                    if isinstance(event, Ready):
                        assert event.head == Head(3, hash_of(3), 3)
                        await producer.add_block(chain(4, 4)[0])
                        continue
                    assert isinstance(event, Update)
                    found.append(event.added[0].number)
                    content = await consumer.content(event.added[0])
                    assert len(content.values) == 3
                    event.done()
                    if len(found) == 4:
                        break
            assert found == [1, 2, 3, 4]
            assert [each.number async for each in consumer.blocks()] == [1, 2, 3, 4]
            assert (await consumer.why(hash_of(2))).state == "chain"
            assert await consumer.producers(60) == [store.author]
            assert (await consumer.token()).startswith(f"{store.author.hex()}/1=6;")
            state = await consumer.state()
        await producer.add_block(chain(5, 5)[0])
        assert await producer.latest() == 5
        async with CardinalConsumer(store, ["demo"], state=state) as again:
            with trio.fail_after(20):
                event = await anext(again.events())
            assert isinstance(event, Update)
            assert [each.number for each in event.added] == [5]


async def test_calls_that_wait_together_share_a_transaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    append_many = Store.append_many

    def counted(store: Store, batches: list[object], **more: object) -> object:
        sizes.append(len(batches))
        return append_many(store, batches, **more)  # type: ignore[arg-type]

    async with producing(store) as producer:
        monkeypatch.setattr(Store, "append_many", counted)
        async with trio.open_nursery() as nursery:
            for each in chain(1, 40):
                nursery.start_soon(producer.add_block, each)
        assert sum(sizes) == 120
        assert len(sizes) < 40
        call = await producer.add_block(chain(1, 1)[0])
        assert call.already
        with pytest.raises(BlockRefused, match="another block"):
            await producer.add_block(block(9, 1, GENESIS, 1))


async def test_a_full_disk_is_one_call_s_error_and_nothing_is_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_many = Store.append_many

    def full(*_: object, **__: object) -> object:
        monkeypatch.setattr(Store, "append_many", append_many)
        raise StoreFull("the disk is full", "here", "free space")

    async with producing(store) as producer:
        await producer.add_block(chain(1, 1)[0])
        monkeypatch.setattr(Store, "append_many", full)
        with pytest.raises(StoreFull):
            await producer.add_block(chain(2, 2)[0])
        # It was not written, and so it is now.
        call = await producer.add_block(chain(2, 2)[0])
        assert not call.already
        assert call.entries == 3


async def test_nobody_is_told_that_something_is_written_which_is_not(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> object:
        raise StoreFull("the disk is full", "here", "free space")

    failures: list[BaseException] = []

    async def add(producer: CardinalProducer, which: Block) -> None:
        try:
            await producer.add_block(which)
        except StoreFull as error:
            failures.append(error)

    async with producing(store) as producer:
        with monkeypatch.context() as patch:
            patch.setattr(Store, "append_many", full)
            async with trio.open_nursery() as nursery:
                for each in (*chain(1, 3), *chain(1, 3)):
                    nursery.start_soon(add, producer, each)
        assert len(failures) == 6
        for each in chain(1, 3):
            assert not (await producer.add_block(each)).already
        with pytest.raises(BlockRefused, match="unknown batch"):
            await producer.add_block(chain(4, 4)[0], {hash_of("id"): SubBatch()})
    with pytest.raises(ValueError, match="no stream"):
        CardinalConsumer(store, [])
    async with CardinalConsumer(store, ["demo"]) as consumer:
        assert await consumer.wait_for(1 << 63, 0) == "not_found"


async def test_sub_batches_and_a_reorganisation(store: Store) -> None:
    id_ = hash_of("id")
    async with producing(store) as producer:
        for each in chain(1, 4):
            await producer.add_block(each)
        new = block(3, "new", hash_of(2), 1, batches={"s/x": id_})
        with suppress(ZeroDivisionError):
            async with producer.reorg(2, hash_of(2)):
                await producer.add_block(new)
                raise ZeroDivisionError
        with pytest.raises(BlockRefused, match="not over"):
            async with producer.reorg(1, hash_of(1)):
                pass
    async with producing(store) as producer:
        async with producer.reorg(2, hash_of(2)):
            await producer.send_batch(hash_of("new"), id_, values={"s/x/1": b"part"})
        await producer.add_block(
            block(4, "newer", hash_of("new"), 2, batches={"s/y": id_}),
            {id_: SubBatch({"s/y/1": b"z"})},
        )
        async with CardinalConsumer(store, [producer.stream.key]) as consumer:
            told: list[object] = []
            async for event in consumer.events():
                if isinstance(event, Ready):
                    assert event.head == Head(4, hash_of("newer"), 2)
                    break
                told.append(event)
            kinds = [type(each) for each in told]
            assert kinds == [Update] * 4 + [Reorg] + [Update] * 3
            content = await consumer.content(hash_of("new"))
            assert content.values.get(b"s/x/1") == b"part"


async def test_waiting_for_a_block(store: Store) -> None:
    async with producing(store) as producer, CardinalConsumer(store, ["demo"]) as consumer:
        assert await consumer.wait_for(1, 0.01) == "not_found"
        await producer.add_block(chain(2, 2)[0])
        await producer.add_block(block(9, "alone", hash_of("nowhere"), 1))
        results: dict[object, str] = {}

        async def wait(which: bytes | int) -> None:
            results[which] = await consumer.wait_for(which, 5 if which == 2 else 0.5)

        async with trio.open_nursery() as nursery:
            for which in (2, 9, hash_of("alone"), hash_of("none")):
                nursery.start_soon(wait, which)
            async for event in consumer.events():
                event.done()
                if isinstance(event, Update):
                    break
        assert results == {
            2: "success",
            9: "timeout",
            hash_of("alone"): "timeout",
            hash_of("none"): "not_found",
        }
        assert await consumer.wait_for(hash_of(2), 0) == "success"


async def test_two_producers_on_one_node_that_disagree(store: Store, tmp_path: Path) -> None:
    with Store.create(tmp_path / "other") as other:
        keys: list[LogKey] = []
        replica = Replica(store)
        for each, value in ((store, b"one"), (other, b"two")):
            async with producing(each) as producer:
                keys.append(producer.stream.key)
                await producer.add_block(Block(1, hash_of(1), GENESIS, 1, {"a/1": value}))
        replica.take_all(other)
        async with producing(store, skip_seen=True) as producer:
            assert (await producer.add_block(chain(1, 1)[0])).already
        async with CardinalConsumer(store, keys) as consumer:
            told = []
            async for event in consumer.events():
                if isinstance(event, Ready):
                    break
                told.append(event)
        assert [type(each) for each in told] == [Update, Conflict]
        assert isinstance(told[1], Conflict)
        assert set(told[1].producers) == {store.author, other.author}


async def test_a_second_producer_other_settings_and_no_such_chain(store: Store) -> None:
    async with producing(store):
        with pytest.raises(StoreLocked):
            async with producing(store):
                pass
    with pytest.raises(NotAStream, match="other settings"):
        async with CardinalProducer(store, "demo"):
            pass
    with pytest.raises(NotAStream, match="no own chain"):
        async with CardinalConsumer(store, ["other"]):
            pass


async def test_a_producer_says_that_it_lives(store: Store, autojump_clock: object) -> None:
    async with producing(store, ping_s=10) as producer:
        await trio.sleep(25)
        info = store.log(producer.stream.key)
        assert info is not None
        assert info.newest == 3


async def test_on_a_peer(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "peer")
    async with Peer(store) as node, producing(node) as producer:
        await producer.add_block(chain(1, 1)[0])
        async with CardinalConsumer(node, [str(producer.stream.key)]) as consumer:
            with trio.fail_after(20):
                event = await anext(consumer.events())
            assert isinstance(event, Update)
