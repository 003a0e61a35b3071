"""What goes on failing while a gateway goes on: said once a minute, in the log and as an event."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

SAID_EVERY_S: Final = 60.0


class Seldom:
    """Says the same thing once a minute. From any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[str, float] = {}

    def __call__(self, what: str, text: str) -> bool:
        """Whether `text` was logged; `what` tells subjects apart."""
        now = self._clock()
        with self._lock:
            # What was said long ago may be said again, and need not be remembered.
            self._said = {each: at for each, at in self._said.items() if now < at + SAID_EVERY_S}
            if what in self._said:
                return False
            self._said[what] = now
        log.warning("%s", text)
        return True
