"""Which payloads to ask for of entries that are held: an earlier source may have skipped them, a
disk failed, they came as part of a pool, or somebody fetches what he had dropped. Pure.

The open request of a log begins behind them, so they get requests of their own: neighbours one for
payloads only; one that is held in part a request that begins there.
"""

from bisect import bisect_right
from collections.abc import Mapping

from peer.data.pinning import is_counted
from peer.protocol.events import LogView
from peer.protocol.request import Request
from wire import CancelReason

from .asks import Ask, AskKind
from .ranges import Ranges, meet, minus, union
from .wanting import ALL_OF_IT, Wants, mended

NAMED_MAX = 4096
"""So many missing payloads are looked up at once if any are to be asked for: neighbours are asked
for together, and the next ones once these have come. With 1,024 small payloads came a third slower.
Bounded, since a log may lack a million, and the others wait for those that were asked for."""


GROUPS_MAX = 512
"""So many proposals come of one look at most: no peer lets us have more unanswered, and where every
second payload of thousands is missing each takes its own."""


def wanted_payloads(wants: Wants, view: LogView, newest: int) -> Ranges:
    """The held entries whose payloads are wanted, by size or not."""
    if not view.newest:
        return ()
    wanted = union(mended(wants, max(view.newest, newest)), wants.fetches)
    return meet(wanted, ((1, view.newest),))


def missing_payloads(view: LogView, wanted: Ranges) -> Ranges:
    """The payloads that a view names as missing and that are wanted."""
    return meet(union(view.missing_payloads, _tail(view)), wanted)


def begun_payloads(view: LogView) -> dict[int, int]:
    """How many bytes are held of missing payloads, where any are, by their entries."""
    begun = dict(view.begun_payloads)
    if view.tail_partial_bytes:
        begun[view.height] = view.tail_partial_bytes
    return begun


def lacks(wants: Wants, view: LogView, newest: int) -> bool:
    """Whether payloads are missing that are wanted.

    If a view could not name all, those behind the last one are missing for all that is known.
    """
    missing = union(view.missing_payloads, _tail(view))
    if view.unnamed_above is not None:
        missing = union(missing, ((view.unnamed_above + 1, view.newest),))
    return bool(meet(missing, mended(wants, max(view.newest, newest))))


def _tail(view: LogView) -> Ranges:
    return () if view.tail_partial_bytes is None else ((view.height, view.height),)


def asks_for(
    missing: Ranges,
    begun: Mapping[int, int],
    taken: Ranges,
    singly: Ranges,
    asked_up_to: int = 0,
) -> list[Ask]:
    """What to propose for them: neighbours together, and those behind `asked_up_to` first.

    `begun`: those that are gone on with, and from which byte on. `taken`: those that come anyway,
    or rest. `singly`: those that are asked for by the hash of their own entry and from their first
    byte on, since what came of them may not be right, or the other side may hold other entries than
    we do.
    """
    left = minus(missing, taken)
    doubted = meet(left, singly)
    parts = minus(meet(left, tuple((seq, seq) for seq in sorted(begun))), doubted)
    together = minus(minus(left, doubted), parts)
    groups = [(first, last, 0) for first, last in together]
    groups += [(seq, seq, 0) for first, last in doubted for seq in range(first, last + 1)]
    groups += [(seq, seq, begun[seq]) for seq, _ in parts]
    groups.sort()
    turn = bisect_right(groups, asked_up_to, key=lambda group: group[0])
    return [_ask(*group) for group in (*groups[turn:], *groups[:turn])[:GROUPS_MAX]]


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
