"""The fast way for runs of whole entries with whole payloads, both directions (point2point.md 4).

Most of a replication is one shape: metadata without a backlink, then the payload in one raw packet.
A run of it is read in one loop over the buffered bytes, without an object for each packet. The loop
stops before anything it does not know, a broken rule included: judging is left to the decoder that
takes packets one by one, so that there is only one judge. Where only payloads come, of entries that
the receiver holds, the same goes for a run of these.
"""

from collections.abc import Iterable, MutableMapping
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple

from .data import RULE
from .entry import SIGNATURE_BYTES, LogKey, tail_fields, tail_offset
from .errors import EntryError, Violation
from .native import NATIVE
from .pools import has_distinct_lipmaalink, lipmaa
from .varu64 import U64_MAX, encode_varu64
from .yamf import HASH_BYTES, HASH_PREFIX, yamf_hash

_BEHIND_SIZE_BYTES: Final = HASH_BYTES + SIGNATURE_BYTES
"""The payload hash and the signature: what an encoding ends with."""


class RunEntry(NamedTuple):
    """An entry that came with its payload; links and signature are not verified yet."""

    seq: int
    encoded: bytes
    """Canonical encoding."""
    entry_hash: bytes
    """Yamf hash of the encoding."""
    payload: bytes


_run_entry: Final = partial(tuple.__new__, RunEntry)
"""`RunEntry._make`, which counts the fields, takes three times as long."""


class Run(NamedTuple):
    """Consecutive entries, each with its payload."""

    entries: list[RunEntry]
    mismatch: int | None
    """Index of the last entry if the hash of its payload is not the one it names, else None."""


def parse_run(
    data: bytes,
    offset: int,
    log: LogKey,
    seq: int,
    hashes: MutableMapping[int, bytes],
    *,
    entries_max: int,
    payload_bytes_max: int,
    with_backlink: bool,
) -> tuple[Run, int]:
    """Parses the run of packets at `offset`, and tells the offset behind it.

    See `DataDecoder.next_run`.
    """
    assert not with_backlink or has_distinct_lipmaalink(seq), "no backlink can be in the packet"
    if NATIVE is None or not isinstance(hashes, dict):
        return python_parse_run(
            data,
            offset,
            log,
            seq,
            hashes,
            entries_max=entries_max,
            payload_bytes_max=payload_bytes_max,
            with_backlink=with_backlink,
        )
    rows, mismatch, end = NATIVE.parse_run(
        data, offset, *log, seq, hashes, entries_max, payload_bytes_max, with_backlink
    )
    return Run(list(map(_run_entry, rows)), mismatch), end


def python_parse_run(
    data: bytes,
    offset: int,
    log: LogKey,
    seq: int,
    hashes: MutableMapping[int, bytes],
    *,
    entries_max: int,
    payload_bytes_max: int,
    with_backlink: bool,
) -> tuple[Run, int]:
    """`parse_run` without the native core."""
    entries: list[RunEntry] = []
    starts = (
        b"\x00" + log.author + encode_varu64(log.log_id),
        b"\x01" + log.author + encode_varu64(log.log_id),
    )
    size = len(data)
    last = min(seq + entries_max - 1, U64_MAX)
    while seq <= last:
        # 128 or 129 | [backlink, 66] | size, V | payload hash, 66 | signature, 64 | 8 | V n | bytes
        at = offset + 1 + HASH_BYTES if with_backlink else offset + 1
        if at >= size or data[offset] >> 1 != 64:
            break
        n = data[at]
        hash_at = at + 1
        if n >= 248:
            hash_at += n - 247
            n = int.from_bytes(data[at + 1 : hash_at], "big")
            if encode_varu64(n) != data[at:hash_at]:
                break
        tail_end = hash_at + HASH_BYTES + SIGNATURE_BYTES
        # The packet of the payload states the same size, in the same bytes.
        payload_at = tail_end + 1 + hash_at - at
        end = payload_at + n
        if (
            end > size
            or n > payload_bytes_max
            or data[tail_end] != 8
            or data[tail_end + 1 : payload_at] != data[at:hash_at]
            or data[hash_at : hash_at + 2] != HASH_PREFIX
        ):
            break
        links = _links(seq, data[offset + 1 : at], hashes)
        if links is None:
            break
        with_backlink = False
        tag = data[offset] & 1
        number = encode_varu64(seq)
        encoded = b"".join((starts[tag], number, links, data[at:tail_end]))
        entry_hash = HASH_PREFIX + blake2b(encoded).digest()
        payload = data[payload_at:end]
        hashes[seq] = entry_hash
        entries.append(RunEntry(seq, encoded, entry_hash, payload))
        offset = end
        if blake2b(payload).digest() != data[hash_at + 2 : hash_at + HASH_BYTES]:
            return Run(entries, len(entries) - 1), offset
        if tag:
            break
        seq += 1
    return Run(entries, None), offset


def python_parse_payloads(
    data: bytes,
    offset: int,
    log_id: int,
    seq: int,
    encodings: Iterable[bytes],
    payload_bytes_max: int,
) -> tuple[list[bytes], int]:
    """Parses the payloads at `offset` of consecutive entries from `seq` on, which have these
    encodings, and tells the offset behind them. See `DataDecoder.next_payloads`."""
    payloads: list[bytes] = []
    for n, encoded in enumerate(encodings, seq):
        # 8 | V n | bytes
        try:
            size, payload_hash = tail_fields(encoded[tail_offset(log_id, n) :])
        except EntryError:
            break
        header = b"\x08" + encode_varu64(size)
        start = offset + len(header)
        end = start + size
        if size > payload_bytes_max or end > len(data) or not data.startswith(header, offset):
            break
        payload = data[start:end]
        if yamf_hash(payload) != payload_hash:
            break
        payloads.append(payload)
        offset = end
    return payloads, offset


parse_payloads: Final = python_parse_payloads if NATIVE is None else NATIVE.parse_payloads
"""The same, by the native core if there is one; `encodings` is a list."""


def _links(seq: int, given: bytes, hashes: MutableMapping[int, bytes]) -> bytes | None:
    """The links of entry `seq`, its backlink being `given` unless that is empty.

    None if they are not known, or the given one is not the one that is.
    """
    if seq == 1:
        return b""
    back = hashes.get(seq - 1)
    if given:
        if given[:2] != HASH_PREFIX or back not in (None, given):
            return None
        back = given
    link = lipmaa(seq)
    lipmaalink = b"" if link == seq - 1 else hashes.get(link)
    if back is None or lipmaalink is None:
        return None
    return lipmaalink + back


def encode_run(rows: Iterable[tuple[int, bytes, bytes]], first_with_backlink: bool) -> bytes:
    """The packets of entries with their payloads, each payload in one raw packet.

    `rows` are (seqnum, encoding, payload), ascending and without gaps, so that only the first may
    need to carry its backlink. Encodings and payloads are trusted to belong together, each payload
    having the size that its entry states. Raises Violation if the first is to carry a backlink
    that the receiver always has (see `encode_metadata_packet`).
    """
    parts: list[bytes] = []
    for seq, encoded, payload in rows:
        # Found from the end: how many links there are before it takes as long to say as all else.
        size = encode_varu64(len(payload))
        offset = len(encoded) - _BEHIND_SIZE_BYTES - len(size)
        if first_with_backlink:
            if not has_distinct_lipmaalink(seq):
                raise Violation(RULE, f"the metadata of entry {seq} never carries a backlink")
            offset -= HASH_BYTES
            first_with_backlink = False
        parts += (b"\x81" if encoded[0] else b"\x80", encoded[offset:], b"\x08", size, payload)
    return b"".join(parts)
