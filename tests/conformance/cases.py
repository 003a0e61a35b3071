"""What a case is: a script, the rules that it proves, and what it takes to run it."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from wire import Setup

from .script import GREEDY, Speaker


class Need(Enum):
    """What a case asks of the endpoint or its surroundings; another implementation may lack it."""

    UNWANTED = "an author whom the endpoint does not follow"
    SETTINGS = "a confirmation with settings that the case chooses"
    OWN = "a log that the endpoint authors, and nobody else has"
    CLOCK = "time that passes at once"
    TOGETHER = "bytes that are read before the endpoint answers the first of them"
    SYNC = "an endpoint that makes a one-time sync"


@dataclass(frozen=True, slots=True)
class Case:
    """A script that an endpoint has to live through. `play` fails if the endpoint does not."""

    name: str
    rules: tuple[str, ...]
    play: Callable[[Speaker], None]
    setup: Setup = GREEDY
    needs: frozenset[Need] = frozenset()
    begins_itself: bool = False
    """Whether the script sends the setup in a way of its own."""
    is_long: bool = False
    """Whether it moves too much to be run byte by byte."""
    ends: bool = False
    """Whether the connection is over behind it."""


CASES: list[Case] = []
"""Every case that `case` has made."""


def case(
    *rules: str,
    setup: Setup = GREEDY,
    needs: frozenset[Need] = frozenset(),
    begins_itself: bool = False,
    is_long: bool = False,
    ends: bool = False,
) -> Callable[[Callable[[Speaker], None]], Callable[[Speaker], None]]:
    """Makes a script a case, whose name is that of the function in words."""

    def register(play: Callable[[Speaker], None]) -> Callable[[Speaker], None]:
        name = play.__name__.replace("_", " ")
        CASES.append(Case(name, rules, play, setup, needs, begins_itself, is_long, ends))
        return play

    return register


@dataclass(frozen=True, slots=True)
class Offence:
    """A script whose last words are a violation.

    `section` is how the rule has to be named, `words` have to stand in the reason, and it names the
    request that the script says.
    """

    name: str
    rules: tuple[str, ...]
    play: Callable[[Speaker], None]
    section: str
    words: tuple[str, ...] = ()
    setup: Setup = GREEDY
    needs: frozenset[Need] = frozenset()
    in_memory_only: bool = False
    """Whether others like it stand for it over sockets, where each takes longer."""
