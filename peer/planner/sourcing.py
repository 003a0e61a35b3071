"""Which logs a session fetches: asks for more than notifications of (point2point.md 4 and 5).

Of all sessions of a node one fetches a log, so that each payload crosses the network once. Who it
is the node decides (source_book.py): a session asks before it fetches, says when it has ended, and
lets the book read what its peer holds and what has come (`Readable`).

When it has ended is not a matter of messages. A session that has brought all of a log and said so
before that was stored had another one, which knew of nothing yet, bring all of it again. And one
that is to fetch a log and cannot has ended too, and may not be asked: else two that cannot would be
asked in turns.

What other sessions do is not known here, and nothing is asked of them: a session that is alone on
its node may fetch everything (`claim_all`).
"""

from collections.abc import Callable
from typing import Protocol

from peer.protocol.notices import FetchEnded
from peer.protocol.request import Request
from wire import Adjust, CancelReason, Eagerness, LogKey

from .answer import is_late_offer, only_told
from .coverage import is_stored, still_comes
from .shared import Shared


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
    that came late it keeps, and may be asked for: where another session is the source, this one is
    told of them, and asks for them itself if nobody has brought them in a while (proposals.py,
    `_may_fetch`). The source hears nothing of that.
    """
    proposal = request.proposal
    brought = 0 if is_late_offer(proposal) else proposal.end or 0
    if confirm.eagerness is Eagerness.NOTIFY or claim(request.log, brought):
        return confirm
    return only_told(confirm)


class Fetches:
    """Notes what may not be fetched any more, and says so once it is certain."""

    def __init__(self, requests_of: Callable[[LogKey], list[Request]]) -> None:
        self._requests_of = requests_of
        self._perhaps_over: dict[LogKey, None] = {}

    def over(self, request: Request) -> None:
        """A request is over; perhaps another one fetches its log.

        Who told to the end what it holds can be asked for it, though nothing is open.
        """
        refused = request.cancel_received not in _NOT_REFUSED
        heard_out = request.our_interest.eagerness is Eagerness.NOTIFY and not refused
        if request.our_interest.eagerness is not None and not heard_out:
            self.declined(request.log)

    def declined(self, log: LogKey) -> None:
        """This session leaves a log to others, or was to fetch it and cannot."""
        self._perhaps_over[log] = None

    def take_ended(self, is_settling: Callable[[LogKey], bool]) -> list[FetchEnded]:
        """The logs of which nothing is fetched at this moment; each is told once.

        Not before all has come, and is stored or never will be: another session would bring it
        again. `is_settling`: whether something is not that came in a request that is over.
        """
        logs, self._perhaps_over = self._perhaps_over, {}
        ended = []
        for log in logs:
            requests = self._requests_of(log)
            if any(map(fetches, requests)):
                continue
            if is_settling(log) or any(map(_is_under_way, requests)):
                self._perhaps_over[log] = None
            else:
                ended.append(FetchEnded(log))
        return ended


class Readable:
    """What the book reads of a session (`source_records.Reads`)."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    @property
    def is_behind(self) -> bool:
        return self._shared.actions.is_behind

    def newest(self, log: LogKey) -> int:
        known = self._shared.logs.get(log)
        told = 0 if known is None else min(known.reach, known.planned.stop)
        # Who brings something holds that at least, whatever was known of it.
        return max(told, self.came(log))

    def came(self, log: LogKey) -> int:
        return max(map(_brought, self._shared.progress.alive(log)), default=0)

    def held(self, log: LogKey) -> int:
        known = self._shared.logs.get(log)
        return 0 if known is None else max(known.planned.whole, known.planned.heard)

    def may_fetch(self, log: LogKey) -> bool:
        known, wants = self._shared.logs.get(log), self._shared.wants_of(log)
        if known is None or not self._shared.wants(log):
            return False
        return not known.refuses(wants, self._shared.actions.now)


def _brought(request: Request) -> int:
    """The newest entry of which a request has brought something that is stored, or may be."""
    base, incoming = request.base, request.incoming
    if base is None or incoming.discarding or incoming.metadata_at < 0:
        return 0
    return base.piece(incoming.metadata_at).seq


def _is_open(request: Request) -> bool:
    return request.cancel_sent is None and request.cancel_received is None


def _is_under_way(request: Request) -> bool:
    """Whether something of a request is still to come, or is not stored yet."""
    return still_comes(request) or not is_stored(request)
