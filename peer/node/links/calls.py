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
