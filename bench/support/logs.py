"""Signed logs for benchmarks that store what others wrote."""

from collections.abc import Iterable

from nacl.signing import SigningKey

from logstore import NewEntry
from wire import lipmaa, sign_entry, yamf_hash


def signed_log(key: SigningKey, log_id: int, payloads: Iterable[bytes]) -> list[NewEntry]:
    """A log with these payloads, from entry 1 on."""
    hashes: list[bytes | None] = [None]
    entries = []
    for seq, payload in enumerate(payloads, 1):
        target = lipmaa(seq)
        encoded = sign_entry(
            key,
            log_id=log_id,
            seq=seq,
            is_end=False,
            lipmaalink=hashes[target] if target != seq - 1 else None,
            backlink=hashes[seq - 1],
            payload_bytes=len(payload),
            payload_hash=yamf_hash(payload),
        )
        entry_hash = yamf_hash(encoded)
        hashes.append(entry_hash)
        entries.append(NewEntry(seq, encoded, entry_hash, payload))
    return entries
