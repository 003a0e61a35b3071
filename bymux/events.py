"""What `Connection.receive_data` reports.

`stream` is the id of a stream, or None where the packet was a global one.
"""

from msgspec import Struct


class DataReceived(Struct):
    """Bytes of a stream, in order. The pieces' borders mean nothing."""

    stream: int
    data: bytes | memoryview
    """A large piece is a view of the bytes that came, which nobody changes."""


class CreditReceived(Struct, frozen=True):
    """More may be sent, or for None more streams may be created; once per stream and call."""

    stream: int | None


class StreamOpened(Struct, frozen=True):
    """The peer created a stream."""

    stream: int


class CloseReceived(Struct, frozen=True):
    """The peer writes no more, or for None creates no more streams (bymux.md Closing)."""

    stream: int | None


class StopReadReceived(Struct, frozen=True):
    """The peer grants no more credit. What was queued still goes out, then our Close."""

    stream: int | None


class StreamEnded(Struct, frozen=True):
    """Both sides have sent Close and StopRead: the stream is over, its id free."""

    stream: int


class PongReceived(Struct, frozen=True):
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
