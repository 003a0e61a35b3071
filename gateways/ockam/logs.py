"""Streams and the logs that they are: found, made, appended to and read (sections 3.2 to 3.4, 4).

All of it blocks, and may be called from any thread.
"""

import itertools
import logging
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from gateways import Sign, create_logs, free_ids, read_to_damage
from gateways.ockam.codec import DATA_BYTES_MAX
from gateways.ockam.declared import INDEX_OF_SEQ, LEDGER_DECLARATION, declare_stream
from gateways.ockam.outcomes import (
    TOO_MANY_STREAMS,
    UNAVAILABLE,
    UNKNOWN_STREAM,
    Made,
    Outcome,
    message_bytes,
)
from logstore import (
    FULL,
    LogClosed,
    LogInfo,
    LogState,
    PayloadState,
    PolicyKind,
    Store,
    StoreDamaged,
    StoredEntry,
    StoreError,
    Subscription,
    subscription_of,
)
from wire import U64_MAX, LogKey, lower_pool

from .side import Run, Side, Stream

log = logging.getLogger(__name__)

FIRST_LOG: Final = 4_000_000_000_000
LOGS: Final = 1_000_000_000
STREAMS_MAX: Final = 100_000
LEDGER_ATTEMPTS: Final = 100
"""Logs that somebody else has taken meanwhile before no ledger is made."""
_FIRST_MESSAGE: Final = INDEX_OF_SEQ
_READ_ENTRIES: Final = 256
_ENTRY_BYTES: Final = 400
"""An encoding, at most."""
_RUN_MIN: Final = 64
"""Shorter runs are found again as quickly as they are looked up."""
_CACHED_MAX: Final = 100_000


class Push(NamedTuple):
    """A message for a stream; None: one that is refused, if there is such a stream."""

    address: str
    data: bytes | None


class Catalog:
    """The streams of this node's author and of those in `of`, in their order.

    `sign`: `Store.append_many`, or what does the same. `streams_max`: how many logs clients may
    make. `first_log`: where the logs of the gateway begin. Raises StoreError where it is not said
    otherwise.
    """

    def __init__(
        self,
        store: Store,
        side: Side,
        *,
        of: Sequence[bytes] = (),
        sign: Sign | None = None,
        streams_max: int = STREAMS_MAX,
        first_log: int = FIRST_LOG,
    ) -> None:
        self.store: Final = store
        self.side: Final = side
        self.own: Final = store.author
        self.authors: Final = tuple(dict.fromkeys((store.author, *of)))
        self.first_log: Final = first_log
        self.last_log: Final = min(first_log + LOGS - 1, U64_MAX)
        self.sign: Final[Sign] = sign or store.append_many
        self._streams_max = streams_max
        self._cache: dict[str, Stream] = {}
        self._closed: set[LogKey] = set()
        self.seldom: Final = side.seldom

    def refresh(self) -> None:
        """Takes in what other processes and peers have brought."""
        if self.side.refresh():
            # A log with a lower id may have taken the place of one that is known.
            self._cache.clear()

    # Streams -------------------------------------------------------------------------------------

    def owner(self, name: str) -> bytes:
        """The author whose stream a name means; this node's where it is nobody's."""
        for author in self.authors:
            if self.side.has_name(author, name):
                return author
        return self.own

    def find(self, name: str, partition: int) -> Stream | None:
        """One partition of the stream of this name."""
        return self.side.stream(self.owner(name), name, partition)

    def at(self, address: str) -> Stream | None:
        """The stream with an address; what is unknown is looked for in the store."""
        found = self._cache.get(address) or self.side.by_address(address, self.authors)
        if found is None:
            self.refresh()
            found = self.side.by_address(address, self.authors)
        if found is not None:
            if len(self._cache) >= _CACHED_MAX:
                self._cache.clear()
            self._cache[address] = found
        return found

    def key_of(self, address: str) -> LogKey | None:
        """The log at an address that was used lately. Does not block."""
        found = self._cache.get(address)
        return None if found is None else found.key

    def all(self, name: str | None = None) -> list[Stream]:
        """The streams that are served, by author, name and partition; or those of a name."""
        found = [each for author in self.authors for each in self.side.streams(author, name)]
        first: dict[str, bytes] = {}
        for each in found:
            first.setdefault(each.name, each.key.author)
        return [each for each in found if first[each.name] == each.key.author]

    def make(self, name: str | None, partitions: int, *, may_make: bool) -> Made:
        """Finds partitions 0 to `partitions` - 1, and makes those that lack; never raises.

        By one caller at a time: two would make two logs of one name.
        """
        try:
            return self._make(name, partitions, may_make=may_make)
        except StoreError as error:
            self.seldom.warn(log, "make", f"streams cannot be made: {error}")
            return Made(name or "", (), UNAVAILABLE)

    def _make(self, name: str | None, partitions: int, *, may_make: bool) -> Made:
        self.refresh()
        if name is None:
            name = self._new_name()
        owner = self.owner(name)
        found = self._partitions(owner, name, partitions)
        lacking = [number for number in range(partitions) if number not in found]
        failure = ""
        if lacking:
            if not may_make or owner != self.own:
                failure = UNKNOWN_STREAM
            elif self.side.count_streams(self.own) + len(lacking) > self._streams_max:
                failure = TOO_MANY_STREAMS
            else:
                try:
                    self._declare(name, lacking)
                except StoreError as error:
                    self.seldom.warn(log, "make", f"streams cannot be made: {error}")
                    failure = UNAVAILABLE
                found = self._partitions(owner, name, partitions)
        return Made(name, sorted(found.items()), failure)

    def _new_name(self) -> str:
        while True:
            name = f"generated_{secrets.token_hex(4)}"
            if not any(self.side.has_name(each, name) for each in self.authors):
                return name

    def _partitions(self, author: bytes, name: str, below: int) -> dict[int, str]:
        if below == 1:
            one = self.side.stream(author, name, 0)
            return {} if one is None else {0: one.address}
        return {
            each.partition: each.address
            for each in self.side.streams(author, name)
            if each.partition < below
        }

    def _declare(self, name: str, partitions: Sequence[int]) -> None:
        """Signs entry 1 of new logs, above the highest in use: all of them or none."""
        highest = self.side.highest_log(self.own, self.first_log, self.last_log)
        above = self.first_log if highest is None else highest + 1
        declarations = [declare_stream(name, number) for number in partitions]
        create_logs(self.sign, declarations, itertools.count(above), last=self.last_log)
        self.refresh()

    def ledger(self) -> LogKey:
        """The log of this node's ledger, which is made if there is none.

        Raises StoreDamaged where one that cannot be read may be it: of two, the other nodes would
        go on with the one and this one with the other.
        """
        found = self.side.ledger(self.own)
        if found is not None:
            return found.key
        for id_ in itertools.islice(free_ids(self.store, self.first_log), LEDGER_ATTEMPTS):
            self.side.refresh()
            found = self.side.ledger(self.own)
            if found is not None:
                return found.key
            unmet = self.side.first_unmet(self.own, self.first_log, id_)
            if unmet is not None:
                raise StoreDamaged(
                    "entry 1 cannot be read, and may be that of the ledger",
                    str(LogKey(self.own, unmet)),
                    "fetch it from a peer that holds it, or restore a backup",
                )
            # One id at a time: whoever is quicker there may be making the ledger.
            with suppress(LogClosed):
                create_logs(self.sign, [LEDGER_DECLARATION], [id_])
        raise LogClosed("no log is free for the ledger", str(self.first_log), "try again later")

    # Appending -----------------------------------------------------------------------------------

    def append(self, pushes: Sequence[Push]) -> tuple[list[int | Outcome], StoreError | None]:
        """Stores messages in one transaction; an index for each, once all are on disk.

        Never raises a StoreError: it says why nothing could be stored at all.
        """
        try:
            places, outcomes = self._places(pushes)
        except StoreError as error:
            return [Outcome.REFUSED] * len(pushes), error
        try:
            self._append(pushes, places, outcomes)
        except StoreError as error:
            return outcomes, error
        return outcomes, None

    def _places(
        self, pushes: Sequence[Push]
    ) -> tuple[dict[LogKey, list[int]], list[int | Outcome]]:
        """Which messages go to which own log, and what becomes of those that go nowhere."""
        outcomes: list[int | Outcome] = [Outcome.UNKNOWN] * len(pushes)
        places: dict[LogKey, list[int]] = {}
        for at, push in enumerate(pushes):
            stream = self.at(push.address)
            if stream is None:
                continue
            outcomes[at] = Outcome.REFUSED
            is_ours = stream.key.author == self.own and stream.key not in self._closed
            if is_ours and push.data is not None:
                places.setdefault(stream.key, []).append(at)
        return places, outcomes

    def _append(
        self,
        pushes: Sequence[Push],
        places: dict[LogKey, list[int]],
        outcomes: list[int | Outcome],
    ) -> None:
        while places:
            batches = [
                (key.log_id, [data for at in found if (data := pushes[at].data) is not None])
                for key, found in places.items()
            ]
            try:
                appended = self.sign(batches)
            except StoreError as error:
                if error.log is None or error.log not in places:
                    raise
                # One log keeps nothing from the others: its messages are refused.
                name = str(error.log)
                self.seldom.warn(log, f"append {name}", f"pushes to {name} are refused: {error}")
                for key in self._left_out(error, error.log, places):
                    del places[key]
                continue
            for found, entries in zip(places.values(), appended, strict=True):
                for at, entry in zip(found, entries, strict=True):
                    outcomes[at] = entry.seq - INDEX_OF_SEQ
            return

    def _left_out(
        self, error: StoreError, failed: LogKey, keys: Iterable[LogKey]
    ) -> Iterable[LogKey]:
        """The logs that are not appended to with those of a batch that failed because of one."""
        if not isinstance(error, LogClosed):
            # Damage may be mended, and what peers hold may come.
            return (failed,)
        # Each would cost the others a transaction. A contested one is live and shows by its error.
        closed = {failed, *(key for key in keys if not self._is_open(key))}
        self._closed |= closed
        return closed

    def _is_open(self, key: LogKey) -> bool:
        info = self.store.log(key)
        return info is None or info.state is LogState.LIVE

    def end(self, streams: Sequence[Stream]) -> list[int]:
        """Ends the logs of own streams, all or none; the index that a next message would have had.

        One of each.
        """
        ids = [stream.key.log_id for stream in streams]
        ended = self.sign([(id_, [b""]) for id_ in ids], ending=ids)
        self._closed.update(stream.key for stream in streams)
        return [entries[-1].seq - INDEX_OF_SEQ for entries in ended]

    # Reading -------------------------------------------------------------------------------------

    def next_index(self, stream: Stream) -> int:
        """The index that the next message gets."""
        return next_index(self.store.log(stream.key))

    def read(self, stream: Stream, index: int, limit: int, room: int) -> list[tuple[int, bytes]]:
        """Messages from `index` on: index and data of each.

        `room`: bytes that their indexes, lengths and data may take. What is damaged is said once a
        minute, and ends the list.
        """
        messages: list[tuple[int, bytes]] = []
        seq = index + INDEX_OF_SEQ
        info = self.store.log(stream.key) if limit and seq <= U64_MAX else None
        while info is not None and len(messages) < limit:
            if seq > min(info.newest, info.servable):
                # Entries that have come since the log was looked at are for the next pull.
                break
            count = min(limit - len(messages), _READ_ENTRIES)
            size = room + _ENTRY_BYTES * count
            try:
                page = read_to_damage(
                    self.store, stream.key, seq, entries_max=count, bytes_max=size
                )
            except StoreDamaged as error:
                self.seldom.warn(
                    log, str(error.where), f"{stream.name}/{stream.partition}: {error}"
                )
                break
            before = seq
            seq, room, is_full = _take(page, seq, room, messages)
            if is_full:
                break
            if seq == before:
                beyond = self._step_over(stream, info, seq)
                if beyond is None:
                    break
                seq = beyond
        return messages

    def _step_over(self, stream: Stream, info: LogInfo, seq: int) -> int | None:
        """The entry behind a run that holds no message, None if one of it is on its way."""
        wanted = self._wanted(stream.key)
        lack = _lack_of(info, wanted)
        first = max(seq, self.side.earliest(stream.key) + INDEX_OF_SEQ)
        run = self.side.run_at(stream, seq, lack)
        if run is not None and not self._is_fetched(stream.key, first, run.last):
            return run.last + 1
        last = min(info.newest, info.servable)
        following = self.store.next_payload(stream.key, seq) or last + 1
        if following <= seq:
            return None
        if first < following and not self._is_passable(
            stream.key, first, following - 1, info.newest, wanted
        ):
            return None
        if following - seq >= _RUN_MIN:
            # What cannot be remembered, on a full disk, is found again.
            with suppress(StoreError):
                self.side.add_run(stream, Run(seq, following - 1), lack)
        return following

    def _is_fetched(self, key: LogKey, first: int, last: int) -> bool:
        """Whether entries are asked for once, whatever is followed, and so on their way."""
        fetched = self.store.wants().get(key, ())
        return any(low <= last and high >= first for low, high in fetched)

    def _wanted(self, key: LogKey) -> Subscription | None:
        if key.author == self.own:
            return FULL
        return subscription_of(self.store.subscriptions(), key)

    def _is_passable(
        self, key: LogKey, first: int, last: int, newest: int, wanted: Subscription | None
    ) -> bool:
        """Whether nothing of entries without payloads is on its way."""
        if self._is_fetched(key, first, last):
            return False
        if wanted is None:
            return True
        low, high = wanted.bounds(newest)
        first, last = max(first, low), min(last, high)
        if first > last:
            return True
        if wanted.kind is not PolicyKind.SPARSE:
            if not self.store.is_held(key, first, last):
                return False
            sizes = wanted.payload_limits
            missing = self.store.missing_payloads(key, first, sizes=sizes, limit=1)
            return not missing or missing[0] > last
        # The path to entry 1 alone is wanted, which is a few dozen entries of any log.
        for seq in lower_pool(newest):
            if first <= seq <= last:
                entry = self.store.entry(key, seq)
                is_gone = entry is not None and entry.payload_state is PayloadState.DELETED
                if not is_gone and (entry is None or wanted.wants_payload(entry.payload_bytes)):
                    return False
        return True


def next_index(info: LogInfo | None) -> int:
    """The index that the next message of a log gets, as far as it is held."""
    if info is None:
        return 0
    last = info.newest if info.end_seq is None else info.end_seq - 1
    return max(0, min(last, info.servable) + 1 - INDEX_OF_SEQ)


def _is_message(entry: StoredEntry) -> bool:
    """Whether an entry's payload is a message that a pull may give out."""
    is_end = entry.encoded[0] != 0
    return (
        entry.seq >= _FIRST_MESSAGE
        and entry.payload is not None
        and len(entry.payload) <= DATA_BYTES_MAX
        and not is_end
    )


def _take(
    page: Sequence[StoredEntry], seq: int, room: int, messages: list[tuple[int, bytes]]
) -> tuple[int, int, bool]:
    """Adds the messages that follow each other from `seq` on.

    The entry behind them, the room that is left, and whether it was too little for the next one.
    Entries that hold no message by themselves are passed.
    """
    for entry in page:
        if entry.seq != seq or entry.payload_state is not PayloadState.PRESENT:
            break
        if _is_message(entry):
            assert entry.payload is not None
            size = message_bytes(seq - INDEX_OF_SEQ, entry.payload)
            if size > room:
                return seq, room, True
            room -= size
            messages.append((seq - INDEX_OF_SEQ, entry.payload))
        seq += 1
    return seq, room, False


def _lack_of(info: LogInfo, wanted: Subscription | None) -> str:
    """What a log lacks and what is wanted of it: while that is the same, so are its gaps."""
    deleted = info.entries - info.payloads - info.missing_payloads
    absent = info.newest - info.entries
    limits = "" if wanted is None else f"{wanted} {wanted.payload_limits}"
    return f"{info.missing_payloads} {deleted} {absent} {limits}"
