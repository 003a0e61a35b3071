"""The pings of a session: what each was made for, and how far away the other side is.

bymux answers pings in their order and at once, ahead of all data. So an answer tells that all that
left before its ping has been read, and nothing of what waits for credit. Several things wait for
such an answer, for several reasons, and none may take that of another for its own.
"""

from collections import deque
from enum import Enum, auto


class Ping(Enum):
    """What the answer to a ping tells."""

    ALIVE = auto()
    """That the other side is there at all."""
    SYNC = auto()
    """That it has read all that a one-time sync had to say."""
    RECEIPT = auto()
    """That it has read the control messages before."""
    GOODBYE = auto()
    """That it has read that we end the session."""


class Pings:
    """Pings without an answer; they are answered in their order. Times are in seconds."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Ping, float]] = deque()
        self.round_trip_s = 0.0
        """The fastest answer; 0 if none has come."""

    def __contains__(self, kind: Ping) -> bool:
        return any(kind is waiting for waiting, _ in self._waiting)

    def made(self, kind: Ping, now: float) -> None:
        """Another one, behind those that wait."""
        self._waiting.append((kind, now))

    def answered(self, now: float) -> Ping:
        """An answer to the oldest has come; which one that was."""
        kind, made_at = self._waiting.popleft()
        took_s = now - made_at
        self.round_trip_s = min(self.round_trip_s or took_s, took_s)
        return kind
