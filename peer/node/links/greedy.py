"""Whether payloads pass before they are verified, chosen for each connection, each way.

Both sides of a connection have to agree (point2point.md 1): what is said here is what this side is
ready for.
"""

from dataclasses import replace
from typing import Final, Literal, get_args

from wire import Setup

Greedy = Literal["both", "send", "receive", "none"]
"""Ready to send greedily, to take what is sent greedily, both, or neither: safe both ways."""

_READY: Final[dict[Greedy, tuple[bool, bool]]] = {
    "both": (True, True),
    "send": (True, False),
    "receive": (False, True),
    "none": (False, False),
}


def parse_greedy(text: str) -> Greedy:
    """One of the words. Raises ValueError."""
    for word in get_args(Greedy):
        if text == word:
            found: Greedy = word
            return found
    raise ValueError(f"{text!r:.40} is none of both, send, receive and none")


def with_greedy(setup: Setup, greedy: Greedy | None) -> Setup:
    """The setup of a connection for which something else was chosen; None: nothing else.

    Raises ValueError for what is no such word.
    """
    if greedy is None:
        return setup
    send, accept = _READY[parse_greedy(greedy)]
    return replace(setup, send_greedily=send, accept_greedily=accept)
