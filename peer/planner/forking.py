"""What a session does about forks: passes proofs on, and looks for the earliest fork of a log.

Of a forked log nothing counts from the fork on, so that all have to agree on where that is: at the
earliest one that anybody can prove. Entries whose links contradict what is held are no proof, but
the other side's version of what they link to is one. So ranges that go back further and further are
asked for, metadata only, until one agrees with ours (fork_search.py).

A proof is told once, and only of what the other side does not know: which of two sides tells the
other first is a race, and the one that lost it must not search again. Nothing is kept, or asked
for, of logs that are neither wanted nor held here: anybody can sign two entries in as many as he
likes. A one-time sync leaves the search to nodes that stay, and keeps what is proved all the same.

Both are asks like any other (asks.py), made when the log has its turn (turns.py): a range instead
of what is missing, and a proof behind all else.
"""

from collections.abc import Callable

from peer.data.links import links_are_ours
from peer.protocol.events import LogView
from peer.protocol.request import Request
from wire import Cancel, CancelReason, LogKey, decode_entry

from .answer import link_target
from .asks import Ask, AskKind
from .fork_search import ForkSearch, differs_at
from .peer_log import PeerLog
from .shared import Shared
from .wanting import NOTIFY_ONLY


class Forking:
    """Finds forks together with the other side, for who plans what is asked for next."""

    def __init__(self, shared: Shared, plan_first: Callable[[LogKey], None]) -> None:
        """`plan_first`: has a log planned before all others."""
        self._shared = shared
        self._actions = shared.actions
        self._plan_first = plan_first

    @staticmethod
    def _search(known: PeerLog) -> ForkSearch:
        if known.forks is None:
            known.forks = ForkSearch()
        return known.forks

    # What we know

    def note_told(self, known: PeerLog, fork: int) -> None:
        """The other side knows of a fork: it has told it, or was sent the proof with a cancel."""
        search = self._search(known)
        search.told = min(search.told, fork)

    def to_tell(self, view: LogView, known: PeerLog) -> list[Ask]:
        """The proposal to end with a proof that the other side does not know, if there is one.

        Only so can it be passed on to a side that does not ask.
        """
        if view.fork is None or view.fork_proof is None or not self._actions.may_tell(view.log):
            return []
        if view.fork >= self._search(known).told or self._shared.covered(view.log):
            return []
        return [Ask(AskKind.PROOF, view.fork, view.fork, NOTIFY_ONLY, view.fork)]

    def tell(self, request: Request, view: LogView) -> None:
        """Such a proposal was made: end it with the proof."""
        proof = view.fork_proof or ()
        self._actions.cancel(request, Cancel(request.number, CancelReason.FORKED, entries=proof))

    def search(self, view: LogView, known: PeerLog) -> None:
        """Where a proof names two histories, go on looking for where they part.

        It may come from somebody who has only one of them, or from before a connection was lost.
        """
        if view.fork is None:
            # A record of searches that found nothing would keep each of thousands of logs that are
            # refused from being forgotten.
            return
        before = self._search(known).before(view)
        if before is not None:
            self._ask_before(view.log, known, before)

    # What the other side tells

    def cancelled(self, request: Request, cancel: Cancel, known: PeerLog) -> None:
        """The other side cancelled a request with entries, or with the end of the log."""
        log = request.log
        match cancel.reason:
            case CancelReason.HASH_MISMATCH:
                known.refuse(request, self._actions.now)
                target = link_target(request.proposal)
                if request.ours and target is not None:
                    self._ask_before(log, known, target)
            case CancelReason.FORKED:
                fork = decode_entry(cancel.entries[0]).seq
                if request.ours and self._shared.wants(log):
                    known.refuse(request, self._actions.now, fork)
                elif request.ours:
                    # Who only listens keeps no proof of it. Should the log be taken in later, it is
                    # asked for then, and the other side, which has told it, does not do so again.
                    known.ends_telling(self._actions.now)
                # A fork that is known is no news, unless its two entries follow different ones.
                if fork <= known.planned.stop or differs_at((cancel.entries[0], cancel.entries[1])):
                    self._ask_before(log, known, fork)
            case CancelReason.LOG_ENDED:
                if request.ours and cancel.seq is not None and cancel.seq < request.proposal.start:
                    known.refuse(request, self._actions.now)
                    self._ask_metadata(log, known, (cancel.seq, cancel.seq))
            case _:
                pass

    def contradicted(self, request: Request, seq: int, known: PeerLog) -> None:
        """An entry `seq` with a valid signature does not fit what is held of its log."""
        # Behind the start of what was asked for, the entry before agreed if it was sent: nothing
        # earlier is wrong.
        if seq <= request.proposal.start or links_are_ours(request, seq):
            self._ask_before(request.log, known, seq)
        if self._search(known).is_over:
            known.refuse(request, self._actions.now)

    def _ask_before(self, log: LogKey, known: PeerLog, seq: int) -> None:
        """Ask for the other side's version of what is before `seq`, further back each time."""
        if seq > 1:
            self._ask_metadata(log, known, (max(1, seq - 4 ** self._search(known).ranges), seq - 1))

    def _ask_metadata(self, log: LogKey, known: PeerLog, entries: tuple[int, int]) -> None:
        if entries[0] > 0 and self._shared.wants(log) and self._search(known).ask(entries):
            self._plan_first(log)
