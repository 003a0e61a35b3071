"""What metrics count: events of a node, and what its connections have moved, those that are over
included.

Peers that the table names as allowed count by their id, all others together: ids cost nothing to
make, and each label is a row that is kept for weeks.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from peer.node.links.records import Observer
from peer.node.links.roster import Member
from peer.node.node import Node

OTHERS: Final = "other"
"""The label of all peers that are not allowed by name, or have not shown their id."""
COUNTED: Final[Mapping[object, str]] = {
    "connected": "connections_opened",
    "connect_failed": "connect_failures",
    "disconnected": "disconnections",
    "violation": "violations",
    "storage_failed": "storage_failures",
    "log_advanced": "log_advances",
}
"""Events that are counted, and as what."""
MOVED: Final = (
    "bytes_received",
    "bytes_sent",
    "entries_received",
    "entries_sent",
    "payload_bytes_received",
    "payload_bytes_sent",
)
"""What is counted of each connection, as `ConnectionInfo` calls it."""


class Meter:
    """Counts from the start of a node on. Nothing in it grows with time, logs or strangers."""

    def __init__(self) -> None:
        self.events: Counter[tuple[str, str]] = Counter()
        """How often something happened, by what and by its kind; no kind is an empty one."""
        self._node: Node | None = None
        self._open: set[Member] = set()
        self._moved: dict[str, Counter[str]] = {}
        """By peer, over connections that have ended."""

    def watch(self, node: Node) -> None:
        """From now on looks at the connections of a node."""
        self._node = node

    def observing(self, observer: Observer) -> Observer:
        """An observer that counts an event and hands it on."""

        def take(event: Mapping[str, object]) -> None:
            self._take(event)
            observer(event)

        return take

    def _take(self, event: Mapping[str, object]) -> None:
        name = COUNTED.get(event["event"])
        if name is not None:
            self.events[name, str(event.get("kind", ""))] += 1
        if event["event"] in {"connected", "disconnected", "violation"}:
            self._look()

    def moved(self) -> Mapping[str, Mapping[str, int]]:
        """What was received and sent by each peer that is allowed, and by all others together."""
        self._look()
        allowed = self.allowed()
        found: dict[str, Counter[str]] = {OTHERS: Counter()}
        for peer, counts in self._moved.items():
            # Whoever was removed meanwhile is one of the others.
            found.setdefault(peer if peer in allowed else OTHERS, Counter()).update(counts)
        for member in self._open:
            found.setdefault(self.label(member.peer_id, allowed), Counter()).update(_counts(member))
        return found

    def allowed(self) -> frozenset[str]:
        """The ids of the peers that the table allows, in hex."""
        assert self._node is not None
        rules = self._node.entrance.admission.rules
        return frozenset(peer.hex() for peer, rule in rules.items() if rule.allowed)

    @staticmethod
    def label(peer_id: bytes | None, allowed: frozenset[str]) -> str:
        """What a peer counts as."""
        name = OTHERS if peer_id is None else peer_id.hex()
        return name if name in allowed else OTHERS

    def _look(self) -> None:
        """Notes who has come, and adds up what those have moved who are gone."""
        if self._node is None:
            return
        self._open.update(self._node.members)
        gone = [member for member in self._open if member.ended.is_set()]
        if not gone:
            return
        allowed = self.allowed()
        for member in gone:
            self._open.discard(member)
            label = self.label(member.peer_id, allowed)
            self._moved.setdefault(label, Counter()).update(_counts(member))
        for peer in [peer for peer in self._moved if peer != OTHERS and peer not in allowed]:
            self._moved.setdefault(OTHERS, Counter()).update(self._moved.pop(peer))


def _counts(member: Member) -> dict[str, int]:
    counts = member.connection.session.statistics()
    return {name: getattr(counts, name) for name in MOVED}


def connected(members: Iterable[Member], allowed: frozenset[str]) -> Mapping[str, int]:
    """How many connections each peer has that are set up; of those who are allowed also none."""
    found = dict.fromkeys((*allowed, OTHERS), 0)
    for member in members:
        if member.established.is_set():
            found[Meter.label(member.peer_id, allowed)] += 1
    return found
