"""Which logs a session fetches: asks for more than notifications of (point2point.md 4 and 5).

Of all sessions of a node one fetches a log, so that each payload crosses the network once. Who it
is the node decides (source_book.py): a session asks before it fetches, and says when it has ended.
"""

from collections.abc import Callable
from dataclasses import replace

from wire import Adjust, Eagerness, LogKey

from .notices import FetchEnded
from .request import Request

Claim = Callable[[LogKey], bool]
"""Whether a session may be the one that fetches a log, from now on."""


def claim_all(_: LogKey) -> bool:
    """The claim of a session that is alone on its node."""
    return True


def fetches(request: Request) -> bool:
    """Whether we ask for the other side's data, or have asked for it and it has not answered."""
    eagerness = request.our_interest.eagerness
    over = request.cancel_sent is not None or request.cancel_received is not None
    return not over and eagerness is not None and eagerness is not Eagerness.NOTIFY


def confirmation(request: Request, confirm: Adjust, claim: Claim) -> Adjust:
    """Our confirmation as far as we may fetch the log.

    A finite range is what the other side came to bring, and who brings it may not stay.
    """
    if confirm.eagerness is Eagerness.NOTIFY or claim(request.log):
        return confirm
    if request.proposal.end is not None:
        return confirm
    return replace(confirm, eagerness=Eagerness.NOTIFY, eager_bytes=None)


class Fetches:
    """Notes what may not be fetched any more, and says so once it is certain."""

    def __init__(self, requests_of: Callable[[LogKey], list[Request]]) -> None:
        self._requests_of = requests_of
        self._perhaps_over: dict[LogKey, None] = {}

    def over(self, request: Request) -> None:
        """A request is over; perhaps another one fetches its log."""
        if request.our_interest.eagerness not in (None, Eagerness.NOTIFY):
            self.declined(request.log)

    def declined(self, log: LogKey) -> None:
        """This session leaves a log to others."""
        self._perhaps_over[log] = None

    def take_ended(self) -> list[FetchEnded]:
        """The logs of which nothing is fetched at this moment; each is told once."""
        if not self._perhaps_over:
            return []
        logs, self._perhaps_over = self._perhaps_over, {}
        return [FetchEnded(log) for log in logs if not self.is_fetched(log)]

    def is_fetched(self, log: LogKey) -> bool:
        """Whether some request asks for data of a log."""
        return any(fetches(request) for request in self._requests_of(log))
