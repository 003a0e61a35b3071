"""The state of one stream, and of creating streams, which is much like one.

What is owed to the peer stands here as counts and flags, so a flood of packets that want an answer
costs no memory; `outbox` turns them into packets when there is room.

Our half moves on when the application says so. What it announced may then still wait to be sent
(`close_owed`, `stop_owed`), Close behind the last byte of data. Only with nothing owed is our half
also over on the wire.
"""

from collections import deque

from .credit import ReceiveCredit, SendCredit
from .half import Half
from .packets import Kind, WriteHeaders, encode_signal


class Channel:
    """What a stream and the creation of streams have in common."""

    __slots__ = (
        "close_owed",
        "id",
        "ours",
        "ping",
        "ping_always",
        "pings_due",
        "pings_unanswered",
        "pong",
        "pongs_owed",
        "stop_owed",
        "theirs",
    )

    def __init__(self, stream: int | None, half: Half = Half.OPEN) -> None:
        self.id = stream
        self.ours = half
        self.theirs = half
        self.stop_owed = False
        self.close_owed = False
        self.pongs_owed = 0
        self.ping_always = False
        """Whether Ping and Pong stay legal after both halves have ended."""
        self.pings_due = 0
        self.pings_unanswered = 0
        self.ping = encode_signal(Kind.PING, stream)
        self.pong = encode_signal(Kind.PONG, stream)

    @property
    def over_for_us(self) -> bool:
        """Whether Close and StopRead of ours have both been sent, not only announced."""
        return self.ours is Half.ENDED and not self.close_owed and not self.stop_owed


class Stream(Channel):
    """An active stream."""

    __slots__ = ("headers", "number", "offset", "queue", "receive", "send")

    def __init__(
        self, number: int, send_credit: int, receive_credit: int, credits_free: int
    ) -> None:
        super().__init__(number)
        self.number = number
        self.send = SendCredit(send_credit, credits_free)
        self.receive = ReceiveCredit(receive_credit)
        self.headers = WriteHeaders(number)
        self.queue: deque[bytes | memoryview] = deque()
        self.offset = 0
        """How much of the first piece of the queue has been sent."""

    @property
    def is_over(self) -> bool:
        """Whether both sides have sent both, and the id is free (bymux.md Closing)."""
        return self.theirs is Half.ENDED and self.over_for_us

    def take(self, count: int, parts: list[bytes | memoryview]) -> None:
        """Moves `count` queued bytes to `parts` without copying them."""
        queue = self.queue
        self.send.queued -= count
        while count:
            piece = queue[0]
            offset = self.offset
            rest = len(piece) - offset
            if rest <= count:
                parts.append(memoryview(piece)[offset:] if offset else piece)
                queue.popleft()
                self.offset = 0
                count -= rest
            else:
                parts.append(memoryview(piece)[offset : offset + count])
                self.offset = offset + count
                return


class Creation(Channel):
    """The creation of streams. Its credit is a plain number: none is ever infinite."""

    __slots__ = ("created", "credit_due", "receive_credit", "send_credit")

    def __init__(self, *, possible: bool) -> None:
        super().__init__(None, Half.OPEN if possible else Half.ENDED)
        self.ping_always = not possible
        self.send_credit = 0
        """How many streams we may create."""
        self.receive_credit = 0
        """How many streams the peer may create, as far as our grants have been sent."""
        self.credit_due = 0
        """Granted and not yet sent."""
        self.created: deque[int] = deque()
        """Streams of ours whose global Write is not yet sent."""
