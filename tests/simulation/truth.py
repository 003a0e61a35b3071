"""Everything that was ever signed in a world, and by whom: what a store may hold, and no more."""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache

from nacl.signing import SigningKey

from logstore import StoredEntry
from peer.protocol.notices import Notice
from tests.records import replace
from wire import (
    LogKey,
    decode_entry,
    has_distinct_lipmaalink,
    lipmaa,
    sign_entry,
    signature_is_valid,
    yamf_hash,
)

is_signed = cache(signature_is_valid)
"""The real check, once for each entry."""


class Broken(AssertionError):  # noqa: N818 - an invariant is what is broken
    """Something that must hold in every world does not hold in this one."""


@dataclass(frozen=True, slots=True)
class Made:
    """A signed entry and its payload."""

    seq: int
    encoded: bytes
    hash: bytes
    payload: bytes | None


@dataclass(slots=True)
class Truth:
    """The entries of all logs. One that forks has several for one number."""

    forking: set[bytes] = field(default_factory=set)
    """Authors who may sign a number twice."""
    entries: dict[LogKey, dict[int, set[bytes]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )
    """The hashes of what was signed under each number."""
    forked_at: dict[LogKey, int] = field(default_factory=dict)
    wrong_sizes: dict[LogKey, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The entries whose payloads have another size than was signed: nobody can ever hold them."""

    def add(self, log: LogKey, seq: int, entry_hash: bytes) -> None:
        """Takes note of a signed entry. Raises Broken if an honest author signs a number twice."""
        known = self.entries[log][seq]
        if entry_hash in known:
            return
        if known:
            if log.author not in self.forking:
                raise Broken(f"the author of {short(log)} signed {seq} twice")
            self.forked_at[log] = min(self.forked_at.get(log, seq), seq)
        known.add(entry_hash)

    def check(self, entry: StoredEntry, payload: bytes | None) -> None:
        """An entry that some store holds, and its payload if that is there. Raises Broken."""
        what = f"entry {entry.seq} of {short(entry.key)}"
        made = decode_entry(entry.encoded)
        if (made.key, made.seq) != (entry.key, entry.seq) or not is_signed(entry.encoded):
            raise Broken(f"{what} was signed by nobody")
        if yamf_hash(entry.encoded) != entry.hash:
            raise Broken(f"{what} has another hash")
        self.add(entry.key, entry.seq, entry.hash)
        if payload is not None and entry.seq in self.wrong_sizes[entry.key]:
            raise Broken(f"{what} counts as complete, though its author lied about its payload")
        right = (made.payload_bytes, made.payload_hash)
        if payload is not None and (len(payload), yamf_hash(payload)) != right:
            raise Broken(f"{what} has a payload that is not its own")


@dataclass(slots=True)
class ForkingAuthor:
    """Signs what it likes: several histories of one log, which begin alike."""

    key: SigningKey
    log_id: int
    fork_at: int
    branches: tuple[dict[int, Made], dict[int, Made]] = field(default_factory=lambda: ({}, {}))

    @property
    def log(self) -> LogKey:
        return LogKey(bytes(self.key.verify_key), self.log_id)

    def extend(self, branch: int, rng: random.Random, truth: Truth) -> Made:
        """The next entry of one of the histories."""
        held = self.branches[branch]
        seq = len(held) + 1
        shared = self.branches[1 - branch].get(seq) if seq < self.fork_at else None
        made = held[seq] = shared or self._sign(held, seq, rng.randbytes(rng.choice((0, 9, 300))))
        truth.forking.add(self.log.author)
        truth.add(self.log, seq, made.hash)
        return made

    def _sign(self, held: dict[int, Made], seq: int, payload: bytes) -> Made:
        encoded = _encode(self.key, self.log_id, held, seq, payload, len(payload))
        return Made(seq, encoded, yamf_hash(encoded), payload)


@dataclass(slots=True)
class SizeLiar:
    """Signs other sizes than those of the payloads, now and then.

    Nobody can have such a payload; and who gets to see its bytes knows that the log is invalid from
    there on, which the protocol has no words for.
    """

    key: SigningKey
    log_id: int
    made: dict[int, Made] = field(default_factory=dict)
    payloads: dict[int, bytes] = field(default_factory=dict)
    """Of the entries with a wrong size."""

    @property
    def log(self) -> LogKey:
        return LogKey(bytes(self.key.verify_key), self.log_id)

    def extend(self, rng: random.Random, truth: Truth) -> Made:
        """The next entry; one in three has a payload of another size than it says."""
        seq = len(self.made) + 1
        payload = rng.randbytes(rng.choice((1, 9, 300, 70_000)))
        size = len(payload)
        if rng.random() < 1 / 3:
            size = rng.choice((size - 1, size + 1, 0, 100_000))
            self.payloads[seq] = payload
            truth.wrong_sizes[self.log].add(seq)
        encoded = _encode(self.key, self.log_id, self.made, seq, payload, size)
        kept = None if seq in self.payloads else payload
        made = self.made[seq] = Made(seq, encoded, yamf_hash(encoded), kept)
        truth.add(self.log, seq, made.hash)
        return made

    def with_payload(self, seq: int) -> Made:
        """An entry with a wrong size, and its payload."""
        return replace(self.made[seq], payload=self.payloads[seq])


def _encode(
    key: SigningKey, log_id: int, held: dict[int, Made], seq: int, payload: bytes, size: int
) -> bytes:
    return sign_entry(
        key,
        log_id=log_id,
        seq=seq,
        is_end=False,
        lipmaalink=held[lipmaa(seq)].hash if has_distinct_lipmaalink(seq) else None,
        backlink=held[seq - 1].hash if seq > 1 else None,
        payload_bytes=size,
        payload_hash=yamf_hash(payload),
    )


def short(log: LogKey) -> str:
    """A log's name, for traces."""
    return f"{log.author.hex()[:6]}/{log.log_id}"


def notice_line(notice: Notice) -> str:
    """A notice, for traces."""

    def written(value: object) -> str:
        return short(value) if isinstance(value, LogKey) else str(value)[:12]

    names = (*getattr(notice, "__struct_fields__", ()),)
    fields = [f"{name}={written(getattr(notice, name))}" for name in names]
    return f"{type(notice).__name__}({' '.join(fields)})"
