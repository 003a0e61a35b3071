"""Payloads that are missing below the height of a log: each is asked for once in a session.

An earlier source may have skipped them, or a disk failed. The open request of a log begins behind
them, so each gets a request of its own, which begins inside that payload and ends with it.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wire import U64_MAX, Eagerness, LogKey, Propose

from .events import LogView
from .request import Request

if TYPE_CHECKING:
    from .policy import Actions

_CREDIT_LEFT_MIN = 8
"""Request credit that mending leaves for logs that have no request yet."""


@dataclass(slots=True)
class _Mend:
    up_to: int
    asked_up_to: int = 0
    wanted: deque[tuple[int, int, bytes]] = field(default_factory=deque)
    """Seqnums, bytes held, and hashes of the entries."""
    open: int = 0
    looking: bool = False

    @property
    def over(self) -> bool:
        return not (self.wanted or self.open or self.looking)


class Mender:
    """Asks for missing payloads of logs whose request has been confirmed."""

    def __init__(self, actions: "Actions") -> None:
        self._actions = actions
        self._mends: dict[LogKey, _Mend] = {}
        self._begun: set[LogKey] = set()
        self._asked: dict[Request, LogKey] = {}

    def begin(self, view: LogView, up_to: int, *, tail: bool = False) -> bool:
        """Mend a log, entries up to `up_to`; False if there is nothing to do.

        `tail`: no request begins inside the payload of the newest entry, so that one counts too.
        """
        log = view.log
        missing = [*view.missing_payloads]
        if tail and view.tail_partial_bytes is not None:
            missing.append((view.height, view.tail_partial_bytes))
        missing = [(seq, held) for seq, held in missing if seq <= up_to]
        if log in self._begun or not missing:
            return False
        self._begun.add(log)
        self._mends[log] = _Mend(up_to)
        self._take(log, missing)
        return True

    def is_mending(self, log: LogKey) -> bool:
        return log in self._mends

    def owns(self, request: Request) -> bool:
        return request in self._asked

    def _take(self, log: LogKey, missing: list[tuple[int, int]]) -> None:
        """The next payloads of a log; the hashes of their entries have to be looked up."""
        mend = self._mends[log]
        if not missing:
            # A payload may have been given up, and asked for again, during the look-up.
            if mend.over:
                del self._mends[log]
            return
        mend.looking = True
        mend.asked_up_to = missing[-1][0]

        def take(view: LogView) -> None:
            mend.looking = False
            for seq, held in missing:
                if seq in view.hashes:
                    mend.wanted.append((seq, held, view.hashes[seq]))

        self._actions.look_up(log, tuple(seq for seq, _ in missing), None, take)

    def advance(self, *, others_wait: bool) -> bool:
        """Propose as far as the credit goes; True if some log has just been mended.

        `others_wait`: there are logs that have no request yet.
        """
        before = len(self._mends)
        credit_left_min = _CREDIT_LEFT_MIN if others_wait else 0
        for log, mend in list(self._mends.items()):
            while mend.wanted and self._actions.request_credit > credit_left_min:
                seq, held, entry_hash = mend.wanted[0]
                if not self._actions.may_propose(log, seq, seq):
                    break
                mend.wanted.popleft()
                self._ask(log, seq, held, entry_hash)
            if mend.over:
                self._look_further(log, mend)
        return len(self._mends) < before

    def _ask(self, log: LogKey, seq: int, held: int, entry_hash: bytes) -> None:
        proposal = Propose(
            request=self._actions.next_number(),
            log=log,
            start=seq,
            lower_info=None,
            min_bytes=0,
            max_bytes=U64_MAX,
            starting_hash=entry_hash,
            eagerness=Eagerness.ALL,
            end=seq,
            upper_info=seq,
            offset=held,
        )
        self._mends[log].open += 1
        self._asked[self._actions.propose(proposal, LogView(log, newest=seq))] = log

    def _look_further(self, log: LogKey, mend: _Mend) -> None:
        mend.looking = True

        def take(view: LogView) -> None:
            mend.looking = False
            missing = [(seq, held) for seq, held in view.missing_payloads if seq <= mend.up_to]
            self._take(log, [each for each in missing if each[0] > mend.asked_up_to])

        self._actions.look_up(log, (), None, take, missing_above=mend.asked_up_to)

    def given_up(self, request: Request) -> bool:
        """A payload that was joined from several sources is wrong: ask once more, from 0.

        The request may be over by then. False if it is none of these.
        """
        log, proposal = request.log, request.proposal
        if not request.ours or not proposal.offset or proposal.end != proposal.start:
            return False
        mend = self._mends.get(log)
        if mend is None:
            mend = self._mends[log] = _Mend(proposal.start, proposal.start)
        mend.wanted.append((proposal.start, 0, proposal.starting_hash or b""))
        return True

    def forget(self, request: Request) -> None:
        """A request of ours is over, or never existed."""
        log = self._asked.pop(request, None)
        if log is not None:
            self._mends[log].open -= 1
