"""What this node wants and offers, kept in step with the store (point2point.md 10)."""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from logstore import (
    ALL,
    Contested,
    Follow,
    KeepRule,
    Pauses,
    PeerRule,
    PolicyKind,
    Store,
    Subscription,
)
from peer import Interests, InterestsChanged, LogChanged
from wire import LogKey


class Wanted(Struct, frozen=True):
    """What the store says is wanted: what is followed and how, what is fetched once, and who may.

    All of it is read at once, whenever any of it may have changed, by whichever process.
    """

    subscriptions: Mapping[Follow, Subscription] = field(default_factory=dict)
    fetches: Mapping[LogKey, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    contested: tuple[Contested, ...] = ()
    """Own logs that are signed elsewhere too, and of which nothing new is given out."""
    peers: Mapping[bytes, PeerRule] = field(default_factory=dict)
    """What is decided of each peer, by its id."""
    keeps: Mapping[Follow, KeepRule] = field(default_factory=dict)
    """Which payloads are kept, by rules."""
    pauses: Pauses = field(default_factory=dict)
    """With whom there is to be no connection, and until when."""
    forgotten: int = 0
    """Another number once logs were forgotten: then nothing that was known of logs is sure."""

    @classmethod
    def load(cls, store: Store) -> "Wanted":
        """What it says now."""
        fetches = {log: tuple(ranges) for log, ranges in store.wants().items()}
        rules = store.peers.rules()
        keeps = store.keeps()
        return cls(
            store.subscriptions(),
            fetches,
            tuple(store.contested()),
            rules,
            keeps,
            store.pauses(),
            store.forgotten(),
        )

    @property
    def follows(self) -> list[Follow]:
        """What is followed."""
        return list(self.subscriptions)

    @property
    def deletes(self) -> bool:
        """Whether any payload may be there to be deleted."""
        newest = (wanted.kind is PolicyKind.LATEST for wanted in self.subscriptions.values())
        return bool(self.keeps) or any(newest)

    @property
    def deletes_by_age(self) -> bool:
        """Whether that may be so though nothing happens."""
        return any(rule.age_s is not None for rule in self.keeps.values())


class InterestBook:
    """Own logs, what is followed, and which held logs that makes.

    Built by `load` in a thread, since it reads a row of every log; then kept up with `note` and
    `take`. `fetches_only`: nothing is wanted or offered but what is fetched. `only`: nothing but
    these own logs, and peers are asked at once what they hold of them.
    """

    def __init__(
        self,
        author: bytes,
        *,
        serve_held: bool = True,
        fetches_only: bool = False,
        only: frozenset[LogKey] | None = None,
    ) -> None:
        self._author = author
        self._only = only
        self._shared: dict[LogKey, int] = {}
        """Up to which entry others have each own log; what interests name, so that it is one."""
        self._held: set[LogKey] = set()
        """The logs in the store; what interests name too."""
        self._serve_held = serve_held
        self._fetches_only = fetches_only
        self._wanted = Wanted()
        self._interests = Interests(serve_held=serve_held, held=self._held)
        self._offers: set[LogKey] = set()
        self._current: InterestsChanged | None = None

    @property
    def wanted(self) -> Wanted:
        """What this was made from."""
        return self._wanted

    @property
    def current(self) -> InterestsChanged:
        """Interests, and the logs to propose in ascending order."""
        if self._current is None:
            self._current = InterestsChanged(self._interests, tuple(sorted(self._offers)))
        return self._current

    def load(self, store: Store) -> "InterestBook":
        """A new book of what the store says now."""
        book = InterestBook(
            self._author,
            serve_held=self._serve_held,
            fetches_only=self._fetches_only,
            only=self._only,
        )
        wanted = Wanted.load(store)
        # The same set: sessions read it all the time, and news come while this runs in a thread.
        book._held = self._held
        known_before = frozenset(self._held)
        stored = {info.key for info in store.logs()}
        book._held.update(stored)
        # Those that were forgotten; what has come since `logs` is among neither.
        book._held.difference_update(known_before - stored)
        known = store.shared()
        own = frozenset(log for log in stored if log.author == self._author)
        for log in own:
            book._shared[log] = max(known.get(log, 0), self._shared.get(log, 0))
        book._interests = replace(book._interests, shared=book._shared, held=book._held)
        if self._only is not None:
            for log in self._only:
                book._shared.setdefault(log, 0)
            book._interests = replace(book._interests, own=self._only, asked=self._only)
            book._offers = {*self._only}
            book._take_wants(wanted)
            return book
        if self._fetches_only:
            book._take_wants(wanted)
            return book
        follows = wanted.follows
        logs = frozenset(target for target in follows if isinstance(target, LogKey))
        authors = frozenset(target for target in follows if isinstance(target, bytes))
        everything = ALL in follows
        book._interests = replace(
            book._interests,
            logs=logs,
            authors=authors,
            everything=everything,
            own=own,
            author=self._author,
        )
        book._take_wants(wanted)
        # Of an author who is followed, log 0 is asked for at once.
        book._offers = {*logs, *own, *(LogKey(author, 0) for author in authors)}
        if store.own_logs_read_only is not None:
            # Our own first log may be elsewhere, though nothing of it is here.
            book._offers.add(LogKey(self._author, 0))
        book._offers.update(log for log in stored if everything or log.author in authors)
        return book

    def take(self, wanted: Wanted) -> bool:
        """Takes in what is wanted now; False if `load` has to look at the logs once more.

        So it is where others are followed, or some were forgotten.
        """
        if wanted.forgotten != self._wanted.forgotten:
            return False
        if not self._is_narrow and wanted.follows != self._wanted.follows:
            return False
        self._take_wants(wanted)
        return True

    def _take_wants(self, wanted: Wanted) -> None:
        self._wanted = wanted
        contested = frozenset(each.key for each in wanted.contested)
        self._interests = replace(
            self._interests,
            subscriptions={} if self._is_narrow else wanted.subscriptions,
            keeps={} if self._is_narrow else wanted.keeps,
            fetches={} if self._only is not None else wanted.fetches,
            contested=contested,
        )
        self._current = None

    @property
    def deletes(self) -> bool:
        """Whether what rules say is deleted here: not where only one thing is to be done."""
        return not self._is_narrow

    @property
    def _is_narrow(self) -> bool:
        return self._fetches_only or self._only is not None

    def ask(self, logs: Collection[LogKey]) -> bool:
        """Every peer is asked what it holds of own logs; False if that is so already."""
        if self._interests.asked.issuperset(logs):
            return False
        self._interests = replace(self._interests, asked=self._interests.asked.union(logs))
        self._current = None
        return True

    def note_shared(self, log: LogKey, seq: int) -> bool:
        """Others may have an own log up to this entry from now on; False if that was known."""
        if log.author != self._author or seq <= self._shared.get(log, 0):
            return False
        self._shared[log] = seq
        return True

    def note(self, changes: Sequence[LogChanged]) -> bool:
        """Takes news of logs. True if sessions have to be told: there is a new log of our own.

        Other new logs that are wanted find their way by the news themselves.
        """
        for change in changes:
            self._held.add(change.log)
            if change.log.author == self._author:
                self._shared.setdefault(change.log, 0)
        if self._is_narrow:
            return False
        interests = self._interests
        new_own = set()
        for change in changes:
            log = change.log
            if log in self._offers:
                continue
            if log.author == self._author:
                new_own.add(log)
            elif not interests.follows(log):
                continue
            self._offers.add(log)
            self._current = None
        if new_own:
            self._interests = replace(interests, own=interests.own | new_own)
        return bool(new_own)
