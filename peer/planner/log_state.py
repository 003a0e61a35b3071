"""What one session knows about one log: its own requests, and the other side's part of it."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from peer.protocol.events import LogView
from peer.protocol.request import NEVER, OPEN_END, Request
from wire import CancelReason, Eagerness, LogKey, Propose

from .answering import asks_for_payloads, goes_on, is_offer
from .coverage import carried, coming, completed, covers, is_coming
from .fork_search import differs_at
from .log_table import LogTable
from .planning import Ask, AskKind, Peer, Wants, offer_of
from .ranges import Ranges, meet, minus, range_with, union

FORK_RANGES_MAX = 48
"""More ranges than it takes to get from any seqnum back to 1, see `FollowPolicy._ask_before`."""

REFUSALS_MAX = 32
"""Refused proposals for a log in a row, after which each further one waits longer and longer."""

LISTEN_AGAIN_MAX_S = 60.0
"""The longest pause before the other side is asked again to tell what is new."""

RANGES_MAX = 256
"""Ranges that the other side has offered or asked for, and that are remembered of a log."""


@dataclass(slots=True)
class LogState:
    """What is known of a log and planned for it."""

    wants: Wants = field(default_factory=Wants)
    """What was wanted when this was last looked at."""
    looking: bool = False
    must_look: bool = False
    """To be looked at even if an open request brings all that is new."""
    asks: dict[Request, Ask] = field(default_factory=dict)
    """Our requests about ranges, and what they are for."""
    blocked: bool = False
    """An unanswered proposal of the other side is in the way of one of ours."""
    deferred: bool = False
    """An ask waits for a part of its pool that is coming."""
    deferred_with: Ranges = ()
    """What was held when that began."""
    deferred_until: dict[Ranges, float] = field(default_factory=dict)
    """For each part that is coming, until when an ask waits if nothing comes."""
    lacks: bool = False
    """Payloads of what is held were missing when this was last looked at."""
    met: bool = False
    """Whether the other side answered a request: it may hold single payloads of this log."""
    spoken: bool = False
    """Whether we proposed anything."""
    our_newest: int = 0
    """The newest entry heard of since the last look-up was asked for."""
    awaits: bool = False
    """Some session was receiving a payload that was missing when this was last looked at."""
    stale: bool = False
    """A request has ended since the last look-up was asked for, which may lack what it brought."""
    runs_from: int = 1
    """Where the next view begins, if the log is in more runs than one view tells of."""

    newest: int | None = None
    """The newest entry that the other side has told of."""
    offered: Ranges = ()
    """What it said it holds."""
    in_step: Ranges = ()
    """What it has or will have, judging by what it asks for."""
    asked_behind: int = 0
    """The highest entry behind which it asked for all that follows: it holds that."""
    heard_up_to: int = 0
    """The highest start of what it proposed."""
    refused: Ranges = ()
    liftable: Ranges = ()
    """What of that was refused before the other side's last proposal."""
    lifted: Ranges = ()
    """What was refused once, and may be asked for again."""
    stop: int = OPEN_END
    """The last entry that the log may have, as far as is known here."""
    height: int = 0
    """Up to where it was held without gaps when it was last looked at."""
    watched_from: int = 0
    """From where a sparse log was watched until the other side ended that."""
    path_refused: int = 0
    path_liftable: int = 0
    path_lifted: int = 0
    """The newest entry whose path was refused once."""
    withdrawn: frozenset[tuple[int, int | None, float]] = frozenset()
    """Ranges that the other side proposed and does not want any more, and since when."""
    proposed_at: float = 0.0
    """When this side last made a proposal, if something was withdrawn before."""
    unserved: Ranges = ()
    """What the other side asked for and could not get as it asked."""
    told: Ranges = ()
    """What was offered to it."""
    told_at: float = 0.0
    """When that was last so."""
    refusals: int = 0

    both_have: int = 0
    """The highest entry up to which a request is complete, or that was offered as the last one."""
    listened_until: float = 0.0
    """Until then it is not asked to tell what is new, while another session fetches the log.

    For ever, once it has told to the end what it holds.
    """
    inside: frozenset[int] = frozenset()
    """The entries inside whose payloads a request of ours began."""
    stalled: object = None
    """What was missing when another session was left to bring it."""
    retries: int = 0
    fork_range: tuple[int, int] | None = None
    """The entries to ask for next, metadata only, instead of what is missing."""
    fork_ranges: int = 0
    """How often that was done."""
    fork_request: Request | None = None
    """The request that asks for them, until it is over."""
    told_fork: int = NEVER
    """The earliest fork that this side or the other has told the other of."""
    searched_fork: int = NEVER
    """The earliest fork before which the other side was asked for its version."""
    stands: dict[Request, float] = field(default_factory=dict)
    """Requests whose cursor stands before a gap, and since when."""
    views: dict[Request, LogView] = field(default_factory=dict)
    """What our proposals were made from, until they are answered."""

    @property
    def is_only_refused(self) -> bool:
        """Whether all that is known is that the other side did not want what was proposed."""
        alike = LogState(
            self.wants,
            met=True,
            spoken=True,
            refused=self.refused,
            stop=self.stop,
            height=self.height,
            refusals=self.refusals,
        )
        return bool(self.refused) and self == alike

    @property
    def reach(self) -> int:
        """The newest entry that the other side is known to hold."""
        return max(self.newest or 0, self.asked_behind, *(last for _, last in self.offered))

    def peer(self, requests: Iterable[Request]) -> Peer:
        holds = union(self.offered, self.in_step)
        return Peer(
            self.newest,
            holds,
            self.refused,
            coming(requests),
            # It may have an end now, or a fork, and a path that leads there was not refused.
            self.path_refused if self.path_refused <= self.stop else 0,
            self.offered,
            self.watched_from,
        )

    def heard(
        self, proposal: Propose, requests: Iterable[Request] = (), *, late: bool = False
    ) -> bool:
        """The other side proposed something. Whether that tells of more that it holds, or will.

        `requests`: all of this log. `late`: it may have refused something since.
        """
        before = self.offered, self.heard_up_to
        if not late:
            self._reconsider(proposal)
        self._hear(proposal, requests)
        return before != (self.offered, self.heard_up_to)

    def _reconsider(self, proposal: Propose) -> None:
        """After a later proposal some of what was refused may be asked for again (section 6)."""
        self.withdrawn = frozenset()
        if proposal.start > self.heard_up_to and not is_offer(proposal):
            # It has come further since: what it refused it may want now.
            self.lift()
        else:
            # Two sides that answer each proposal by one of their own would never end.
            self.liftable, self.path_liftable = self.refused, self.path_refused

    def _hear(self, proposal: Propose, requests: Iterable[Request]) -> None:
        if not asks_for_payloads(proposal):
            self.listened_until = 0.0
            self.watched_from = 0
        if not is_offer(proposal):
            self.heard_up_to = max(self.heard_up_to, proposal.start)
        if proposal.sparse or proposal.payloads_only:
            return
        first = proposal.start
        if is_offer(proposal):
            offered = union(self.offered, ((first, proposal.end or first),))
            self.offered = offered[-RANGES_MAX:]
            self.newest = max(self.newest or 0, proposal.end or 0)
        elif proposal.end is None:
            if goes_on(proposal) and not is_coming(first - 1, requests):
                self.asked_behind = max(self.asked_behind, first - 1)
                if self.newest is not None:
                    # It had nothing when it was asked, or less.
                    self.newest = max(self.newest, first - 1)
            if proposal.eagerness is Eagerness.NOTIFY:
                self.refused = minus(self.refused, ((first, OPEN_END),))

    def refuses(self, wants: Wants) -> bool:
        """Whether the other side sends nothing new of this log, and no part of what is wanted."""
        if not self.refused or self.refused[-1][1] < OPEN_END:
            return False
        if wants.is_sparse and (self.newest or 0) > self.path_refused:
            return False
        wanted = minus(wants.ranges(self.newest or 0), ((1, self.height),) if self.height else ())
        return not minus(wanted, self.refused) and not meet(wanted, self.offered)

    def lift(self) -> None:
        """What the other side refused may be asked for again."""
        self.lifted = union(self.lifted, self.refused)
        self.path_lifted = max(self.path_lifted, self.path_refused)
        self.refused, self.liftable, self.path_refused, self.path_liftable = (), (), 0, 0

    def lift_heard(self) -> None:
        """As `lift`, of what the other side has made a later proposal for (section 6)."""
        self.lifted = union(self.lifted, self.liftable)
        self.refused = minus(self.refused, self.liftable)
        if self.path_refused <= self.path_liftable:
            self.path_lifted = max(self.path_lifted, self.path_refused)
            self.path_refused = 0
        self.liftable, self.path_liftable = (), 0
        self.withdrawn = frozenset(each for each in self.withdrawn if each[2] >= self.proposed_at)

    def postpone(self, entries: Ranges) -> None:
        """Nothing of this came for a while in a request of ours: ask again as for what is refused.

        We ended it, so that it is not for section 6 to say when.
        """
        finite = tuple(each for each in entries if each[1] < OPEN_END)
        self.refused = union(self.refused, finite)
        self.liftable = union(self.liftable, finite)

    def withdraw(self, proposal: Propose, now: float) -> None:
        """The other side does not want what it proposed, nor to be asked for that again.

        Until either side makes a later proposal (section 6).
        """
        if not proposal.sparse and not proposal.payloads_only:
            self.withdrawn |= {(proposal.start, proposal.end, now)}

    def note_proposal(self, made_at: float) -> None:
        """A proposal of this side."""
        if self.withdrawn:
            self.proposed_at = max(self.proposed_at, made_at)

    def withdrawn_ranges(self) -> Ranges:
        """What of the log was withdrawn."""
        return union((n, OPEN_END if last is None else last) for n, last, _ in self.withdrawn)

    def keeps_in_step(self, proposal: Propose, view: LogView, requests: Iterable[Request]) -> None:
        """It goes on behind what we hold: it has what is before that, and will have the rest."""
        data = proposal.eagerness is not Eagerness.NOTIFY
        beyond = goes_on(proposal) and data and proposal.start > view.newest
        if beyond and not is_coming(proposal.start - 1, requests):
            self.in_step = union(self.in_step, ((proposal.start, OPEN_END),))

    def may_defer(self, view: LogView, part: Ranges, now: float, patience_s: float) -> bool:
        """Whether to wait for a part that is coming: not if nothing has come for a while."""
        if self.deferred_with != view.runs:
            self.deferred_with = view.runs
            self.deferred_until.clear()
        if len(self.deferred_until) > RANGES_MAX:
            return False
        return now < self.deferred_until.setdefault(part, now + patience_s)

    def not_twice(self, asks: Iterable[Ask], requests: Iterable[Request] = ()) -> list[Ask]:
        """Without what is asked already, or was proposed and withdrawn by the other side.

        One request of these kinds is enough, wherever it begins. Of what was withdrawn is left what
        the other side has offered all the same. Nor is it asked to tell what is new if it does so
        in a request of its own. `requests`: all of this log.
        """
        once = {ask.kind for ask in self.asks.values()} & {AskKind.PROBE, AskKind.WATCH}
        withdrawn = {(first, last) for first, last, _ in self.withdrawn}
        told_from = min((each.proposal.start for each in filter(covers, requests)), default=NEVER)
        found: list[Ask] = []
        for ask in asks:
            if ask.kind is AskKind.RANGE and (ask.start, ask.end) in withdrawn:
                found += [
                    replace(ask, start=first, end=last, upper_info=last, offset=None)
                    for first, last in meet(((ask.start, ask.last),), self.offered)
                    if (first, last) not in withdrawn
                ]
            elif ask.kind not in once and (ask.kind is not AskKind.WATCH or ask.start < told_from):
                found.append(ask)
        return found

    def introduction(self, view: LogView, requests: Iterable[Request]) -> list[Ask]:
        """Of a log of which nothing is missing, say once what is held (section 10)."""
        followed = self.wants.subscription is not None
        if view.fork is not None or not view.runs or not followed:
            return []
        first, last = view.runs[-1]
        if last == view.end:
            return [] if self.both_have >= last else [offer_of(last, last)]
        if self.both_have or self.spoken or any(requests) or not view.runs_complete:
            return []
        return [offer_of(first, last)]

    def released(self, request: Request, now: float) -> Ask | None:
        """A request is over; what it was for, if it was of ours about a range."""
        self.views.pop(request, None)
        self.stands.pop(request, None)
        ask = self.asks.pop(request, None)
        if request is self.fork_request:
            self.fork_request = None
        complete = completed(request)
        only_heard = request.our_interest.eagerness is Eagerness.NOTIFY
        if not complete:
            if only_heard and ask is not None and request.cancel_sent is CancelReason.COMPLETE:
                # It would tell of a part only, of which nobody has anything yet.
                self.listened_until = now + min(2.0**self.retries, LISTEN_AGAIN_MAX_S)
                self.retries += 1
            return ask
        if not request.proposal.sparse:
            told_all = only_heard and request.proposal.end is None
            self.listened_until = math.inf if told_all else 0.0
            self.both_have = max(self.both_have, request.lowest_end() or 0)
        if ask is not None:
            # What it sent or passed it holds; where both only notify, it may have been refused it.
            both_notify = only_heard and request.their_interest.eagerness is Eagerness.NOTIFY
            knows = minus(carried(request), self.unserved if both_notify else ())
            self.told, self.told_at = union(self.told, knows), now
            if ask.kind is AskKind.WATCH and self.wants.is_sparse:
                # It stops at a gap of its own, and would do so again.
                self.watched_from = max(self.watched_from, ask.start)
        return ask

    def lost(self, request: Request) -> None:
        """A proposal of ours gave way to one of the other side."""
        self.blocked = True
        self.both_have = 0
        self.views.pop(request, None)
        if request.cancel_sent is CancelReason.FORKED:
            # The proof was lost with the proposal that it ended.
            self.told_fork = NEVER
        ask = self.asks.pop(request, None)
        if ask is not None and ask.kind is AskKind.OFFER:
            self.told = minus(self.told, ((ask.start, ask.last),))

    def not_served(self, ask: Ask) -> None:
        """The other side has no resources for what a request was for."""
        if ask.kind is AskKind.PROBE:
            # It has nothing, or will not say.
            self.newest = self.newest or 0
            return
        if ask.kind is AskKind.OFFER:
            self.told = minus(self.told, ((ask.start, ask.last),))
        if ask.offset is not None:
            # It may not hold that entry, but what is behind it one day, and others before it.
            self.inside |= {ask.start}

    def leaves(self, request: Request) -> None:
        """A request is ended from here: of what the other side wants in it, this has not come."""
        base, position = request.base, request.outgoing.position
        if base is None or base.path is not None or base.per_entry == 1 or not request.active:
            return
        length, end = base.length, request.lowest_end()
        if request.their_interest.eagerness is Eagerness.NOTIFY:
            return
        if length is None or position < length:
            left = (base.piece(position).seq, OPEN_END if end is None else end)
            if left[0] <= left[1]:
                self.unserved = union(self.unserved, (left,))[-RANGES_MAX:]

    def watches(self, request: Request) -> None:
        """The other side wants what is new, and a sparse log brings that in parts only."""
        if self.wants.is_sparse and request.their_interest.eagerness is not Eagerness.NOTIFY:
            self.unserved = union(self.unserved, ((request.proposal.start, OPEN_END),))

    def search_metadata(self, entries: tuple[int, int]) -> bool:
        """Ask for these entries next; False if that was done too often."""
        if self.fork_ranges >= FORK_RANGES_MAX:
            return False
        self.fork_ranges += 1
        self.fork_range = entries
        return True

    def fork_to_search(self, view: LogView) -> int | None:
        """The entry before which to look for an earlier fork than that of the view, each once."""
        if view.fork is None or view.fork_proof is None or view.fork >= self.searched_fork:
            return None
        self.searched_fork = view.fork
        differs = differs_at(view.fork_proof)
        return None if differs is None else differs + 1

    def refuse(self, request: Request) -> None:
        """The other side does not want a proposal of ours."""
        self.refusals += 1
        self.met = True
        asked = ((request.proposal.start, request.proposal.end or OPEN_END),)
        match self._kind_of(request):
            case AskKind.PROBE:
                self.newest = self.newest or 0
            case AskKind.PATH:
                before = self.path_refused if self.path_refused <= self.stop else 0
                self.path_refused = max(before, request.proposal.end or 0)
            case AskKind.RANGE | AskKind.WATCH:
                self.refused = union(self.refused, asked)
                self.in_step = _without(self.in_step, request.proposal)
                self.offered = _without(self.offered, request.proposal)
            case AskKind.OFFER:
                pass

    def doubt_newest(self, request: Request) -> None:
        """The path to what was taken for the newest entry is not to be had: ask for its number.

        Who asks for all that follows an entry mostly holds that one, but not if it follows a range
        that begins there.
        """
        if self._kind_of(request) is AskKind.PATH and self.newest == request.proposal.end:
            self.newest = None

    def told_newest(self, newest: int) -> None:
        """The other side says what its newest entry is: no path to a later one was refused."""
        self.newest = max(self.newest or 0, newest)
        if self.newest < self.path_refused:
            self.path_refused = 0

    def _kind_of(self, request: Request) -> AskKind:
        """What is found wrong in a request of ours that is over was asked for all the same."""
        ask = self.asks.get(request)
        if ask is not None:
            return ask.kind
        if not request.ours:
            return AskKind.OFFER
        is_path = request.proposal.sparse and request.proposal.end is not None
        return AskKind.PATH if is_path else AskKind.RANGE

    def reachable(self, requests: Iterable[Request]) -> Ranges:
        """What of this log the other side has been told of, or gets in a request in force."""
        served: list[tuple[int, int]] = []
        for request in requests:
            over = request.cancel_sent is not None or request.cancel_received is not None
            ask = self.asks.get(request)
            if over or request.proposal.payloads_only or request.proposal.sparse:
                continue
            if request.their_interest.eagerness is Eagerness.NOTIFY:
                continue
            if ask is not None and ask.kind is AskKind.WATCH:
                continue
            end = request.lowest_end()
            served.append((request.proposal.start, OPEN_END if end is None else end))
        return union(self.told, served)


@dataclass(frozen=True, slots=True)
class Closed:
    """All there is to know of a log that the other side does not want, and that has no request."""

    wants: Wants
    refused: Ranges
    refusals: int


class LogStates:
    """What a session knows of every log. Thousands may be refused, and of these little is kept.

    `get` finds no log that is closed; `opened` opens it again.
    """

    def __init__(self) -> None:
        self._open: dict[LogKey, LogState] = {}
        self._closed = LogTable[Closed]()
        self._kinds: dict[Closed, Closed] = {}
        """One of each is enough, since thousands are alike."""

    def get(self, log: LogKey) -> LogState | None:
        return self._open.get(log)

    def __getitem__(self, log: LogKey) -> LogState:
        return self._open[log]

    def items(self) -> list[tuple[LogKey, LogState]]:
        return list(self._open.items())

    def asks(self) -> Iterator[Request]:
        """Our requests about ranges of all logs."""
        return (request for state in self._open.values() for request in state.asks)

    def closed(self) -> list[tuple[LogKey, Closed]]:
        return self._closed.pairs()

    def is_closed(self, log: LogKey) -> bool:
        return log in self._closed

    def opened(self, log: LogKey) -> LogState | None:
        """What is known of a log, to be changed; None if it has never been heard of."""
        closed = self._closed.pop(log, None)
        if closed is not None:
            self._open[log] = LogState(
                closed.wants,
                met=True,
                spoken=True,
                refused=closed.refused,
                refusals=closed.refusals,
            )
        return self._open.get(log)

    def add(self, log: LogKey, wants: Wants, asked_from: int = 0) -> LogState:
        """A log of which something is to be known.

        `asked_from`: the other side has asked in vain for all from that entry on; 0: it has not.
        """
        state = self._open[log] = LogState(wants)
        if asked_from > 0:
            state.asked_behind, state.unserved = asked_from - 1, ((asked_from, OPEN_END),)
        return state

    def forget(self, log: LogKey) -> None:
        """As if it had never been heard of, unless it is being looked up."""
        if log in self._open and not self._open[log].looking:
            del self._open[log]

    def close(self, log: LogKey) -> bool:
        """Keep of a log only that it was refused; False if there is more to know."""
        state = self._open[log]
        if not state.is_only_refused:
            return False
        closed = Closed(state.wants, state.refused, state.refusals)
        self._closed[log] = self._kinds.setdefault(closed, closed)
        del self._open[log]
        return True


def _without(ranges: Ranges, refused: Propose) -> Ranges:
    """What was told of, but for what a request was refused for.

    It may be that the other side cannot begin there: what it told of behind a gap it still has.
    """
    first = refused.start
    # What begins inside a payload asks for the entries that follow.
    starts = (first,) if refused.offset is None or refused.end == first else (first, first + 1)
    told = [(n, found[1]) for n in starts if (found := range_with(ranges, n)) is not None]
    return minus(ranges, union(told))


def refused_all(request: Request, ask: Ask | None) -> bool:
    """Whether the other side wants nothing of what we offered and asked for, now or later."""
    refused = request.cancel_received is CancelReason.NOT_WANTED and not request.confirmed
    return refused and ask is not None and ask.end is None and ask.kind is not AskKind.PROBE
