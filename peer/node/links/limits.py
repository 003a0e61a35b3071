"""How many connections are taken, and how fast, each with where the number is from.

What is above a limit is closed at once, before any work is done for it.
"""

import ipaddress
from collections import Counter
from dataclasses import dataclass
from typing import Final

BUCKETS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Limits:
    """Connections taken, and what they move. Limits per address do not apply to loopback."""

    connections_max: int = 256
    """Incoming and outgoing together (libp2p's LIMITS.md takes 300)."""
    outgoing_reserved: int = 32
    """Of these are kept for connections that we make."""
    per_address_max: int = 16
    unestablished_max: int = 32
    """Accepted and without setup, which takes 10 s at most (libp2p: 10 pending)."""
    accepts_per_s: float = 10.0
    """Per address (bee #5322: 10 a second, burst 40)."""
    accepts_burst: float = 40.0
    turn_packets: int = 1000
    """bymux packets of one connection that are read before others have their turn."""
    data_credit_bytes_max: int = 64 << 20
    """What all connections together may have under way to us: sixty with a mebibyte each."""
    bytes_per_s_max: int | None = None
    """That all connections together move, in each direction; None: without limit."""
    peer_bytes_per_s_max: int | None = None
    """That each connection moves, in each direction; None: without limit."""


class TooManyConnectionsError(Exception):
    """A connection may not stay; the text says why."""


class Slot:
    """The place of an accepted connection, until `leave`."""

    def __init__(self, gate: "Gate", address: str) -> None:
        self._gate = gate
        self._address = address
        self._unestablished = True
        gate.by_address[address] += 1
        gate.unestablished += 1

    def established(self) -> None:
        """The setup of the connection is there."""
        if self._unestablished:
            self._unestablished = False
            self._gate.unestablished -= 1

    def leave(self) -> None:
        """The connection has ended."""
        self.established()
        self._gate.by_address[self._address] -= 1
        if not self._gate.by_address[self._address]:
            del self._gate.by_address[self._address]


class Gate:
    """Counts connections and says which of them may stay."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.outgoing = 0
        self.refused = 0
        self.by_address: Counter[str] = Counter()
        self.unestablished = 0
        self._buckets: dict[str, tuple[float, float]] = {}

    @property
    def incoming(self) -> int:
        """Accepted connections that are open."""
        return self.by_address.total()

    def enter(self, address: str, now: float) -> "Slot":
        """A place for an accepted connection. Raises TooManyConnectionsError."""
        reason = self._reason(address, now)
        if reason is not None:
            self.refused += 1
            raise TooManyConnectionsError(reason)
        return Slot(self, address)

    def _reason(self, address: str, now: float) -> str | None:
        limits = self.limits
        outgoing = max(self.outgoing, limits.outgoing_reserved)
        if self.incoming + outgoing >= limits.connections_max:
            return f"{self.incoming} connections are open, as many as are allowed"
        if self.unestablished >= limits.unestablished_max:
            return f"{self.unestablished} connections have not finished their setup"
        if is_loopback(address):
            return None
        if self.by_address[address] >= limits.per_address_max:
            return f"{limits.per_address_max} connections come from this address"
        if not self._take_token(address, now):
            return f"more than {limits.accepts_per_s:.0f} connections a second from this address"
        return None

    def _take_token(self, address: str, now: float) -> bool:
        limits = self.limits
        tokens, since = self._buckets.get(address, (limits.accepts_burst, now))
        tokens = min(limits.accepts_burst, tokens + (now - since) * limits.accepts_per_s)
        taken = tokens >= 1
        self._buckets[address] = (tokens - taken, now)
        if len(self._buckets) > BUCKETS_MAX:
            self._forget_full(now)
        return taken

    def _forget_full(self, now: float) -> None:
        """Forgets addresses that were quiet so long that nothing is held against them."""
        limits = self.limits
        full_after = limits.accepts_burst / limits.accepts_per_s
        kept = {a: b for a, b in self._buckets.items() if now - b[1] < full_after}
        if len(kept) > BUCKETS_MAX:
            # Many addresses at once: forget those that were counted first.
            kept = dict(list(kept.items())[-BUCKETS_MAX // 2 :])
        self._buckets = kept


def is_loopback(address: str) -> bool:
    """Whether an address is of this machine alone; what is no IP address, as in memory, is."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return True
