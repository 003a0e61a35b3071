"""What this node wants and offers, kept in step with the store (point2point.md 10)."""

from collections.abc import Iterable

from logstore import ALL, Follow, Store
from peer import Interests, InterestsChanged, LogChanged
from wire import LogKey


class InterestBook:
    """Own logs, what is followed, and which held logs that makes.

    Built by `load` in a thread, since it reads a row of every log; then kept up with `note`.
    """

    def __init__(self, author: bytes, *, serve_held: bool = True) -> None:
        self._author = author
        self._serve_held = serve_held
        self._follows: list[Follow] = []
        self._interests = Interests(serve_held=serve_held)
        self._offers: set[LogKey] = set()
        self._current: InterestsChanged | None = None

    @property
    def follows(self) -> list[Follow]:
        """What is followed."""
        return self._follows

    @property
    def current(self) -> InterestsChanged:
        """Interests, and the logs to propose in ascending order."""
        if self._current is None:
            self._current = InterestsChanged(self._interests, tuple(sorted(self._offers)))
        return self._current

    def load(self, store: Store) -> "InterestBook":
        """A new book of what the store says now."""
        book = InterestBook(self._author, serve_held=self._serve_held)
        follows = book._follows = store.follows()
        logs = frozenset(target for target in follows if isinstance(target, LogKey))
        authors = frozenset(target for target in follows if isinstance(target, bytes))
        everything = ALL in follows
        own = frozenset(info.key for info in store.logs(self._author))
        book._interests = Interests(logs, authors, everything, own, self._serve_held)
        # Of an author who is followed, log 0 is asked for at once.
        book._offers = {*logs, *own, *(LogKey(author, 0) for author in authors)}
        if everything:
            book._offers.update(info.key for info in store.logs())
        else:
            for author in authors:
                book._offers.update(info.key for info in store.logs(author))
        return book

    def note(self, changes: Iterable[LogChanged]) -> bool:
        """Takes news of logs. True if sessions have to be told: there is a new log of our own.

        Other new logs that are wanted find their way by the news themselves.
        """
        interests = self._interests
        new_own = set()
        for change in changes:
            log = change.log
            if log in self._offers:
                continue
            if log.author == self._author:
                new_own.add(log)
            elif not interests.wants(log):
                continue
            self._offers.add(log)
            self._current = None
        if new_own:
            self._interests = Interests(
                interests.logs,
                interests.authors,
                interests.everything,
                interests.own | new_own,
                interests.serve_held,
            )
        return bool(new_own)
