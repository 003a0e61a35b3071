"""What waits to be sent: the highest level first, and who produces waits."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.swarm.codec import (
    Message,
    RetrieveDelivery,
    StreamDelivery,
    SubscribeError,
    decode_message,
)
from gateways.swarm.devp2p import Reason, RefusedError
from gateways.swarm.sending import LEVEL_BYTES_MAX, LEVEL_MESSAGES_MAX, SendingQueue

SMALL = SubscribeError("no")
LARGE = StreamDelivery(bytes(32), bytes(1 << 20))


def _taken(queue: SendingQueue) -> Message | None:
    found = queue.take()
    return None if found is None else decode_message(*found)


@given(st.lists(st.none() | st.integers(0, 3), max_size=60))
def test_each_level_is_a_line_and_the_highest_comes_next(steps: list[int | None]) -> None:
    queue = SendingQueue()
    lines: dict[int, deque[Message]] = {level: deque() for level in (3, 2, 1, 0)}
    for number, level in enumerate(steps):
        if level is None:
            expected = next((line.popleft() for line in lines.values() if line), None)
            assert _taken(queue) == expected
        else:
            lines[level].append(SubscribeError(str(number)))
            queue.put(level, lines[level][-1])


@pytest.mark.parametrize(
    ("message", "limit"), [(SMALL, LEVEL_MESSAGES_MAX), (LARGE, LEVEL_BYTES_MAX >> 20)]
)
def test_who_produces_waits_for_one_level_alone(message: Message, limit: int) -> None:
    queue = SendingQueue()
    for _ in range(limit):
        assert queue.has_room(1)
        queue.put(1, message)
    assert [queue.has_room(level) for level in range(4)] == [True, False, True, True]
    queue.put(2, message)
    queue.take()
    assert not queue.has_room(1)
    queue.take()
    assert queue.has_room(1) is (message is SMALL or queue._levels[1].size < LEVEL_BYTES_MAX)


def test_who_asks_and_never_reads_is_dropped() -> None:
    queue = SendingQueue()
    for _ in range(2 * LEVEL_MESSAGES_MAX):
        queue.put(3, SMALL)
    with pytest.raises(RefusedError, match="8192 messages of priority 3 wait") as caught:
        queue.put(3, SMALL)
    assert caught.value.reason is Reason.SUBPROTOCOL_ERROR
    queue.put(2, SMALL)


def test_what_may_not_leave_does_not_wait_either() -> None:
    queue = SendingQueue()
    with pytest.raises(ValueError, match="the address has 31 bytes"):
        queue.put(3, RetrieveDelivery(bytes(31), b"x"))
    assert queue.take() is None
