"""What goes on being wrong is said now and then, not each time it is found."""

import logging
import time
from typing import Final

from logstore import StoreError

log = logging.getLogger(__name__)

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


class Faults:
    """The log of what nobody foresaw, and of a disk that fails where nobody waits for an answer.

    From any thread.
    """

    def __init__(self) -> None:
        self._seldom = Seldom()

    def tell(self, where: str, error: Exception) -> None:
        """One line for a disk, a traceback for a fault of this program: each once in a while.

        The place in the program makes two faults the same, whatever peers have written into them.
        """
        is_disk = isinstance(error, StoreError)
        if self._seldom.may_say(str(error) if is_disk else _place(error), time.monotonic()):
            log.log(
                logging.WARNING if is_disk else logging.ERROR,
                "%s: %s",
                where,
                error if is_disk else repr(error),
                exc_info=None if is_disk else error,
            )


def _place(error: Exception) -> str:
    """Where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return f"{type(error).__name__} {place}"
