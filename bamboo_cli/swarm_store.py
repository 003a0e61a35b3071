"""What the verbs of `swarm` have in common: the store, its side table, and the node's network."""

import re
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Final

from .errors import Problem, WrongUsage
from .opening import opened_store

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator, Mapping

    from gateways.swarm import Chunks, Side
    from logstore import Store

    from .terminal import Terminal

    Run = Callable[[Namespace, Terminal], int]

NETWORK: Final = 3
NETWORK_NAME: Final = "swarm/network"
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_LIBRARIES: Final = ("coincurve", "cryptography", "sha3")
_EXTRA: Final = "chunks of Swarm need more: pip install 'bamboo-peer[swarm]'"


def hash_of(text: str) -> bytes:
    """An address or a file's hash. Raises WrongUsage."""
    if _HASH.fullmatch(text) is None:
        raise WrongUsage(f"swarm: {text[:80]!r} is no hash: 64 hexadecimal digits")
    return bytes.fromhex(text)


def needing_extra(run: "Run") -> "Run":
    """A verb that says what to install where what Swarm needs is not there.

    Before it begins: each of them imports something that would fail otherwise.
    """

    def run_with_extra(args: "Namespace", terminal: "Terminal") -> int:
        try:
            for name in _LIBRARIES:
                import_module(name)
        except ImportError:
            raise Problem(_EXTRA) from None
        return run(args, terminal)

    return run_with_extra


@contextmanager
def sided(args: "Namespace", *, readonly: bool = False) -> "Iterator[tuple[Store, Side, Chunks]]":
    """The store, its side table brought up to date, and its chunks."""
    from gateways.swarm import Chunks, Side

    with ExitStack() as stack:
        store = stack.enter_context(opened_store(args, readonly=readonly))
        side = Side(store)
        stack.callback(side.close)
        side.refresh()
        yield store, side, Chunks(store, side)


def network_of(store: "Store") -> int:
    """Of which network the node's peers are."""
    kept = store.recall(NETWORK_NAME)
    return NETWORK if kept is None else int(kept)


def is_served(store: "Store") -> bool:
    """Whether a node serves this store. Raises StoreError."""
    from gateways import WriterLock
    from gateways.swarm import LOCK_FILE

    return WriterLock.is_held(store.path, LOCK_FILE)


def served_state(store: "Store") -> "Mapping[str, object] | None":
    """The state of the node that serves this store; None if none does."""
    from gateways.swarm import STATUS_FILE
    from peer.node import read_status

    if store.path is None or not is_served(store):
        return None
    return read_status(store.path, STATUS_FILE) or {}
