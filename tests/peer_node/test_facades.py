"""The facades have what `peer.api.Peer` has, argument by argument; and what both stand on."""

import inspect
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, Union, get_args, get_origin

import pytest
import trio
import trio.testing

from logstore import Store
from peer import aio, api, blocking
from peer.bridge import AHEAD, Ahead

TRIO_ALONE = {"node", "overview", "serve_stream"}
FACADES = pytest.mark.parametrize("facade", [aio.Peer, blocking.Peer])


def names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def without_streams(kind: object) -> object:
    """An annotation but for the streams of Trio that it allows."""
    left = tuple(each for each in get_args(kind) if each is not trio.abc.Stream)
    return kind if left == get_args(kind) else Union[left]  # noqa: UP007 - put together here


@FACADES
def test_a_facade_has_every_name_but_those_that_belong_to_trio(facade: type) -> None:
    assert names(facade) == names(api.Peer) - TRIO_ALONE


@FACADES
@pytest.mark.parametrize("name", ["__init__", *sorted(names(api.Peer) - TRIO_ALONE)])
def test_a_method_takes_and_gives_what_it_does_in_trio(facade: type, name: str) -> None:
    theirs, ours = getattr(api.Peer, name), getattr(facade, name)
    if isinstance(theirs, property):
        assert isinstance(ours, property)
        theirs, ours = theirs.fget, ours.fget
    there, here = inspect.signature(theirs), inspect.signature(ours)
    assert [
        each.replace(annotation=without_streams(each.annotation))
        for each in there.parameters.values()
    ] == list(here.parameters.values())
    if get_origin(there.return_annotation) is not AsyncGenerator:
        assert here.return_annotation == there.return_annotation
    else:
        assert get_args(here.return_annotation)[0] is get_args(there.return_annotation)[0]
    waits = inspect.iscoroutinefunction(theirs)
    assert inspect.iscoroutinefunction(ours) == (waits and facade is aio.Peer)


def test_the_peer_of_trio_says_what_there_is_where_trio_is_not() -> None:
    with Store.memory() as store:
        entering = api.Peer(store).__aenter__()
        with pytest.raises(RuntimeError, match=r"peer\.aio\.Peer .* peer\.blocking\.Peer"):
            entering.send(None)


class Here:
    """In the place of a bridge, where one thread does all."""

    def soon(self, function: Callable[[], object]) -> bool:
        function()
        return True


async def test_reading_stays_so_far_ahead_and_goes_on_where_half_is_taken() -> None:
    read: deque[int] = deque()

    async def numbers() -> AsyncGenerator[int, None]:
        for number in range(10 * AHEAD):
            read.append(number)
            yield number
            await trio.lowlevel.checkpoint()

    bridge: Any = Here()
    ahead: Ahead[int] = Ahead(bridge, lambda: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ahead.fill, numbers())
        await trio.testing.wait_all_tasks_blocked()
        assert len(read) == AHEAD
        for number in range(AHEAD // 2 - 1):
            assert ahead.take() == [number]
        await trio.testing.wait_all_tasks_blocked()
        assert len(read) == AHEAD
        assert ahead.take() == [AHEAD // 2 - 1]
        await trio.testing.wait_all_tasks_blocked()
        assert len(read) == AHEAD + AHEAD // 2
        nursery.cancel_scope.cancel()


async def test_who_found_nothing_is_woken_once() -> None:
    woken: list[None] = []

    async def one_each_turn() -> AsyncGenerator[int, None]:
        for number in range(3):
            await trio.lowlevel.checkpoint()
            yield number

    bridge: Any = Here()
    ahead: Ahead[int] = Ahead(bridge, lambda: woken.append(None))
    assert ahead.take() == []
    await ahead.fill(one_each_turn())
    assert len(woken) == 1
    assert [ahead.take(), ahead.take(), ahead.take()] == [[0], [1], [2]]
