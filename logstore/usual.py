"""The usual rows of entries, many at once: what is to be written or filled in, and what was read.

Theory. Nearly all of a store goes by in one shape: an entry behind the one before it, its payload
small and with it. Each rule that it has to keep is one comparison, and made one by one, entry by
entry, they took four times as long as the database. So a run of such entries is looked at in one
loop, which the native core has without the interpreter's lock for the part that is long: hashing.

The loop judges nothing. It stops before what is otherwise in any way, a broken rule included, and
leaves that to those who know each rule and what follows from it (foreign.py, reading.py). So there
is one judge, and whatever stops the loop without need costs time alone.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from wire import (
    HASH_BYTES,
    NATIVE,
    SIGNATURE_BYTES,
    EntryError,
    LogKey,
    NeedMore,
    decode_varu64_canonical,
    encode_varu64,
    lipmaa,
    tail_offset,
    yamf_hash,
)

from .records import NewEntry, PayloadState, StoredEntry
from .rows import entry_tag, pack_u64, unpack_u64
from .schema import PAYLOAD_INLINE, PAYLOAD_MISSING

PAYLOAD_HASH: Final = slice(-HASH_BYTES - SIGNATURE_BYTES, -SIGNATURE_BYTES)
"""The payload hash and the signature are what an encoding ends with."""

EntryRow = tuple[int, int, bytes, int, int, int, bytes, bytes, bytes | None]
"""A row of `entries` as it is written."""
ReadRow = tuple[int, bytes, int, int, bytes, bytes, bytes | None]
"""One as it is read: ingest, seq, received_at, payload_state, hash, encoded, payload."""
_Found = tuple[list[EntryRow], int, int]
_stored: Final = partial(tuple.__new__, StoredEntry)


class Place(NamedTuple):
    """What the rows of a run have in common; `ingest` is that of the first."""

    author: bytes
    log_id: int
    row_id: int
    ingest: int
    received_at: int
    state: int = PAYLOAD_INLINE


def python_rows_to_write(
    entries: Sequence[object],
    start: int,
    place: Place,
    hashes: dict[int, bytes],
    encodings: dict[int, bytes],
    hash_of: Callable[[int], bytes | None],
) -> _Found:
    """The rows of a run of new entries that begins at an index, and the bytes of their encodings
    and of their payloads; of none if the first one is unusual.

    None of them may be held, nor anything that links to them. `hashes` and `encodings` learn what
    is taken; `hash_of` tells the hash of an entry that is not among `hashes`, None if it is not
    held. Each link has to name what is held, and one of an entry's has to be (foreign.py).
    """
    # An end of the log, whose tag is 1, limits what is held of it.
    begin = b"\x00" + place.author + encode_varu64(place.log_id)
    _, _, row_id, ingest, received_at, state = place
    rows: list[EntryRow] = []
    encoded_bytes = payload_bytes = 0
    before: int | None = None
    for entry in islice(entries, start, None):
        if not isinstance(entry, NewEntry):
            break
        seq, encoded, hash_, payload, _ = entry
        if not isinstance(payload, bytes) or seq < 1 or before not in (None, seq - 1):
            break
        start_of_it = begin + encode_varu64(seq)
        links = _links(seq, partial(_link_at, encoded, len(start_of_it)), hashes, hash_of)
        size = len(payload)
        head = b"".join((start_of_it, links or b"", encode_varu64(size)))
        if (
            links is None
            or not encoded.startswith(head)
            or len(encoded) != len(head) + HASH_BYTES + SIGNATURE_BYTES
            or yamf_hash(encoded) != hash_
            or yamf_hash(payload) != encoded[PAYLOAD_HASH]
        ):
            break
        hashes[seq], encodings[seq], before = hash_, encoded, seq
        tag = entry_tag(ingest, row_id, received_at, state)
        rows.append(
            (ingest, row_id, pack_u64(seq), received_at, state, tag, hash_, encoded, payload)
        )
        ingest += 1
        encoded_bytes += len(encoded)
        payload_bytes += size
    return rows, encoded_bytes, payload_bytes


rows_to_write: Final = python_rows_to_write if NATIVE is None else NATIVE.rows_to_write
"""The same, by the native core if there is one; `entries` is a list."""


LackingRow = tuple[int, bytes, int, bytes]
"""A row without its payload: ingest, seq, received_at, encoded."""
FilledRow = tuple[int, int, bytes, int, int]
"""What it becomes: ingest, payload_state, payload, tag, and the number that it had before."""


def python_rows_to_fill(
    entries: Sequence[object], start: int, place: Place, lacking: Sequence[LackingRow], at: int
) -> tuple[list[FilledRow], int]:
    """What becomes of a run of rows that lacked their payloads, and the bytes of these payloads.

    `entries` from `start` on are to be those of `lacking` from `at` on, each with its payload and
    with no gap between them; up to the first that is otherwise. `place.received_at` does not count:
    a row keeps its own.
    """
    prefix = place.author + encode_varu64(place.log_id)
    ingest = place.ingest
    rows: list[FilledRow] = []
    payload_bytes = 0
    next_seq: int | None = None
    for entry, (before, blob, received_at, held) in zip(
        islice(entries, start, None), islice(lacking, at, None), strict=False
    ):
        if not isinstance(entry, NewEntry):
            break
        seq, encoded, hash_, payload, _ = entry
        if (
            not isinstance(payload, bytes)
            or next_seq not in (None, seq)
            or pack_u64(seq) != blob
            or encoded != held
        ):
            break
        next_seq = seq + 1
        size_at = tail_offset(place.log_id, seq)
        size = encode_varu64(len(payload))
        if (
            not encoded.startswith(prefix + encode_varu64(seq), 1)
            or not encoded.startswith(size, size_at)
            or len(encoded) != size_at + len(size) + HASH_BYTES + SIGNATURE_BYTES
            or yamf_hash(encoded) != hash_
            or yamf_hash(payload) != encoded[PAYLOAD_HASH]
        ):
            break
        tag = entry_tag(ingest, place.row_id, received_at, place.state)
        rows.append((ingest, place.state, payload, tag, before))
        ingest += 1
        payload_bytes += len(payload)
    return rows, payload_bytes


rows_to_fill: Final = python_rows_to_fill if NATIVE is None else NATIVE.rows_to_fill
"""The same, by the native core if there is one; `entries` and `lacking` are lists."""


def _link_at(encoded: bytes, offset: int, index: int) -> bytes:
    offset += index * HASH_BYTES
    return encoded[offset : offset + HASH_BYTES]


def _links(
    seq: int,
    given: Callable[[int], bytes],
    hashes: dict[int, bytes],
    hash_of: Callable[[int], bytes | None],
) -> bytes | None:
    """The links that an entry has to have, None if nothing that it links to is held.

    `given` tells its first or its second one: of what is not held it may have any.
    """
    if seq == 1:
        return b""
    far = lipmaa(seq)
    back = hashes.get(seq - 1) or hash_of(seq - 1)
    if far == seq - 1:
        return back
    link = hashes.get(far) or hash_of(far)
    if link is None and back is None:
        return None
    return (link or given(0)) + (back or given(1))


_WHOLE: Final = {PAYLOAD_INLINE: PayloadState.PRESENT}
_WITH_LACKING: Final = _WHOLE | {PAYLOAD_MISSING: PayloadState.MISSING}


def rows_read(
    rows: list[ReadRow], key: LogKey, start: int, *, with_lacking: bool = False
) -> list[StoredEntry]:
    """The entries of rows, from `start` on and ascending, up to the first row that is unusual.

    `with_lacking`: a row without its payload is none, as nothing has come of any.
    """
    states = _WITH_LACKING if with_lacking else _WHOLE
    if NATIVE is None:
        return python_rows_read(rows, key, start, states)
    return list(map(_stored, NATIVE.rows_read(rows, key, start, states, PAYLOAD_INLINE)))


def python_rows_read(
    rows: Sequence[ReadRow], key: LogKey, start: int, states: Mapping[int, PayloadState]
) -> list[StoredEntry]:
    """`rows_read` without the native core; `states`: of the usual rows, and of their entries."""
    prefix = key.author + encode_varu64(key.log_id)
    found: list[StoredEntry] = []
    for ingest, blob, received_at, stored, hash_, encoded, payload in rows:
        seq, state = unpack_u64(blob), states.get(stored)
        # An index and its table that disagree could send a caller round in circles.
        if (
            seq < start
            or state is None
            or (payload is None) is (stored == PAYLOAD_INLINE)
            or not encoded.startswith(prefix + encode_varu64(seq), 1)
            or yamf_hash(encoded) != hash_
        ):
            break
        if payload is not None:
            size = len(payload)
            if yamf_hash(payload) != encoded[PAYLOAD_HASH]:
                break
        elif (stated := _stated_size(key.log_id, seq, encoded)) is not None:
            size = stated
        else:
            break
        start = seq + 1
        found.append(
            StoredEntry(key, seq, ingest, encoded, hash_, received_at, state, payload, size, 0)
        )
    return found


def _stated_size(log_id: int, seq: int, encoded: bytes) -> int | None:
    """The size of its payload as an encoding has it, None if that is no number."""
    try:
        return decode_varu64_canonical(encoded, tail_offset(log_id, seq), "size")[0]
    except (EntryError, NeedMore):
        return None
