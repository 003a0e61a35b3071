"""How many bytes of payloads cross: each about once, where nothing goes wrong."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from logstore import PayloadState
from peer import SessionConfig
from peer.protocol.tracing import Record, Tracer
from wire import CancelReason, LogKey

from .pipe import CAPACITY_BYTES
from .truth import Broken

if TYPE_CHECKING:
    from .world import World

SHARE_MAX = 1.1
BYTES_MORE_MAX = 5_000


@dataclass(slots=True)
class _Session:
    is_source: Callable[[LogKey], bool]
    own: bytes | None = None
    given_up: set[object] = field(default_factory=set)
    alone: set[object] = field(default_factory=set)
    """Our own requests for what another session was to bring."""
    last: tuple[object, int] = (None, 0)
    """The request of the last packet that was received, and the payload bytes in it."""


class ByteCount:
    """The payload bytes that each node of a world has received, and could take in.

    A side cannot know how many payloads the other one has files for. If it sends more of them side
    by side, one is given up with a 129 (point2point.md 6), and what crosses that comes again later.

    What is asked for by itself, and not of the source of its log, does not count: where nothing
    goes wrong, the source has not sent it for so long that somebody else is asked. It may begin
    after that.
    """

    def __init__(self, config: SessionConfig) -> None:
        """`config`: that of both sides of every connection."""
        self.received: Counter[str] = Counter()
        # Besides those of which all is held, as many again may be under way and not verified there.
        self._has_few_files = config.sinks_max < 2 * config.inside_payloads_max

    def tracer(
        self, name: str, is_source: Callable[[LogKey], bool], own: bytes | None = None
    ) -> Tracer:
        """What counts for a session of this node, which is the source of some logs.

        Nothing counts of its `own` logs: what it has just signed and sent may come back from a
        neighbour's neighbour, who does not know yet that it holds it.
        """
        return Tracer(partial(self._note, name, _Session(is_source, own)))

    def _note(self, name: str, session: _Session, record: Record) -> None:
        request = record.get("request")
        if record["way"] == "received" and record["channel"] == "data":
            own = session.own is not None and record.get("author") == session.own.hex()
            size = 0 if own else int(str(record.get("bytes", 0)))
            session.last = (request, size)
            if request not in session.given_up | session.alone:
                self.received[name] += size
        elif _asks_for_missing(record) and not session.is_source(_log_of(record)):
            session.alone.add(request)
        elif self._has_few_files and _gives_up(record):
            if session.last[0] == request and request not in session.given_up:
                self.received[name] -= session.last[1]
            session.given_up.add(request)

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


def _asks_for_missing(record: Record) -> bool:
    if record["way"] != "sent" or record["message"] != "propose":
        return False
    of_one = record.get("offset") is not None and record.get("end") == record["start"]
    return of_one or bool(record.get("payloads_only"))


def _log_of(record: Record) -> LogKey:
    return LogKey(bytes.fromhex(str(record["author"])), int(str(record["log_id"])))


def _gives_up(record: Record) -> bool:
    return record["way"] == "sent" and record.get("reason") == CancelReason.NO_RESOURCES
