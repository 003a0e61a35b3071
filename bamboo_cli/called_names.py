"""What to write instead of a peer's bare name where somebody is to be called.

`HOST:PORT` is what calls take, and a name without anything behind it is a host's: peers are often
called what their machines are called, so that it is not refused before anybody has looked for such
a host.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logstore import Store
    from peer.node import PeerAddress


def name_hint(store: "Store", target: "PeerAddress") -> str | None:
    """What to write if the host of `target` is the name of a peer; None if it is not.

    Raises StoreError.
    """
    if target.peer is not None or target.address.path:
        return None
    name = target.address.host
    peer_id = store.names().get(name)
    if not isinstance(peer_id, bytes):
        return None
    rule = store.peers.rules().get(peer_id)
    if rule is None or rule.address is None:
        return (
            f"peer {name} has no address: `peer allow {name} --address HOST:PORT`, or write"
            f" {name}@HOST:PORT"
        )
    return f"{name} is the name of a peer: write {name}@{rule.address}"
