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
    wanted: deque[tuple[int, int]] = field(default_factory=deque)
    """Seqnums, and bytes held."""
    view: LogView | None = None
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

    def begin(self, view: LogView, up_to: int) -> bool:
        """Mend a log, entries up to `up_to`; False if there is nothing to do."""
        log = view.log
        if log in self._begun or not any(seq <= up_to for seq, _ in view.missing_payloads):
            return False
        self._begun.add(log)
        mend = self._mends[log] = _Mend(up_to)
        self._look(log, mend, view)
        return True

    def is_mending(self, log: LogKey) -> bool:
        return log in self._mends

    def owns(self, request: Request) -> bool:
        return request in self._asked

    def _look(self, log: LogKey, mend: _Mend, view: LogView) -> None:
        """Take the next payloads from a view; their hashes have to be looked up."""
        missing = [
            (seq, held)
            for seq, held in view.missing_payloads
            if mend.asked_up_to < seq <= mend.up_to
        ]
        if not missing:
            del self._mends[log]
            return
        mend.looking = True
        mend.asked_up_to = missing[-1][0]

        def take(hashes: LogView) -> None:
            mend.looking = False
            mend.view = hashes
            mend.wanted.extend((seq, held) for seq, held in missing if seq in hashes.hashes)

        self._actions.look_up(log, tuple(seq for seq, _ in missing), None, take)

    def advance(self) -> bool:
        """Propose as far as the credit goes; True if some log has just been mended."""
        before = len(self._mends)
        for log, mend in list(self._mends.items()):
            while mend.wanted and self._actions.request_credit > _CREDIT_LEFT_MIN:
                seq, held = mend.wanted[0]
                if not self._actions.may_propose(log, seq, seq):
                    break
                mend.wanted.popleft()
                self._ask(log, mend, seq, held)
            if mend.over:
                self._look_further(log, mend)
        return len(self._mends) < before

    def _ask(self, log: LogKey, mend: _Mend, seq: int, held: int) -> None:
        if mend.view is None:
            raise AssertionError("nothing is wanted before its hash is known")
        proposal = Propose(
            request=self._actions.next_number(),
            log=log,
            start=seq,
            lower_info=None,
            min_bytes=0,
            max_bytes=U64_MAX,
            starting_hash=mend.view.hashes[seq],
            eagerness=Eagerness.ALL,
            end=seq,
            upper_info=seq,
            offset=held,
        )
        mend.open += 1
        self._asked[self._actions.propose(proposal, mend.view)] = log

    def _look_further(self, log: LogKey, mend: _Mend) -> None:
        mend.looking = True

        def take(view: LogView) -> None:
            mend.looking = False
            self._look(log, mend, view)

        self._actions.look_up(log, (), None, take, missing_above=mend.asked_up_to)

    def given_up(self, request: Request) -> None:
        """A payload that was joined from several sources is wrong: ask once more, from 0."""
        log = self._asked.get(request)
        if log is not None and request.proposal.offset:
            self._mends[log].wanted.append((request.proposal.start, 0))

    def forget(self, request: Request) -> None:
        """A request of ours is over, or never existed."""
        log = self._asked.pop(request, None)
        if log is not None:
            self._mends[log].open -= 1
