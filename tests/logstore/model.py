"""A store as plain dictionaries, written from bamboo.md and not from the store's code.

Everything is looked for by walking all that is held: slow, and obvious.
"""

from dataclasses import dataclass, field

from logstore import Follow, LogState, PayloadState, Subscription
from wire import LogKey, decode_entry, lipmaa, yamf_hash


@dataclass
class ModelEntry:
    """An entry and what is held of its payload."""

    encoded: bytes
    payload: bytes | None
    deleted: bool = False

    @property
    def state(self) -> PayloadState:
        if self.payload is not None:
            return PayloadState.PRESENT
        return PayloadState.DELETED if self.deleted else PayloadState.MISSING


@dataclass
class ModelLog:
    """A log and what is known against it."""

    entries: dict[int, ModelEntry] = field(default_factory=dict)
    fork: tuple[int, bytes, bytes] | None = None

    @property
    def limit(self) -> int:
        ends = [seq for seq, held in self.entries.items() if decode_entry(held.encoded).is_end]
        forks = [] if self.fork is None else [self.fork[0] - 1]
        return min([2**64 - 1, *ends, *forks])

    def served(self) -> dict[int, ModelEntry]:
        return {seq: self.entries[seq] for seq in sorted(self.entries) if seq <= self.limit}

    @property
    def height(self) -> int:
        height = 0
        while height + 1 in self.served():
            height += 1
        return height

    def runs(self) -> list[tuple[int, int]]:
        seqs = set(self.served())
        return [
            (first, next(n for n in range(first, first + len(seqs)) if n + 1 not in seqs))
            for first in sorted(seqs)
            if first - 1 not in seqs
        ]

    @property
    def state(self) -> LogState:
        if self.fork is not None:
            return LogState.FORKED
        if any(decode_entry(held.encoded).is_end for held in self.entries.values()):
            return LogState.ENDED
        return LogState.LIVE


@dataclass
class ModelStore:
    """Logs by their keys, and the feed of changes."""

    logs: dict[LogKey, ModelLog] = field(default_factory=dict)
    feed: list[tuple[LogKey, int]] = field(default_factory=list)
    """The last change of each entry, in order."""
    follows: dict[Follow, Subscription] = field(default_factory=dict)
    asked: dict[LogKey, set[tuple[int, int]]] = field(default_factory=dict)
    """What is wanted, also what is held meanwhile."""

    def wants(self, key: LogKey) -> list[tuple[int, int]]:
        """What is wanted and not held."""
        log = self.logs.get(key, ModelLog())
        return [
            (first, last)
            for first, last in sorted(self.asked.get(key, set()))
            if not all(
                seq in log.entries and log.entries[seq].payload is not None
                for seq in range(first, min(last, log.limit) + 1)
            )
        ]

    def askable(self, key: LogKey) -> list[int]:
        """The entries that may be served and whose payloads may be asked for."""
        return [
            seq
            for seq, held in self.logs.get(key, ModelLog()).served().items()
            if held.state is PayloadState.MISSING
            or (
                held.state is PayloadState.DELETED
                and any(first <= seq <= last for first, last in self.wants(key))
            )
        ]

    def settle(self) -> None:
        """Forgets what is wanted and held; it is never wanted again by itself."""
        self.asked = {key: set(self.wants(key)) for key in self.asked}

    def touch(self, key: LogKey, seq: int) -> None:
        if (key, seq) in self.feed:
            self.feed.remove((key, seq))
        self.feed.append((key, seq))

    def put(self, key: LogKey, seq: int, encoded: bytes, payload: bytes | None) -> bool:
        """Whether the entry is accepted, which is not to say that it is new."""
        log = self.logs.get(key, ModelLog())
        if log.fork is not None and seq >= log.fork[0]:
            return True
        entry = decode_entry(encoded)
        held = log.entries.get(seq)
        if held is not None and held.encoded != encoded:
            log.fork = (seq, held.encoded, encoded)
            return True
        right = payload is None or (
            len(payload) == entry.payload_bytes and yamf_hash(payload) == entry.payload_hash
        )
        if held is not None:
            if held.payload is None and payload is not None:
                if not right:
                    return False
                held.payload = payload
                self.touch(key, seq)
            return True
        if seq > log.limit or not right or not self._fits(log, seq, encoded):
            return False
        log.entries[seq] = ModelEntry(encoded, payload)
        self.logs[key] = log
        self.touch(key, seq)
        return True

    @staticmethod
    def _fits(log: ModelLog, seq: int, encoded: bytes) -> bool:
        """Every link between the entry and one that is held is right, and one leads down."""
        entry = decode_entry(encoded)
        path = seq == 1
        for target, link in ((seq - 1, entry.backlink), (lipmaa(seq), entry.lipmaalink)):
            if link is not None and target in log.entries:
                if yamf_hash(log.entries[target].encoded) != link:
                    return False
                path = True
        for other, held in log.entries.items():
            above = decode_entry(held.encoded)
            links = ((other - 1, above.backlink), (lipmaa(other), above.lipmaalink))
            for target, link in links:
                if link is not None and target == seq and link != yamf_hash(encoded):
                    return False
        return path

    def drop(self, key: LogKey, first: int, last: int) -> int:
        """How many payloads were deleted."""
        count = 0
        asked = self.asked.get(key, set())
        if key in self.logs:
            asked -= {(low, high) for low, high in asked if max(low, first) <= min(high, last)}
        log = self.logs.get(key, ModelLog())
        for seq in sorted(log.entries):
            held = log.entries[seq]
            if first <= seq <= last and held.payload is not None:
                held.payload, held.deleted = None, True
                self.touch(key, seq)
                count += 1
        return count

    def changes(self) -> list[tuple[LogKey, int, PayloadState]]:
        """The feed, of what may be served."""
        found = []
        for key, seq in self.feed:
            log = self.logs[key]
            if seq <= log.limit:
                found.append((key, seq, log.entries[seq].state))
        return found
