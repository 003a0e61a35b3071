"""What the book of sources keeps of each log, and of each session.

**Of a log** (`SourceLog`): who can bring it, and how far it has come. It *lacks* something while a
session's peer holds more than is stored here or has come and is not stored yet, or while a payload
has come in part. Only then is anybody judged. Two things are noted of a session that is not to be
asked for the log for a while, apart from each other, since they end otherwise. *Held down*: it lost
the log because it was quiet or slow; if nobody else is left it gets the log back before its time.
*Spent*: it has ended its fetch and what its peer holds is lacking all the same, as with what we do
not want or no peer has whole: asking it again is for nothing, whoever else is there, unless its
peer tells of more or brings something.

**Of a session** (`SourceSeat`): its place, and how fast it has brought things. How fast a source is
can be told only while it has something to bring, and not while what it sent waits for our own disk.
Taken over all of its time, a fast peer that had brought an entry an hour was slower than any other
one, and never got a log back. So a window begins when something is lacking that it is to bring, and
one in which this host was behind counts for nothing against it. Its best speed is kept (`fastest`),
for whoever is slow beside it: that is no promise, but a reason to try.
"""

from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct, field

from peer.protocol.notices import Notice
from wire import LogKey

SILENCE_S: Final = 2.0
"""How long a source may be quiet that holds what we lack. Longer than a look into its store and a
few round trips take; a log stands still for so long behind a peer that says it has it and lies."""
HOLD_FIRST_S: Final = 10.0
HOLD_MAX_S: Final = 640.0
"""How long a source that lost a log does not get it back; twice as long each time, so that two
which are both quiet do not play ping-pong, and a link that was bad for a moment is used again."""
WINDOW_S: Final = 5.0
"""Over how long the speed of a source is measured. Longer than a pause that a slow link makes
between two pieces: of a short window one of them decides."""
SLOW_BYTES_PER_S: Final = 32 * 1024
"""Below this a source is slow, if others hold what it has not brought for `WINDOW_S`. Who trickles
is never quiet, and would keep a log for ever by a byte a second."""
BETTER: Final = 2
"""Between two slow ones, the other one has to have been so many times as fast: a change throws away
what is under way, and two that are alike would take turns."""
SLOWER: Final = 8
"""A source is slow, too, if the other one has been so many times as fast. Not sooner: how fast that
was is its best time, perhaps of other logs and at another hour."""


class Standing(Struct, frozen=True):
    """How a session stands to a log.

    `peer_newest`: the newest entry that its peer is known to hold. `progress_at`: when the source
    last brought something, None for others and for one that has not.
    """

    fetching: bool
    peer_newest: int
    progress_at: float | None


class Book(Protocol):
    """What a seat passes on to the book that it is in."""

    def claim(self, seat: "SourceSeat", log: LogKey, now: float, brought: int = 0) -> bool:
        """See `SourceSeat.claim`."""

    def took(self, seat: "SourceSeat", notice: Notice, now: float) -> None:
        """See `SourceSeat.took`."""

    def leave(self, seat: "SourceSeat", now: float) -> None:
        """See `SourceSeat.leave`."""

    def standing(self, seat: "SourceSeat", log: LogKey) -> Standing | None:
        """See `SourceSeat.standing`."""


class SourceSeat:
    """A session's place in the book. `name` is for people."""

    def __init__(self, book: Book, name: str, number: int, is_behind: Callable[[], bool]) -> None:
        self.name = name
        self.number = number
        self.busy = 0
        """Logs that it is to bring and of which something is lacking."""
        self.moved_at = 0.0
        self.fastest = 0.0
        """The highest speed that was measured, in bytes a second."""
        self.logs: dict[LogKey, None] = {}
        self._book = book
        self._window_at: float | None = None
        """When the window began, None while it has nothing to bring: what comes then comes when it
        is made, and tells nothing of how fast it could."""
        self._window_bytes = 0
        self._speed: float | None = None
        """In the last window, None if there was none since it had nothing to bring, or was behind.
        """
        self._is_behind = is_behind
        self._was_behind = False
        """Whether that was so in this window."""
        self.behind_at = 0.0

    def claim(self, log: LogKey, now: float, brought: int = 0) -> bool:
        """Whether this session may fetch a log. If not, it will be told when it may.

        `brought`: see `sourcing.Claim`.
        """
        return self._book.claim(self, log, now, brought)

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

    def end_window(self, now: float) -> None:
        """It has nothing to bring any more."""
        self._roll(now)
        self._window_at = self._speed = None

    def is_slow_beside(self, other: "SourceSeat", now: float) -> bool:
        """Whether the last `WINDOW_S` in which it had something to bring were too slow."""
        self._roll(now)
        return self._speed is not None and other.would_be_better_than(self._speed)

    def would_be_better_than(self, bytes_per_s: float) -> bool:
        """Whether this session was so much faster in its time, or may be, that a change pays."""
        if bytes_per_s < SLOW_BYTES_PER_S:
            # Of one that never had anything to bring nothing is known: it is tried. If it was no
            # better in its time, changing costs and gains nothing.
            return not self.fastest or bytes_per_s * BETTER < self.fastest
        return bytes_per_s * SLOWER < self.fastest

    def _roll(self, now: float) -> None:
        if self._window_at is None:
            return
        elapsed = now - self._window_at
        if elapsed >= WINDOW_S:
            speed = self._window_bytes / elapsed
            self.fastest = max(self.fastest, speed)
            self._speed = None if self._was_behind else speed
            self._was_behind = False
            self._window_at = now
            self._window_bytes = 0


class _Pause(Struct, frozen=True):
    """A session is not asked for a log until then; `times`: how often that has been so.

    `newest`: the newest entry that its peer was known to hold.
    """

    until: float
    times: int
    newest: int


_Pauses = dict[SourceSeat, _Pause]


class UnaskedPayload(Struct):
    """A payload that a peer came to bring, and that is taken whoever the source is."""

    seat: SourceSeat
    seq: int
    moved_at: float
    window_at: float
    window_bytes: int = 0

    def came(self, size: int, now: float) -> None:
        """So many bytes of it came."""
        self.moved_at = now
        self.window_bytes += size

    def due(self, source: SourceSeat, now: float) -> float:
        """When it has been quiet for too long, or slower than the source, unless more comes."""
        if self.seat.note_behind(now):
            self.moved_at = self.window_at = now
            self.window_bytes = 0
        elapsed = now - self.window_at
        if elapsed >= WINDOW_S:
            if source.would_be_better_than(self.window_bytes / elapsed):
                return now
            self.window_at, self.window_bytes = now, 0
        return min(self.moved_at + SILENCE_S, self.window_at + WINDOW_S)


class SourceLog(Struct):
    """Who can bring a log, and how far it has come."""

    key: LogKey
    source: SourceSeat | None = None
    since: float = 0.0
    """When the source became that."""
    moved_at: float = 0.0
    """When bytes came from the source."""
    source_newest: int = 0
    """The newest entry that the source is known to hold."""
    waiting: dict[SourceSeat, int] = field(default_factory=dict)
    """The other sessions that want the log, and the newest entry that their peers hold."""
    most: int = 0
    """The newest of these entries."""
    held: int = 0
    coming: int = 0
    """The newest entry that came and may not be stored yet."""
    coming_from: SourceSeat | None = None
    inside: int = 0
    """The entry whose payload has come in part, 0: none."""
    offer: UnaskedPayload | None = None
    """How that comes from a session that is not the source."""
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

    def source_has_it(self, now: float) -> bool:
        """Whether the source holds what is lacking, or has brought a part of it."""
        lacking_since = now if self.lacking_since is None else self.lacking_since
        return self.lacks(self.source_newest) or self.moved_at > lacking_since

    def may_get(self, seat: SourceSeat, now: float) -> bool:
        """Whether a session is not held down."""
        return _until(self.held_down, seat, now) <= now

    def able(self, now: float) -> list[SourceSeat]:
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

    def hold_down(self, seat: SourceSeat, now: float) -> None:
        """A session lost the log because it brought too little."""
        self.held_down = _longer(self.held_down, seat, now, self.source_newest)

    def note_spent(self, seat: SourceSeat, now: float, newest: int) -> None:
        """A session has ended its fetch, and what its peer holds is lacking all the same."""
        self.spent = _longer(self.spent, seat, now, newest)

    def rests(self, seat: SourceSeat) -> bool:
        """Whether something is noted of a session, whether it waits or not."""
        return any(seat in noted for noted in (self.held_down, self.spent) if noted is not None)

    def hears(self, seat: SourceSeat, newest: int) -> None:
        """A session whose peer holds more than it did may be asked again."""
        pause = None if self.spent is None else self.spent.get(seat)
        if self.spent is not None and pause is not None and newest > pause.newest:
            del self.spent[seat]


def _until(pauses: _Pauses | None, seat: SourceSeat, now: float) -> float:
    pause = None if pauses is None else pauses.get(seat)
    return now if pause is None else pause.until


def _longer(pauses: _Pauses | None, seat: SourceSeat, now: float, newest: int) -> _Pauses:
    pauses = {} if pauses is None else pauses
    times = pauses[seat].times if seat in pauses else 0
    until = now + min(HOLD_FIRST_S * 2.0**times, HOLD_MAX_S)
    pauses[seat] = _Pause(until, times + 1, newest)
    return pauses
