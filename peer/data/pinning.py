"""What it proves that a payload is not the one that was due (point2point.md 2, 3, 9).

If the author has forked a log and nobody knows it yet, the other side may rightly send the payload
of another entry than ours. What came of the entry in the same request pins the payload: its
metadata, or its hash where the request begins inside. Nothing does so

- in a request for payloads only: its starting hash is that of an entry before them. Payloads of
  other sizes follow each other there, so that once data has come nobody here knows for sure where
  one of them ends: the cursor counts as lost;
- where a side notifies of metadata, because only that is wanted, and leaves the payload to the
  other one, who passes the metadata in turn. Between two payloads there is metadata, so that all
  pieces are counted as before. Only the end of such a payload is what comes next.
"""

from peer.protocol.errors import Violation
from peer.protocol.request import Request
from peer.protocol.sequence import METADATA

from .links import CannotTakeIn


def is_counted(request: Request) -> bool:
    """Whether both sides surely count the same pieces."""
    return not (request.proposal.payloads_only and request.incoming.looked_up)


def is_pinned(request: Request, position: int) -> bool:
    """Whether both sides surely mean the same by a piece.

    The other side's cursor is at `position`, or just behind it.
    """
    base = request.base
    if base is None:
        raise AssertionError("only a confirmed request has pieces")
    if request.proposal.payloads_only:
        return is_counted(request)
    before = position - 1
    if position == 0 or request.incoming.metadata_at == before or _sent_by_us(request, before):
        return True  # The first piece is metadata, or the request begins inside it.
    return position >= base.reach or base.piece(position).kind is METADATA


def _sent_by_us(request: Request, position: int) -> bool:
    """Whether the other side has passed metadata because we sent it, and it verified there.

    Who passes metadata unseen, as we want notifies only, sends no payload behind it.
    """
    return position < min(request.outgoing.position, request.outgoing.notified_from)


def is_inside_unpinned(request: Request) -> bool:
    """Whether some of a payload has come that may have ended, as its size may be another one."""
    incoming = request.incoming
    full = not request.proposal.payloads_only
    return full and incoming.in_piece and not is_pinned(request, incoming.position)


def doubted(request: Request) -> int | None:
    """The entry whose payload does not fit here, where nothing pins it and pieces are counted."""
    invalid, base = request.incoming.invalid, request.base
    if invalid is None or base is None or request.proposal.payloads_only:
        return None
    return None if is_pinned(request, invalid[0]) else base.piece(invalid[0]).seq


def doubt(request: Request, finding: str, position: int) -> CannotTakeIn:
    """A payload, of counted pieces, does not fit and is not pinned: who holds it is not to blame.

    The request is to be given up.
    """
    request.incoming.invalid = (position, finding)
    return _given_up(finding)


def fault(request: Request, rule: str, finding: str, position: int | None = None) -> Exception:
    """The exception for a payload at the cursor that is not as its entry says.

    A Violation if the payload is pinned. Else a CannotTakeIn, and from then on the cursor is inside
    a payload of unknown size. `position`: that of the payload, if it is not that of the cursor.
    """
    incoming = request.incoming
    position = incoming.position if position is None else position
    if is_pinned(request, position):
        return Violation(rule, finding, request.number)
    if request.proposal.payloads_only:
        incoming.adrift = True
        return _given_up(finding)
    incoming.position = position
    incoming.adrift = True
    return doubt(request, finding, position)


def miscounted(request: Request, rule: str, finding: str) -> Exception:
    """The exception for a packet that no piece at the cursor allows.

    A Violation if pieces are counted. Else a CannotTakeIn, and the cursor counts as lost.
    """
    if is_counted(request):
        return Violation(rule, finding, request.number)
    request.incoming.adrift = True
    return _given_up(finding)


def _given_up(finding: str) -> CannotTakeIn:
    return CannotTakeIn(f"{finding}; the other side may hold other entries")
