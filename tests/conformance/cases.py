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
