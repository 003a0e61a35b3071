"""A session's place in the book of sources, and how fast it has brought things.

How fast a source is can be told only while it has something to bring, and not while what it sent
waits for our own disk. Taken over all of its time, a fast peer that had brought an entry an hour
was slower than any other one, and never got a log back. So a window begins when something is
lacking that it is to bring, and one in which this host was behind counts for nothing against it.

Its best speed is kept (`fastest`), for whoever is slow beside it: that is no promise, but a reason
to try.
"""

from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

from peer.protocol.notices import Notice
from wire import LogKey

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
