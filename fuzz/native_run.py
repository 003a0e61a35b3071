"""The native core takes the same run of entries from any bytes as Python does, and of payloads.

An input is the first entry's number, flags and limits (one byte each), and the packets. Payloads
are those of entries that are held, one of which is cut short.
"""

from fuzz.harness import main
from fuzz.wire_samples import LOG, ROWS
from wire import (
    NATIVE,
    NATIVE_STATE,
    LogKey,
    RunEntry,
    encode_payload_header,
    encode_run,
    has_distinct_lipmaalink,
    yamf_hash,
)
from wire.bulk import python_parse_payloads, python_parse_run

HASHES = {seq: yamf_hash(encoded) for seq, encoded, _ in ROWS}

# Flags: with a backlink; hashes are left out, and one is of another entry.
BACKLINK, LACKING, ANOTHER = 1, 2, 4

CORPUS = [
    bytes((first, flags, 255, 255)) + encode_run(ROWS[first - 1 :], carries)
    for first in (1, 2, 4, 8, 13)
    for flags, carries in ((0, False), (LACKING, False), (BACKLINK, has_distinct_lipmaalink(first)))
]
CORPUS += [
    bytes((first, 0, 255, 255))
    + b"".join(encode_payload_header(len(row[2])) + row[2] for row in ROWS[first - 1 :])
    for first in (1, 5)
]


def check_run(
    data: bytes,
    offset: int,
    log: LogKey,
    seq: int,
    hashes: dict[int, bytes],
    limits: tuple[int, int],
    *,
    with_backlink: bool,
) -> int:
    """Both take the same entries, learn the same hashes and stop at the same byte; how many."""
    assert NATIVE is not None
    known = dict(hashes)
    expected, end = python_parse_run(
        data,
        offset,
        log,
        seq,
        known,
        entries_max=limits[0],
        payload_bytes_max=limits[1],
        with_backlink=with_backlink,
    )
    learnt = dict(hashes)
    rows, mismatch, stopped = NATIVE.parse_run(
        data, offset, *log, seq, learnt, *limits, with_backlink
    )
    assert [RunEntry(*row) for row in rows] == expected.entries
    assert (mismatch, stopped, learnt) == (expected.mismatch, end, known)
    return len(rows)


def check_payloads(data: bytes, offset: int, seq: int, cut: int, payload_bytes_max: int) -> int:
    """Both take the same payloads and stop at the same byte; how many. `cut`: where the encoding
    of the third entry ends."""
    assert NATIVE is not None
    held = [encoded for _, encoded, _ in ROWS[seq - 1 :]]
    held[2:3] = [encoded[:cut] for encoded in held[2:3]]
    given = (data, offset, LOG.log_id, seq, held, payload_bytes_max)
    payloads, end = python_parse_payloads(*given)
    assert NATIVE.parse_payloads(*given) == (payloads, end)
    return len(payloads)


def check(data: bytes) -> None:
    """The invariant, for any bytes."""
    if len(data) < 4:
        return
    seq, flags, entries_max, payload_bytes_max = data[0] or 1, data[1], data[2], data[3]
    hashes = {n: held for n, held in HASHES.items() if n < seq}
    if flags & LACKING:
        hashes.pop(seq - 1, None)
    if flags & ANOTHER:
        hashes[seq - 1] = yamf_hash(b"another")
    with_backlink = bool(flags & BACKLINK) and has_distinct_lipmaalink(seq)
    for offset in (4, 5):
        check_payloads(data, offset, seq, flags, payload_bytes_max)
        check_run(
            data,
            offset,
            LOG,
            seq,
            hashes,
            (entries_max, payload_bytes_max),
            with_backlink=with_backlink,
        )


if __name__ == "__main__":
    if NATIVE is None:
        print(f"nothing to compare, native core: {NATIVE_STATE}")
    else:
        main(check, CORPUS)
