"""Where sending stops at entries that are not held, although later ones are (point2point.md 5, 10).

A range is confirmed as far as it is held, or asked for. But a log may grow by other parts than
those: a sparse path jumps ahead, or another peer brings what is newer first. Then the cursor of a
request stands before a gap, and everybody behind this node waits with it. So that the other side
gets what is behind it, the range is cut there, and what is held is offered.

Not at once: a gap that is wanted here is mostly about to be filled, by another session or by the
other side itself (`stalled_after_s`); one of entries that nobody here wants will not be
(`look_again_s`). A cut is final for its request, since ends only get lower (section 5).
"""

from collections.abc import Iterable

from msgspec import Struct

from peer.protocol.events import LogView
from peer.protocol.request import OPEN_END, Request
from wire import Adjust, Cancel, CancelReason, Eagerness

from .actions import Actions
from .asks import last_possible
from .ranges import Ranges, range_with


class Cut(Struct, frozen=True):
    """How to end a request before a gap, and what it leaves out. Either an adjust or a cancel."""

    gap: int
    """The first entry that is not held."""
    unserved: Ranges
    adjust: Adjust | None = None
    cancel: Cancel | None = None


def cut_at_gap(request: Request, view: LogView, runs_from: int = 1) -> Cut | None:
    """What to do if our cursor stands before a gap; None if it does not, as far as is known.

    `runs_from` is that of the view's look-up.
    """
    base, position = request.base, _cursor(request)
    if base is None or position is None:
        return None
    gap = base.piece(position).seq
    if view.invalid is not None and gap > last_possible(view):
        # It was held, and counts for nothing since something before it turned out to be invalid.
        return Cut(gap, (), cancel=Cancel(request.number, CancelReason.NOT_WANTED))
    if not _tells_of(view, runs_from, gap) or range_with(view.runs, gap) is not None:
        return None
    end = request.lowest_end()
    unserved = ((gap, OPEN_END if end is None else end),)
    # An adjust may not put the end before the start (section 5).
    if gap <= base.start:
        return Cut(gap, unserved, cancel=Cancel(request.number, CancelReason.NOT_WANTED))
    if base.end is not None and gap > base.end:
        before = base.piece(position - 1).seq
        return Cut(gap, (), adjust=Adjust(request.number, upper_info=before))
    return Cut(gap, unserved, adjust=Adjust(request.number, end=gap - 1))


def carry_out(request: Request, cut: Cut, actions: Actions) -> Ranges:
    """End a request before a gap; returns what is not to be asked for again at once."""
    if cut.adjust is not None:
        actions.adjust(request, cut.adjust)
    elif cut.cancel is not None:
        actions.cancel(request, cut.cancel)
        return cut.unserved if request.ours else ()
    return ()


def _cursor(request: Request) -> int | None:
    """The position of what the other side waits for, if there is anything."""
    base = request.base
    if base is None or not request.active or base.path is not None:
        return None
    listens = request.their_interest.eagerness is Eagerness.NOTIFY
    if listens and request.ours and request.proposal.end is not None:
        # We have asked for it, and the other side wants nothing.
        return None
    # What the other side has sent is passed once we have something of our own behind it.
    position = max(request.outgoing.position, request.incoming.verified)
    if request.incoming.skipped:
        # But for a payload that it skipped, whose entry has to be held to pass it.
        position = max(request.outgoing.position, min(position, request.incoming.skipped[0]))
    limit = request.limit
    return None if limit is not None and position >= limit else position


def _tells_of(view: LogView, runs_from: int, seq: int) -> bool:
    """Whether a view tells if an entry is held: it may begin behind it, or not reach to it."""
    listed = view.newest if view.runs_complete else view.runs[-1][1]
    return runs_from <= seq <= listed


def _may_stand(request: Request, view: LogView, runs_from: int) -> bool:
    """Whether the cursor is at an entry that this view does not tell of."""
    base, position = request.base, _cursor(request)
    if base is None or position is None:
        return False
    return not _tells_of(view, runs_from, base.piece(position).seq)


def _comes_to_gap(request: Request, view: LogView) -> bool:
    """Whether something held is still to be sent, and nothing is behind that."""
    base, position = request.base, _cursor(request)
    if base is None or position is None or not request.outgoing.dry:
        return False
    return base.piece(position).seq < view.newest


def due_cuts(
    requests: Iterable[Request],
    view: LogView,
    runs_from: int,
    wanted: Ranges,
    patience_s: tuple[float, float],
    now: float,
) -> tuple[list[tuple[Request, Cut]], float | None]:
    """The cuts to make now, and when to look again, if that is necessary.

    `patience_s`: how long a gap of entries that are `wanted` here may stay, and one of others.
    """
    due: list[tuple[Request, Cut]] = []
    times: list[float] = []
    for request in requests:
        cut = cut_at_gap(request, view, runs_from)
        if cut is None:
            if _comes_to_gap(request, view):
                times.append(now + patience_s[1])
            if not _may_stand(request, view, runs_from):
                request.outgoing.stands_since = None
            continue
        patience = patience_s[range_with(wanted, cut.gap) is None]
        if request.outgoing.stands_since is None:
            request.outgoing.stands_since = now
        at = request.outgoing.stands_since + patience
        if at > now:
            times.append(at)
        else:
            due.append((request, cut))
    return due, min(times, default=None)
