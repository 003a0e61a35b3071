"""What waits to be sent to a peer: four levels, the highest first (spec section 3.8).

A connection sends one message after the other, and what is asked for now has to overtake what may
come whenever it comes: retrievals overtake live syncing, and that overtakes history. So a level is
looked for before each message, and inside a level nothing overtakes anything.

A peer may read slowly, or not at all, and what is for it takes memory here. Whoever makes messages
by the thousand therefore asks first whether there is room. What answers a message of the peer
cannot wait: two nodes that both stop reading until the other has read would stand still for ever.
It may fill a level once more, and a peer that goes on asking without reading is dropped.
"""

from collections import deque
from typing import Final

from gateways.swarm.codec import PRIORITIES, Message, encode_message
from gateways.swarm.devp2p import breach

LEVEL_MESSAGES_MAX: Final = 4_096
LEVEL_BYTES_MAX: Final = 32 << 20
"""Of the messages in a level, without their envelopes."""
SHORT_MESSAGES: Final = 256
"""Chunks are read when no more of their level wait: what is read ahead is memory of each peer."""
_OVERFLOW: Final = 2
"""So many times its limits a level takes, if whoever fills it does not ask for room."""


class _Level:
    """Messages of one priority, each its number in stream/8 and its bytes."""

    __slots__ = ("messages", "size")

    def __init__(self) -> None:
        self.messages: deque[tuple[int, bytes]] = deque()
        self.size = 0

    def is_below(self, times: int) -> bool:
        return (
            len(self.messages) < times * LEVEL_MESSAGES_MAX and self.size < times * LEVEL_BYTES_MAX
        )


class SendingQueue:
    """The messages of stream/8 that one peer is still to be sent."""

    def __init__(self) -> None:
        self._levels = [_Level() for _ in PRIORITIES]

    def has_room(self, priority: int) -> bool:
        """Whether who produces for a level, 0 to 3, may go on (spec section 3.8)."""
        return self._levels[priority].is_below(1)

    def is_short(self, priority: int) -> bool:
        """Whether so little of a level waits that more is to be read for it."""
        return len(self._levels[priority].messages) < SHORT_MESSAGES

    def put(self, priority: int, message: Message) -> None:
        """Puts a message behind those of its level, 0 to 3.

        Raises ValueError for a message that may not leave, and RefusedError where the peer has not
        read for so long that the level is full twice over (spec sections 3.8 and 7).
        """
        level = self._levels[priority]
        if not level.is_below(_OVERFLOW):
            why = f"{len(level.messages)} messages of priority {priority} wait to be read"
            raise breach(why)
        number, encoded = encode_message(message)
        level.messages.append((number, encoded))
        level.size += len(encoded)

    def take(self) -> tuple[int, bytes] | None:
        """The next message, its number and its bytes without envelope; None if nothing waits."""
        for level in reversed(self._levels):
            if level.messages:
                number, encoded = level.messages.popleft()
                level.size -= len(encoded)
                return number, encoded
        return None
