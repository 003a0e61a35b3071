"""A link in memory behaves as Trio says a stream does, and holds no more than its buffer."""

import pytest
import trio
from trio.testing import check_half_closeable_stream, wait_all_tasks_blocked

from peer.node import MemoryStream, memory_link


async def test_both_ends_pass_trios_checks_of_a_stream() -> None:
    async def pair() -> tuple[MemoryStream, MemoryStream]:
        return memory_link()

    async def clogged_pair() -> tuple[MemoryStream, MemoryStream]:
        here, there = memory_link(1)
        await here.send_all(b"x")
        await there.send_all(b"x")
        return here, there

    await check_half_closeable_stream(pair, clogged_pair)


async def test_no_more_than_the_buffer_is_under_way() -> None:
    here, there = memory_link(10)
    sent = False

    async def send() -> None:
        nonlocal sent
        await here.send_all(bytes(range(25)))
        sent = True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await wait_all_tasks_blocked()
        assert await there.receive_some(100) == bytes(range(10))
        await wait_all_tasks_blocked()
        assert not sent
        assert await there.receive_some(4) == bytes(range(10, 14))
        await wait_all_tasks_blocked()
        assert await there.receive_some(100) == bytes(range(14, 24))
        assert await there.receive_some(100) == b"\x18"
    assert sent


def test_a_link_without_a_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="0 bytes"):
        memory_link(0)
