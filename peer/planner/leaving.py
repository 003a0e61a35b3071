"""What of a log may leave in a session: every entry, payload, notify and proof passes by here.

Two things are asked, in this order:

1. The **scope** of the other side (doors.md 3). Of a log that it may not read nothing leaves in any
   request, whoever proposed it and whatever was confirmed: the other side may adjust, confirm and
   ask for what is legal, and a request that is there to bring us something would carry data both
   ways. That is asked before the cursor moves at all, since a notify or a skip tells what is held
   as well as an entry does. A cancel that shows entries, or the number of an end, becomes 128.
2. What is **withheld** of own logs until the other side has shown what it holds (withholding.py).
   It asks the other side, which names the log: so it hears only of logs that may be read.

A request for a log that the other side may read and not write asks for nothing but notifications.
One thing is excepted: that an own log is compared, which brings nothing that is not held here.

What was made before a scope changed has left as far as this is concerned: its bytes are on their
way to the transport, and our cursor is behind them. Nothing is made afterwards.

Requests that a new scope does not cover are named here too (`is_covered`), and ended by the
planner. What covers one is what the other side could get it for now:

    may read, take   a request goes on if it
    yes, yes         is there
    yes, no          has never asked for more than notifications
    no, yes          was not proposed to say what is held here, nor to get it, and our cursor is not
                     inside an entry: the other side would wait for the rest before it sends on
    no, no           never

Asking for notifications from now on is not enough: an adjust is not acknowledged, so that what the
other side sent before it saw that would come, and be stored.
"""

from msgspec.structs import replace

from peer.protocol.events import Interests, InterestsChanged
from peer.protocol.request import Request
from wire import Cancel, CancelReason, LogKey

from .answer import is_late_offer, is_offer
from .withholding import Withholding

_SAYS_NOTHING = frozenset(
    (CancelReason.NOT_WANTED, CancelReason.COMPLETE, CancelReason.YOU_CANCELLED)
)
"""Reasons that tell nothing of what is held here, but for NO_RESOURCES: that a log is of use."""


class Leaving:
    """Says what may be sent of a log (`MaySend`), and which cancels may show what."""

    def __init__(self, withholding: Withholding) -> None:
        self.withholding = withholding
        self.interests = Interests()

    def interests_changed(self, event: InterestsChanged) -> None:
        """What the other side may read is another matter now, or what is withheld from it."""
        interests = self.interests = event.interests
        if interests.scope is not None:
            asked = frozenset(filter(interests.may_give, interests.asked))
            event = replace(event, interests=replace(interests, asked=asked))
        self.withholding.ask_only(interests.may_give)
        self.withholding.interests_changed(event)

    def may_tell(self, log: LogKey) -> bool:
        """Whether the other side may be told of what is held of a log."""
        return self.interests.may_give(log)

    # What the sender asks

    def is_closed(self, request: Request) -> bool:
        """Whether nothing leaves in a request, be it a notify or a skip."""
        return not self.interests.may_give(request.log)

    def limit_of(self, request: Request) -> int:
        """Up to which entry something may leave in a request that is not closed."""
        return self.withholding.limit_of(request)

    def held_back(self, request: Request) -> None:
        """More would be sent in this request if it might leave."""
        self.withholding.held_back(request)

    # Cancels

    def before_cancel(self, request: Request, cancel: Cancel) -> Cancel:
        """A cancel without what may not leave."""
        log = request.log
        if self.interests.may_give(log):
            return self.withholding.before_cancel(request, cancel)
        says_nothing = cancel.reason in _SAYS_NOTHING or (
            cancel.reason is CancelReason.NO_RESOURCES and not self.interests.is_silent(log)
        )
        return cancel if says_nothing else Cancel(request.number, CancelReason.NOT_WANTED)

    # When the scope changes

    def is_covered(self, request: Request) -> bool:
        """Whether a request may go on in the scope of the other side."""
        interests, log = self.interests, request.log
        if interests.is_silent(log):
            return False
        asked = request.our_interest.metadata_ever
        if asked and not interests.may_take(log) and request.owner is not self.withholding:
            return False
        if interests.may_give(log):
            return True
        tells = is_offer(request.proposal) or is_late_offer(request.proposal)
        return tells is not request.ours and not _is_inside_entry(request)


def _is_inside_entry(request: Request) -> bool:
    """Whether the other side has got a part of an entry in a request, and expects its payload."""
    base, outgoing = request.base, request.outgoing
    if base is None or outgoing.in_piece:
        return outgoing.in_piece
    position = outgoing.position
    if not 0 < position < base.reach:
        return False
    return base.piece(position).seq == base.piece(position - 1).seq
