"""An entry as `cat`, `tail` and the local API print it, with its payload (everyday.md 2)."""

from base64 import b64encode
from typing import TYPE_CHECKING

from logstore import PayloadState, PayloadUnavailable, Store, StoredEntry
from peer import json_number, log_fields

from .values import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator

COPY_BYTES = 1 << 18
PAYLOAD_BYTES_MAX = 1 << 20
"""Larger payloads are not put into a line, unless that is asked for."""


def payload_pieces(store: Store, stored: StoredEntry) -> "Iterator[bytes]":
    """A payload that is held, piece by piece. Raises PayloadUnavailable if it is gone by now."""
    if stored.payload is not None:
        yield stored.payload
        return
    with store.open_payload(stored.key, stored.seq) as reader:
        offset = 0
        while piece := reader.read(offset, COPY_BYTES):
            yield piece
            offset += len(piece)


def small_payload(store: Store, stored: StoredEntry, bytes_max: int) -> bytes | None:
    """The payload, None if it is not held or larger than that."""
    if stored.payload_state is not PayloadState.PRESENT or stored.payload_bytes > bytes_max:
        return None
    try:
        return b"".join(payload_pieces(store, stored))
    except PayloadUnavailable:
        # Dropped since the entry was read.
        return None


def arrival_fields(
    stored: StoredEntry, payload: bytes | None, name: str | None
) -> dict[str, object]:
    """A line of JSON: of a payload exactly one of `text` and `base64` is set."""
    text = encoded = None
    if payload is not None:
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            encoded = b64encode(payload).decode()
    return {
        "ingest": stored.ingest,
        **log_fields(stored.key),
        "name": name,
        "seq": json_number(stored.seq),
        "hash": stored.hash.hex(),
        "received_at": rfc3339(stored.received_at),
        "size": json_number(stored.payload_bytes),
        "payload_state": str(stored.payload_state),
        "text": text,
        "base64": encoded,
    }
