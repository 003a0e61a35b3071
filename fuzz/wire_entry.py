"""Bytes that decode as an entry are exactly what that entry encodes to; others raise EntryError."""

from fuzz.harness import main
from fuzz.wire_samples import ROWS
from wire import (
    EntryError,
    NeedMore,
    decode_entry,
    decode_entry_prefix,
    encode_entry,
    rebuild_entry,
    signature_is_valid,
    tail_fields,
    tail_offset,
)

CORPUS = [encoded for _, encoded, _ in ROWS]


def check(data: bytes) -> None:
    """The invariant, for any bytes."""
    try:
        prefix, end = decode_entry_prefix(data, 0)
    except (EntryError, NeedMore):
        prefix, end = None, -1
    try:
        entry = decode_entry(data)
    except EntryError:
        assert end != len(data)
        return
    assert entry == prefix
    assert end == len(data)
    assert encode_entry(entry) == data
    tail = data[tail_offset(entry.log_id, entry.seq) :]
    assert tail_fields(tail) == (entry.payload_bytes, entry.payload_hash)
    links = (entry.lipmaalink, entry.backlink)
    assert rebuild_entry(entry.key, entry.seq, data[0], *links, tail) == data
    assert not signature_is_valid(data) or data in CORPUS


if __name__ == "__main__":
    main(check, CORPUS)
