"""What one side may still send: the one place that owns closing (bymux.md Closing).

A half is everything that *one* side has said about one stream. Close ends its writing, StopRead
ends its granting of credit, and neither has anything to do with what the other side has sent. A
stream has two halves, ours and theirs, and so has the creation of streams, whose write is the
global Write and whose credit is the global Credit. This file does not know whose half it judges.
"""

from enum import IntEnum

from .errors import Violation


class Half(IntEnum):
    """What a side has sent so far."""

    OPEN = 0
    """Neither Close nor StopRead."""
    CLOSED = 1
    """Close: it writes no more."""
    STOPPED = 2
    """StopRead: it grants no more credit."""
    ENDED = 3
    """Both: it sends nothing more of this stream, not even Ping and Pong."""


class Input(IntEnum):
    """A packet of that side."""

    WRITE = 0
    CREDIT = 1
    CLOSE = 2
    STOP_READ = 3


# What is missing is illegal.
TRANSITIONS: dict[tuple[Half, Input], Half] = {
    (Half.OPEN, Input.WRITE): Half.OPEN,
    (Half.OPEN, Input.CREDIT): Half.OPEN,
    (Half.OPEN, Input.CLOSE): Half.CLOSED,
    (Half.OPEN, Input.STOP_READ): Half.STOPPED,
    (Half.CLOSED, Input.CREDIT): Half.CLOSED,
    (Half.CLOSED, Input.STOP_READ): Half.ENDED,
    (Half.STOPPED, Input.WRITE): Half.STOPPED,
    (Half.STOPPED, Input.CLOSE): Half.ENDED,
}

# The table again, by state, for the paths that every packet takes.
MAY_WRITE = tuple((half, Input.WRITE) in TRANSITIONS for half in Half)
MAY_GRANT = tuple((half, Input.CREDIT) in TRANSITIONS for half in Half)

_NAMES = {
    Input.WRITE: "Write",
    Input.CREDIT: "Credit",
    Input.CLOSE: "Close",
    Input.STOP_READ: "StopRead",
}
_SAID = {
    Half.OPEN: "nothing",
    Half.CLOSED: "Close",
    Half.STOPPED: "StopRead",
    Half.ENDED: "Close and StopRead",
}
CLOSING = "bymux.md Closing"


def place(stream: int | None) -> str:
    """How errors name a stream, or None for the global forms."""
    return "global" if stream is None else f"stream {stream}"


def advance(half: Half, given: Input, stream: int | None) -> Half:
    """The state after a packet. Raises Violation if the half does not allow it."""
    after = TRANSITIONS.get((half, given))
    if after is None:
        raise Violation(
            CLOSING,
            f"{place(stream)}: {_NAMES[given]} after {_SAID[half]} of the same side",
            stream=stream,
        )
    return after


def check_may_ping(half: Half, name: str, stream: int | None) -> None:
    """Raises Violation for a Ping or Pong (`name` says which) of a half that has ended."""
    if half is Half.ENDED:
        detail = f"{place(stream)}: {name} after {_SAID[half]} of the same side"
        raise Violation(CLOSING, detail, stream=stream)
