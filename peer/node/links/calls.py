"""The peers that a store's nodes have reached, remembered for whoever wants to ask them.

`append` asks them, before it signs, whether they hold more of the log than this store (asking.py).
"""

import logging
from functools import partial
from typing import Final

from logstore import Store, StoreError
from peer.node.host.store_host import StoreHost

from .addresses import PeerAddress

log = logging.getLogger(__name__)

ADDRESSES_MAX: Final = 8
_NAME: Final = "called"


def addresses_reached(store: Store) -> list[PeerAddress]:
    """Where peers were reached, and as whom, those of late first."""
    lines = (store.recall(_NAME) or b"").decode().splitlines()
    return [PeerAddress.parse(line) for line in lines]


def forget_reached(store: Store, peer_id: bytes) -> None:
    """Nobody asks a peer any more that was reached by its id, or by the name that it has now.

    For who is removed: an address with his id in it is a way to let him in. Raises StoreError.
    """
    names = store.names()
    known = addresses_reached(store)
    kept = [each for each in known if peer_id not in (_id_of(each), names.get(each.peer or ""))]
    if len(kept) < len(known):
        store.remember(_NAME, "\n".join(each.written for each in kept).encode())


def _id_of(address: PeerAddress) -> bytes | None:
    try:
        return bytes.fromhex(address.peer or "")
    except ValueError:
        return None


class Calls:
    """Remembers whom a node reaches."""

    def __init__(self, host: StoreHost) -> None:
        self._host = host
        self._told: set[PeerAddress] = set()

    def reached(self, address: PeerAddress) -> None:
        """A peer answers at an address that somebody told this node to call."""
        if address not in self._told:
            self._told.add(address)
            self._host.write_soon(partial(_remember, self._host.store, address))


def _remember(store: Store, address: PeerAddress) -> None:
    known = addresses_reached(store)
    if address not in known:
        lines = "\n".join(each.written for each in [address, *known][:ADDRESSES_MAX])
        try:
            store.remember(_NAME, lines.encode())
        except StoreError as error:
            log.warning("that %s was reached cannot be remembered: %s", address, error)
