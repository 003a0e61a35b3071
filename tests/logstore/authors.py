"""Logs made outside of any store, honest ones and others."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from nacl.signing import SigningKey

from logstore import NewEntry
from wire import LogKey, lipmaa, sign_entry, yamf_hash


def signing_key(number: int) -> SigningKey:
    """The same key for the same number."""
    return SigningKey(number.to_bytes(32, "big"))


@dataclass
class AuthorLog:
    """One author's log: entries are made on demand, in any order that their links allow."""

    number: int = 1
    log_id: int = 0
    entries: dict[int, NewEntry] = field(default_factory=dict)

    @property
    def key(self) -> LogKey:
        return LogKey(bytes(signing_key(self.number).verify_key), self.log_id)

    def make(
        self,
        seq: int,
        payload: bytes | None = b"payload",
        *,
        held: bool = True,
        is_end: bool = False,
        payload_bytes: int | None = None,
        payload_hash: bytes | None = None,
        backlink: bytes | None = None,
        lipmaalink: bytes | None = None,
    ) -> NewEntry:
        """Signs entry `seq`; links whose targets were never made are hashes of nothing."""
        target = lipmaa(seq)
        if seq > 1 and backlink is None:
            backlink = self._hash(seq - 1)
        if target and target != seq - 1 and lipmaalink is None:
            lipmaalink = self._hash(target)
        content = payload or b""
        encoded = sign_entry(
            signing_key(self.number),
            log_id=self.log_id,
            seq=seq,
            is_end=is_end,
            lipmaalink=lipmaalink,
            backlink=backlink,
            payload_bytes=len(content) if payload_bytes is None else payload_bytes,
            payload_hash=payload_hash or yamf_hash(content),
        )
        return NewEntry(seq, encoded, yamf_hash(encoded), payload if held else None)

    def add(self, seq: int, payload: bytes | None = b"payload", **how: int) -> NewEntry:
        """Makes an entry that later ones link to."""
        entry = self.entries[seq] = self.make(seq, payload, **how)  # type: ignore[arg-type]
        return entry

    def add_all(self, seqs: Iterable[int]) -> list[NewEntry]:
        """Makes several entries, each with a payload of its own."""
        return [self.add(seq, b"payload %d" % seq) for seq in seqs]

    def _hash(self, seq: int) -> bytes:
        entry = self.entries.get(seq)
        return yamf_hash(b"nobody %d" % seq) if entry is None else entry.hash
