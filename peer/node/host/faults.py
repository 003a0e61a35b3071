"""The log of what nobody foresaw, once in a while for each place in the program."""

import logging

from logstore import Seldom, StoreError

log = logging.getLogger(__name__)


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
        if self._seldom.may_say(str(error) if is_disk else _place(error)):
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
