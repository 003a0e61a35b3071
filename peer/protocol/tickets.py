"""Look-ups that the host has been asked for, and who waits for each answer.

A look-up is answered by another thread, in any order and perhaps when nobody wants it any more: so
each has a number, and who has asked is called with the answer. What is true by then he has to see
for himself (planner/progress.py).
"""

from collections.abc import Callable

from msgspec.structs import replace

from .commands import Command, LookUp
from .events import LogView, LookedUp


class Tickets:
    """Numbers for look-ups. Not all that are given out are waited for here."""

    def __init__(self, commands: list[Command]) -> None:
        self._commands = commands
        self._waiting: dict[int, Callable[[LogView], None]] = {}
        self._last = 0

    def __len__(self) -> int:
        """How many answers are waited for."""
        return len(self._waiting)

    def new(self) -> int:
        """A number that was not used before."""
        self._last += 1
        return self._last

    def look_up(self, wanted: LookUp, then: Callable[[LogView], None]) -> None:
        """Ask the host; `then` is called with the answer."""
        ticket = self.new()
        self._waiting[ticket] = then
        self._commands.append(replace(wanted, ticket=ticket))

    def answered(self, event: LookedUp) -> bool:
        """Hand on an answer; False if nobody waits for it here."""
        then = self._waiting.pop(event.ticket, None)
        if then is None:
            return False
        then(event.view)
        return True
