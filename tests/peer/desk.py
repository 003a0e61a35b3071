"""A book of sources, and sessions that let it read what a test says."""

from collections import Counter
from collections.abc import Iterator

from peer.planner.source_book import SourceBook
from peer.protocol.notices import Arriving, FetchEnded, PeerHolds
from wire import LogKey

LOGS = [LogKey(bytes([n]) * 32, 0) for n in range(3)]
LOG = LOGS[0]


def moments(book: SourceBook, now: float, until: float) -> Iterator[float]:
    """Lets time pass; yields when the book has done something."""
    while (due := book.deadline) is not None and due <= until:
        now = max(now, due)
        book.advance(now)
        yield now


class Shown:
    """What a session lets the book read."""

    def __init__(self) -> None:
        self.told = Counter[LogKey]()
        """The newest entries that its peer has told of."""
        self.brought = Counter[LogKey]()
        self.not_wanted: set[LogKey] = set()
        self.is_behind = False

    def newest(self, log: LogKey) -> int:
        return max(self.told[log], self.brought[log])

    def came(self, log: LogKey) -> int:
        return self.brought[log]

    def held(self, _: LogKey) -> int:
        return 0

    def may_fetch(self, log: LogKey) -> bool:
        return log not in self.not_wanted

    def tells(self, log: LogKey, newest: int, held: int) -> PeerHolds:
        self.told[log] = max(self.told[log], newest)
        return PeerHolds(log, newest, held)

    def brings(self, log: LogKey, size: int, newest: int, *, inside: bool = False) -> Arriving:
        self.brought[log] = max(self.brought[log], newest)
        return Arriving(log, size, newest, inside)

    def ends(self, log: LogKey, *, listens: bool) -> FetchEnded:
        """What came is stored, or never will be."""
        del self.brought[log]
        if not listens:
            self.not_wanted.add(log)
        return FetchEnded(log)


class Desk:
    """A book and its clock; sessions do what they are told."""

    def __init__(self, *names: str) -> None:
        self.book = SourceBook()
        self.now = 0.0
        self.shown = [Shown() for _ in names]
        self.seats = [
            self.book.join(name, lambda shown=shown: shown)  # type: ignore[misc]
            for name, shown in zip(names, self.shown, strict=True)
        ]
        self.told: list[tuple[str, bool]] = []

    def claim(self, number: int, log: LogKey = LOG) -> bool:
        self.shown[number].not_wanted.discard(log)
        return self.book.claim(self.seats[number], log, self.now)

    def peer_holds(self, number: int, newest: int, held: int = 0, log: LogKey = LOG) -> None:
        if held:
            self.stands(held, log)
        self.book.took(self.seats[number], self.shown[number].tells(log, newest, held), self.now)
        self.deliver()

    def brings(
        self,
        number: int,
        newest: int,
        size: int = 500,
        *,
        inside: bool = False,
        log: LogKey = LOG,
    ) -> None:
        came = self.shown[number].brings(log, size, newest, inside=inside)
        self.book.took(self.seats[number], came, self.now)
        self.deliver()

    def ends(self, number: int, *, listens: bool) -> None:
        """It fetches the log no more."""
        self.book.took(self.seats[number], self.shown[number].ends(LOG, listens=listens), self.now)
        self.deliver()

    def stands(self, newest: int, log: LogKey = LOG) -> None:
        """The store says so."""
        self.book.stands(log, newest, self.now)
        self.deliver()

    def leaves(self, number: int) -> None:
        self.book.leave(self.seats[number], self.now)
        self.deliver()

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        for _ in moments(self.book, self.now, until):
            self.deliver()
        self.now = until

    def deliver(self) -> None:
        self.told += [(seat.name, change.fetch) for seat, change in self.book.take_changes()]

    @property
    def source(self) -> str | None:
        return next((seat.name for log, seat in self.book.sources() if log == LOG), None)


def claimed(*names: str) -> Desk:
    """A desk where all of them have claimed the log, in this order."""
    desk = Desk(*names)
    for number in range(len(names)):
        desk.claim(number)
    return desk
