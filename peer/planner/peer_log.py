"""What one session knows of one log: what the other side has said, and what is asked of it.

A plan needs what the other side holds, and nothing in the protocol says that. It is concluded from
what that side does: an offer names what it holds; who asks for all that follows an entry mostly
holds that entry, and will have what comes (`in_step`); a probe's answer is its newest. Some of that
may be wrong: what is coming here it may be waiting for too, and its range may begin behind a gap of
its own. So these are kept apart, and a refusal takes back what a request was made for, but not what
was offered besides.

What came to nothing is not remembered here (rests.py), nor what is held (a view says that, and
progress.py what came since), nor what is wanted (replying.py): `planned` is only what the log was
last planned with, so that a change is noticed.

A peer may be offered hundreds of thousands of logs that it has no use for. Of one that it refuses
altogether no `PeerLog` is kept but a `Closed`, which all that are alike share (`PeerLogs`).
"""

from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from peer.protocol.events import LogView
from peer.protocol.request import OPEN_END, Request
from wire import CancelReason, Eagerness, LogKey, Propose

from .answer import asks_for_payloads, goes_on, is_offer, is_probe
from .asks import Ask, AskKind, TheirPart, offer_of
from .coverage import carried, completed, covers, is_coming
from .fork_search import ForkSearch
from .log_table import LogTable
from .ranges import EVERYTHING, Ranges, meet, minus, range_with, union
from .rests import RANGES_MAX, Kind, Outcome, Rests, finite, up_to
from .their_newest import TheirNewest
from .wanting import Wants


class Planned(Struct):
    """What a log was last planned with, so that a change is noticed."""

    wants: Wants
    stop: int = OPEN_END
    """The last entry that the log may have, as far as is known here."""
    height: int = 0
    """Up to where it was held without gaps."""
    whole: int = 0
    """The newest entry that was held with its payload, or the one before it."""
    heard: int = 0
    """The newest entry that was heard of here since the last look-up was asked for."""
    lacks: bool = False
    """Payloads of what is held were missing."""
    awaits: bool = False
    """Some session was receiving a payload that was missing."""
    unlisted: bool = False
    """The view did not name all runs that are held, so that what lies between them was not planned.
    """


class PeerLog(Struct):
    """What the other side said of a log, and what this side asks of it."""

    log: LogKey
    rests: Rests
    planned: Planned

    # What it said.

    theirs: TheirNewest = field(default_factory=TheirNewest)
    """The newest entry that it holds."""
    offered: Ranges = ()
    """What it said it holds."""
    in_step: Ranges = ()
    """What it has or will have, judging by what it asks for."""
    heard_up_to: int = 0
    """The highest start of what it proposed, but for offers, late ones too, and probes."""
    met: bool = False
    """Whether it answered a request, or had one confirmed."""
    unserved: Ranges = ()
    """What it asked for and could not get as it asked."""
    both_have: int = 0
    """The highest entry up to which a request is complete, or that was offered as the last one."""
    refusals: int = 0
    """Proposals in a row that it refused."""

    # What is asked of it.

    asks: dict[Request, Ask] = field(default_factory=dict)
    """Our requests, and what they are for."""
    spoken: bool = False
    """Whether we proposed anything."""
    blocked: bool = False
    """An unanswered proposal of the other side is in the way of one of ours."""
    asked: Ranges = ()
    """The entries whose payloads were asked for: what of them is missing later was not served."""
    singly: Ranges = ()
    """The entries whose payloads are asked for one by one, by the hash of each."""
    forks: ForkSearch | None = None

    @property
    def wants(self) -> Wants:
        """What was wanted when this was last planned."""
        return self.planned.wants

    @property
    def newest(self) -> int | None:
        """The newest entry that the other side is taken to hold; None: that is to be asked."""
        return self.theirs.seq

    @property
    def reach(self) -> int:
        """The newest entry that the other side is known to hold."""
        told = max(self.newest or 0, self.theirs.behind)
        return max(told, self.offered[-1][1]) if self.offered else told

    @property
    def may_hold_payloads(self) -> bool:
        """Whether single payloads are asked of it: it has answered, or told what it holds.

        Else it may not have the log at all. Where the log is forked there may be nothing to answer:
        all that it ever says is then an offer, ended with the proof.
        """
        return self.met or self.reach > 0

    @property
    def fork_range(self) -> tuple[int, int] | None:
        """The entries to ask for next, metadata only, instead of what is missing."""
        return None if self.forks is None else self.forks.entries

    def peer(self, coming_here: Ranges, now: float) -> TheirPart:
        """What `asks.plan` takes."""
        rests = self.rests.left_alone
        holds = union(self.offered, self.in_step)
        if not self.rests.any_noted(self.log):
            return TheirPart(self.newest, holds, coming=coming_here, offered=self.offered)
        path = max((last for _, last in rests(self.log, Kind.PATH, now)), default=0)
        watched = max((last for _, last in rests(self.log, Kind.WATCH, now)), default=0)
        return TheirPart(
            self.newest,
            holds,
            rests(self.log, Kind.RANGE, now),
            coming_here,
            # It may have an end now, or a fork, and a path that leads there was not refused.
            path if path <= self.planned.stop else 0,
            self.offered,
            watched,
            self.rests.refused(self.log, Kind.RANGE),
        )

    # What it proposes

    def heard(
        self, proposal: Propose, requests: Iterable[Request], now: float, *, late: bool = False
    ) -> bool:
        """The other side proposed something. Whether that tells of more that it holds, or will.

        `requests`: all of this log. `late`: it may have refused something since.
        """
        before = self.offered, self.heard_up_to
        # An offer is mostly the answer to what we asked for in vain: it tells what is there, not
        # that more is wanted. Who probes wants a number, and would refuse again what it refused.
        tells_little = is_offer(proposal) or is_probe(proposal)
        further = proposal.start > self.heard_up_to and not tells_little
        if self.rests.any_noted(self.log):
            self._lift(proposal, now, is_further=further, late=late)
        if further:
            self.heard_up_to = proposal.start
        if not (proposal.sparse or proposal.payloads_only):
            self._hear(proposal, requests)
        return before != (self.offered, self.heard_up_to)

    def _lift(self, proposal: Propose, now: float, *, is_further: bool, late: bool) -> None:
        """What came to nothing before a proposal of the other side may not do so behind it."""
        if not late:
            # What it offers now is what it holds, though it may have refused it until now.
            told = (proposal.end or 0) if is_offer(proposal) else 0
            exists = max(self.reach, self.planned.height, told)
            self.rests.lift_by_their_proposal(self.log, now, exists, is_further=is_further)
        if not asks_for_payloads(proposal):
            # It may hold more than when it ended what it told. Who only lacks payloads of what it
            # holds does not, and asks for one after the other.
            self.rests.lift(self.log, Kind.WATCH)

    def _hear(self, proposal: Propose, requests: Iterable[Request]) -> None:
        first = proposal.start
        if is_offer(proposal):
            offered = union(self.offered, ((first, proposal.end or first),))
            self.offered = offered[-RANGES_MAX:]
            self.theirs.holds(proposal.end or 0)
        elif proposal.end is None:
            # What is coming here may be on its way to both: it asks for what follows that.
            behind = 0 if is_coming(first - 1, requests) else first - 1
            if goes_on(proposal):
                self.theirs.goes_on(behind)
            if proposal.eagerness is Eagerness.NOTIFY:
                self.rests.lift_part(self.log, Kind.RANGE, ((first, OPEN_END),))

    def doubted(self, now: float) -> Ranges:
        """The entries of which the payload is to be asked for by itself, whatever else rests."""
        if not self.singly:
            return ()
        rests = self.rests.left_alone(self.log, Kind.PAYLOAD, now)
        return minus(self.singly, union(self.asked, rests))

    def keeps_in_step(self, proposal: Propose, view: LogView, requests: Iterable[Request]) -> None:
        """It goes on behind what we hold: it has what is before that, and will have the rest."""
        data = proposal.eagerness is not Eagerness.NOTIFY
        beyond = goes_on(proposal) and data and proposal.start > view.newest
        if beyond and not is_coming(proposal.start - 1, requests):
            self.in_step = union(self.in_step, ((proposal.start, OPEN_END),))

    def asks_in_vain(self, entries: Ranges) -> None:
        """It asks for entries that it cannot have in that way: it is told what of them is held."""
        self.unserved = union(self.unserved, entries)[-RANGES_MAX:]

    def refuses(self, wants: Wants, now: float) -> bool:
        """Whether the other side sends nothing new of this log, and no part of what is wanted."""
        refused = self.rests.left_alone(self.log, Kind.RANGE, now)
        if not refused or refused[-1][1] < OPEN_END:
            return False
        if wants.is_sparse and (self.newest or 0) > self.peer((), now).path_refused:
            return False
        held = ((1, self.planned.height),) if self.planned.height else ()
        wanted = minus(wants.ranges(self.newest or 0), held)
        return not minus(wanted, refused) and not meet(wanted, self.offered)

    # What becomes of asks

    def refuse(self, request: Request, now: float, fork: int = 0) -> None:
        """What a proposal of ours was for is not to be had: it was refused (128, 132), ended with
        another history, an end or a fork (133 to 135), or brought what contradicts ours.

        `fork`: where the log is forked; what is asked for before that may be had by itself.
        """
        kind = self.kind_of(request)
        # Requests for payloads alone may be many, of a side that holds some of them only.
        self.refusals += kind is not AskKind.PAYLOADS
        self.met = True
        first, last = request.proposal.start, request.proposal.end or OPEN_END
        asked = ((fork if first < fork <= last else first, last),)
        match kind:
            case AskKind.PROBE:
                # No row: a log whose newest entry is known is not probed again.
                self.theirs.holds(0)
            case AskKind.PATH:
                end = request.proposal.end or 0
                self.rests.note(self.log, Kind.PATH, Outcome.REFUSED, now, up_to(end))
                if self.newest == end:
                    # It may have been a guess.
                    self.theirs.ask_again()
            case AskKind.RANGE | AskKind.COMPARISON | AskKind.WATCH:
                self.rests.note(self.log, Kind.RANGE, Outcome.REFUSED, now, asked)
                if self.wants.is_relative and self.theirs.led_to(request.proposal.start):
                    self.theirs.ask_again()
                self.in_step = _without(self.in_step, request.proposal)
                self.offered = _without(self.offered, request.proposal)
            case AskKind.PAYLOADS:
                self.rests.note(self.log, Kind.PAYLOAD, Outcome.REFUSED, now, asked)
            case AskKind.OFFER:
                # Nor here: what it was told it knows. If it asks for that later, it is told anew.
                self.rests.note_declined(self.log, asked)
            case AskKind.PROOF:
                pass

    def kind_of(self, request: Request) -> AskKind:
        """What a request of ours was for; OFFER for any of theirs, which asked for nothing.

        What is found wrong in one of ours that is over was asked for all the same.
        """
        ask = self.asks.get(request)
        if ask is not None:
            return ask.kind
        if not request.ours:
            return AskKind.OFFER
        is_path = request.proposal.sparse and request.proposal.end is not None
        return AskKind.PATH if is_path else AskKind.RANGE

    def told_newest(self, newest: int) -> None:
        """The other side says what its newest entry is: no path to a later one was refused."""
        self.theirs.holds(newest)
        if (self.newest or 0) < self.peer((), 0.0).path_refused:
            self.rests.lift(self.log, Kind.PATH)

    def not_served(self, ask: Ask, now: float) -> None:
        """The other side has no resources for what a request was for."""
        if ask.kind is AskKind.PROBE:
            # It has nothing, or will not say.
            self.theirs.holds(0)
        elif ask.kind is AskKind.OFFER:
            said = ((ask.start, ask.last),)
            self.rests.lift_told(self.log, said)
            self.rests.note(self.log, Kind.OFFER, Outcome.EXHAUSTED, now, said)
        elif ask.kind is AskKind.PAYLOADS:
            entries = ((ask.start, ask.last),)
            if ask.start < ask.last:
                # It does not hold all of them as we do; perhaps it holds some.
                self.singly = union(self.singly, entries)
                self.asked = minus(self.asked, entries)

    def lost(self, request: Request) -> None:
        """A proposal of ours gave way to one of the other side."""
        self.blocked = True
        self.both_have = 0
        if request.cancel_sent is CancelReason.FORKED and self.forks is not None:
            # The proof was lost with the proposal that it ended.
            self.forks.told_none()
        # It never was: what was noted when it was made is taken back, or it would not be made
        # again.
        ask = self.asks.pop(request, None)
        if ask is None:
            return
        if ask.kind is AskKind.OFFER:
            self.rests.lift_told(self.log, ((ask.start, ask.last),))
        elif ask.payloads:
            self.asked = minus(self.asked, ask.payloads)

    def released(self, request: Request, now: float) -> Ask | None:
        """A request is over; what it was for, if it was of ours."""
        ask = self.asks.pop(request, None)
        if ask is not None and ask.kind is AskKind.PAYLOADS:
            return ask
        if completed(request):
            self._completed(request, ask, now)
        elif ask is not None and _told_a_part(request):
            # It would tell of a part only, of which nobody has anything yet.
            self.rests.note(self.log, Kind.WATCH, Outcome.FINISHED, now)
        return ask

    def _completed(self, request: Request, ask: Ask | None, now: float) -> None:
        """Both sides have what a request was for, or know that it will not come."""
        only_heard = request.our_interest.eagerness is Eagerness.NOTIFY
        if not request.proposal.sparse:
            self.rests.lift(self.log, Kind.WATCH)
            if only_heard and request.proposal.end is None:
                # It has told all that it will: asked again at once, the same proposal would go
                # round for as long as another session fetches the log. Where this side has cut it,
                # at a gap of its own, that goes for what is before the gap alone: nobody has said
                # that there will be no news of what is behind it, and who has a sparse log hears of
                # it in no other way.
                cut = request.cuts.end if request.cuts.by_us else None
                self.ends_telling(now, EVERYTHING if cut is None else up_to(cut + 1))
            self.both_have = max(self.both_have, request.lowest_end() or 0)
        if ask is not None:
            # What it sent or passed it holds; where both only notify, it may have been refused it.
            both_notify = only_heard and request.their_interest.eagerness is Eagerness.NOTIFY
            knows = minus(carried(request), self.unserved if both_notify else ())
            self.rests.note_told(self.log, knows, now)
            if ask.kind is AskKind.WATCH and self.wants.is_sparse:
                # It stops at a gap of its own, and would do so again.
                self.rests.note(self.log, Kind.WATCH, Outcome.ENDED, now, up_to(ask.start))

    def ends_telling(self, now: float, entries: Ranges = EVERYTHING) -> None:
        """It tells no more of what is new before it says something else of the log."""
        self.rests.note(self.log, Kind.WATCH, Outcome.ENDED, now, entries)

    def leaves(self, request: Request) -> None:
        """A request is ended from here: what the other side has not got of it is owed to it.

        It may not propose that again before one of us has made a later proposal (section 6, 128),
        so that one has to come from here. What it asked for it had mostly been told of before: that
        was for this request, and is told once more, or it would wait for ever.
        """
        base, position = request.base, request.outgoing.position
        if base is None or base.path is not None or base.per_entry == 1 or not request.active:
            return
        length, end = base.length, request.lowest_end()
        if request.their_interest.eagerness is Eagerness.NOTIFY:
            # It wanted to be told only, and nothing is owed to it.
            return
        if length is None or position < length:
            left = (base.piece(position).seq, OPEN_END if end is None else end)
            if left[0] <= left[1]:
                self.asks_in_vain((left,))
                self.rests.lift_told(self.log, (left,))

    def watches(self, request: Request) -> None:
        """The other side wants what is new, and a sparse log brings that in parts only."""
        if self.wants.is_sparse and request.their_interest.eagerness is not Eagerness.NOTIFY:
            self.asks_in_vain(((request.proposal.start, OPEN_END),))

    def postpone(self, entries: Ranges, now: float) -> None:
        """Nothing of this came for a while in a request of ours, and we ended that."""
        if entries := finite(entries):
            self.rests.note(self.log, Kind.RANGE, Outcome.STOOD, now, entries)

    # What to ask

    def not_twice(
        self, asks: Iterable[Ask], requests: Collection[Request], now: float
    ) -> list[Ask]:
        """Without what is asked already, or was proposed and withdrawn by the other side.

        One request of these kinds is enough, wherever it begins. Of what was withdrawn is left what
        the other side has offered all the same. Nor is it asked to tell what is new if it does so
        in a request of its own. `requests`: all of this log.
        """
        # A range that is asked for counts as coming, and so is not planned; these bring nothing.
        once = {ask.kind for ask in self.asks.values()} & {AskKind.PROBE, AskKind.WATCH}
        withdrawn = self.rests.withdrawn(self.log, now)
        if not (once or withdrawn or requests):
            return list(asks)
        told_from = min(
            (each.proposal.start for each in requests if covers(each)), default=OPEN_END
        )
        found: list[Ask] = []
        for ask in asks:
            if ask.kind is AskKind.RANGE and (ask.start, ask.last) in withdrawn:
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
        if view.fork is not None or not view.runs or not self.wants.follows:
            return []
        first, last = view.runs[-1]
        if last == view.end:
            # Nothing follows that could be asked for: it is introduced by its last entry.
            return [] if self.both_have >= last else [offer_of(last, last)]
        if self.both_have or self.spoken or any(requests) or not view.runs_complete:
            return []
        return [offer_of(first, last)]

    def reachable(self, requests: Iterable[Request], now: float) -> Ranges:
        """What of this log the other side has been told of, or gets in a request in force.

        Nor is it told for a while of what it had no resources to be told of.
        """
        served: list[tuple[int, int]] = []
        for request in requests:
            over = request.cancel_sent is not None or request.cancel_received is not None
            ask = self.asks.get(request)
            if over or request.proposal.payloads_only or request.proposal.sparse:
                continue
            if request.their_interest.eagerness is Eagerness.NOTIFY:
                # Being notified is not being served: it would not be offered what it asks for.
                continue
            if ask is not None and ask.kind is AskKind.WATCH:
                continue
            end = request.lowest_end()
            served.append((request.proposal.start, OPEN_END if end is None else end))
        return union(self.rests.left_alone(self.log, Kind.OFFER, now), served)


class Closed(Struct, frozen=True):
    """All there is to know of a log that the other side does not want, and that has no request."""

    wants: Wants
    refused: Ranges


class PeerLogs:
    """What a session knows of every log. Thousands may be refused, and of these little is kept.

    `get` finds no log that is closed; `opened` opens it again.
    """

    def __init__(self, rests: Rests) -> None:
        self._rests = rests
        self._open: dict[LogKey, PeerLog] = {}
        self._closed = LogTable[Closed]()
        self._kinds: dict[Closed, Closed] = {}
        """One of each is enough, since thousands are alike."""

    def get(self, log: LogKey) -> PeerLog | None:
        return self._open.get(log)

    def __getitem__(self, log: LogKey) -> PeerLog:
        return self._open[log]

    def __len__(self) -> int:
        return len(self._open) + len(self._closed)

    def items(self) -> list[tuple[LogKey, PeerLog]]:
        return list(self._open.items())

    def asks(self) -> Iterator[Request]:
        """Our requests about all logs."""
        return (request for known in self._open.values() for request in known.asks)

    def closed(self) -> list[tuple[LogKey, Closed]]:
        return self._closed.pairs()

    def is_closed(self, log: LogKey) -> bool:
        return log in self._closed

    def opened(self, log: LogKey, now: float) -> PeerLog | None:
        """What is known of a log, to be changed; None if it has never been heard of."""
        closed = self._closed.take(log)
        if closed is not None:
            known = self.add(log, closed.wants)
            # As it was when it was closed (`close`); only refusals in a row begin with one again.
            known.met = known.spoken = True
            known.refusals = 1
            self._rests.note(log, Kind.RANGE, Outcome.REFUSED, now, closed.refused)
        return self._open.get(log)

    def add(self, log: LogKey, wants: Wants, asked_from: int = 0) -> PeerLog:
        """A log of which something is to be known.

        `asked_from`: the other side has asked in vain for all from that entry on; 0: it has not.
        """
        known = self._open[log] = PeerLog(log, self._rests, Planned(wants))
        if asked_from > 0:
            known.theirs.behind, known.unserved = asked_from - 1, ((asked_from, OPEN_END),)
        return known

    def forget(self, log: LogKey) -> None:
        """As if it had never been heard of."""
        if self._open.pop(log, None) is not None:
            self._rests.forget(log)

    def close(self, log: LogKey) -> bool:
        """Keep of a log only that it was refused; False if there is more to know."""
        # Compared as a whole: whatever else comes to be known of a log keeps it open. What is
        # forgotten by mistake is a refusal or an offer that is made for ever anew.
        known, refused = self._open[log], self._rests.only_refused(log)
        planned = known.planned
        alike = PeerLog(
            log,
            self._rests,
            Planned(known.wants, planned.stop, planned.height, planned.whole),
            met=True,
            spoken=True,
            refusals=known.refusals,
        )
        if refused is None or known != alike:
            return False
        closed = Closed(known.wants, refused)
        self._closed[log] = self._kinds.setdefault(closed, closed)
        self._rests.forget(log)
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


def _told_a_part(request: Request) -> bool:
    """Whether a request in which the other side only tells what it has was ended from here, as
    complete."""
    only_heard = request.our_interest.eagerness is Eagerness.NOTIFY
    return only_heard and request.cancel_sent is CancelReason.COMPLETE
