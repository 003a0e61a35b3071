"""The Trio layer: connections, verification processes, the store's threads, the node.

Everything that waits is here. The engine below (peer) asks, this layer carries out and reports.
"""

from peer.node.doors.admission import Doors
from peer.node.host.commits import Commits
from peer.node.host.held import held_up_to
from peer.node.host.staging import stage
from peer.node.host.store_host import StoreHost
from peer.node.links.addresses import DEFAULT_PORT, Address, PeerAddress, called_at
from peer.node.links.backoff import Backoff
from peer.node.links.calls import addresses_reached, forget_reached
from peer.node.links.connection import Ending, EndKind, words_of
from peer.node.links.dialling import CannotConnectError, Dialler, open_stream
from peer.node.links.discovery import Discovery, MissingZeroconfError
from peer.node.links.entrance import UnknownNameError, expected_peer
from peer.node.links.greedy import Greedy, parse_greedy, with_greedy
from peer.node.links.knowledge import Knowledge
from peer.node.links.limits import Limit, Limits, limit_table
from peer.node.links.listening import CannotListenError, address_of, open_listeners
from peer.node.links.memory import MemoryStream, memory_link
from peer.node.links.records import (
    ConnectionInfo,
    ConnectionState,
    Direction,
    Observer,
    Pace,
    Terms,
)
from peer.node.links.sources import SourceInfo
from peer.node.links.trace import CannotTraceError
from peer.node.status.arriving import Part, arriving_fields, part_of_payload, parts_of
from peer.node.status.meter import Meter
from peer.node.status.metrics_server import MetricsServer, metrics_address, serving_metrics
from peer.node.status.overview import Overview
from peer.node.status.reasons import Lack, Reason, lack_of, why_log, why_peer
from peer.node.status.status_file import StatusFile, read_status, served_at, serving_state
from peer.node.status.terms import greedy_words
from peer.node.status.watching import Watch

from .arguments import (
    address_in,
    asked_in,
    called_in,
    check_seq,
    check_store,
    check_timeout,
    is_of,
    log_in,
    subject_in,
    target_in,
    target_of,
)
from .asking import Asked, ask_peers, hear_first
from .errors import alone
from .exporting import Export, run_export
from .keeping import tidy_now
from .node import Node, NodeConfig, running_node
from .observing import unobserved
from .patience import within
from .pending import PendingCalls, news_of
from .probing import newest_held_by
from .syncing import SyncError, SyncSummary, sync_once
from .taking import OLDEST, Takes, Taking, read_ahead

__all__ = [
    "DEFAULT_PORT",
    "OLDEST",
    "Address",
    "Asked",
    "Backoff",
    "CannotConnectError",
    "CannotListenError",
    "CannotTraceError",
    "Commits",
    "ConnectionInfo",
    "ConnectionState",
    "Dialler",
    "Direction",
    "Discovery",
    "Doors",
    "EndKind",
    "Ending",
    "Export",
    "Greedy",
    "Knowledge",
    "Lack",
    "Limit",
    "Limits",
    "MemoryStream",
    "Meter",
    "MetricsServer",
    "MissingZeroconfError",
    "Node",
    "NodeConfig",
    "Observer",
    "Overview",
    "Pace",
    "Part",
    "PeerAddress",
    "PendingCalls",
    "Reason",
    "SourceInfo",
    "StatusFile",
    "StoreHost",
    "SyncError",
    "SyncSummary",
    "Takes",
    "Taking",
    "Terms",
    "UnknownNameError",
    "Watch",
    "address_in",
    "address_of",
    "addresses_reached",
    "alone",
    "arriving_fields",
    "ask_peers",
    "asked_in",
    "called_at",
    "called_in",
    "check_seq",
    "check_store",
    "check_timeout",
    "expected_peer",
    "forget_reached",
    "greedy_words",
    "hear_first",
    "held_up_to",
    "is_of",
    "lack_of",
    "limit_table",
    "log_in",
    "memory_link",
    "metrics_address",
    "newest_held_by",
    "news_of",
    "open_listeners",
    "open_stream",
    "parse_greedy",
    "part_of_payload",
    "parts_of",
    "read_ahead",
    "read_status",
    "run_export",
    "running_node",
    "served_at",
    "serving_metrics",
    "serving_state",
    "stage",
    "subject_in",
    "sync_once",
    "target_in",
    "target_of",
    "tidy_now",
    "unobserved",
    "why_log",
    "why_peer",
    "with_greedy",
    "within",
    "words_of",
]
