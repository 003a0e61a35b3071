"""Which session of a node fetches a log, when several peers offer it (point2point.md 4 and 5).

One session, the *source*, asks for entries and payloads; the others ask for notifications, so that
each payload crosses the network once. The first session that wants a log is its source. It stays
that until it ends, or until others hold what we lack and it brings nothing, or next to nothing.
While nobody is known to hold anything that we lack, nothing changes hands.

How fast a source is cannot be told while what it sent waits for our own disk.

No clock and no timers per log: the caller says the time, and `deadline` is when `advance` has
something to look at. Logs of which nothing is lacking cost nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from wire import LogKey

from .events import SourceChanged
from .notices import Arriving, EntriesReceived, FetchEnded, Notice, PayloadReceived, PeerHolds

GRACE_S: Final = 0.25
"""How long a source may be quiet that is not known to hold what another one holds."""
SILENCE_S: Final = 2.0
"""How long a source may be quiet that holds what we lack."""
START_S: Final = 1.0
"""What a new source gets in addition, to answer its first proposal."""
QUEUE_S: Final = 5.0
"""How long a log may wait for a source that is busy with other logs."""
WINDOW_S: Final = 5.0
"""Over how long the speed of a source is measured."""
SLOW_BYTES_PER_S: Final = 32 * 1024
"""Below this a source is slow, if others hold what it has not brought for `WINDOW_S`."""
BETTER: Final = 2
"""Between two slow ones, the other one has to have been so many times as fast."""
SLOWER: Final = 8
"""A source is slow, too, if the other one has been so many times as fast."""
MOVING_S: Final = 5.0
"""A source that brought something so lately and leaves may have left it unfinished."""
BEHIND_MAX_S: Final = 60.0
"""How long a source may be quiet because what it sent waits for this host."""
HOLD_FIRST_S: Final = 10.0
HOLD_MAX_S: Final = 640.0
"""How long a source that lost a log does not get it back; twice as long each time."""


@dataclass(frozen=True, slots=True)
class _Pause:
    """A session is not asked for a log until then; `times`: how often that has been so.

    `newest`: the newest entry that its peer was known to hold.
    """

    until: float
    times: int
    newest: int


_Pauses = dict["SourceSeat", _Pause]


@dataclass(slots=True)
class _Log:
    """Who can bring a log, and how far it has come."""

    key: LogKey
    source: "SourceSeat | None" = None
    since: float = 0.0
    """When the source became that."""
    moved_at: float = 0.0
    """When bytes came from the source."""
    source_newest: int = 0
    """The newest entry that the source is known to hold."""
    waiting: "dict[SourceSeat, int]" = field(default_factory=dict)
    """The other sessions that want the log, and the newest entry that their peers hold."""
    most: int = 0
    """The newest of these entries."""
    held: int = 0
    coming: int = 0
    """The newest entry that came and may not be stored yet."""
    coming_from: "SourceSeat | None" = None
    inside: int = 0
    """The entry whose payload has come in part, 0: none."""
    lacking_since: float | None = None
    """Since when others hold what neither we have nor is coming."""
    check_at: float | None = None
    held_down: _Pauses | None = None
    """Who lost the log."""
    spent: _Pauses | None = None
    """Who has ended its fetch with nothing left to do."""

    def nothing_comes(self) -> None:
        """What came is stored, or never will be."""
        self.coming = 0
        self.coming_from = None

    def lacks(self, newest: int) -> bool:
        """Whether who holds entries up to `newest` has something for us."""
        return newest > max(self.held, self.coming) or 0 < self.inside <= newest

    def may_get(self, seat: "SourceSeat", now: float) -> bool:
        """Whether a session is not held down."""
        return _until(self.held_down, seat, now) <= now

    def able(self, now: float) -> "list[SourceSeat]":
        """Who waits and holds what we lack, but for those who have just brought all they could.

        What we do not want of a log, or what no peer has whole, is lacking for ever.
        """
        return [
            seat
            for seat, newest in self.waiting.items()
            if self.lacks(newest) and _until(self.spent, seat, now) <= now
        ]

    def next_free_at(self, now: float) -> float | None:
        """When the next one of those who hold what we lack may get the log again."""
        noted = [each for each in (self.held_down, self.spent) if each]
        return min(
            (
                max(_until(each, seat, now) for each in noted)
                for seat, newest in self.waiting.items()
                if noted and self.lacks(newest)
            ),
            default=None,
        )

    def hold_down(self, seat: "SourceSeat", now: float) -> None:
        """A session lost the log because it brought too little."""
        self.held_down = _longer(self.held_down, seat, now, self.source_newest)

    def note_spent(self, seat: "SourceSeat", now: float, newest: int) -> None:
        """A session has ended its fetch, and what its peer holds is lacking all the same."""
        self.spent = _longer(self.spent, seat, now, newest)

    def rests(self, seat: "SourceSeat") -> bool:
        """Whether something is noted of a session, whether it waits or not."""
        return any(seat in noted for noted in (self.held_down, self.spent) if noted is not None)

    def hears(self, seat: "SourceSeat", newest: int) -> None:
        """A session whose peer holds more than it did may be asked again."""
        pause = None if self.spent is None else self.spent.get(seat)
        if self.spent is not None and pause is not None and newest > pause.newest:
            del self.spent[seat]


def _until(pauses: _Pauses | None, seat: "SourceSeat", now: float) -> float:
    pause = None if pauses is None else pauses.get(seat)
    return now if pause is None else pause.until


def _longer(pauses: _Pauses | None, seat: "SourceSeat", now: float, newest: int) -> _Pauses:
    pauses = {} if pauses is None else pauses
    times = pauses[seat].times if seat in pauses else 0
    until = now + min(HOLD_FIRST_S * 2.0**times, HOLD_MAX_S)
    pauses[seat] = _Pause(until, times + 1, newest)
    return pauses


@dataclass(frozen=True, slots=True)
class Standing:
    """How a session stands to a log.

    `peer_newest`: the newest entry that its peer is known to hold. `progress_at`: when the source
    last brought something, None for others and for one that has not.
    """

    fetching: bool
    peer_newest: int
    progress_at: float | None


class SourceSeat:
    """A session's place in the book. `name` is for people."""

    def __init__(
        self, book: "SourceBook", name: str, number: int, is_behind: Callable[[], bool]
    ) -> None:
        self.name = name
        self.number = number
        self.busy = 0
        """Logs that it is to bring and of which something is lacking."""
        self.moved_at = 0.0
        self.fastest = 0.0
        """The highest speed that was measured, in bytes a second."""
        self.logs: dict[LogKey, None] = {}
        self._book = book
        self._window_at = 0.0
        self._window_bytes = 0
        self._speed: float | None = None
        """In the last window, None if there was none since it had nothing to bring, or was behind.
        """
        self._is_behind = is_behind
        self._was_behind = False
        """Whether that was so in this window."""
        self.behind_at = 0.0

    def claim(self, log: LogKey, now: float) -> bool:
        """Whether this session may fetch a log. If not, it will be told when it may."""
        return self._book.claim(self, log, now)

    def took(self, notice: Notice, now: float) -> None:
        """A notice of the session."""
        self._book.took(self, notice, now)

    def leave(self, now: float) -> None:
        """The session has ended."""
        self._book.leave(self, now)

    def standing(self, log: LogKey) -> Standing | None:
        """How this session stands to a log; None if it does not want it."""
        return self._book.standing(self, log)

    def note_behind(self, now: float) -> bool:
        """Whether what came waits for this host. Then it is not the peer that is slow."""
        behind = self._is_behind()
        if behind:
            self.behind_at = now
            self._was_behind = True
        return behind

    def came(self, size: int, now: float) -> None:
        """So many bytes came."""
        self.moved_at = now
        self.note_behind(now)
        self._window_bytes += size
        self._roll(now)

    def begin_window(self, now: float) -> None:
        """It has had nothing to bring until now."""
        self._window_at = now
        self._window_bytes = 0
        self._speed = None
        self._was_behind = False

    def is_slow_beside(self, other: "SourceSeat", now: float) -> bool:
        """Whether the last `WINDOW_S` in which it had something to bring were too slow."""
        self._roll(now)
        if self._speed is None:
            return False
        if self._speed < SLOW_BYTES_PER_S:
            # If the other one was no better in its time, changing costs and gains nothing.
            return not other.fastest or self._speed * BETTER < other.fastest
        return self._speed * SLOWER < other.fastest

    def _roll(self, now: float) -> None:
        elapsed = now - self._window_at
        if elapsed >= WINDOW_S:
            speed = self._window_bytes / elapsed
            self.fastest = max(self.fastest, speed)
            self._speed = None if self._was_behind else speed
            self._was_behind = False
            self._window_at = now
            self._window_bytes = 0


class SourceBook:
    """Who fetches what, of all sessions of a node."""

    def __init__(self) -> None:
        self._logs: dict[LogKey, _Log] = {}
        self._line: list[tuple[float, LogKey]] = []
        self._changes: list[tuple[SourceSeat, SourceChanged]] = []
        self._seats = 0
        self.switches = 0
        """How often a log was taken from a source."""

    def join(self, name: str, is_behind: Callable[[], bool]) -> SourceSeat:
        """A place for a new session; `is_behind`: whether what came there waits for this host."""
        self._seats += 1
        return SourceSeat(self, name, self._seats, is_behind)

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
        """See `SourceSeat.standing`."""
        state = self._logs.get(log)
        if state is None:
            return None
        if state.source is seat:
            moved = state.moved_at if state.moved_at > 0 else None
            return Standing(fetching=True, peer_newest=state.source_newest, progress_at=moved)
        newest = state.waiting.get(seat)
        if newest is None:
            return None
        return Standing(fetching=False, peer_newest=newest, progress_at=None)

    # What sessions say

    def claim(self, seat: SourceSeat, log: LogKey, now: float) -> bool:
        """See `SourceSeat.claim`."""
        state = self._logs.get(log)
        if state is None:
            state = self._logs[log] = _Log(log)
        seat.logs[log] = None
        if state.source is None:
            self._appoint(state, seat, now)
        elif state.source is not seat:
            newest = state.waiting.setdefault(seat, 0)
            idle = now - max(state.moved_at, state.since + START_S) > GRACE_S
            idle = idle and not state.source.note_behind(now)
            if idle and state.lacks(newest) and not state.lacks(state.source_newest):
                # It is certain to bring more than the source has.
                old = state.source
                self._appoint(state, seat, now)
                self._changes.append((old, SourceChanged(log, fetch=False)))
        return state.source is seat

    def took(self, seat: SourceSeat, notice: Notice, now: float) -> None:
        """See `SourceSeat.took`."""
        match notice:
            case Arriving():
                seat.came(notice.data_bytes, now)
                state = self._logs.get(notice.log)
                if state is not None:
                    self._arriving(state, seat, notice, now)
            case EntriesReceived():
                self.held(notice.log, notice.newest, now)
            case PayloadReceived():
                state = self._logs.get(notice.log)
                if state is not None and state.inside <= notice.seq:
                    state.inside = 0
                    self._look(state, now)
            case PeerHolds():
                self._peer_holds(seat, notice, now)
            case FetchEnded():
                state = self._logs.get(notice.log)
                if state is not None:
                    self._fetch_ended(state, seat, notice, now)
            case _:
                pass

    def held(self, log: LogKey, newest: int, now: float) -> None:
        """Entries up to `newest` are held, whoever brought them."""
        state = self._logs.get(log)
        if state is not None and newest > state.held:
            state.held = newest
            self._look(state, now)

    def leave(self, seat: SourceSeat, now: float) -> None:
        """See `SourceSeat.leave`."""
        logs, seat.logs = seat.logs, {}
        for log in logs:
            state = self._logs.get(log)
            if state is None:
                continue
            for noted in (state.held_down, state.spent):
                if noted is not None:
                    noted.pop(seat, None)
            if state.source is seat:
                moving = state.moved_at > 0 and now - state.moved_at < MOVING_S
                if not self._vacate(state, now) and moving:
                    self._go_on(state, now)
            else:
                state.waiting.pop(seat, None)
                state.most = max(state.waiting.values(), default=0)
                state.nothing_comes()
                self._look(state, now)
            if state.source is None and not state.waiting:
                del self._logs[log]
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

    def _arriving(self, state: _Log, seat: SourceSeat, notice: Arriving, now: float) -> None:
        if notice.newest > state.coming:
            state.coming, state.coming_from = notice.newest, seat
        if seat in state.waiting:
            state.waiting[seat] = max(state.waiting[seat], notice.newest)
            state.most = max(state.most, notice.newest)
        if notice.inside:
            state.inside = notice.newest
        if state.source is seat:
            state.moved_at = now
            state.source_newest = max(state.source_newest, notice.newest)
            if state.spent is not None:
                state.spent.pop(seat, None)
        self._look(state, now)

    def _peer_holds(self, seat: SourceSeat, notice: PeerHolds, now: float) -> None:
        state = self._logs.get(notice.log)
        if state is None:
            return
        state.held = max(state.held, notice.held)
        if state.source is seat:
            state.source_newest = max(state.source_newest, notice.newest)
        elif seat in state.waiting:
            if notice.held < notice.newest <= state.held:
                # We hold the entry, and its payload not whole.
                state.inside = notice.newest
            nobody = self._best(state, now) is None
            state.hears(seat, notice.newest)
            state.waiting[seat] = max(state.waiting[seat], notice.newest)
            state.most = max(state.most, notice.newest)
            if nobody and self._best(state, now) is not None:
                # That was to be looked at when one of the others may be asked again.
                state.check_at = None
        self._look(state, now)

    def _fetch_ended(self, state: _Log, seat: SourceSeat, notice: FetchEnded, now: float) -> None:
        was_source, newest = state.source is seat, state.source_newest
        if was_source:
            self._vacate(state, now)
            if state.lacks(newest):
                # Also if it forgets the log: it may come to want it again.
                state.note_spent(seat, now, newest)
        elif state.coming_from is seat:
            # It may have been given up; if not, it is soon stored.
            state.nothing_comes()
            self._look(state, now)
        if not notice.listens:
            self._forget(state, seat, now)
        elif was_source:
            state.waiting[seat] = newest
            state.most = max(state.most, newest)
            if state.lacks(newest):
                self._look(state, now)

    def _forget(self, state: _Log, seat: SourceSeat, now: float) -> None:
        """A session wants a log no more."""
        if not state.rests(seat):
            # Else it is to be found when the session ends.
            seat.logs.pop(state.key, None)
        if state.waiting.pop(seat, None) is not None:
            state.most = max(state.waiting.values(), default=0)
            self._look(state, now)
        if state.source is None and not state.waiting:
            self._logs.pop(state.key, None)

    def _look(self, state: _Log, now: float) -> None:
        """Something has changed, or it is time: does the log need another source?"""
        source = state.source
        lacking = state.lacks(max(state.most, state.source_newest))
        if lacking is (state.lacking_since is None):
            state.lacking_since = now if lacking else None
            self._count_busy(source, 1 if lacking else -1, now)
        if not state.lacks(state.most):
            return
        if source is None:
            best = self._best(state, now)
            if best is None:
                self._check_when_free(state, now)
            else:
                self._hand_over(state, best, now)
        elif state.check_at is None or state.check_at <= now:
            self._judge(state, source, now)

    def _judge(self, state: _Log, source: SourceSeat, now: float) -> None:
        """Others hold what the source has not brought: is it time to take the log from it?"""
        best = self._best(state, now)
        if best is None:
            self._check_when_free(state, now)
            return
        source.note_behind(now)
        due = self._due(state, source, best, now)
        if due <= now:
            state.hold_down(source, now)
            self.switches += 1
            self._hand_over(state, best, now)
            due = now + START_S + GRACE_S
        self._check_again(state, due)

    def _due(self, state: _Log, source: SourceSeat, best: SourceSeat, now: float) -> float:
        """When this source has been quiet or slow for too long, if nothing changes until then."""
        lacking_since = now if state.lacking_since is None else state.lacking_since
        moved_at = max(state.moved_at, state.since + START_S, lacking_since)
        quiet_since = max(moved_at, min(source.behind_at, moved_at + BEHIND_MAX_S))
        has_it = state.lacks(state.source_newest) or state.moved_at > lacking_since
        due = quiet_since + (SILENCE_S if has_it else GRACE_S)
        queued = source.busy > 1 and source.busy <= best.busy + 1
        if queued and now - source.moved_at < SILENCE_S:
            # It brings other logs, and this one would have to wait elsewhere too.
            due = quiet_since + QUEUE_S
        slow_from = max(lacking_since, state.since + START_S) + WINDOW_S
        if now < slow_from:
            return min(due, slow_from)
        if source.is_slow_beside(best, now):
            return now
        return min(due, now + WINDOW_S / 2)

    def _best(self, state: _Log, now: float) -> SourceSeat | None:
        """Who is to bring it next: whoever has the least to do of those that hold it."""
        able = state.able(now)
        free = [seat for seat in able if state.may_get(seat, now)]
        if state.source is None:
            free = free or able
        return min(
            free, key=lambda seat: (seat.busy, -state.waiting[seat], seat.number), default=None
        )

    def _go_on(self, state: _Log, now: float) -> None:
        """The source left in the middle of something, which may be more than we know of."""

        def rank(seat: SourceSeat) -> tuple[bool, int, int]:
            return (state.waiting[seat] < state.held, seat.busy, seat.number)

        seat = min(state.waiting, key=rank, default=None)
        if seat is not None:
            self._hand_over(state, seat, now)

    def _hand_over(self, state: _Log, seat: SourceSeat, now: float) -> None:
        old = state.source
        self._appoint(state, seat, now)
        if old is not None:
            self._changes.append((old, SourceChanged(state.key, fetch=False)))
        self._changes.append((seat, SourceChanged(state.key, fetch=True)))

    def _appoint(self, state: _Log, seat: SourceSeat, now: float) -> None:
        """A new source; the old one waits from now on."""
        old = state.source
        lacking = state.lacking_since is not None
        if old is not None:
            state.waiting[old] = state.source_newest
            if lacking:
                self._count_busy(old, -1, now)
        state.source = seat
        state.source_newest = state.waiting.pop(seat, 0)
        state.most = max(state.waiting.values(), default=0)
        state.since, state.moved_at = now, 0.0
        state.nothing_comes()
        if lacking:
            self._count_busy(seat, 1, now)

    def _vacate(self, state: _Log, now: float) -> bool:
        """The source fetches this log no more. False if nobody has taken over."""
        if state.lacking_since is not None:
            self._count_busy(state.source, -1, now)
            state.lacking_since = None
        state.source = None
        state.source_newest = 0
        state.nothing_comes()
        self._look(state, now)
        return state.source is not None

    def _count_busy(self, seat: SourceSeat | None, change: int, now: float) -> None:
        if seat is not None:
            if not seat.busy:
                seat.begin_window(now)
            seat.busy += change

    def _check_when_free(self, state: _Log, now: float) -> None:
        free_at = state.next_free_at(now)
        if free_at is not None:
            self._check_again(state, free_at)

    def _check_again(self, state: _Log, at: float) -> None:
        if state.check_at is None or at < state.check_at:
            state.check_at = at
            heappush(self._line, (at, state.key))

    # For tests and people

    def sources(self) -> Iterator[tuple[LogKey, SourceSeat]]:
        """Every log that has a source, and the source."""
        for log, state in self._logs.items():
            if state.source is not None:
                yield log, state.source
