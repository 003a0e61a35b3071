"""The numbers of a node as Prometheus reads them.

`snapshot` is taken in the event loop and touches no disk; `rendered` makes text of it, in a thread
that knows nothing of the node. There is no label for logs: ten thousand of them would be as many
rows for each number; `status` and `why` tell of one log.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import trio
from msgspec import Struct
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from logstore import Statistics
from peer import Limit
from peer.node.links.entrance import Refused
from peer.node.links.records import ConnectionState, Direction
from peer.node.links.roster import PEER_CONNECTIONS
from peer.node.node import Node
from wire import NATIVE_STATE

from .meter import COUNTED, MOVED, Meter, connected
from .overview import Behind, Overview

PREFIX: Final = "bamboo_peer"
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_EVENTS: Final[Mapping[str, str]] = {
    "connections_opened": "Connections that were set up.",
    "connect_failures": "Calls that came to nothing; the same reason again is not counted.",
    "disconnections": "Connections that have ended, by how.",
    "violations": "Connections that ended as the peer broke a rule of the protocol.",
    "storage_failures": "Reports of what could not be kept or read.",
    "log_advances": "Reports that a log has come further; one may be of many entries.",
}
assert _EVENTS.keys() == set(COUNTED.values())
_MOVED: Final[Mapping[str, str]] = {
    "bytes_received": "All bytes received, as compressed as they came.",
    "bytes_sent": "All bytes sent, as compressed as they left.",
    "entries_received": "Entries received, those included that were held already.",
    "entries_sent": "Entries sent.",
    "payload_bytes_received": "Bytes of payloads received.",
    "payload_bytes_sent": "Bytes of payloads sent.",
}
assert _MOVED.keys() == set(MOVED)
_STORE: Final[Mapping[str, tuple[str, str]]] = {
    "logs": ("logs", "Logs of which something is held."),
    "entries": ("entries", "Entries held."),
    "payloads": ("payloads", "Payloads held."),
    "missing_payloads": ("missing_payloads", "Payloads of held entries, neither held nor deleted."),
    "forked_logs": ("forked_logs", "Logs known to be forked."),
    "bytes": ("store_bytes", "Encodings and payloads held."),
    "partial_bytes": ("partial_payload_bytes", "What has come of payloads that are not whole."),
    "database_bytes": ("database_bytes", "Size of the database file."),
    "wal_bytes": ("database_wal_bytes", "Size of the database's write-ahead log."),
}
"""Sums over the store: the field of `Statistics`, and what it is called here."""


LIMITS: Final = (
    "connections",
    "per-address",
    PEER_CONNECTIONS,
    "handshakes",
    "accepts",
    "author-bytes",
    "peer-bytes",
    "store-bytes",
    "free-bytes",
    "partial-seconds",
    *map(str, Limit),
)
"""Limits that are counted when they are met. What is beyond the others only makes somebody wait."""


class Snapshot(Struct, frozen=True):
    """A node at one moment."""

    listening: int
    connections: Mapping[tuple[str, str], int]
    """By direction and state."""
    connected: Mapping[str, int]
    """Connections that are set up, by peer."""
    moved: Mapping[str, Mapping[str, int]]
    events: Mapping[tuple[str, str], int]
    refusals: Mapping[Refused, int]
    """Callers that were turned away, by why."""
    limit_hits: Mapping[str, int]
    """How often each limit was met, by its key."""
    behind: Behind
    lag_s: float


def snapshot(node: Node, overview: Overview, meter: Meter) -> Snapshot:
    """What there is to tell, of connections one by one and of logs in sums."""
    connections = {(str(way), str(state)): 0 for way in Direction for state in ConnectionState}
    for info in node.connections():
        connections[str(info.direction), str(info.state)] += 1
    behind = overview.behind()
    lag_s = 0.0 if behind.since_s is None else trio.current_time() - behind.since_s
    return Snapshot(
        listening=len(node.addresses),
        connections=connections,
        connected=connected(node.members, meter.allowed()),
        moved=meter.moved(),
        events=dict(meter.events),
        refusals=dict(node.entrance.refusals),
        limit_hits=node.limit_hits,
        behind=behind,
        lag_s=lag_s,
    )


def rendered(taken: Snapshot, sums: Statistics | None, folder: Path | None) -> bytes:
    """The page. `sums`: None where the store cannot be read. `folder`: of the store, on a disk."""
    registry = CollectorRegistry()
    registry.register(_Collector([*_of_node(taken), *_of_store(sums, folder)]))
    # Memory, processor time and open files of this process, under our own prefix.
    ProcessCollector(namespace=PREFIX, registry=registry)
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", help_text, value=value)


def _of_node(taken: Snapshot) -> Iterator[Metric]:
    build = GaugeMetricFamily(
        f"{PREFIX}_build_info",
        "1, with the versions of this program and of its native core.",
        labels=("version", "native_core"),
    )
    build.add_metric((_version(), NATIVE_STATE.version or "none"), 1)
    yield build
    yield _gauge("listening_addresses", "Addresses that are listened on.", taken.listening)
    connections = GaugeMetricFamily(
        f"{PREFIX}_connections",
        "Connections, and peers that are called again, by who called and how far it is.",
        labels=("direction", "state"),
    )
    for where, count in taken.connections.items():
        connections.add_metric(where, count)
    yield connections
    peers = GaugeMetricFamily(
        f"{PREFIX}_peer_connections", "Connections that are set up, by peer.", labels=("peer_id",)
    )
    for peer, count in taken.connected.items():
        peers.add_metric((peer,), count)
    yield peers
    for name, help_text in _MOVED.items():
        # The unit stands last: received_bytes_total, received_payload_bytes_total.
        what, _, way = name.rpartition("_")
        moved = CounterMetricFamily(f"{PREFIX}_{way}_{what}", help_text, labels=("peer_id",))
        for peer, counts in taken.moved.items():
            moved.add_metric((peer,), counts.get(name, 0))
        yield moved
    for name, help_text in _EVENTS.items():
        counter = CounterMetricFamily(f"{PREFIX}_{name}", help_text, labels=("kind",))
        for (event, kind), count in taken.events.items():
            if event == name:
                counter.add_metric((kind,), count)
        yield counter
    # Events tell of these now and then; here each of them counts.
    refusals = CounterMetricFamily(
        f"{PREFIX}_refusals", "Callers that were turned away, by why.", labels=("kind",)
    )
    for kind in Refused:
        refusals.add_metric((str(kind),), taken.refusals.get(kind, 0))
    yield refusals
    hits = CounterMetricFamily(
        f"{PREFIX}_limit_hits",
        "What was refused, closed or given up for a limit, by its key.",
        labels=("limit",),
    )
    for key in LIMITS:
        hits.add_metric((key,), taken.limit_hits.get(key, 0))
    yield hits
    yield _gauge("behind_logs", "Followed logs that peers hold more of.", taken.behind.logs)
    yield _gauge(
        "behind_entries", "Entries that peers hold and this node lacks.", taken.behind.entries
    )
    yield _gauge(
        "lag_seconds",
        "For how long something has been missing that a peer was known to hold.",
        taken.lag_s,
    )


def _of_store(sums: Statistics | None, folder: Path | None) -> Iterator[Metric]:
    yield _gauge("store_readable", "1 if the store could be read just now.", sums is not None)
    if sums is not None:
        for field, (name, help_text) in _STORE.items():
            yield _gauge(name, help_text, getattr(sums, field))
    if folder is not None:
        try:
            disk = os.statvfs(folder)
        except OSError:
            return
        free = disk.f_bavail * disk.f_frsize
        yield _gauge("disk_free_bytes", "Free on the disk that the store is on.", free)


def _version() -> str:
    try:
        return version("bamboo-peer")
    except PackageNotFoundError:
        return "unknown"
