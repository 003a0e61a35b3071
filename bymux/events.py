"""What `Connection.receive_data` reports.

`stream` is the id of a stream, or None where the packet was a global one.
"""

from dataclasses import dataclass


@dataclass(slots=True)  # not frozen: one is made for each piece of data, at a third of the cost
class DataReceived:
    """Bytes of a stream, in order. The pieces' borders mean nothing."""

    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CreditReceived:
    """More may be sent, or for None more streams may be created; once per stream and call."""

    stream: int | None


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The peer created a stream."""

    stream: int


@dataclass(frozen=True, slots=True)
class CloseReceived:
    """The peer writes no more, or for None creates no more streams (bymux.md Closing)."""

    stream: int | None


@dataclass(frozen=True, slots=True)
class StopReadReceived:
    """The peer grants no more credit. What was queued still goes out, then our Close."""

    stream: int | None


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """Both sides have sent Close and StopRead: the stream is over, its id free."""

    stream: int


@dataclass(frozen=True, slots=True)
class PongReceived:
    """The answer to a Ping of ours. Unasked Pongs are legal and not reported."""

    stream: int | None


Event = (
    DataReceived
    | CreditReceived
    | StreamOpened
    | CloseReceived
    | StopReadReceived
    | StreamEnded
    | PongReceived
)
