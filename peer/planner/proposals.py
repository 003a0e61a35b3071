"""What to ask the other side for of one log now: the two formulas.

    ask(log)   = wanted, and possible, less what is held, coming, resting, or another session's
    offer(log) = what was asked for in vain, or is unknown there, and is held, less what was told

Payloads are in the same plan as entries: a range that begins inside a payload brings both, and what
one of them asks for the other must not.

Nothing is remembered in this file. What is held is a view and what came since (progress.py); what
rests is the ledger (rests.py); what the other side has is peer_log.py; which ranges make up an ask,
asks.py. So an event that is missed costs a later look. But to decide is more than to look: what
stands before a gap is cut or ended, the log is claimed, payloads that did not come are noted to
rest, and `PeerLog` is told what was found. Whether anything may be proposed at all, for credit or
for section 7, is a log's turn (turns.py).
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from peer.protocol.commands import MISSING_NAMED
from peer.protocol.config import SessionConfig
from peer.protocol.events import LogView
from peer.protocol.request import OPEN_END, Request
from wire import Eagerness, LogKey

from .actions import Actions
from .asks import Ask, AskKind, TheirPart, is_whole, offers, plan, untold
from .coverage import bodies, coming, covers
from .gaps import carry_out, due_cuts
from .payloads import NAMED_MAX, asks_for, begun_payloads, lacks, missing_payloads, wanted_payloads
from .peer_log import PeerLog
from .progress import Mark, Progress
from .ranges import Ranges, first_of, meet, minus, range_with, union
from .rests import Kind, Outcome, Rests


class Look(Struct, frozen=True):
    """What is looked up of a log: what a plan needs, in parts where one view does not tell all."""

    named: frozenset[int] = frozenset()
    """The entries whose hashes are needed."""
    runs_from: int = 1
    missing_above: int = 0
    missing_max: int = MISSING_NAMED
    fork_range: tuple[int, int] | None = None
    """What is asked for instead of what is missing."""


class Decision(Struct, frozen=True):
    """What to propose, and what to look at next; None: nothing."""

    asks: list[Ask]
    further: Look | None = None


class Decider:
    """Plans one log at a time, from a view and what has come since that was asked for."""

    def __init__(
        self,
        actions: Actions,
        config: SessionConfig,
        rests: Rests,
        progress: Progress,
        *,
        once: bool,
    ) -> None:
        """`once`: only what the other side has now, and whoever else brings it too."""
        self._actions = actions
        self._config = config
        self._rests = rests
        self._progress = progress
        self._once = once

    def decide(
        self, view: LogView, known: PeerLog, newest: int, look: Look, since: Mark
    ) -> Decision:
        """What to ask for and to offer now. `newest`: the newest entry that is known of."""
        log, now = view.log, self._actions.now
        requests = self._actions.requests_of(log)
        known.planned.height, known.planned.whole = view.height, view.newest_whole
        known.planned.awaits, known.planned.unlisted = view.some_arriving, not view.runs_complete
        self._rests.lift_existing(log, max(known.reach, view.newest), now)
        # First: a request that is cut covers less, and what stood in vain rests.
        self._cut_at_gaps(view, known, newest, look)
        peer = known.peer(self._progress.coming(log, since), now)
        taken = self._payloads_taken(view, known, newest, look, since)
        planned = self._for_entries(view, known, taken)
        asks = self._entries(planned, view, known, peer, look)
        further = None
        # A sync asks for single payloads when the entries are there: most come with them, in a
        # range that may begin inside one.
        if not self._once or self._has_moved(known, asks, requests):
            payloads, further = self._payloads(view, known, newest, taken, asks, look)
            asks = [*asks, *payloads]
        asks += self._offers(view, known, asks, requests)
        return Decision(known.not_twice(asks, requests, now), further)

    def at_rest(
        self, view: LogView, known: PeerLog, newest: int, look: Look, since: Mark
    ) -> list[Ask]:
        """While no entries are to be asked for: what may be told, and payloads.

        Where the store here fails, those alone that were wrong; where it has no room, none.
        """
        log, now = view.log, self._actions.now
        requests = self._actions.requests_of(log)
        taken = self._payloads_taken(view, known, newest, look, since)
        if self._rests.has_no_room(log, now):
            found = []
        elif self._rests.is_left_alone(log, Kind.LOG, now, Outcome.NOT_KEPT):
            doubted = missing_payloads(view, known.doubted(now))
            found = asks_for(doubted, begun_payloads(view), taken, known.singly)
        else:
            # The newest payload is brought with the entries behind it.
            whole = view if range_with(known.singly, view.height) else _without_tail(view)
            found, _ = self._payloads(whole, known, newest, taken, [], look)
        if not self._actions.may_tell(log):
            return found
        return [*found, *offers(view, known.unserved, known.reachable(requests, self._actions.now))]

    # Entries

    def _entries(
        self, planned: LogView, view: LogView, known: PeerLog, peer: TheirPart, look: Look
    ) -> list[Ask]:
        asks = plan(known.wants, planned, peer, runs_from=look.runs_from)
        if self._once:
            return _only_now(asks, peer.newest or 0)
        # Who asks for nothing but news needs no claim: it would be the source, and bring nothing.
        if all(ask.settings.eagerness is Eagerness.NOTIFY for ask in asks):
            return asks
        if self._actions.claim(view.log):
            # To be told of it was given up when it told no more: now it is to bring it.
            self._rests.lift(view.log, Kind.WATCH, Outcome.FINISHED)
            return asks
        listening = view if self._may_listen_inside(view, known) else planned
        return self._leave_to_others(listening, known, peer, asks, look)

    def _leave_to_others(
        self, view: LogView, known: PeerLog, peer: TheirPart, asks: list[Ask], look: Look
    ) -> list[Ask]:
        """Another session fetches the log: listen, and bring only what it does not.

        Gaps that are as they were some time ago, and what is wanted once, are brought after all.
        """
        log, now = view.log, self._actions.now
        # Perhaps it said so before anybody here wanted the log.
        self._actions.note_holds(log, known.reach, view.newest_whole)
        # Nobody notifies of these, so that the source may not have them and nobody else be asked.
        gaps = untold(asks, view, known.wants)
        if gaps and self._rests.left_long_enough(log, Kind.RANGE, gaps, now):
            return gaps
        if any(map(covers, self._actions.requests_of(log))):
            return []
        watches = plan(known.wants, view, peer, runs_from=look.runs_from, may_fetch=False)
        rests = self._rests.left_alone(log, Kind.WATCH, now)
        return [ask for ask in watches if range_with(rests, ask.start) is None]

    def _may_listen_inside(self, view: LogView, known: PeerLog) -> bool:
        """Whether who listens may begin inside the payload of the newest entry, to hear of it."""
        rests = self._rests.left_alone(view.log, Kind.PAYLOAD, self._actions.now)
        return range_with(union(rests, known.asked), view.height) is None

    # Payloads

    def _payloads_taken(
        self, view: LogView, known: PeerLog, newest: int, look: Look, since: Mark
    ) -> Ranges:
        """The entries whose payloads come anyway, or rest.

        What was asked for before, is not coming and is missing all the same was not served.
        """
        log, now = view.log, self._actions.now
        if is_whole(view) and not (known.asked or known.singly):
            # As of nearly all logs, which are planned in as little time as that takes.
            known.planned.lacks = False
            return ()
        known.planned.lacks = lacks(known.wants, view, newest)
        coming_here = self._progress.payloads_coming(log, since)
        # What a request does not bring after all is judged when that is over (payloads.unproved).
        by_themselves = (ask for ask in known.asks.values() if ask.kind is AskKind.PAYLOADS)
        coming_here = union(coming_here, *(ask.payloads for ask in by_themselves))
        if known.asked or known.singly:
            of_them = missing_payloads(view, wanted_payloads(known.wants, view, newest))
            told_of = _told_of(view, look)
            if left := minus(meet(known.asked, of_them), coming_here):
                self._rests.note(log, Kind.PAYLOAD, Outcome.SKIPPED, now, left)
            known.asked = union(minus(known.asked, told_of), meet(known.asked, coming_here))
            known.singly = union(minus(known.singly, told_of), meet(known.singly, of_them))
        if doubted := known.doubted(now):
            # An open request may bring again what did not fit.
            requests = self._actions.requests_of(log)
            by_itself = bodies(each for each in requests if each.proposal.end is not None)
            coming_here = union(minus(coming_here, doubted), by_itself)
        return union(coming_here, self._rests.left_alone(log, Kind.PAYLOAD, now))

    def _for_entries(self, view: LogView, known: PeerLog, taken: Ranges) -> LogView:
        """The view for planning entries: no range begins inside a payload that comes or rests."""
        if view.tail_partial_bytes is None:
            return view
        # What is fetched has any size, and a range would ask for what the subscription names.
        fetched = range_with(known.wants.fetches, view.height) is not None
        apart = fetched and known.wants.subscription is not None
        if apart or view.tail_arriving or range_with(taken, view.height) is not None:
            return _without_tail(view)
        if range_with(known.singly, view.height) is not None:
            return replace(view, tail_partial_bytes=0)
        return view

    def _payloads(
        self,
        view: LogView,
        known: PeerLog,
        newest: int,
        taken: Ranges,
        asks: list[Ask],
        look: Look,
    ) -> tuple[list[Ask], Look | None]:
        """What to ask for of held entries, and where to look for more of it."""
        log = view.log
        if is_whole(view):
            return [], None
        wanted = wanted_payloads(known.wants, view, newest)
        if self._once:
            wanted = meet(wanted, ((1, known.newest or 0),)) if known.newest else ()
        elif not known.may_hold_payloads:
            wanted = meet(wanted, known.wants.fetches)
        if view.tail_arriving:
            wanted = minus(wanted, ((view.height, view.height),))
        missing, begun = missing_payloads(view, wanted), begun_payloads(view)
        taken = union(taken, *(ask.payloads for ask in asks))
        found = asks_for(missing, begun, taken, known.singly, self._rests.skipped_up_to(log))
        # The lowest ones, which every look begins with, tell whether anybody brings any.
        lowest = None if look.missing_above else _lowest(missing, begun)
        if found and not self._may_fetch(log, lowest):
            found = []
        if view.unnamed_above is None:
            return found, None
        if found:
            # A few are enough to see that there is anything to ask for, and of nearly all logs
            # there is not. If there is, neighbours are to be found for one request.
            small = look.missing_max < NAMED_MAX
            return ([], replace(look, missing_max=NAMED_MAX)) if small else (found, None)
        if meet(wanted, ((view.unnamed_above + 1, OPEN_END),)):
            return [], replace(look, missing_above=view.unnamed_above)
        return [], None

    def _may_fetch(self, log: LogKey, lowest: object) -> bool:
        """Whether these payloads are ours to bring: the log is, or nobody has brought them."""
        if self._once or self._actions.claim(log):
            self._rests.lift_left(log, Kind.PAYLOAD)
            return True
        return self._rests.left_long_enough(log, Kind.PAYLOAD, lowest, self._actions.now)

    # Offers

    def _offers(
        self, view: LogView, known: PeerLog, asks: list[Ask], requests: list[Request]
    ) -> list[Ask]:
        if not self._actions.may_tell(view.log):
            return []
        unserved = known.unserved
        if self._once:
            if not self._has_moved(known, asks, requests):
                return []
            unserved = union((((known.newest or 0) + 1, OPEN_END),), unserved)
        found = []
        if unserved:
            found = offers(view, unserved, known.reachable(requests, self._actions.now))
        # Last: whatever is proposed of a log, or is in force, has introduced it.
        if not (self._once or asks or found or any(map(covers, requests))):
            found = known.introduction(view, requests)
        return found

    @staticmethod
    def _has_moved(known: PeerLog, asks: list[Ask], requests: list[Request]) -> bool:
        """Whether nothing is left to bring of a log."""
        moves = {AskKind.RANGE, AskKind.PATH, AskKind.PROBE}
        # A probe that is confirmed has told all that it will, and is over soon.
        open_asks = (
            ask
            for request, ask in known.asks.items()
            if not (ask.kind is AskKind.PROBE and request.confirmed)
        )
        if any(ask.kind in moves for ask in (*asks, *open_asks)):
            return False
        # What comes unasked is over first: what is missing then is asked for.
        return not coming(each for each in requests if not each.ours)

    # Gaps

    def _cut_at_gaps(self, view: LogView, known: PeerLog, newest: int, look: Look) -> None:
        """End what stands before a gap that nobody has filled for a while."""
        log, config, now = view.log, self._config, self._actions.now
        requests = list(self._actions.requests_of(log))
        if not requests:
            return
        wanted = known.wants.ranges(max(view.newest, newest))
        patience = (config.stalled_after_s, config.look_again_s)
        due, at = due_cuts(requests, view, look.runs_from, wanted, patience, now)
        if at is not None:
            self._rests.look_at(log, at)
        for _, cut in due:
            known.asks_in_vain(cut.unserved)
        known.postpone(union(*(carry_out(*each, self._actions) for each in due)), now)


def _lowest(missing: Ranges, begun: Mapping[int, int]) -> object:
    """The first missing payloads, and how much is held of each."""
    lowest = first_of(missing, MISSING_NAMED)
    return lowest, [each for each in begun.items() if range_with(lowest, each[0]) is not None]


def _without_tail(view: LogView) -> LogView:
    """A view in which the payload of the newest entry counts as held."""
    return replace(view, tail_partial_bytes=None)


def _told_of(view: LogView, look: Look) -> Ranges:
    """The entries of which a view tells whether their payloads are missing."""
    last = view.newest if view.unnamed_above is None else view.unnamed_above
    told = ((look.missing_above + 1, last),) if look.missing_above < last else ()
    return union(told, ((view.height, view.height),) if view.height else ())


def _only_now(asks: list[Ask], theirs: int) -> list[Ask]:
    """What of it the other side has now: its newest entry is `theirs`."""
    found = []
    for ask in asks:
        if ask.kind in (AskKind.PROBE, AskKind.WATCH):
            continue
        if ask.start <= theirs < ask.last:
            found.append(replace(ask, end=theirs, upper_info=theirs))
        elif ask.last <= theirs:
            found.append(ask)
    return found
