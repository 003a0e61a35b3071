"""What the host tells the engine: past participles, mostly replies to commands."""

from collections.abc import Container, Mapping
from dataclasses import replace
from enum import Enum
from functools import lru_cache

from msgspec import Struct, field

from logstore import (
    FULL,
    Arrived,
    Follow,
    KeepRule,
    Subscription,
    WriteScope,
    nearest_rule,
    subscription_of,
)
from wire import LogKey

from .scope import Scope


class HeldEntry(Struct, frozen=True):
    """A stored, verified entry as the engine needs it.

    `payload` is set only for small payloads that are held whole; `payload_held` says whether the
    payload is held whole in any form; `payload_arriving` whether some session of this node is
    receiving it at this moment; `partial_bytes` how much of an incomplete one is held.
    """

    seq: int
    encoded: bytes
    hash: bytes
    payload: bytes | None
    payload_held: bool
    payload_arriving: bool = False
    partial_bytes: int = 0


class LogView(Struct, frozen=True):
    """What is held of a log at one moment.

    `height`: entries without a gap from 1, `newest`: the largest held seqnum (0: none), both below
    any fork. `end`: the seqnum of the end-of-log entry if held. `fork`: the earliest forked seqnum,
    `fork_proof` its two encodings. `invalid`: the entry from which on the author has made the log
    invalid (bamboo.md, Verified), if there is one; nothing from there on counts as held. `hashes`:
    entry hashes (66 bytes) by seqnum, of those asked for that are held, and always those of
    `height`, lipmaa(height) and lipmaa(height + 1), unless these are 0.
    `tail_partial_bytes`: None if the payload of the entry `height` needs nothing more (held,
    outside the look-up's sizes, or deleted on purpose), else how many bytes of it are held: fewer
    than it has, or 0. `missing_payloads`: the first few held entries but `height`, in all runs,
    above the look-up's `missing_above` and within its sizes, whose payload is incomplete and was
    not deleted on purpose (or was, and is fetched again), as runs; `begun_payloads`: (seqnum, bytes
    held) of those of them of which a part is held; `unnamed_above`: the entry above which there are
    more of them, None if all are named or left out. `tail_arriving`: whether some session of this
    host is receiving the payload of `height`; `some_arriving`: whether any of the payloads that
    were left out, or that one, is arriving. `runs`: the maximal runs of consecutive held entries,
    both ends included, ascending, that end at or behind the look-up's `runs_from`; `runs_complete`
    is False if there are more of them. The first is (1, `height`) if `height` is not 0.
    `range_held`: whether all of the look-up's `held` are. `behind`: entries that follow `entry`, as
    many as were asked for, up to the first that is not held.
    `arrived`: the entries of the look-up's `arrived_among` whose payloads are held and came behind
    `arrived_after`.
    """

    log: LogKey
    height: int = 0
    newest: int = 0
    end: int | None = None
    fork: int | None = None
    fork_proof: tuple[bytes, bytes] | None = None
    invalid: int | None = None
    hashes: Mapping[int, bytes] = field(default_factory=dict)
    entry: HeldEntry | None = None
    tail_partial_bytes: int | None = None
    missing_payloads: tuple[tuple[int, int], ...] = ()
    begun_payloads: tuple[tuple[int, int], ...] = ()
    unnamed_above: int | None = None
    tail_arriving: bool = False
    some_arriving: bool = False
    runs: tuple[tuple[int, int], ...] = ()
    runs_complete: bool = True
    range_held: bool = False
    behind: tuple[HeldEntry, ...] = ()
    arrived: Arrived = Arrived((), 0)

    @property
    def newest_whole(self) -> int:
        """The newest held entry, or the one before it if its payload is still to come."""
        waits = self.tail_partial_bytes is not None and self.height == self.newest
        return self.newest - waits


class LookedUp(Struct, frozen=True):
    ticket: int
    view: LogView


class EntriesRead(Struct, frozen=True):
    """Reply to `ReadEntries`; empty `entries`: nothing (more) is held there now.

    `place`: what came behind it in the store's change feed `entries` may not know.
    """

    request: int
    entries: tuple[HeldEntry, ...]
    place: int = 0


class PayloadRead(Struct, frozen=True):
    """Reply to `ReadPayload`; empty `data`: the payload is no longer held.

    `verified`: this and all that was read of the payload for this request before it is right.
    Otherwise `PayloadWithdrawn` may follow.
    """

    request: int
    seq: int
    offset: int
    data: bytes
    verified: bool = True


class PayloadWithdrawn(Struct, frozen=True):
    """What was read of a payload for this request, before it was verified, is not to be relied on.

    A read of it that waits is not answered any more.
    """

    request: int
    seq: int


class Ingested(Struct, frozen=True):
    """So many more entries of this request, in the order given, are verified and durable."""

    request: int
    entries: int


class Refusal(Enum):
    """Why an entry was not stored."""

    INVALID = "invalid"
    """Signature or link wrong: the sender's fault."""
    FORKED = "forked"
    """It contradicts a held entry with a valid signature: the author's fault."""
    STORAGE = "storage"
    """Our disk failed: nobody's fault."""
    NO_ROOM = "no room"
    """There is none for it, by a limit of ours that will be in force for a while."""


class IngestFailed(Struct, frozen=True):
    """This entry of this request was refused, and all behind it: so many in all."""

    request: int
    seq: int
    refusal: Refusal
    detail: str
    entries: int


class PayloadWritten(Struct, frozen=True):
    sink: int
    bytes_written: int


class Verdict(Enum):
    """What became of a payload.

    It comes when all bytes have been handed over, but for two: of a payload that is DROPPED or for
    which there is NO_ROOM it is said at once, and again at the end if nobody could be stopped.
    """

    VALID = "valid"
    INVALID = "invalid"
    """Hash or size wrong, and all of its bytes came on this connection."""
    INVALID_RESUMED = "invalid after resuming"
    """Wrong, but some of its bytes came from elsewhere: nobody is blamed."""
    STORAGE = "storage"
    """Our disk failed; the bytes are not kept."""
    NO_ROOM = "no room"
    """There is none for it, by a limit of ours; nothing of it was kept."""
    DROPPED = "dropped"
    """It was deleted here while it came, or just afterwards; the rest is not wanted."""


class PayloadFinished(Struct, frozen=True):
    sink: int
    verdict: Verdict
    detail: str = ""


class StorageFailed(Struct, frozen=True):
    """A read, look-up or write failed for a reason of ours; `request` ends with cancel 129."""

    request: int
    detail: str


class LogChanged(Struct, frozen=True):
    """Something new of a log is held (any process of this host may have put it there).

    `lacks`: whether the payload of a held entry is missing, wanted or not.
    """

    log: LogKey
    height: int
    newest: int
    end: int | None = None
    fork: int | None = None
    lacks: bool = False


class ArrivalChanged(Struct, frozen=True):
    """Some session of this host has begun to receive a payload, or does so no more."""

    log: LogKey
    seq: int


class Interests(Struct, frozen=True):
    """What this node wants and offers (point2point.md 10).

    `logs`: followed one by one; `authors`: every log of theirs that is offered; `everything`: every
    log that is offered; `own`: the logs authored here; `author`: whose they are, and of whom every
    log that is offered is wanted in full, since a peer may hold one that this store has lost, or
    never had. `serve_held`: give out logs that are merely held. `subscriptions`: what of it is
    wanted, by what is followed; in full where nothing is said. `keeps`: what is deleted of it, by
    the same, so that it is not asked for either. `fetches`: entries of a log, with
    their payloads, that are asked for once, whatever else is wanted of it; both ends included.
    `shared`: up to which entry others have own logs. What is behind that is withheld from a peer
    until it has shown that it holds nothing else (withholding.py); of a log that is not named all
    may be sent. It is read whenever it matters, so that it may grow. `contested`: own logs of which
    somebody does hold something else, so that nothing behind it is ever sent. `asked`: own logs
    of which every peer is asked what it holds, whether anything is about to be sent or not.
    `held`: the logs of which anything is held, read like `shared`; None: only the store knows.
    `scope`: what the other side may read and write (doors.md 3); None: both, all of it. Own logs
    are taken back only from who may read them.
    """

    logs: frozenset[LogKey] = frozenset()
    authors: frozenset[bytes] = frozenset()
    everything: bool = False
    own: frozenset[LogKey] = frozenset()
    author: bytes | None = None
    serve_held: bool = True
    subscriptions: Mapping[Follow, Subscription] = field(default_factory=dict)
    keeps: Mapping[Follow, KeepRule] = field(default_factory=dict)
    fetches: Mapping[LogKey, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    shared: Mapping[LogKey, int] = field(default_factory=dict)
    contested: frozenset[LogKey] = frozenset()
    asked: frozenset[LogKey] = frozenset()
    held: Container[LogKey] | None = None
    scope: Scope | None = None

    def wants(self, log: LogKey) -> bool:
        """Whether new entries of this log are taken in from the other side."""
        return self._is_asked_for(log) and (self.scope is None or self.may_take(log))

    def follows(self, log: LogKey) -> bool:
        """Whether this log is wanted from the other side, apart from what is fetched of it."""
        return self._is_followed(log) and (self.scope is None or self.may_take(log))

    def names(self, log: LogKey) -> bool:
        """Whether this log, or all of its author's, is asked for by name (doors.md 4)."""
        return log in self.logs or log.author in self.authors or log in self.fetches

    def listens(self, log: LogKey) -> bool:
        """Whether this log is followed, and may be read by the other side but not written by it."""
        if self.scope is None or self.may_take(log):
            return False
        return self.scope.may_read(log) and self._is_followed(log)

    def serves(self, log: LogKey) -> bool:
        """Whether what is held of this log is given out to the other side."""
        return self.may_give(log) and (self.serve_held or self._is_asked_for(log))

    def is_silent(self, log: LogKey) -> bool:
        """Whether the other side is not to learn that there is anything of this log here."""
        if self.scope is None or self.scope.may_read(log):
            return False
        return not self.wants(log)

    def concerns(self, log: LogKey) -> bool:
        """Whether this log is wanted, or may be held: only then is a look at the store of use."""
        if self.is_silent(log):
            return False
        return self.held is None or log in self.held or self.wants(log)

    @property
    def awaits_unknown(self) -> bool:
        """Whether logs are wanted that nobody here has heard of: they come by offers only."""
        if not (self.everything or self.authors) or self.scope is None:
            return self.everything or bool(self.authors)
        match self.scope.writes:
            case WriteScope.FOLLOWED:
                return True
            case WriteScope.OWN:
                return self.everything or self.scope.peer in self.authors
            case WriteScope.NONE:
                return False

    def may_give(self, log: LogKey) -> bool:
        """Whether the other side may read this log, served or not."""
        return self.scope is None or self.scope.may_read(log)

    def may_take(self, log: LogKey) -> bool:
        """Whether this log may be taken in from the other side, wanted or not."""
        if self.scope is None:
            return True
        return self.scope.may_write(log) and (not self._is_own(log) or self.scope.may_read(log))

    def _is_own(self, log: LogKey) -> bool:
        return log in self.own or log.author == self.author

    def _is_followed(self, log: LogKey) -> bool:
        if self.everything or log in self.logs or log in self.own:
            return True
        return log.author in self.authors or log.author == self.author

    def _is_asked_for(self, log: LogKey) -> bool:
        return self._is_followed(log) or log in self.fetches

    def subscription(self, log: LogKey) -> Subscription:
        """What is wanted of a log that `follows` names; of an own one that is all of it.

        But no payloads that would be deleted at once.
        """
        is_own = self._is_own(log)
        wanted = FULL if is_own else subscription_of(self.subscriptions, log) or FULL
        if not self.keeps:
            return wanted
        found = nearest_rule(self.keeps, log, log.author if is_own else None)
        return wanted if found is None else _kept(wanted, found[1])


@lru_cache(maxsize=256)
def _kept(wanted: Subscription, rule: KeepRule) -> Subscription:
    """One for the thousands of logs that are wanted alike."""
    return replace(wanted, kept=rule)


class InterestsChanged(Struct, frozen=True):
    """`offers` are the logs to propose: authored here or followed, in ascending order."""

    interests: Interests
    offers: tuple[LogKey, ...]


class NewestAsked(Struct, frozen=True):
    """The node wants to know which entry of some logs is the newest there: `NewestLearned` says it.

    Only of logs that are wanted. One of which it cannot be asked now is to be named again.
    """

    logs: tuple[LogKey, ...]


class SourceChanged(Struct, frozen=True):
    """Whether this session is now the one of this node that fetches a log: `claim` says the same.

    True: another session that fetched it has stopped, or brings too little. False: another one does
    it from now on; this session asks for notifications only.
    """

    log: LogKey
    fetch: bool


Event = (
    LookedUp
    | EntriesRead
    | PayloadRead
    | PayloadWithdrawn
    | Ingested
    | IngestFailed
    | PayloadWritten
    | PayloadFinished
    | StorageFailed
    | LogChanged
    | ArrivalChanged
    | InterestsChanged
    | NewestAsked
    | SourceChanged
)


def is_about_bytes(event: Event) -> bool:
    """Whether it only says that bytes of a large payload are written, or brings some to send."""
    if isinstance(event, PayloadWritten):
        return True
    return isinstance(event, PayloadRead) and bool(event.data)
