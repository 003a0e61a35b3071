"""What the book of sources keeps of each log, and of each session.

**Of a log** (`SourceLog`): who can bring it, and how far it has come. It *lacks* something while a
session's peer holds more than is stored here or has come and is not stored yet, or while a payload
has come in part. Only then is anybody judged.

**Of a session** (`SourceSeat`): its place, the logs that it is not to be asked for for a while, and
how fast it has brought things. These logs are of two kinds, apart from each other, since they end
otherwise. *Held down*: it lost the log because it was quiet or slow; if nobody else is left it gets
the log back before its time. *Spent*: it has ended its fetch and what its peer holds is lacking all
the same, as with what we do not want or no peer has whole: asking it again is for nothing, whoever
else is there, unless its peer tells of more or brings something.

How fast a source is can be told only while it has something to bring, and not while what it sent
waits for our own disk. Taken over all of its time, a fast peer that had brought an entry an hour
was slower than any other one, and never got a log back. So a window begins when something is
lacking that it is to bring, and one in which this host was behind counts for nothing against it.
Its best speed is kept (`fastest`), for whoever is slow beside it: that is no promise, but a reason
to try.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from msgspec import Struct, field

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


class Reads(Protocol):
    """What the book reads of a session."""

    @property
    def is_behind(self) -> bool:
        """Whether what came waits for this host."""

    def newest(self, log: LogKey) -> int:
        """The newest entry that its peer is known to hold, 0: none."""

    def came(self, log: LogKey) -> int:
        """The newest entry that its requests have brought, though it may not be stored yet."""

    def held(self, log: LogKey) -> int:
        """The newest entry that is held here, as far as it knows."""

    def may_fetch(self, log: LogKey) -> bool:
        """Whether it wants the log, and may be asked for it."""


class _Pause(Struct, frozen=True):
    until: float
    times: int
    newest: int


class Pauses:
    """Until when a session is not asked for logs: longer each time, from `HOLD_FIRST_S` on."""

    def __init__(self) -> None:
        self._of: dict[LogKey, _Pause] = {}

    def until(self, log: LogKey, newest: int = 0) -> float:
        """When it ends. `newest`: what the peer holds; if that was less then, it is over."""
        pause = self._of.get(log)
        return 0.0 if pause is None or newest > pause.newest else pause.until

    def begin(self, log: LogKey, now: float, newest: int = 0) -> None:
        """It is left alone from now on."""
        last = self._of.get(log)
        times = 0 if last is None or newest > last.newest else last.times
        until = now + min(HOLD_FIRST_S * 2.0**times, HOLD_MAX_S)
        self._of[log] = _Pause(until, times + 1, newest)

    def end(self, log: LogKey) -> None:
        """It is as if there had been none."""
        self._of.pop(log, None)


class SourceSeat:
    """A session's place in the book. `name` is for people."""

    def __init__(self, name: str, number: int, reads: Callable[[], Reads | None]) -> None:
        self.name = name
        self.number = number
        self.busy = 0
        """Logs that it is to bring and of which something is lacking."""
        self.moved_at = 0.0
        self.fastest = 0.0
        """The highest speed that was measured, in bytes a second."""
        self.logs: dict[LogKey, None] = {}
        """Those that it wants."""
        self.held_down = Pauses()
        """Logs that it lost."""
        self.spent = Pauses()
        """Logs whose fetch it has ended with nothing left to do."""
        self._window_at: float | None = None
        """When the window began, None while it has nothing to bring: what comes then comes when it
        is made, and tells nothing of how fast it could."""
        self._window_bytes = 0
        self._speed: float | None = None
        """In the last window, None if there was none since it had nothing to bring, or was behind.
        """
        self._reads = reads
        self._was_behind = False
        """Whether that was so in this window."""
        self.behind_at = 0.0

    @property
    def reads(self) -> Reads:
        """What its session says, and its peer has said."""
        reads = self._reads()
        if reads is None:
            raise AssertionError("who wants or brings something is set up")
        return reads

    def note_behind(self, now: float) -> bool:
        """Whether what came waits for this host. Then it is not the peer that is slow."""
        behind = self.reads.is_behind
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
    held: int
    """The newest entry that is held here, as far as the book has heard."""
    source: SourceSeat | None = None
    since: float = 0.0
    """When the source became that."""
    moved_at: float = 0.0
    """When bytes came from the source."""
    seats: dict[SourceSeat, None] = field(default_factory=dict)
    """All sessions that want the log, the source among them."""
    inside: int = 0
    """The entry whose payload has come in part, 0: none."""
    offer: UnaskedPayload | None = None
    """How that comes from a session that is not the source."""
    lacking_since: float | None = None
    """Since when others hold what neither we have nor is coming."""
    check_at: float | None = None

    @property
    def came(self) -> int:
        """The newest entry that came and may not be stored yet."""
        return max((seat.reads.came(self.key) for seat in self.seats), default=0)

    def holders(self, seats: Iterable[SourceSeat]) -> list[SourceSeat]:
        """Who of these holds something that we lack."""
        lacking = max(self.held, self.came) + 1
        if self.inside:
            lacking = min(lacking, self.inside)
        return [seat for seat in seats if seat.reads.newest(self.key) >= lacking]

    def source_has_it(self, now: float) -> bool:
        """Whether the source holds what is lacking, or has brought a part of it."""
        lacking_since = now if self.lacking_since is None else self.lacking_since
        has_it = self.source in self.holders(self.seats)
        return has_it or self.moved_at > lacking_since

    def spent_until(self, seat: SourceSeat) -> float:
        """When a session may be asked again that has brought all it could.

        What we do not want of a log, or what no peer has whole, is lacking for ever.
        """
        return seat.spent.until(self.key, seat.reads.newest(self.key))

    def free_at(self, seat: SourceSeat) -> float:
        """When a session may be asked again, whether it has, or was quiet or slow."""
        return max(seat.held_down.until(self.key), self.spent_until(seat))
