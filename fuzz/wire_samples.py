"""Entries that the corpora of wire's targets are made of."""

from nacl.signing import SigningKey

from wire import LogKey, has_distinct_lipmaalink, lipmaa, sign_entry, yamf_hash

_KEY = SigningKey(bytes(32))
LOG = LogKey(bytes(_KEY.verify_key), 7)


def _make_rows(entries: int) -> list[tuple[int, bytes, bytes]]:
    rows: list[tuple[int, bytes, bytes]] = []
    hashes: dict[int, bytes] = {}
    for seq in range(1, entries + 1):
        payload = b"payload " * (seq % 5)
        encoded = sign_entry(
            _KEY,
            log_id=LOG.log_id,
            seq=seq,
            is_end=False,
            lipmaalink=hashes[lipmaa(seq)] if has_distinct_lipmaalink(seq) else None,
            backlink=hashes.get(seq - 1),
            payload_bytes=len(payload),
            payload_hash=yamf_hash(payload),
        )
        rows.append((seq, encoded, payload))
        hashes[seq] = yamf_hash(encoded)
    return rows


ROWS = _make_rows(14)
"""(seqnum, encoding, payload) of the first entries of `LOG`."""
