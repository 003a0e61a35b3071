"""What goes on being wrong is said now and then, not each time it is found.

Nodes and gateways have one each: a full disk fails every payload, and a damaged entry is met by
everybody who reads its log.
"""

import threading
import time
from collections.abc import Callable
from logging import Logger
from typing import Final

SAID_EVERY_S: Final = 60.0
REASONS_MAX: Final = 8
"""Reasons that are told within that time: a full disk has a new one for each payload."""


class Seldom:
    """Remembers what was said a moment ago. From any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: in seconds."""
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[str, float] = {}

    def may_say(self, reason: str) -> bool:
        """Whether a reason is to be said; if so it counts as said."""
        now = self._clock()
        with self._lock:
            # What was said long ago may be said again, and need not be remembered.
            self._said = {each: at for each, at in self._said.items() if now < at + SAID_EVERY_S}
            if reason in self._said or len(self._said) >= REASONS_MAX:
                return False
            self._said[reason] = now
            return True

    def warn(self, log: Logger, reason: str, text: str) -> bool:
        """Logs a text unless its reason was said a moment ago; whether it did."""
        says = self.may_say(reason)
        if says:
            log.warning("%s", text)
        return says
