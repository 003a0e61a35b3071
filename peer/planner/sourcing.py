"""Which logs a session fetches: asks for more than notifications of (point2point.md 4 and 5).

Of all sessions of a node one fetches a log, so that each payload crosses the network once. Who it
is the node decides (source_book.py): a session asks before it fetches, and says when it has ended.

When it has ended is not a matter of messages. A session that has brought all of a log and said so
before that was stored had another one, which knew of nothing yet, bring all of it again. And one
that is to fetch a log and cannot has to say that: else two that cannot would be asked in turns.

What other sessions do is not known here, and nothing is asked of them: a session that is alone on
its node may fetch everything (`claim_all`).
"""

from collections.abc import Callable
from typing import Protocol

from peer.protocol.events import LogView
from peer.protocol.notices import FetchEnded, PeerHolds
from peer.protocol.request import Request
from wire import Adjust, CancelReason, Eagerness, LogKey, Propose

from .answer import goes_on, is_late_offer, is_offer, only_told
from .coverage import is_stored, still_comes


class Claim(Protocol):
    """Whether a session may be the one that fetches a log, from now on.

    `brought`: the other side came to bring the log up to this entry, and will not bring it later.
    That anybody may take, unless as much has come to another session and is only not stored yet.
    """

    def __call__(self, log: LogKey, brought: int = 0, /) -> bool: ...


_NOT_REFUSED = (None, CancelReason.YOU_CANCELLED, CancelReason.COMPLETE)


def claim_all(_: LogKey, __: int = 0, /) -> bool:
    """The claim of a session that is alone on its node."""
    return True


def fetches(request: Request) -> bool:
    """Whether we ask for the other side's data, or have asked for it and it has not answered."""
    return _is_open(request) and request.our_interest.eagerness not in (None, Eagerness.NOTIFY)


def brings(request: Request) -> bool:
    """Whether a request is how we fetch a log, or was offered and is inside a payload.

    Not one for metadata alone: it may be there to find a fork.
    """
    inside = request.incoming.sink is not None
    if not request.ours and request.proposal.end is not None:
        return inside
    return fetches(request) and (inside or request.our_interest.data_up_to > 0)


def confirmation(request: Request, confirm: Adjust, claim: Claim) -> Adjust:
    """Our confirmation as far as we may fetch the log.

    A finite range is what the other side came to bring, and who brings it may not stay. Payloads
    that came late it only tells of: they are the source's to bring, if there is one.
    """
    proposal = request.proposal
    brought = 0 if is_late_offer(proposal) else proposal.end or 0
    if confirm.eagerness is Eagerness.NOTIFY or claim(request.log, brought):
        return confirm
    return only_told(confirm)


def told_by(proposal: Propose, view: LogView) -> PeerHolds | None:
    """What a proposal says of what its side holds, if that is more than we do.

    Who keeps a log in step asks for what is behind what it holds, or offers that (section 10).
    """
    if not (is_offer(proposal) or goes_on(proposal)):
        return None
    newest = proposal.start - 1 if proposal.end is None else proposal.end
    if newest <= view.newest_whole:
        return None
    return PeerHolds(view.log, newest, view.newest_whole)


class Fetches:
    """Notes what may not be fetched any more, and says so once it is certain."""

    def __init__(self, requests_of: Callable[[LogKey], list[Request]]) -> None:
        self._requests_of = requests_of
        self._perhaps_over: dict[LogKey, None] = {}
        self._useless: set[LogKey] = set()
        self._heard_out: set[LogKey] = set()

    def over(self, request: Request) -> None:
        """A request is over; perhaps another one fetches its log, or listens.

        Who told to the end what it holds can be asked for it, though nothing is open.
        """
        refused = request.cancel_received not in _NOT_REFUSED
        if request.our_interest.eagerness is Eagerness.NOTIFY and not refused:
            if not request.proposal.payloads_only:
                self._heard_out.add(request.log)
            return
        if refused:
            self._heard_out.discard(request.log)
        if request.our_interest.eagerness is not None:
            self.declined(request.log)

    def waits(self, log: LogKey) -> None:
        """This session would ask for something if the log were its own, though nothing is open."""
        self._heard_out.add(log)

    def declined(self, log: LogKey) -> None:
        """This session leaves a log to others."""
        self._perhaps_over[log] = None

    def useless(self, log: LogKey) -> None:
        """This session was to fetch a log and cannot: it says so itself once it can.

        Else two sessions that cannot would be asked in turns.
        """
        self._perhaps_over[log] = None
        self._useless.add(log)

    def take_ended(self, is_settling: Callable[[LogKey], bool]) -> list[FetchEnded]:
        """The logs of which nothing is fetched at this moment; each is told once.

        Not before all has come, and is stored or never will be: another session would bring it
        again. `is_settling`: whether something is not that came in a request that is over.
        """
        if not self._perhaps_over:
            return []
        logs, self._perhaps_over = self._perhaps_over, {}
        useless, self._useless = self._useless, set()
        ended = []
        for log in logs:
            requests = self._requests_of(log)
            if any(map(fetches, requests)):
                continue
            if (
                is_settling(log)
                or not all(map(is_stored, requests))
                or any(map(still_comes, requests))
            ):
                self._perhaps_over[log] = None
                self._useless |= useless & {log}
                continue
            listens = log in self._heard_out or any(map(_is_open, requests))
            ended.append(FetchEnded(log, listens=listens and log not in useless))
        return ended


def _is_open(request: Request) -> bool:
    return request.cancel_sent is None and request.cancel_received is None


def _is_under_way(request: Request) -> bool:
    """Whether something of a request is still to come, or is not stored yet."""
    return still_comes(request) or not is_stored(request)
