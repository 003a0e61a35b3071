"""What becomes of a request in force when this node wants something else (point2point.md 5, 6).

Pure. Narrower wishes are an adjust; wider ones take a cancel 128 and a new proposal, since limits
and ends only ever get tighter and nobody leaves "notify only" in a request.
"""

from msgspec import Struct

from peer.protocol.request import OPEN_END, Request
from peer.protocol.sequence import Piece
from wire import Adjust, Eagerness

from .asks import Settings, Wants
from .ranges import meet, range_with


class Change(Struct, frozen=True):
    """At most one of these: the adjust to send; a cancel 128; notifications only from now on."""

    adjust: Adjust | None = None
    cancel: bool = False
    stop_fetching: bool = False


KEEP = Change()
CANCEL = Change(cancel=True)


def change(request: Request, wants: Wants, newest: int, *, serve: bool) -> Change:
    """What to do with an active request for a range of entries.

    `newest`: the newest entry that is known of. `serve`: what is held is given out to a peer that
    asks for it, wanted or not.
    """
    # Paths, and payloads alone, were asked for as they are needed, and end by themselves.
    base = request.base
    if base is None or base.path is not None or base.per_entry == 1:
        return KEEP
    of_one = request.proposal.offset is not None and base.start == base.end
    if request.ours and wants.is_sparse and of_one and wants.wants_payload_of(base.start, newest):
        # The payload of an entry of its path.
        return KEEP
    end = request.lowest_end()
    last = OPEN_END if end is None else end
    at = base.start if not _left(request) else max(base.start, _next_piece(request).seq)
    newest = max(newest, at - 1)
    wanted = meet(wants.ranges(newest), ((at, last),))
    eagerness = request.our_interest.eagerness
    if eagerness is Eagerness.NOTIFY:
        # What is fetched has requests of its own. Nobody leaves "notify only" (section 5): to get
        # what is followed from now on takes another request.
        follows = meet(wants.followed(newest), ((at, last),))
        return CANCEL if follows and end is None else KEEP
    if not wanted:
        # In a request of theirs they get what they asked for all the same.
        serves = serve and not request.ours
        return Change(stop_fetching=True) if serves else CANCEL
    # No cursor jumps: what is not wanted and comes next would have to be sent first.
    if wanted[0][0] > at:
        return CANCEL
    return _settle(request, wants.settings(at, newest), wanted[0][1], last)


def is_inside_unwanted(request: Request, wants: Wants, newest: int) -> bool:
    """Whether a large payload is on its way that is not wanted any more.

    Limits count for payloads that have not begun: to stop one takes a cancel.
    """
    entry = request.incoming.entry
    if request.incoming.sink is None or entry is None:
        return False
    if not wants.wants_payload_of(entry.seq, max(newest, entry.seq)):
        return True
    smallest, largest = wants.payload_limits
    fetched = range_with(wants.fetches, entry.seq) is not None
    return not (fetched or smallest <= entry.payload_bytes <= largest)


def _left(request: Request) -> bool:
    base = request.base
    return base is not None and request.incoming.position < base.reach


def _next_piece(request: Request) -> Piece:
    """The piece at the other side's cursor."""
    if request.base is None:
        raise AssertionError("only a confirmed request has a sequence")
    return request.base.piece(request.incoming.position)


def _settle(request: Request, settings: Settings, wanted_last: int, last: int) -> Change:
    interest = request.our_interest
    if settings.eagerness is Eagerness.NOTIFY:
        return Change(stop_fetching=True)
    # Minimum and maximum only ever get tighter (section 5).
    if settings.min_bytes < interest.min_bytes or settings.max_bytes > interest.max_bytes:
        return CANCEL
    limited = settings.eagerness is Eagerness.LIMITED
    same = settings.eagerness is interest.eagerness and (
        not limited or settings.eager_bytes == interest.eager_bytes
    )
    adjust = Adjust(
        request.number,
        eagerness=None if same else settings.eagerness,
        eager_bytes=settings.eager_bytes if limited and not same else None,
        end=wanted_last if wanted_last < last else None,
        min_bytes=settings.min_bytes if settings.min_bytes > interest.min_bytes else None,
        max_bytes=settings.max_bytes if settings.max_bytes < interest.max_bytes else None,
    )
    return KEEP if adjust == Adjust(request.number) else Change(adjust=adjust)
