"""What to ask the other side for of one log now: the two formulas.

    ask(log)   = wanted, and possible, less what is held, coming, resting, or another session's
    offer(log) = what was asked for in vain, or is unknown there, and is held, less what was told

Payloads are in the same plan as entries.
"""

from dataclasses import dataclass, replace

from peer.protocol.commands import MISSING_NAMED
from peer.protocol.config import SessionConfig
from peer.protocol.events import LogView
from peer.protocol.request import OPEN_END, Request
from wire import Eagerness, LogKey

from .actions import Actions
from .attempts import Attempts, Kind, Outcome
from .coverage import bodies, coming, covers
from .gaps import carry_out, due_cuts
from .payloads import NAMED_MAX, asks_for, missing_payloads, wanted_payloads
from .peer_log import PeerLog
from .planning import Ask, AskKind, Peer, is_whole, lacked, offers, plan, untold
from .ranges import Ranges, meet, minus, range_with, union
from .snapshot import Moment, Moments


@dataclass(frozen=True, slots=True)
class Look:
    """What is looked up of a log: what a plan needs, in parts where one view does not tell all."""

    named: frozenset[int] = frozenset()
    """The entries whose hashes are needed."""
    runs_from: int = 1
    missing_above: int = 0
    missing_max: int = MISSING_NAMED
    fork_range: tuple[int, int] | None = None
    """What is asked for instead of what is missing."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to propose, and what to look at next; None: nothing."""

    asks: list[Ask]
    further: Look | None = None


class Decider:
    """Plans one log at a time, from a view and what has come since that was asked for."""

    def __init__(
        self,
        actions: Actions,
        config: SessionConfig,
        attempts: Attempts,
        moments: Moments,
        *,
        once: bool,
    ) -> None:
        """`once`: only what the other side has now, and whoever else brings it too."""
        self._actions = actions
        self._config = config
        self._attempts = attempts
        self._moments = moments
        self._once = once

    def decide(
        self, view: LogView, state: PeerLog, newest: int, look: Look, since: Moment
    ) -> Decision:
        """What to ask for and to offer now. `newest`: the newest entry that is known of."""
        log, now = view.log, self._actions.now
        requests = self._actions.requests_of(log)
        state.height, state.awaits = view.height, view.some_arriving
        self._cut_at_gaps(view, state, newest, look)
        peer = state.peer(self._moments.coming(log, since), now)
        taken = self._payloads_taken(view, state, newest, look, since)
        planned = self._for_entries(view, state, taken)
        asks = self._entries(planned, view, state, peer, look)
        further = None
        if not self._once or self._has_moved(state, asks, requests):
            payloads, further = self._payloads(view, state, newest, taken, asks, look)
            asks = [*asks, *payloads]
        asks += self._offers(view, state, asks, requests)
        return Decision(state.not_twice(asks, requests, now), further)

    def at_rest(
        self, view: LogView, state: PeerLog, newest: int, look: Look, since: Moment
    ) -> list[Ask]:
        """While no entries are to be asked for: what may be told, and payloads.

        Where the store here fails, those alone that were wrong.
        """
        log, now = view.log, self._actions.now
        requests = self._actions.requests_of(log)
        taken = self._payloads_taken(view, state, newest, look, since)
        if self._attempts.rests(log, Kind.LOG, now, Outcome.NOT_KEPT):
            found = asks_for(missing_payloads(view, state.doubted(now)), taken, state.singly)
        else:
            # The newest payload is brought with the entries behind it.
            whole = view if range_with(state.singly, view.height) else _without_tail(view)
            found, _ = self._payloads(whole, state, newest, taken, [], look)
        return [*found, *offers(view, state.unserved, state.reachable(requests, self._actions.now))]

    # Entries

    def _entries(
        self, planned: LogView, view: LogView, state: PeerLog, peer: Peer, look: Look
    ) -> list[Ask]:
        asks = plan(state.wants, planned, peer, runs_from=look.runs_from)
        if self._once:
            return _only_now(asks, peer.newest or 0)
        if all(ask.settings.eagerness is Eagerness.NOTIFY for ask in asks):
            return asks
        if self._actions.claim(view.log):
            self._attempts.lift(view.log, Kind.WATCH, Outcome.FINISHED)
            return asks
        listening = view if self._may_listen_inside(view, state) else planned
        return self._leave_to_others(listening, state, peer, asks, look)

    def _leave_to_others(
        self, view: LogView, state: PeerLog, peer: Peer, asks: list[Ask], look: Look
    ) -> list[Ask]:
        """Another session fetches the log: listen, and bring only what it does not.

        Gaps that are as they were some time ago, and what is wanted once, are brought after all.
        """
        log, now = view.log, self._actions.now
        if state.reach > view.newest_whole:
            # Perhaps it said so before anybody here wanted the log.
            self._actions.note_holds(log, state.reach, view.newest_whole)
        gaps = untold(asks, view, state.wants)
        if gaps and self._attempts.has_waited(log, Kind.RANGE, gaps, now):
            return gaps
        if any(map(covers, self._actions.requests_of(log))):
            return []
        watches = plan(state.wants, view, peer, runs_from=look.runs_from, may_fetch=False)
        rests = self._attempts.resting(log, Kind.WATCH, now)
        return [ask for ask in watches if range_with(rests, ask.start) is None]

    def _may_listen_inside(self, view: LogView, state: PeerLog) -> bool:
        """Whether who listens may begin inside the payload of the newest entry, to hear of it."""
        rests = self._attempts.resting(view.log, Kind.PAYLOAD, self._actions.now)
        return range_with(union(rests, state.asked), view.height) is None

    # Payloads

    def _payloads_taken(
        self, view: LogView, state: PeerLog, newest: int, look: Look, since: Moment
    ) -> Ranges:
        """The entries whose payloads come anyway, or rest.

        What was asked for before, is not coming and is missing all the same was not served.
        """
        log, now = view.log, self._actions.now
        if is_whole(view) and not (state.asked or state.singly):
            # As of nearly all logs.
            state.lacks = False
            return ()
        state.lacks = bool(lacked(state.wants, view, newest))
        coming_here = self._moments.payloads_coming(log, since)
        # What a request does not bring after all is judged when that is over (payloads.unproved).
        by_themselves = (ask for ask in state.asks.values() if ask.kind is AskKind.PAYLOADS)
        coming_here = union(coming_here, *(ask.payloads for ask in by_themselves))
        if state.asked or state.singly:
            missing = missing_payloads(view, wanted_payloads(state.wants, view, newest))
            of_them = union((seq, seq) for seq, _ in missing)
            told_of = _told_of(view, look)
            if left := minus(meet(state.asked, of_them), coming_here):
                self._attempts.rest(log, Kind.PAYLOAD, Outcome.SKIPPED, now, left)
            state.asked = union(minus(state.asked, told_of), meet(state.asked, coming_here))
            state.singly = union(minus(state.singly, told_of), meet(state.singly, of_them))
        if doubted := state.doubted(now):
            # An open request may bring again what did not fit.
            requests = self._actions.requests_of(log)
            by_itself = bodies(each for each in requests if each.proposal.end is not None)
            coming_here = union(minus(coming_here, doubted), by_itself)
        return union(coming_here, self._attempts.resting(log, Kind.PAYLOAD, now))

    def _for_entries(self, view: LogView, state: PeerLog, taken: Ranges) -> LogView:
        """The view for planning entries: no range begins inside a payload that comes or rests."""
        if view.tail_partial_bytes is None:
            return view
        # What is fetched has any size, and a range would ask for what the subscription names.
        fetched = range_with(state.wants.fetches, view.height) is not None
        apart = fetched and state.wants.subscription is not None
        if apart or view.tail_arriving or range_with(taken, view.height) is not None:
            return _without_tail(view)
        if range_with(state.singly, view.height) is not None:
            return replace(view, tail_partial_bytes=0)
        return view

    def _payloads(
        self,
        view: LogView,
        state: PeerLog,
        newest: int,
        taken: Ranges,
        asks: list[Ask],
        look: Look,
    ) -> tuple[list[Ask], Look | None]:
        """What to ask for of held entries, and where to look for more of it."""
        log = view.log
        if is_whole(view):
            return [], None
        wanted = wanted_payloads(state.wants, view, newest)
        if self._once:
            wanted = meet(wanted, ((1, state.newest or 0),)) if state.newest else ()
        elif not state.met:
            wanted = meet(wanted, state.wants.fetches)
        if view.tail_arriving:
            wanted = minus(wanted, ((view.height, view.height),))
        missing = missing_payloads(view, wanted)
        taken = union(taken, *(ask.payloads for ask in asks))
        found = asks_for(missing, taken, state.singly)
        # The lowest ones, which every look begins with, tell whether anybody brings any.
        lowest = None if look.missing_above else missing[:MISSING_NAMED]
        if found and not self._may_fetch(log, lowest):
            found = []
        if view.unnamed_above is None:
            return found, None
        if found:
            small = look.missing_max < NAMED_MAX
            return ([], replace(look, missing_max=NAMED_MAX)) if small else (found, None)
        if meet(wanted, ((view.unnamed_above + 1, OPEN_END),)):
            return [], replace(look, missing_above=view.unnamed_above)
        return [], None

    def _may_fetch(self, log: LogKey, lowest: list[tuple[int, int]] | None) -> bool:
        """Whether these payloads are ours to bring: the log is, or nobody has brought them."""
        if self._once or self._actions.claim(log):
            self._attempts.leaves_nothing(log, Kind.PAYLOAD)
            return True
        return self._attempts.has_waited(log, Kind.PAYLOAD, lowest, self._actions.now)

    # Offers

    def _offers(
        self, view: LogView, state: PeerLog, asks: list[Ask], requests: list[Request]
    ) -> list[Ask]:
        unserved = state.unserved
        if self._once:
            if not self._has_moved(state, asks, requests):
                return []
            unserved = union((((state.newest or 0) + 1, OPEN_END),), unserved)
        found = []
        if unserved:
            found = offers(view, unserved, state.reachable(requests, self._actions.now))
        if not (self._once or asks or found or any(map(covers, requests))):
            found = state.introduction(view, requests)
        return found

    @staticmethod
    def _has_moved(state: PeerLog, asks: list[Ask], requests: list[Request]) -> bool:
        """Whether nothing is left to bring of a log."""
        moves = {AskKind.RANGE, AskKind.PATH, AskKind.PROBE}
        # A probe that is confirmed has told all that it will, and is over soon.
        open_asks = (
            ask
            for request, ask in state.asks.items()
            if not (ask.kind is AskKind.PROBE and request.confirmed)
        )
        if any(ask.kind in moves for ask in (*asks, *open_asks)):
            return False
        # What comes unasked is over first: what is missing then is asked for.
        return not coming(each for each in requests if not each.ours)

    # Gaps

    def _cut_at_gaps(self, view: LogView, state: PeerLog, newest: int, look: Look) -> None:
        """End what stands before a gap that nobody has filled for a while."""
        log, config, now = view.log, self._config, self._actions.now
        wanted = state.wants.ranges(max(view.newest, newest))
        patience = (config.stalled_after_s, config.look_again_s)
        requests = list(self._actions.requests_of(log))
        if not requests:
            return
        due, at = due_cuts(requests, view, look.runs_from, wanted, patience, now)
        if at is not None:
            self._attempts.look_in(log, at)
        for _, cut in due:
            state.asks_in_vain(cut.unserved)
        state.postpone(union(*(carry_out(*each, self._actions) for each in due)), now)


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
