"""Which payloads to ask for of entries that are held: an earlier source may have skipped them, a
disk failed, they came as part of a pool, or somebody fetches what he had dropped. Pure.

The open request of a log begins behind them, so they get requests of their own: neighbours one for
payloads only; one that is held in part a request that begins there.
"""

from bisect import bisect_right

from peer.data.pinning import is_counted
from peer.protocol.events import LogView
from peer.protocol.request import Request
from wire import CancelReason

from .asks import Ask, AskKind
from .ranges import Ranges, meet, range_with, union
from .wanting import ALL_OF_IT, Wants, mended

NAMED_MAX = 1024
"""So many missing payloads are looked up at once if any are to be asked for: neighbours are asked
for together, and the next ones once these have come. With 512 small payloads came a third slower.
Bounded, since a log may lack a million, and the view of it is kept in memory."""

_Missing = list[tuple[int, int]]
"""Entries, ascending, and how many bytes of their payloads are held."""


def wanted_payloads(wants: Wants, view: LogView, newest: int) -> Ranges:
    """The held entries whose payloads are wanted, by size or not."""
    if not view.newest:
        return ()
    wanted = union(mended(wants, max(view.newest, newest)), wants.fetches)
    return meet(wanted, ((1, view.newest),))


def missing_payloads(view: LogView, wanted: Ranges) -> _Missing:
    """The payloads that a view names as missing and that are wanted."""
    missing = [*view.missing_payloads]
    if view.tail_partial_bytes is not None:
        missing.append((view.height, view.tail_partial_bytes))
    return sorted(each for each in missing if range_with(wanted, each[0]) is not None)


def asks_for(missing: _Missing, taken: Ranges, singly: Ranges, asked_up_to: int = 0) -> list[Ask]:
    """What to propose for them: neighbours together, and those behind `asked_up_to` first.

    `taken`: those that come anyway, or rest. `singly`: those that are asked for by the hash of
    their own entry and from their first byte on, since what came of them may not be right, or the
    other side may hold other entries than we do.
    """
    found: list[Ask] = []
    joins = False
    for seq, held in missing:
        if range_with(taken, seq) is not None:
            joins = False
            continue
        doubted = range_with(singly, seq) is not None
        alone = held > 0 or doubted
        if joins and not alone and found[-1].last == seq - 1:
            found[-1] = _ask(found[-1].start, seq, 0)
        else:
            found.append(_ask(seq, seq, 0 if doubted else held))
        joins = not alone
    turn = bisect_right(found, asked_up_to, key=lambda ask: ask.start)
    return [*found[turn:], *found[:turn]]


def _ask(first: int, last: int, held: int) -> Ask:
    offset = held if first == last else None
    return Ask(AskKind.PAYLOADS, first, last, ALL_OF_IT, last, offset)


def unproved(request: Request, ask: Ask) -> Ranges:
    """The entries of a group that are to be asked for one by one, now that the request is over.

    Where the other side does not hold all of them as we do, it may hold some.
    """
    if ask.offset is not None or request.cancel_received is CancelReason.NOT_WANTED:
        return ()
    base = request.base
    if is_unsure(request):
        first = ask.start if base is None else base.start + request.incoming.verified
        return ((first, ask.last),) if first <= ask.last else ()
    served = ask.last if base is None or base.end is None else base.end
    if base is None and request.cancel_received is CancelReason.NO_RESOURCES:
        served = ask.start - 1
    return ((served + 1, ask.last),) if served < ask.last else ()


def is_unsure(request: Request) -> bool:
    """Whether what came may be payloads of other entries than we asked for (pinning.py)."""
    incoming = request.incoming
    wrong = incoming.adrift or incoming.invalid is not None
    ended = request.base is not None and request.cancel_received is CancelReason.COMPLETE
    # It has sent all that it has of the range, and that was less than there is to our entries.
    short = ended and incoming.position < (request.limit or 0)
    return (wrong or short) and not is_counted(request)
