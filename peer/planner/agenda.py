"""When a log is looked at again, although nothing of it comes from the other side."""

from peer.protocol.config import SessionConfig
from wire import LogKey

from .log_state import LogState
from .retries import Retries, earliest
from .settling import Settling


class Agenda:
    """The logs that wait for a moment, or for what has come to be stored."""

    def __init__(self, config: SessionConfig, settling: Settling) -> None:
        self._config = config
        self._settling = settling
        self._paused = Retries()
        self._later = Retries()

    def __contains__(self, log: LogKey) -> bool:
        return log in self._later or self.holds_back(log)

    def holds_back(self, log: LogKey) -> bool:
        """Whether nothing is to be planned for a log now."""
        return log in self._paused or log in self._settling

    def look_in(self, log: LogKey, delay_s: float, now: float) -> None:
        """Look at a log again in a while, if that is not to be done anyway."""
        if log not in self._later:
            self._later.add(log, now + delay_s)

    def look_soon(self, log: LogKey, now: float) -> None:
        """Look at it again after the least time that is to be between two look-ups."""
        self.look_in(log, self._config.look_again_s, now)

    def pause(self, log: LogKey, state: LogState, now: float, *, not_kept: bool = False) -> None:
        """Something failed: leave the log alone, each time for twice as long.

        `not_kept`: what came could not be stored, and the other side does not know of that.
        """
        config = self._config
        first = config.keep_again_s if not_kept else config.retry_first_s
        delay = min(first * 2.0 ** min(state.retries, 16), config.retry_max_s)
        state.retries += 1
        self._paused.add(log, now + delay)

    def due(self, now: float) -> list[LogKey]:
        """The logs to look at; told once."""
        return [*self._paused.due(now), *self._later.due(now), *self._settling.take_stored()]

    def next_at(self) -> float | None:
        """When a moment comes, or None."""
        return earliest(self._paused.next_at(), self._later.next_at())
