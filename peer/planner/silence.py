"""How long the other side has said nothing to a question that is known to have reached it.

A slow link is no silence. So a ping follows a question, once the control messages before it have
left, and only from the answer to that ping on does time count: bymux answers pings at once, never
behind data or credit. One ping is for all questions before it; those that are asked while it is
under way wait for the next one.

    asked ──ping──► pinged ──pong──► arrived ──`limit_s`──► due
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

K = TypeVar("K")


class Silences(Generic[K]):
    """Questions without an answer, by any key; of each key there is one at a time."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._asked: dict[K, None] = {}
        self._pinged: dict[K, None] = {}
        self._due_at: dict[K, float] = {}
        """Of those that have arrived, in the order of these times."""

    def begin(self, key: K) -> None:
        """Something was asked, and a ping is to follow; anew if it was asked before."""
        self.end(key)
        self._asked[key] = None

    def end(self, key: K) -> None:
        """It was answered, or the answer does not matter any more."""
        self._asked.pop(key, None)
        self._pinged.pop(key, None)
        self._due_at.pop(key, None)

    @property
    def wants_ping(self) -> bool:
        """Whether something was asked after the last ping."""
        return bool(self._asked)

    def ping_sent(self) -> None:
        """A ping has left behind all that was asked; the one before has been answered."""
        self._pinged, self._asked = self._asked, {}

    def pong_came(self, now: float) -> None:
        """That ping was answered. Times in seconds."""
        self._due_at.update(dict.fromkeys(self._pinged, now + self._limit_s))
        self._pinged.clear()

    def take_due(self, now: float) -> Iterable[K]:
        """What has waited for its answer long enough; it is not waited for any more."""
        while (at := self.next_at()) is not None and at <= now:
            key = next(iter(self._due_at))
            del self._due_at[key]
            yield key

    def next_at(self) -> float | None:
        """When the next one has waited long enough."""
        return next(iter(self._due_at.values()), None)
