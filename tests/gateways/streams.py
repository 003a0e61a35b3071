"""Vectors of data streams, and a model to compare with: a stream as a list of entries."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateways.datastream.codec import FIRST_PLACE, PAGE_BYTES, Declaration, encode_declaration
from logstore import Store
from wire import LogKey

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "datastream.json").read_text()
)


def data_of(entry: Mapping[str, Any]) -> bytes:
    """The data of an entry as the vectors have it."""
    if "data" in entry:
        return bytes.fromhex(str(entry["data"]))
    return bytes([int(entry["fill"])]) * int(entry["size"])


def raw(number: int, type_: int, data: bytes) -> bytes:
    """An entry's bytes, by hand."""
    return (
        b"\x02"
        + (17 + len(data)).to_bytes(4, "big")
        + type_.to_bytes(4, "big")
        + number.to_bytes(8, "big")
        + data
    )


class Model:
    """What a stream has to be."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, bytes]] = []
        self.places: list[int] = []
        self.length = FIRST_PLACE

    def add(self, type_: int, data: bytes) -> bytes:
        """Adds an entry; returns its bytes."""
        encoded = raw(len(self.entries), type_, data)
        used = (self.length - FIRST_PLACE) % PAGE_BYTES
        if used and used + len(encoded) > PAGE_BYTES:
            self.length += PAGE_BYTES - used
        self.places.append(self.length)
        self.length += len(encoded)
        self.entries.append((type_, data))
        return encoded

    def truncate(self, number: int) -> bytes:
        """Removes entries; returns the payload that says so."""
        self.length = self.places[number]
        del self.places[number:], self.entries[number:]
        return b'{"truncate":%d}' % number

    @property
    def wire(self) -> bytes:
        """All of it as Data packets."""
        return b"".join(raw(n, t, d) for n, (t, d) in enumerate(self.entries))

    def bookmark(self, mark: bytes) -> int | None:
        """The largest number of a bookmark."""
        found = [n for n, (t, d) in enumerate(self.entries) if t == 176 and d == mark]
        return found[-1] if found else None


def declare(
    store: Store,
    *,
    log_id: int = 0,
    stream_type: int = 1,
    system_id: int = 137,
    file_version: int = 1,
    origin: str = "source",
) -> LogKey:
    """A log that is a stream."""
    declared = Declaration(stream_type, system_id, file_version, origin)
    return store.append([encode_declaration(declared)], log_id=log_id)[0].key
