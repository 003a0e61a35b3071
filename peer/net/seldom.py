"""What goes on being wrong is said now and then, not each time it is found."""

from typing import Final

EVERY_S: Final = 60.0
REASONS_MAX: Final = 8
"""Reasons that are told within that time: a full disk has a new one for each payload."""


class Seldom:
    """Remembers what was said a moment ago."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def may_say(self, reason: str, now: float) -> bool:
        """Whether a reason is to be said; if so it counts as said."""
        self._said = {each: at_s for each, at_s in self._said.items() if now < at_s + EVERY_S}
        if reason in self._said or len(self._said) >= REASONS_MAX:
            return False
        self._said[reason] = now
        return True
