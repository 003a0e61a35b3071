"""Which connections may stay where there are more than a node can have (doors.md 4).

Theory. Whoever keeps places occupied is not told from whoever needs one by when he came: to refuse
the newest hands the node over to the first who fills it. So somebody gives way:

- of those who are not set up (a setup takes an honest peer two round trips, and a silent socket
  ten seconds), the oldest;
- else of those that nothing useful ever came of, or that have nothing to do with any log, the
  oldest;
- both of the **busiest address** only, that is where most places are. Who takes many places to
  keep others out takes them from himself, and a peer alone behind its address is left alone. Where
  no address has more than another, each of them is the busiest.

If nobody gives way the new one is closed. Three things are counted: those that are not set up,
those of an address, and all of them. What a node calls by itself and peers that it has allowed
have places that strangers cannot take. Who comes over TLS may be such a peer: he is counted among
the strangers once his id is proved and nobody has allowed it.

An address is what one person has: an IPv4 address, or an IPv6 /64. Loopback is one, too: tunnels
and proxies end there, with any number of people behind them, so that it gets eight times as much.
How often an address may come is counted apart, before any work is done for it.
"""

import ipaddress
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from .limits import Limits

BUCKETS_MAX: Final = 4096
LOOPBACK: Final = "loopback"
LOOPBACK_TIMES: Final = 8


class TooManyConnectionsError(Exception):
    """A connection may not stay; the text says why."""


class Slot:
    """The place of an accepted connection, until `leave`.

    `give_way` is called, once and with the reason, if another one is to have the place; it need
    not have ended when this returns. `is_useful` is asked of a connection that is set up.
    """

    def __init__(self, gate: "Gate", place: str, give_way: Callable[[str], None]) -> None:
        self._gate = gate
        self.place = place
        self.give_way = give_way
        self.is_useful: Callable[[], bool] = lambda: True
        self.is_set_up = False
        self.is_stranger = False
        gate.slots[self] = None

    def established(self, is_useful: Callable[[], bool] = lambda: True) -> None:
        """The setup of the connection is there."""
        self.is_set_up = True
        self.is_useful = is_useful

    def leave(self) -> None:
        """The connection has ended, or another one has its place."""
        self._gate.slots.pop(self, None)


class Gate:
    """Counts connections and says which of them may stay."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.outgoing = 0
        self.refused = 0
        self.gave_way = 0
        self.hits: Counter[str] = Counter()
        """How often somebody was refused or gave way, by the limit's key (limits.py)."""
        self.slots: dict[Slot, None] = {}
        """Of accepted connections, the oldest first."""
        self._buckets: dict[str, tuple[float, float]] = {}

    @property
    def incoming(self) -> int:
        """Accepted connections that are open."""
        return len(self.slots)

    def enter(self, host: str, now: float, give_way: Callable[[str], None]) -> "Slot":
        """A place for a connection that was accepted from a host. Raises TooManyConnectionsError.

        Somebody else may have to give way for it.
        """
        limits, place = self.limits, place_of(host)
        times = LOOPBACK_TIMES if place == LOOPBACK else 1
        if not self._take_token(place, now, times):
            self.refused += 1
            self.hits["accepts"] += 1
            rate = limits.accepts_per_s * times
            raise TooManyConnectionsError(f"more than {rate:.0f} connections a second from there")
        unfinished = [slot for slot in self.slots if not slot.is_set_up]
        if len(unfinished) >= limits.unestablished_max:
            reason = f"{len(unfinished)} connections have not finished their setup"
            self._have_give_way("handshakes", _of_busiest(unfinished), reason)
        return Slot(self, place, give_way)

    def count_stranger(self, slot: Slot) -> None:
        """Whoever has entered is nobody that this node knows. Raises TooManyConnectionsError.

        Somebody else may have to give way. To be called before anything is done for him.
        """
        limits = self.limits
        per_address = limits.per_address_max * (LOOPBACK_TIMES if slot.place == LOOPBACK else 1)
        there = [each for each in self._strangers() if each.place == slot.place]
        if len(there) >= per_address:
            reason = f"{per_address} connections come from its address"
            self._have_give_way("per-address", there, reason)
        strangers = self._strangers()
        known = sum(each.is_set_up and not each.is_stranger for each in self.slots)
        kept = max(self.outgoing + known, limits.outgoing_reserved)
        if len(strangers) + kept >= limits.connections_max:
            reason = f"{len(strangers) + known} connections are open, as many as are allowed"
            self._have_give_way("connections", _of_busiest(strangers), reason)
        slot.is_stranger = True

    def _strangers(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.is_stranger]

    def _have_give_way(self, limit: str, candidates: Iterable[Slot], reason: str) -> None:
        """The one of these that is missed least gives way. Raises TooManyConnectionsError."""
        self.hits[limit] += 1
        found: Slot | None = None
        for slot in candidates:
            if not slot.is_set_up:
                found = slot
                break
            if found is None and not slot.is_useful():
                found = slot
        if found is None:
            self.refused += 1
            raise TooManyConnectionsError(reason)
        self.gave_way += 1
        found.leave()
        found.give_way(f"{reason}, and nothing useful came of this one")

    def _take_token(self, place: str, now: float, times: int) -> bool:
        burst, rate = self.limits.accepts_burst * times, self.limits.accepts_per_s * times
        tokens, since = self._buckets.get(place, (burst, now))
        tokens = min(burst, tokens + (now - since) * rate)
        taken = tokens >= 1
        self._buckets[place] = (tokens - taken, now)
        if len(self._buckets) > BUCKETS_MAX:
            self._forget_full(now)
        return taken

    def _forget_full(self, now: float) -> None:
        """Forgets addresses that were quiet so long that nothing is held against them."""
        limits = self.limits
        rate = limits.accepts_per_s
        full_after = limits.accepts_burst / rate if rate else math.inf
        kept = {a: b for a, b in self._buckets.items() if now - b[1] < full_after}
        if len(kept) > BUCKETS_MAX:
            # Many addresses at once: forget those that were counted first.
            kept = dict(list(kept.items())[-BUCKETS_MAX // 2 :])
        self._buckets = kept


def _of_busiest(slots: Iterable[Slot]) -> list[Slot]:
    """Those of the addresses that have the most, in the order given."""
    slots = list(slots)
    counts = Counter(slot.place for slot in slots)
    most = max(counts.values(), default=0)
    return [slot for slot in slots if counts[slot.place] == most]


def place_of(host: str) -> str:
    """What addresses have in common that one person has: an IPv4 address, or an IPv6 /64.

    Loopback is one place, and so is what is no IP address, as in memory.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return LOOPBACK
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            network = ipaddress.ip_network((address, 64), strict=False)
            return LOOPBACK if address.is_loopback else str(network)
        address = address.ipv4_mapped
    return LOOPBACK if address.is_loopback else str(address)
