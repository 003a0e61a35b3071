"""What ends a command early. The message is one line: what is wrong, where, and what to do.

The exit statuses are those of docs/cli.md, where one table has them all.
"""

from collections.abc import Iterable
from typing import Final

DONE: Final = 0
FAILED: Final = 1
WRONG_USAGE: Final = 2
NO_ANSWER: Final = 3
TIMED_OUT: Final = 4
FORKED: Final = 5
INCOMPLETE: Final = 6
REFUSED: Final = 7
INTERRUPTED: Final = 130

_ORDER: Final = (
    INTERRUPTED,
    WRONG_USAGE,
    REFUSED,
    FORKED,
    TIMED_OUT,
    NO_ANSWER,
    INCOMPLETE,
    FAILED,
)


class Problem(Exception):  # noqa: N818 - no fault of the program's
    """The work cannot be done, or the answer is no."""

    def __init__(self, text: str, status: int = FAILED) -> None:
        super().__init__(text)
        self.status = status


class WrongUsage(Exception):  # noqa: N818 - no fault of the program's
    """The command line, the environment or the configuration makes no sense: exit status 2."""


def first_status(statuses: Iterable[int]) -> int:
    """Of several that hold at once the one to end with: of what a person has to act on first."""
    found = set(statuses)
    return next((status for status in _ORDER if status in found), DONE)
