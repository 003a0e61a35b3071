"""What it proves that a payload is not the one that was due (point2point.md 2, 3, 9).

A request for payloads only takes it for granted that both sides hold its entries, and its starting
hash is that of an entry before them. If the author has forked the log in between, and neither side
knows it yet, the other side rightly sends payloads of other entries: of other sizes, so that once
such data has come nobody here knows for sure where one of them ends. Where a request begins inside
a payload, the hash of the entry itself pins what comes; with metadata, the metadata does.
"""

from .errors import Violation
from .links import GivenUp
from .request import Request


def is_pinned(request: Request) -> bool:
    """Whether both sides surely mean the same piece by the cursor of the other side."""
    return not (request.proposal.payloads_only and request.incoming.looked_up)


def fault(request: Request, rule: str, finding: str) -> Exception:
    """The exception for something that is not as it should be.

    A Violation if what comes is pinned. Else a GivenUp, and the cursor counts as lost.
    """
    if is_pinned(request):
        return Violation(rule, finding, request.number)
    request.incoming.adrift = True
    return GivenUp(f"{finding}; the other side may hold other entries")
