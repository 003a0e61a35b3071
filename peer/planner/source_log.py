"""What the book of sources knows of one log: who can bring it, and how far it has come.

A log *lacks* something while a session's peer holds more than is stored here or has come and is not
stored yet, or while a payload has come in part. Only then is anybody judged.

Two things are noted of a session that is not to be asked for the log for a while, apart from each
other, since they end otherwise. *Held down*: it lost the log because it was quiet or slow; if
nobody else is left it gets the log back before its time. *Spent*: it has ended its fetch and what
its peer holds is lacking all the same, as with what we do not want or no peer has whole: asking it
again is for nothing, whoever else is there, unless its peer tells of more or brings something.
"""

from typing import Final

from msgspec import Struct, field

from wire import LogKey

from .source_seat import WINDOW_S, SourceSeat

SILENCE_S: Final = 2.0
"""How long a source may be quiet that holds what we lack. Longer than a look into its store and a
few round trips take; a log stands still for so long behind a peer that says it has it and lies."""
HOLD_FIRST_S: Final = 10.0
HOLD_MAX_S: Final = 640.0
"""How long a source that lost a log does not get it back; twice as long each time, so that two
which are both quiet do not play ping-pong, and a link that was bad for a moment is used again."""


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
