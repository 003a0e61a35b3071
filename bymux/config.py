"""What both sides agree on, and the limits that a side sets for itself."""

from dataclasses import dataclass, field
from enum import Enum

from .packets import U64_MAX

INFINITE = U64_MAX
"""As credit: without end. Finite credit of a stream is at most INFINITE - 1."""


class Role(Enum):
    """Whose ids are whose: the side that connected is proactive and creates even ids."""

    PROACTIVE = 0
    REACTIVE = 1

    @property
    def parity(self) -> int:
        """What the ids of the streams that this side creates leave when divided by two."""
        return self.value


@dataclass(frozen=True, slots=True)
class InitialStream:
    """A stream that exists from the start, because both sides have agreed on it.

    Credit is as this side sees it: `send_credit` bytes may be sent, `receive_credit` bytes may
    come; INFINITE is allowed.
    """

    id: int
    send_credit: int = 0
    receive_credit: int = 0

    def __post_init__(self) -> None:
        for value in (self.id, self.send_credit, self.receive_credit):
            _check_u64(value)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of what costs us and moves nothing a peer may cause (bymux.md Idle work)."""

    # As many as nghttp2 has answered at once since CVE-2019-9512.
    pongs_owed_max: int = 1000
    # nghttp2's limit on resets: a burst that no honest peer reaches, and a rate it may keep up.
    idle_work_max: int = 1000
    idle_work_per_s: float = 33.0
    # Credit may come with every Write that it is for, and is worth little more often than that: one
    # peer that granted a byte at a time kept a whole node from its other connections.
    credits_free: int = 64
    small_write_bytes: int = 16
    """Writes below this, by a side that may write more, are counted (`take_small_writes`)."""


@dataclass(frozen=True, slots=True)
class Config:
    """How a connection begins and behaves. The defaults are plain bymux.

    `initial_streams`, `streams_creatable` and the two credits of new streams are an agreement:
    the other side has to be configured with the mirror image.
    """

    write_bytes_max: int = 16 * 1024
    """The largest body of a Write packet of ours: one turn of a stream (bymux.md Fairness)."""
    initial_streams: tuple[InitialStream, ...] = ()
    streams_creatable: bool = True
    """False: the global Close and StopRead count as sent and received by both sides, yet global
    Ping and Pong stay legal (point2point.md 1)."""
    creator_credit: int = 0
    """What the creator of a stream may send at once."""
    other_credit: int = 0
    """What the other side may send at once on a stream that it did not create."""
    answer_close: bool = True
    """False: the application itself answers a stream's Close, by `stop_read`."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for value in (self.creator_credit, self.other_credit):
            _check_u64(value)
        if self.write_bytes_max < 1:
            raise ValueError(f"write_bytes_max is {self.write_bytes_max}, 1 is the least")
        if len({stream.id for stream in self.initial_streams}) < len(self.initial_streams):
            raise ValueError("two initial streams have the same id")


def _check_u64(value: int) -> None:
    if not 0 <= value <= U64_MAX:
        raise ValueError(f"{value} is not between 0 and 2^64 - 1")
