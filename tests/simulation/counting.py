"""How many bytes of payloads cross: each about once, where nothing goes wrong."""

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from logstore import PayloadState
from peer.tracing import Record, Tracer

from .pipe import CAPACITY_BYTES
from .truth import Broken

if TYPE_CHECKING:
    from .world import World

SHARE_MAX = 1.1
BYTES_MORE_MAX = 5_000


class ByteCount:
    """The payload bytes that each node of a world has received."""

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()

    def tracer(self, name: str) -> Tracer:
        """What counts for a session of this node."""
        return Tracer(partial(self._note, name))

    def _note(self, name: str, record: Record) -> None:
        size = record.get("bytes")
        if record["way"] == "received" and record["channel"] == "data" and size is not None:
            self.received[name] += int(str(size))

    def check(self, world: "World") -> None:
        """Raises Broken if some node has received much more than it has got."""
        for node in world.nodes:
            own, logs = node.store.author, sorted(world.truth.entries)
            held = sum(
                entry.payload_bytes
                for log in logs
                if log.author != own
                for entry in world.holdings.of(node, log).entries.values()
                if entry.payload_state is PayloadState.PRESENT
            )
            received = self.received[node.name]
            # What a slow source has sent already when it loses a log comes all the same.
            under_way = node.sources.book.switches * CAPACITY_BYTES
            if received > SHARE_MAX * held + BYTES_MORE_MAX + under_way:
                raise Broken(f"{node.name} has received {received} payload bytes for {held}")
