"""When an end of a connection has something to do although nothing came.

A connection of a node asks that only where its session says that something is *stirred*. What is
due sooner than it was, where nothing is, would be late there: so it is asked each time here, and
that is found out.
"""

from collections.abc import Callable
from math import inf

from .clock import Clock, Life


class Due:
    """A timer of one end."""

    def __init__(self, clock: Clock, deadline: Callable[[], float | None]) -> None:
        self._clock = clock
        self._deadline = deadline
        self._at = self._told = inf

    def told(self) -> None:
        """Whoever runs the end knows when something is due."""
        self._told = self._at

    def look(self, do: Callable[[], None], life: Life) -> None:
        """Has `do` called when something is due."""
        deadline = self._deadline()
        if deadline is not None and deadline < self._at:
            self._at = deadline
            self._clock.after(deadline - self._clock.now, do, life)

    def came(self) -> bool:
        """The time has come; whether it is still due."""
        self._at = inf
        deadline = self._deadline()
        return deadline is not None and deadline <= self._clock.now

    @property
    def is_late(self) -> bool:
        """Whether something is due sooner than anybody was told."""
        return self._at < self._told
