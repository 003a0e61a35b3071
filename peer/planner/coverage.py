"""What requests bring to this side, and what they have brought (point2point.md 3, 10). Pure.

A plan takes away what is coming, and that is said once here, from the sequence of each request: its
range, the members of its pools, its path. Too much counted as coming is never asked for, too little
comes twice. What a request was to bring and did not is no matter of this: when it is over it counts
no more, and is asked for again.
"""

from collections.abc import Iterable

from peer.protocol.request import OPEN_END, Request
from wire import CancelReason, Eagerness, Propose, lower_pool, shortest_path, upper_pool

from .ranges import Ranges, range_with, union


def bodies(requests: Iterable[Request]) -> Ranges:
    """The entries whose payloads requests in force bring, or ask for."""
    found: list[tuple[int, int]] = []
    for request in requests:
        if _is_over(request) or request.our_interest.eagerness in (None, Eagerness.NOTIFY):
            continue
        end = request.lowest_end()
        path = None if request.base is None else request.base.path
        if path is not None:
            found += [(n, n) for n in path]
        else:
            last = OPEN_END if end is None else end
            found += [(first, last) for first in (_next_unproved(request),) if first <= last]
    return union(found)


def _next_unproved(request: Request) -> int:
    """The first entry that the other side has not sent or passed, or that is not stored yet."""
    base, position = request.base, request.incoming.verified
    if base is None:
        return request.proposal.start
    length = base.length
    if length is not None and position >= length:
        return OPEN_END + 1
    return max(base.start, base.piece(position).seq)


def _is_over(request: Request) -> bool:
    """Whether nothing comes in a request any more. What is complete may still be under way."""
    # A cancel with COMPLETE comes on control, and may be ahead of the last data (section 6).
    ours, theirs = request.cancel_sent, request.cancel_received
    ended = ours not in (None, CancelReason.COMPLETE, CancelReason.YOU_CANCELLED)
    ended = ended or theirs not in (None, CancelReason.COMPLETE)
    return ended or request.incoming.discarding or (request.base is None and request.answered)


def coming(requests: Iterable[Request]) -> Ranges:
    """What requests bring us, or ask for, the members of their pools included."""
    found: list[tuple[int, int]] = []
    for request in requests:
        proposal, base = request.proposal, request.base
        eagerness = request.our_interest.eagerness
        if _is_over(request) or eagerness in (None, Eagerness.NOTIFY) or proposal.payloads_only:
            continue
        end = request.lowest_end()
        if base is not None:
            found += [(n, n) for n in (*base.lower, *base.upper)]
        else:
            found += _pools(proposal)
        if base is not None and base.path is not None:
            found += [(n, n) for n in base.path]
        elif proposal.sparse:
            found += [(n, n) for n in shortest_path(end or proposal.start, proposal.start)]
        else:
            found.append((proposal.start, OPEN_END if end is None else end))
    return union(found)


def _pools(proposal: Propose) -> list[tuple[int, int]]:
    """What a proposal asks for beside its range."""
    found: list[int] = []
    if proposal.lower_info is not None and proposal.lower_info < proposal.start:
        found += [n for n in lower_pool(proposal.start) if proposal.lower_info <= n]
    if proposal.end is not None and proposal.upper_info is not None:
        found += [n for n in upper_pool(proposal.end) if proposal.end < n <= proposal.upper_info]
    return [(n, n) for n in found]


def is_coming(seq: int, requests: Iterable[Request]) -> bool:
    """Whether an entry comes here, or is to come: the other side may wait for it too."""
    return range_with(coming(requests), seq) is not None


_ENDINGS = (CancelReason.COMPLETE, CancelReason.YOU_CANCELLED, CancelReason.LOG_ENDED)


def completed(request: Request) -> bool:
    """Whether a request is over since one side has sent or passed everything.

    A finite one in which nothing moves, however much is left, ends in the same way (section 6).
    """
    over = CancelReason.COMPLETE in (request.cancel_sent, request.cancel_received)
    if not over or request.base is None:
        return False
    return max(request.outgoing.position, request.incoming.position) >= (request.limit or 0)


def came_to_nothing(request: Request) -> bool:
    """Whether the other side ended a request of ours in which nothing moved, and refused nothing.

    Asked for again at once, it could do so for ever.
    """
    ended = request.ours and request.cancel_sent is CancelReason.YOU_CANCELLED
    if not ended or request.cancel_received not in _ENDINGS:
        return False
    # A range in which there was nothing to move has not come to nothing.
    moved = request.outgoing.position or request.incoming.position
    return request.base is None or not (moved or request.limit == 0)


def carried(request: Request) -> Ranges:
    """The entries of a finite request, the members of its pools included, as far as it went."""
    base, end = request.base, request.lowest_end()
    if base is None or end is None:
        return ()
    members = (*base.lower, *(base.path or ()), *base.upper)
    last = max(end, request.lowest_upper() or end)
    single = union((n, n) for n in members if n <= last)
    if base.path is not None or end < base.start:
        return single
    return union(single, ((base.start, end),))


def is_stored(request: Request) -> bool:
    """Whether all that came in a request is stored, or never will be."""
    return not request.incoming.pending or request.incoming.discarding


def still_comes(request: Request) -> bool:
    """Whether data is under way in a request that the other side has called complete."""
    asked_for = request.our_interest.eagerness not in (None, Eagerness.NOTIFY)
    is_complete = request.cancel_received is CancelReason.COMPLETE
    return is_complete and asked_for and not (request.end_received or _is_over(request))


def covers(request: Request) -> bool:
    """Whether a request will bring, or tell of, everything new of its log."""
    return (
        request.cancel_sent is None
        and request.cancel_received is None
        and not request.proposal.sparse
        and not request.proposal.payloads_only
        and request.lowest_end() is None
    )
