"""Streams that have ended a moment ago, of which messages are still on their way.

Each end of a connection may end a stream, and hears for a while what the other had sent before it
knew. That is no broken rule; the same words later, or about a stream that never was, are one.
"""

from typing import Final

from gateways.swarm.codec import Stream

LATE_S: Final = 30.0
"""So long what comes of an ended stream is taken as sent before (spec sections 3.1 and 3.2)."""
ENDED_MAX: Final = 512
"""As many as a peer may have at once: one that comes and goes by the thousand takes no more."""


class JustEnded:
    """The streams of one peer that ended within the last 30 seconds."""

    def __init__(self) -> None:
        self._at: dict[Stream, float] = {}

    def note(self, stream: Stream, now: float) -> None:
        """It ends now, a time in seconds."""
        self._at.pop(stream, None)
        while self._at and (len(self._at) >= ENDED_MAX or not self.has(next(iter(self._at)), now)):
            del self._at[next(iter(self._at))]
        self._at[stream] = now

    def has(self, stream: Stream, now: float) -> bool:
        """Whether what comes of it now may have been sent before."""
        until = self.until(stream)
        return until is not None and now < until

    def until(self, stream: Stream) -> float | None:
        """When it is over; None if it has not ended, or that was forgotten."""
        at = self._at.get(stream)
        return None if at is None else at + LATE_S
