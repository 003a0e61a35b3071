"""What a node knows of the other side of one connection, log by log, from the session's notices.

Only what may interest whoever asks why a log is not complete: bounded, and nothing for logs in
order. Times are on Trio's clock.
"""

from typing import Final, TypeVar

from msgspec import Struct, field

from peer import (
    Arriving,
    EntriesReceived,
    LogTable,
    NewestLearned,
    Notice,
    PayloadsReceived,
    PeerHolds,
    RequestCancelled,
    RequestConfirmed,
    RequestGivenUp,
)
from wire import CancelReason, LogKey

Value = TypeVar("Value")

MOVED_MAX: Final = 2_000
"""Logs of which it is counted what has come, until somebody looks."""
LOGS_MAX: Final = 20_000
"""Of each kind. What was learned first is forgotten first."""

_REFUSALS: Final = frozenset(
    (
        CancelReason.NOT_WANTED,
        CancelReason.NO_RESOURCES,
        CancelReason.PAYLOAD_MANDATORY,
        CancelReason.HASH_MISMATCH,
        CancelReason.FORKED,
    )
)


class Refused(Struct, frozen=True):
    """The other side cancelled a request, by what `reason` and when."""

    reason: CancelReason
    at_s: float


class GivenUp(Struct, frozen=True):
    """We cancelled a request because we could not take in what came."""

    detail: str
    at_s: float


class Moved(Struct, frozen=True):
    """What came of a log over a connection: entries that were stored, and bytes, proved or not."""

    entries: int = 0
    data_bytes: int = 0

    def plus(self, other: "Moved") -> "Moved":
        """Both together."""
        return Moved(self.entries + other.entries, self.data_bytes + other.data_bytes)


class Knowledge(Struct):
    """Of one connection."""

    newest: dict[LogKey, int] = field(default_factory=dict)
    """The newest entry that the other side said it holds; whoever reads drops what is held here."""
    told: LogTable[None] = field(default_factory=LogTable)
    """The logs of which it has answered what its newest entry is."""
    refused: LogTable[Refused] = field(default_factory=LogTable)
    given_up: dict[LogKey, GivenUp] = field(default_factory=dict)
    broken_off: dict[LogKey, None] = field(default_factory=dict)
    """Logs of which the other side ended a request in the middle, for want of resources."""
    arriving: dict[LogKey, int] = field(default_factory=dict)
    """The entry of which a part of the payload has come, and not all."""
    moved: dict[LogKey, Moved] = field(default_factory=dict)
    """What has come since somebody looked, of those logs of which anything has."""
    active: dict[LogKey, int] = field(default_factory=dict)
    """How many requests about a log are confirmed and not cancelled, for those that have any."""
    ours: int = 0
    """How many of these requests are ours..."""
    theirs: int = 0
    """... and how many the other side's."""
    version: int = 0
    """Grows with everything that is learned."""
    _requests: dict[int, RequestConfirmed] = field(default_factory=dict)
    _last_refusal: Refused | None = None

    def take(self, notice: Notice, now: float) -> None:
        """A notice of the session."""
        self.version += 1
        match notice:
            case PeerHolds() | NewestLearned():
                if isinstance(notice, NewestLearned):
                    self.told[notice.log] = None
                known = self.newest.get(notice.log, 0)
                _remember(self.newest, notice.log, max(known, notice.newest))
            case RequestConfirmed():
                self._over(notice.request)
                self._requests[notice.request] = notice
                self._count(notice, 1)
                self.active[notice.log] = self.active.get(notice.log, 0) + 1
                self.refused.take(notice.log)
            case RequestCancelled():
                no_resources = notice.reason is CancelReason.NO_RESOURCES and not notice.by_us
                if no_resources and notice.request in self._requests:
                    _remember(self.broken_off, notice.log, None)
                self._over(notice.request)
                if not notice.by_us and notice.reason in _REFUSALS:
                    self.refused[notice.log] = self._refusal(notice.reason, now)
                    if len(self.refused) > LOGS_MAX:
                        self._forget_refusals()
            case RequestGivenUp():
                _remember(self.given_up, notice.log, GivenUp(notice.detail, now))
            case Arriving():
                self._count_moved(notice.log, Moved(data_bytes=notice.data_bytes))
                if notice.inside:
                    _remember(self.arriving, notice.log, notice.newest)
            case PayloadsReceived():
                self.arriving.pop(notice.log, None)
                self.given_up.pop(notice.log, None)
            case EntriesReceived():
                self._count_moved(notice.log, Moved(entries=notice.entries))
                self.given_up.pop(notice.log, None)
            case _:
                pass

    def take_moved(self) -> dict[LogKey, Moved]:
        """What has come since this was called last."""
        moved, self.moved = self.moved, {}
        return moved

    def _count_moved(self, log: LogKey, more: Moved) -> None:
        before = self.moved.get(log)
        if before is not None:
            self.moved[log] = before.plus(more)
        elif len(self.moved) < MOVED_MAX:
            self.moved[log] = more

    def _refusal(self, reason: CancelReason, now: float) -> Refused:
        """One for all that were refused alike in the same second: they may be thousands."""
        last = self._last_refusal
        if last is None or last.reason is not reason or now - last.at_s >= 1:
            last = self._last_refusal = Refused(reason, now)
        return last

    def _forget_refusals(self) -> None:
        """Some of the oldest at once: to find them takes a look at all."""
        by_age = sorted(self.refused.pairs(), key=lambda each: each[1].at_s)
        for log, _ in by_age[: LOGS_MAX // 8]:
            del self.refused[log]

    def _over(self, request: int) -> None:
        over = self._requests.pop(request, None)
        if over is None:
            return
        self._count(over, -1)
        left = self.active.pop(over.log) - 1
        if left:
            self.active[over.log] = left
        else:
            self.arriving.pop(over.log, None)

    def _count(self, request: RequestConfirmed, by: int) -> None:
        if request.ours:
            self.ours += by
        else:
            self.theirs += by


def _remember(book: dict[LogKey, Value], log: LogKey, value: Value) -> None:
    book[log] = value
    if len(book) > LOGS_MAX:
        del book[next(iter(book))]
