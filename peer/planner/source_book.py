"""Which session of a node fetches a log, when several peers offer it (point2point.md 4 and 5).

One session, the *source*, asks for entries and payloads; the others ask for notifications, so that
each payload crosses the network once, and for what nobody has brought in a while (proposals.py).
The first session that wants a log is its source. It stays that until it ends, or until others hold
what we lack and it brings nothing, or next to nothing.
While nobody is known to hold anything that we lack, nothing changes hands.

A peer that is silent, slow or lies must not keep a log from us while another one would bring it;
and a change costs what is under way, so that two sources which are both bad must not take turns.
Each wait below is a guess at what the other side would need if it were honest; `_due` puts them
together:

    the source is not known to hold it    GRACE_S     it has perhaps not heard of it yet
    it holds it, and brings nothing       SILENCE_S
    it brings other logs instead          QUEUE_S     and who else holds it is as busy
    it is new                             + START_S   its first proposal has to be answered
    what it sent waits for our disk       not counted, up to BEHIND_MAX_S
    it brings, but slowly                 judged after WINDOW_S

Who lost a log for bringing nothing does not get it back for `HOLD_FIRST_S`, then twice as long each
time; who ended its fetch and has left something is not asked for that sooner than so, unless it has
told of more (source_records.py). How fast a session is counts only while it has something to bring.

What a session's peer holds, what its requests have brought and whether it may fetch is read from
the session (`Reads`) when it matters, and no copy is kept: what a peer refuses, or what came and
cannot be kept, would have to be taken back in the copy too. Notices say that a log was touched, and
how many bytes came.

No clock and no timers per log: the caller says the time, and `deadline` is when `advance` has
something to look at. Logs of which nothing is lacking cost nothing: nearly all, nearly always.

It is not for what a session asks for in its requests (proposals.py, which asks `claim` first).
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final

from peer.protocol.events import SourceChanged
from peer.protocol.notices import Arriving, FetchEnded, Notice, PayloadsReceived, PeerHolds
from wire import LogKey

from .source_records import (
    SILENCE_S,
    WINDOW_S,
    Reads,
    SourceLog,
    SourceSeat,
    Standing,
    UnaskedPayload,
)

GRACE_S: Final = 0.25
"""How long a source may be quiet that is not known to hold what another one holds. News come over
several links within moments: without it each entry that a listener tells of first took the log from
a source that was about to bring it. It delays each entry that the source does not get."""
START_S: Final = 1.0
"""What a new source gets in addition: it proposes, is answered, and only then sends. Without it a
log would go on to the next one while the last one's answer is on its way."""
QUEUE_S: Final = 5.0
"""How long a log may wait for a source that is busy with other logs. Longer than `SILENCE_S`: a
first replica of many logs would else be given away one log after the other."""
MOVING_S: Final = 5.0
"""A source that brought something so lately and leaves may have left it unfinished. Then somebody
is asked though none of the others is known to hold more: what was under way may have been all of
it."""
BEHIND_MAX_S: Final = 60.0
"""How long a source may be quiet because what it sent waits for this host. Not without
end, whatever it is that this host waits for."""

_TOUCHING: Final = (Arriving, PayloadsReceived, PeerHolds, FetchEnded)


class SourceBook:
    """Who fetches what, of all sessions of a node."""

    def __init__(self) -> None:
        self._logs: dict[LogKey, SourceLog] = {}
        self._line: list[tuple[float, LogKey]] = []
        self._changes: list[tuple[SourceSeat, SourceChanged]] = []
        self._seats = 0
        self.switches = 0
        """How often a log was taken from a source that was quiet or slow."""

    def join(self, name: str, reads: Callable[[], Reads | None]) -> SourceSeat:
        """A place for a new session; `reads`: what it lets the book read once it is set up."""
        self._seats += 1
        return SourceSeat(name, self._seats, reads)

    def take_changes(self) -> list[tuple[SourceSeat, SourceChanged]]:
        """What sessions have to be told, in order; taken once."""
        taken, self._changes = self._changes, []
        return taken

    @property
    def has_changes(self) -> bool:
        """Whether some session has to be told something."""
        return bool(self._changes)

    @property
    def deadline(self) -> float | None:
        """When `advance` has something to do."""
        return self._line[0][0] if self._line else None

    def standing(self, seat: SourceSeat, log: LogKey) -> Standing | None:
        """How a session stands to a log; None if it does not want it."""
        state = self._logs.get(log)
        if state is None or seat not in state.seats:
            return None
        fetching = state.source is seat
        moved = state.moved_at if fetching and state.moved_at > 0 else None
        return Standing(fetching, seat.reads.newest(log), moved)

    # What sessions say

    def claim(self, seat: SourceSeat, log: LogKey, now: float, brought: int = 0) -> bool:
        """Whether a session may fetch a log. If not, it will be told when it may.

        `brought`: see `sourcing.Claim`.
        """
        state = self._logs.get(log)
        if state is None:
            state = self._logs[log] = SourceLog(log, seat.reads.held(log))
        seat.logs[log] = state.seats[seat] = None
        source = state.source
        if source is None:
            self._appoint(state, seat, now)
        elif source is not seat:
            idle = now - max(state.moved_at, state.since + START_S) > GRACE_S
            idle = idle and not source.note_behind(now)
            if idle and state.holders((source, seat)) == [seat]:
                # It is certain to bring more than the source has: that need not wait until the next
                # time that anything is due.
                self._appoint(state, seat, now)
        if state.source is seat or not brought:
            return state.source is seat
        # In a mesh several come to bring what one of them has just brought; but a payload of which
        # a part has come may stop there, and who brings it all may not stay.
        return brought > state.came or 0 < state.inside <= brought

    def took(self, seat: SourceSeat, notice: Notice, now: float) -> bool:
        """A notice of a session; whether anything may follow from it. From most nothing does."""
        if isinstance(notice, Arriving):
            seat.came(notice.data_bytes, now)
        if not isinstance(notice, _TOUCHING) or (state := self._logs.get(notice.log)) is None:
            return False
        match notice:
            case Arriving():
                before = state.inside
                self._arriving(state, seat, notice, now)
                if state.inside == before:
                    # It is looked at once this is stored, or when it is time: not for each piece.
                    return False
            case PayloadsReceived():
                if state.inside <= notice.newest:
                    state.inside, state.offer = 0, None
            case PeerHolds():
                listens = seat in state.seats and seat is not state.source
                if listens and notice.held < notice.newest <= state.held:
                    # We hold the entry, and its payload not whole.
                    state.inside = notice.newest
            case FetchEnded():
                self._fetch_ended(state, seat, now)
        self._look(state, now, is_told=isinstance(notice, PeerHolds))
        return True

    def stands(self, log: LogKey, newest: int, now: float) -> None:
        """The newest entry that is held is this one, whoever brought it: the store says so.

        It may be less than it was, and is lacking again: entries are dropped where their author has
        made the log invalid. So nobody else tells of it: what a session knows only ever grows.
        """
        state = self._logs.get(log)
        if state is not None and newest != state.held:
            state.held = newest
            self._look(state, now)

    def leave(self, seat: SourceSeat, now: float) -> None:
        """A session has ended."""
        for log in seat.logs:
            state = self._logs[log]
            if state.offer is not None and state.offer.seat is seat:
                state.offer = None
            was_moving = state.source is seat and 0 < state.moved_at > now - MOVING_S
            self._forget(state, seat, now)
            self._look(state, now)
            if was_moving and state.source is None:
                self._go_on(state, now)
        seat.logs.clear()
        self._changes = [change for change in self._changes if change[0] is not seat]

    def advance(self, now: float) -> None:
        """Look at what is due."""
        while self._line and self._line[0][0] <= now:
            due, log = heappop(self._line)
            state = self._logs.get(log)
            if state is not None and state.check_at == due:
                state.check_at = None
                self._look(state, now)

    # Inside

    def _arriving(self, state: SourceLog, seat: SourceSeat, notice: Arriving, now: float) -> None:
        is_source, offer = state.source is seat, state.offer
        if is_source:
            state.moved_at = now
            seat.spent.end(state.key)
        if not notice.inside:
            return
        state.inside = notice.newest
        if is_source:
            state.offer = None
        elif offer is None or (offer.seat, offer.seq) != (seat, notice.newest):
            state.offer = UnaskedPayload(seat, notice.newest, now, now)
            self._check_again(state, now + SILENCE_S)
        else:
            offer.came(notice.data_bytes, now)

    def _judge_offer(self, state: SourceLog, offer: UnaskedPayload, now: float) -> None:
        """Is it time to have a payload brought by who is better at it?"""
        # Only for a source that holds it too: what trickles is all there is while nobody else does.
        source = state.source
        if source is offer.seat or source is None or source.reads.newest(state.key) < offer.seq:
            return
        due = offer.due(source, now)
        if due > now:
            self._check_again(state, due)
            return
        state.offer = None
        offer.seat.held_down.begin(state.key, now)
        self._changes.append((offer.seat, SourceChanged(state.key, fetch=False)))
        # It was left to the one that offered it.
        self._changes.append((source, SourceChanged(state.key, fetch=True)))
        state.since = now

    def _fetch_ended(self, state: SourceLog, seat: SourceSeat, now: float) -> None:
        if state.source is seat:
            if state.holders((seat,)):
                # Also if it forgets the log: it may come to want it again.
                seat.spent.begin(state.key, now, seat.reads.newest(state.key))
            self._appoint(state, None, now)
        if seat in state.seats and not seat.reads.may_fetch(state.key):
            del seat.logs[state.key]
            self._forget(state, seat, now)

    def _forget(self, state: SourceLog, seat: SourceSeat, now: float) -> None:
        """A session wants a log no more."""
        if state.source is seat:
            self._appoint(state, None, now)
        del state.seats[seat]
        if not state.seats:
            del self._logs[state.key]

    def _look(self, state: SourceLog, now: float, *, is_told: bool = False) -> None:
        """Something has changed, or it is time: does the log need another source?

        `is_told`: somebody tells of what its peer holds. There may be nobody else to be asked now.
        """
        source, holders = state.source, state.holders(state.seats)
        if bool(holders) is (state.lacking_since is None):
            state.lacking_since = now if holders else None
            self._count_busy(source, 1 if holders else -1, now)
        due = state.check_at is None or state.check_at <= now
        if due and state.offer is not None:
            self._judge_offer(state, state.offer, now)
        others = [seat for seat in holders if seat is not source]
        if not others or not (due or is_told or source is None):
            return
        best = self._best(state, others, now)
        if best is None:
            self._check_again(state, min(map(state.free_at, others)))
        elif source is None:
            self._hand_over(state, best, now)
        else:
            self._judge(state, source, best, now)

    def _judge(self, state: SourceLog, source: SourceSeat, best: SourceSeat, now: float) -> None:
        """Others hold what the source has not brought: is it time to take the log from it?"""
        source.note_behind(now)
        due = self._due(state, source, best, now)
        if due <= now:
            # Who did not hold it has done nothing wrong, and may get the log back at once.
            if state.source_has_it(now):
                source.held_down.begin(state.key, now)
            self.switches += 1
            self._hand_over(state, best, now)
            due = now + START_S + GRACE_S
        self._check_again(state, due)

    def _due(self, state: SourceLog, source: SourceSeat, best: SourceSeat, now: float) -> float:
        """When this source has been quiet or slow for too long, if nothing changes until then."""
        lacking_since = now if state.lacking_since is None else state.lacking_since
        # Nobody is quiet before there is anything to bring: a log may have been at rest for hours.
        moved_at = max(state.moved_at, state.since + START_S, lacking_since)
        # What it sent and we have not stored yet speaks for it: at a slow disk logs went from one
        # to the other, and came twice.
        quiet_since = max(moved_at, min(source.behind_at, moved_at + BEHIND_MAX_S))
        due = quiet_since + (SILENCE_S if state.source_has_it(now) else GRACE_S)
        queued = source.busy > 1 and source.busy <= best.busy + 1
        if queued and now - source.moved_at < SILENCE_S:
            # It brings other logs, and this one would have to wait elsewhere too. `+ 1`: the log
            # comes to what the other one has to do, and nothing is won where that is no less then.
            due = quiet_since + QUEUE_S
        # A whole window of having something to bring of this log: it may have been slow before for
        # want of anything.
        slow_from = max(lacking_since, state.since + START_S) + WINDOW_S
        if now < slow_from:
            return min(due, slow_from)
        if source.is_slow_beside(best, now):
            return now
        # Looked at twice in a window, so that none passes unseen while some bytes come.
        return min(due, now + WINDOW_S / 2)

    def _best(self, state: SourceLog, others: list[SourceSeat], now: float) -> SourceSeat | None:
        """Who is to bring it next: whoever has the least to do of those that hold it."""
        able = [seat for seat in others if state.spent_until(seat) <= now]
        free = [seat for seat in able if state.free_at(seat) <= now]
        if state.source is None:
            # Rather somebody who was slow than nobody.
            free = free or able
        return min(
            free,
            key=lambda seat: (seat.busy, -seat.reads.newest(state.key), seat.number),
            default=None,
        )

    def _go_on(self, state: SourceLog, now: float) -> None:
        """The source left in the middle of something, which may be more than we know of."""

        def rank(seat: SourceSeat) -> tuple[bool, int, int]:
            return (seat.reads.newest(state.key) < state.held, seat.busy, seat.number)

        seat = min(state.seats, key=rank, default=None)
        if seat is not None:
            self._hand_over(state, seat, now)

    def _hand_over(self, state: SourceLog, seat: SourceSeat, now: float) -> None:
        self._appoint(state, seat, now)
        self._changes.append((seat, SourceChanged(state.key, fetch=True)))

    def _appoint(self, state: SourceLog, seat: SourceSeat | None, now: float) -> None:
        """A new source, or none."""
        old, state.source = state.source, seat
        state.since, state.moved_at = now, 0.0
        if state.lacking_since is not None:
            self._count_busy(old, -1, now)
            self._count_busy(seat, 1, now)
        if old is not None and seat is not None:
            self._changes.append((old, SourceChanged(state.key, fetch=False)))

    def _count_busy(self, seat: SourceSeat | None, change: int, now: float) -> None:
        if seat is None:
            return
        if not seat.busy:
            seat.begin_window(now)
        seat.busy += change
        if not seat.busy:
            seat.end_window(now)

    def _check_again(self, state: SourceLog, at: float) -> None:
        if state.check_at is None or at < state.check_at:
            state.check_at = at
            heappush(self._line, (at, state.key))

    # For tests and people

    def sources(self) -> Iterator[tuple[LogKey, SourceSeat]]:
        """Every log that has a source, and the source."""
        for log, state in self._logs.items():
            if state.source is not None:
                yield log, state.source
