"""What this node wants of one log: which entries, and which of their payloads. Pure.

A rule that deletes payloads by number (logstore/keeping.py) is part of it: entries before the last
of those that it keeps are wanted without payloads, so that a range has a place where what is asked
for changes (`Wants.alike_up_to`), and where that is follows from the newest entry that there is.
"""

from msgspec import Struct

from logstore import FULL, PolicyKind, Subscription
from peer.protocol.request import OPEN_END
from wire import U64_MAX, Eagerness, lower_pool

from .ranges import Ranges, minus, range_with, union


class Settings(Struct, frozen=True):
    """How much of a range's payloads one side asks for; sizes in bytes."""

    eagerness: Eagerness = Eagerness.ALL
    eager_bytes: int | None = None
    min_bytes: int = 0
    max_bytes: int = U64_MAX


NOTIFY_ONLY = Settings(Eagerness.NOTIFY)
METADATA_ONLY = Settings(Eagerness.LIMITED, 0)
ALL_OF_IT = Settings()


def settings_of(subscription: Subscription) -> Settings:
    """What a subscription says of payloads."""
    smallest, largest = subscription.payload_limits
    if largest < 0:
        return METADATA_ONLY
    if subscription.eager_bytes is None:
        if largest < smallest:
            # The rule of its log allows none that is large enough.
            return METADATA_ONLY
        return Settings(Eagerness.ALL, None, smallest, largest)
    most = subscription.max_bytes
    if subscription.kept is not None and subscription.kept.bytes is not None:
        most = max(smallest, min(most, subscription.kept.bytes))
    return Settings(Eagerness.LIMITED, subscription.eager_bytes, smallest, most)


class Wants(Struct, frozen=True):
    """What this node wants of a log: a subscription if it follows it, and what is fetched once.

    `listens`: it follows the log and may not take it from the other side, which is only to tell of
    it (doors.md 3); then nothing else is wanted.
    """

    subscription: Subscription | None = None
    fetches: Ranges = ()
    listens: bool = False

    @property
    def is_wanted(self) -> bool:
        return self.subscription is not None or bool(self.fetches)

    @property
    def follows(self) -> bool:
        """Whether what comes of the log is of interest, though it were only to hear of it."""
        return self.subscription is not None or self.listens

    @property
    def is_planned(self) -> bool:
        """Whether there is something to propose of the log, though it were only to listen."""
        return self.is_wanted or self.listens

    @property
    def is_all(self) -> bool:
        """Whether all of the log is wanted, just as it is: so it is for most logs."""
        wanted = self.subscription
        # One object for nearly all: to compare two of them takes ten times as long.
        return (wanted is FULL or wanted == FULL) and not (self.fetches or self.listens)

    @property
    def is_sparse(self) -> bool:
        return self.subscription is not None and self.subscription.kind is PolicyKind.SPARSE

    @property
    def is_relative(self) -> bool:
        """Whether which entries are wanted, or payloads, follows from the newest that there is."""
        if self.subscription is None:
            return False
        return self.subscription.kind in (PolicyKind.LATEST, PolicyKind.SPARSE) or (
            self._deletes_by_number
        )

    @property
    def _deletes_by_number(self) -> bool:
        """Whether only the payloads of the newest of the entries that are wanted are kept."""
        wanted = self.subscription
        if wanted is None or wanted.kept is None or wanted.kept.last is None:
            return False
        return wanted.payload_limits[1] >= 0

    def followed(self, newest: int) -> Ranges:
        """The consecutive entries that the subscription names, of a log that ends with `newest`."""
        subscription = self.subscription
        if subscription is None or subscription.kind is PolicyKind.SPARSE:
            return ()
        first = subscription.bounds(newest)[0]
        last = subscription.last if subscription.kind is PolicyKind.RANGE else None
        return ((first, OPEN_END if last is None else last),)

    def ranges(self, newest: int) -> Ranges:
        followed = self.followed(newest)
        return union(followed, self.fetches) if self.fetches else followed

    def settings(self, seq: int, newest: int) -> Settings:
        """How the entry is wanted, and those behind it."""
        if self.subscription is not None and range_with(self.followed(newest), seq) is not None:
            if seq < self.payloads_from(newest) and range_with(self.fetches, seq) is None:
                return METADATA_ONLY
            return settings_of(self.subscription)
        return ALL_OF_IT if range_with(self.fetches, seq) is not None else NOTIFY_ONLY

    def alike_up_to(self, seq: int, newest: int) -> int:
        """The last of the entries behind this one whose payloads are wanted as its own is.

        Those that a rule deletes by number stand before the others.
        """
        first = self.payloads_from(newest)
        if seq >= first:
            return OPEN_END
        for begin, last in self.fetches:
            if begin <= seq <= last:
                return last if last < first - 1 else OPEN_END
            if seq < begin < first:
                return begin - 1
        return first - 1

    def payloads_from(self, newest: int) -> int:
        """The first entry whose payload would not be deleted at once; 0: any."""
        if self.subscription is None or not self._deletes_by_number:
            return 0
        return self.subscription.payload_bounds(newest)[0]

    @property
    def payload_limits(self) -> tuple[int, int]:
        """Sizes of the payloads that are missing if they are not held."""
        return (0, -1) if self.subscription is None else self.subscription.payload_limits

    def missing_among(self, newest: int) -> tuple[int, int | None]:
        """Where payloads may be missing: behind an entry, among so many up to the newest held."""
        if self.subscription is None:
            return 0, None
        of_newest = None
        if self.subscription.kind is PolicyKind.LATEST:
            of_newest = self.subscription.count
        return self.subscription.payload_bounds(newest)[0] - 1, of_newest

    def wants_payload_of(self, seq: int, newest: int) -> bool:
        """Whether the payload of an entry is wanted, if its size is."""
        if range_with(self.fetches, seq) is not None:
            return True
        return self.subscription is not None and self.subscription.wants_entry(seq, newest)


def mended(wants: Wants, newest: int) -> Ranges:
    """The entries whose payloads the subscription wants, but those that are fetched anyway."""
    subscription = wants.subscription
    if subscription is None:
        return ()
    wanted = wants.followed(newest)
    if subscription.kind is PolicyKind.SPARSE and newest:
        # What lies beside the path may be held as well, for another reason.
        wanted = union((n, n) for n in lower_pool(newest))
    # The newest entry held may be another one than the newest that there is.
    wanted = minus(wanted, ((0, wants.payloads_from(newest) - 1),))
    return minus(wanted, wants.fetches)
