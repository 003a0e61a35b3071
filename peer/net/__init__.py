"""The Trio layer: connections, verification processes, the store's threads, the node.

Everything that waits is here. The engine below (peer) asks, this layer carries out and reports.
"""

from .addresses import DEFAULT_PORT, Address, PeerAddress
from .arriving import Part, arriving_fields, part_of_payload, parts_of
from .asking import Asked, ask_peers, hear_first
from .calls import addresses_reached
from .commits import Commits
from .connection import Ending, EndKind
from .dialling import CannotConnectError, Dialler, open_stream
from .exporting import Export, run_export
from .greedy import Greedy, parse_greedy, with_greedy
from .held import held_up_to
from .knowledge import Knowledge
from .limits import Limits
from .listening import CannotListenError
from .memory import MemoryStream, memory_link
from .node import Node, NodeConfig, running_node, unobserved
from .overview import Overview
from .pending import PendingCalls, news_of
from .probing import newest_held_by
from .reasons import Lack, Reason, lack_of, why_log, why_peer
from .records import ConnectionInfo, ConnectionState, Direction, Observer, Pace, Terms
from .sources import SourceInfo
from .staging import stage
from .status_file import StatusFile, read_status, serving_state
from .store_host import StoreHost
from .terms import greedy_words
from .trace import CannotTraceError

__all__ = [
    "DEFAULT_PORT",
    "Address",
    "Asked",
    "CannotConnectError",
    "CannotListenError",
    "CannotTraceError",
    "Commits",
    "ConnectionInfo",
    "ConnectionState",
    "Dialler",
    "Direction",
    "EndKind",
    "Ending",
    "Export",
    "Greedy",
    "Knowledge",
    "Lack",
    "Limits",
    "MemoryStream",
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
    "Terms",
    "addresses_reached",
    "arriving_fields",
    "ask_peers",
    "greedy_words",
    "hear_first",
    "held_up_to",
    "lack_of",
    "memory_link",
    "newest_held_by",
    "news_of",
    "open_stream",
    "parse_greedy",
    "part_of_payload",
    "parts_of",
    "read_status",
    "run_export",
    "running_node",
    "serving_state",
    "stage",
    "unobserved",
    "why_log",
    "why_peer",
    "with_greedy",
]
