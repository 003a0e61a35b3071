"""What requests bring to this side, and what they have brought (point2point.md 3, 10). Pure.

A plan takes away what is coming, and that is said once here, from the sequence of each request: its
body, from one entry to another, and the members of its pools and its path. What is coming, what has
come and what a request was about are the same walk with other ends. Too much counted as coming is
never asked for, too little comes twice. What a request was to bring and did not is no matter of
this: when it is over it counts no more, and is asked for again.
"""

from collections.abc import Iterable

from peer.protocol.request import OPEN_END, Request
from peer.protocol.sequence import Sequence, sequence_of
from wire import CancelReason, Eagerness

from .ranges import Ranges, range_with, union


def entries(sequence: Sequence, end: int | None, last: int = OPEN_END) -> Ranges:
    """The entries of a sequence up to `last`, its body cut at `end`."""
    body = () if sequence.path is not None else ((sequence.start, min(_or_open(end), last)),)
    members = (*sequence.lower, *(sequence.path or ()), *sequence.upper)
    if not members and body:
        # Most have no pools, and this is asked several times for each that is proposed.
        return body if body[0][0] <= body[0][1] else ()
    return _some(((n, n) for n in members if n <= last), body)


def payloads(sequence: Sequence, first: int, last: int) -> Ranges:
    """The entries from `first` to `last` whose payloads are pieces of a sequence."""
    if sequence.path is not None:
        return _some((n, n) for n in sequence.path if first <= n <= last)
    return _some(((max(first, sequence.start), min(last, _or_open(sequence.end))),))


def _some(*sets: Iterable[tuple[int, int]]) -> Ranges:
    return union((first, last) for each in sets for first, last in each if first <= last)


def _or_open(end: int | None) -> int:
    return OPEN_END if end is None else end


def takes(request: Request) -> bool:
    """Whether we ask for data in a request, not for notifications alone."""
    return request.our_interest.eagerness not in (None, Eagerness.NOTIFY)


def _agreed(request: Request) -> Sequence:
    """The sequence of a request; if it is not confirmed, as it was proposed."""
    if request.base is not None:
        return request.base
    proposal, end = request.proposal, request.proposal.end
    if proposal.sparse and end is None:
        # Its path leads to an end that the confirmation chooses.
        end = proposal.start
    return sequence_of(proposal, end, proposal.upper_info)


def coming(requests: Iterable[Request]) -> Ranges:
    """What requests bring us, or ask for, the members of their pools included."""
    return union(*map(_coming, filter(_brings_entries, requests)))


def _brings_entries(request: Request) -> bool:
    is_of_payloads = request.proposal.payloads_only
    return not is_of_payloads and takes(request) and not _is_over(request)


def _coming(request: Request) -> Ranges:
    return entries(_agreed(request), request.lowest_end())


def bodies(requests: Iterable[Request]) -> Ranges:
    """The entries whose payloads requests in force bring, or ask for."""
    return union(*(_ahead(each) for each in requests if takes(each) and not _is_over(each)))


def _ahead(request: Request) -> Ranges:
    """The entries whose payloads the other side has not sent or passed, or that are not stored."""
    base, position = request.base, request.incoming.verified
    end = _or_open(request.lowest_end())
    if base is None:
        # Where a path leads the confirmation says; until then all that it may lead to counts.
        return _some(((request.proposal.start, end),))
    if base.length is not None and position >= base.length:
        return ()
    return payloads(base, base.piece(position).seq, end)


def _is_over(request: Request) -> bool:
    """Whether nothing comes in a request any more. What is complete may still be under way."""
    # A cancel with COMPLETE comes on control, and may be ahead of the last data (section 6).
    ours, theirs = request.cancel_sent, request.cancel_received
    ended = ours not in (None, CancelReason.COMPLETE, CancelReason.YOU_CANCELLED)
    ended = ended or theirs not in (None, CancelReason.COMPLETE)
    return ended or request.incoming.discarding or (request.base is None and request.answered)


def is_coming(seq: int, requests: Iterable[Request]) -> bool:
    """Whether an entry comes here, or is to come: the other side may wait for it too."""
    for request in requests:
        if _brings_entries(request) and range_with(_coming(request), seq) is not None:
            return True
    return False


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
    return entries(base, end, max(end, request.lowest_upper() or end))


def is_stored(request: Request) -> bool:
    """Whether all that came in a request is stored, or never will be."""
    return not request.incoming.pending or request.incoming.discarding


def still_comes(request: Request) -> bool:
    """Whether data is under way in a request that the other side has called complete."""
    is_complete = request.cancel_received is CancelReason.COMPLETE
    return is_complete and takes(request) and not (request.end_received or _is_over(request))


def covers(request: Request) -> bool:
    """Whether a request will bring, or tell of, everything new of its log."""
    return (
        request.cancel_sent is None
        and request.cancel_received is None
        and not request.proposal.sparse
        and not request.proposal.payloads_only
        and request.lowest_end() is None
    )
