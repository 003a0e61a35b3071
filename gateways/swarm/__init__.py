"""Swarm chunks: a content-addressed store of 4 KiB chunks on logs, and Swarm's protocol for them.

`keccak`, `bmt`, `files`, `feeds`, `states`, `intervals`, `proximity` and `declared` are formats and
trees; `link` is a connection, `sending`, `sources`, `server`, `book`, `client`, `wanting`,
`retrieval`, `neighbour` and `peers` the state machines of a node, without sockets, clock or store;
`side`, `logs` and `bins` stand on the store, `hub`, `keeping`, `conversation` and `service` on
Trio. Names are loaded when they are first used. Needs the extra `swarm`. docs/swarm.md says what
people do with it.
"""

from typing import TYPE_CHECKING

from wire import loaded_late

if TYPE_CHECKING:
    from .bins import Bins
    from .key_file import KEY_NAME, NotANode, make_key, read_key
    from .logs import Chunks, Node, Stored, declare_chunks, make_node, node_of
    from .service import CHUNKS_MAX, LOCK_FILE, STATUS_FILE, SwarmServer, parse_enode
    from .side import Place, Side, in_pages
    from .wishes import PREFIX, Wish, wish_name

__all__ = [
    "CHUNKS_MAX",
    "KEY_NAME",
    "LOCK_FILE",
    "PREFIX",
    "STATUS_FILE",
    "Bins",
    "Chunks",
    "Node",
    "NotANode",
    "Place",
    "Side",
    "Stored",
    "SwarmServer",
    "Wish",
    "declare_chunks",
    "in_pages",
    "make_key",
    "make_node",
    "node_of",
    "parse_enode",
    "read_key",
    "wish_name",
]

if not TYPE_CHECKING:
    __getattr__ = loaded_late(
        __name__,
        {
            "bins": ("Bins",),
            "key_file": ("KEY_NAME", "NotANode", "make_key", "read_key"),
            "logs": ("Chunks", "Node", "Stored", "declare_chunks", "make_node", "node_of"),
            "service": ("CHUNKS_MAX", "LOCK_FILE", "STATUS_FILE", "SwarmServer", "parse_enode"),
            "side": ("Place", "Side", "in_pages"),
            "wishes": ("PREFIX", "Wish", "wish_name"),
        },
    )
