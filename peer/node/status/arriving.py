"""The payloads that are on their way to a node: in values that JSON has, and in words."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from logstore import Store
from peer import json_number, log_fields
from peer.node.node import Node
from wire import LogKey

State = Mapping[str, Any]

ARRIVING_MAX: Final = 500
"""Payloads that are told one by one, the first that began to arrive first."""


class Part(Struct, frozen=True):
    """How much of a payload is here, and who brings the rest, if anybody does."""

    bytes: int
    payload_bytes: int
    address: str | None = None

    def __str__(self) -> str:
        share = self.bytes * 100 // max(self.payload_bytes, 1)
        return f"{self.bytes:,} of {self.payload_bytes:,} bytes have come, {share} %"


def arriving_fields(node: Node) -> list[dict[str, object]]:
    """Every payload that some session of a node is receiving, as `parts_of` reads it."""
    return [
        log_fields(sink.log)
        | {
            "seq": json_number(sink.seq),
            "bytes": json_number(arrival.written),
            "payload_bytes": json_number(arrival.payload_bytes),
            "address": sink.source,
        }
        for arrival, sink in node.host.arrivals.fed(ARRIVING_MAX)
    ]


def parts_of(state: State | None, log: LogKey) -> dict[int, Part]:
    """The payloads of a log that are arriving, by entry, as the state of a node tells."""
    name = log_fields(log)
    return {
        int(each["seq"]): Part(int(each["bytes"]), int(each["payload_bytes"]), each["address"])
        for each in (state or {}).get("arriving", ())
        if all(each.get(field) == value for field, value in name.items())
    }


def part_of_payload(store: Store, state: State | None, log: LogKey, seq: int) -> str:
    """Words for a payload of which a part is here."""
    text = f"the payload of entry {seq}"
    part = parts_of(state, log).get(seq)
    if part is None:
        entry = store.entry(log, seq)
        if entry is None or not 0 < entry.partial_bytes < entry.payload_bytes:
            return text
        part = Part(entry.partial_bytes, entry.payload_bytes)
    return f"{text} ({part})"
