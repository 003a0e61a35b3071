"""Swarm chunks: a content-addressed store of 4 KiB chunks on logs, and Swarm's protocol for them.

`keccak`, `bmt`, `files`, `feeds`, `states`, `intervals`, `proximity` and `declared` are formats and
trees, and `sending`, `sources`, `server`, `book` and `client` the state machines of a peer's
streams, without sockets, clock or store; `side`, `logs` and `bins` stand on the store. Names are
loaded when they are first used. Needs the extra `swarm`. docs/swarm.md says what people do with it.
"""

from typing import TYPE_CHECKING

from wire import loaded_late

if TYPE_CHECKING:
    from .bins import Bins
    from .key_file import KEY_NAME, NotANode, make_key, read_key
    from .logs import Chunks, Node, Stored, declare_chunks, make_node, node_of
    from .side import Place, Side, in_pages

__all__ = [
    "KEY_NAME",
    "Bins",
    "Chunks",
    "Node",
    "NotANode",
    "Place",
    "Side",
    "Stored",
    "declare_chunks",
    "in_pages",
    "make_key",
    "make_node",
    "node_of",
    "read_key",
]

if not TYPE_CHECKING:
    __getattr__ = loaded_late(
        __name__,
        {
            "bins": ("Bins",),
            "key_file": ("KEY_NAME", "NotANode", "make_key", "read_key"),
            "logs": ("Chunks", "Node", "Stored", "declare_chunks", "make_node", "node_of"),
            "side": ("Place", "Side", "in_pages"),
        },
    )
