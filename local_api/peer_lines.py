"""A peer as `peer list` and the local API print it (docs/cli.md, peer)."""

from collections.abc import Mapping
from typing import Any

from logstore import KnownPeer, written_scope

from .values import rfc3339


def connected_counts(state: Mapping[str, Any] | None) -> Mapping[str, int] | None:
    """How many connections each peer has, by the state of a node; None: no node runs."""
    if state is None:
        return None
    counts: dict[str, int] = {}
    for each in state.get("connections", ()):
        if each.get("peer_id") is not None and each["state"] in ("established", "closing"):
            counts[each["peer_id"]] = counts.get(each["peer_id"], 0) + 1
    return counts


def connected_peers(state: Mapping[str, Any]) -> int:
    """How many peers are connected: by their ids, of those who have shown none by address."""
    return len(
        {
            each["peer_id"] or each["address"]
            for each in state.get("connections", ())
            if each["state"] == "established"
        }
    )


def peer_line(peer: KnownPeer, connected: Mapping[str, int] | None) -> dict[str, object]:
    """A line of JSON."""
    rule, seen, peer_id = peer.rule, peer.seen, peer.peer_id.hex()
    allowed = rule is not None and rule.allowed
    return {
        "peer_id": peer_id,
        "name": peer.name,
        "state": str(peer.state),
        "read": written_scope(rule.read) if rule is not None and allowed else None,
        "write": str(rule.write) if rule is not None and allowed else None,
        "rate_in": None if rule is None else rule.rate_in,
        "rate_out": None if rule is None else rule.rate_out,
        "connections_max": rule.connections if rule is not None and allowed else None,
        "address": None if rule is None else rule.address,
        "connected": None if connected is None else connected.get(peer_id, 0),
        "count": 0 if seen is None else seen.count,
        "first_seen": None if seen is None else rfc3339(seen.first_at),
        "last_seen": None if seen is None else rfc3339(seen.last_at),
        "last_address": None if seen is None else seen.address,
    }
