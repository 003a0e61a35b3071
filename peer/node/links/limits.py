"""Every limit of a node, its name, what happens beyond it, and where the number is from.

The table in docs/limits.md is printed from here, and `--limit KEY=VALUE` sets what stands here. The
limits of one session are in peer/protocol/config.py; those that a session is given by its node are
here as well.
"""

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, NamedTuple

from logstore import QuotaLimits

GIB: Final = 1 << 30


class Unit(StrEnum):
    """What a limit counts."""

    COUNT = "count"
    PER_SECOND = "a second"
    BYTES = "bytes"
    SECONDS = "seconds"


class Limit(NamedTuple):
    """One row of the table. `beyond`: what happens; `why`: where the number is from."""

    key: str
    field: str
    unit: Unit
    default: object
    beyond: str
    why: str
    optional: bool


def _limit(
    key: str,
    default: Any,  # noqa: ANN401 - the field's own type is what counts
    unit: Unit,
    beyond: str,
    why: str,
    *,
    optional: bool = False,
) -> Any:  # noqa: ANN401 - as of `field`
    told = {"key": key, "unit": unit, "beyond": beyond, "why": why, "optional": optional}
    return field(default=default, metadata=told)


_REFUSED: Final = "not taken in (129), before the first byte; what is held stays"


@dataclass(frozen=True, slots=True)
class Limits:
    """What connections of a node may take. Counts, bytes, seconds and rates a second.

    An address is an IPv4 address or an IPv6 /64. Loopback is one, and gets eight times as much.
    """

    connections_max: int = _limit(
        "connections",
        256,
        Unit.COUNT,
        "the oldest of the busiest address that is not set up, else that nothing useful came of,"
        " gives way; else the new one is closed",
        "libp2p's LIMITS.md takes 300, incoming and outgoing together",
    )
    outgoing_reserved: int = _limit(
        "reserved-connections",
        32,
        Unit.COUNT,
        "of `connections`, for those that we make and for allowed peers",
        "strangers cannot keep out who is known",
    )
    per_address_max: int = _limit(
        "per-address",
        16,
        Unit.COUNT,
        "as for `connections`, of this address",
        "a household behind one address; an allowed peer does not count",
    )
    unestablished_max: int = _limit(
        "handshakes",
        32,
        Unit.COUNT,
        "the oldest of the busiest address that is not set up gives way",
        "each has 10 s, so that three a second may be as slow as they like (libp2p: 10)",
    )
    accepts_per_s: float = _limit(
        "accepts",
        10.0,
        Unit.PER_SECOND,
        "closed at once, of one address",
        "bee #5322",
    )
    accepts_burst: float = _limit(
        "accepts-burst", 40.0, Unit.COUNT, "so many at once before `accepts` counts", "bee #5322"
    )
    author_bytes: int | None = _limit(
        "author-bytes",
        GIB,
        Unit.BYTES,
        _REFUSED,
        "of an author who is not followed by name: ids cost nothing to make",
        optional=True,
    )
    peer_bytes: int | None = _limit(
        "peer-bytes",
        10 * GIB,
        Unit.BYTES,
        _REFUSED,
        "brought by one peer, of authors who are not followed by name",
        optional=True,
    )
    store_bytes: int | None = _limit(
        "store-bytes",
        None,
        Unit.BYTES,
        _REFUSED,
        "of all logs; a disk of its own for the store is as good",
        optional=True,
    )
    free_bytes: int | None = _limit(
        "free-bytes",
        None,
        Unit.BYTES,
        _REFUSED + "; own entries may use it",
        "kept free on the disk; unless said, 1 GiB or 5 % of it, the smaller",
    )
    partial_seconds: float = _limit(
        "partial-seconds",
        86_400.0,
        Unit.SECONDS,
        "deleted; it counts as declared until then",
        "a part of a payload of which nothing came for a day",
    )
    offered_logs_max: int = _limit(
        "offered-logs",
        10_000,
        Unit.COUNT,
        "refused (129)",
        "new logs that a peer brings and that are not followed by name; then ten more a second",
    )
    payload_bytes_max: int = _limit(
        "payload-bytes",
        2**63,
        Unit.BYTES,
        "refused (129)",
        "one payload; the quotas above are what bounds payloads",
    )
    turn_packets: int = _limit(
        "turn-packets",
        1000,
        Unit.COUNT,
        "others first",
        "256 KiB read at once can be 52,000 packets",
    )
    answer_bytes: int = _limit(
        "answer-bytes",
        2 << 20,
        Unit.BYTES,
        "it gets no more credit to ask for anything",
        "control messages that a peer does not read",
    )
    data_credit_bytes_max: int = _limit(
        "data-credit-bytes",
        64 << 20,
        Unit.BYTES,
        "each new connection gets a sixteenth of what is left, 64 KiB at least",
        "what all connections may have under way to us: forty get a mebibyte or more",
    )
    bytes_per_s_max: int | None = None
    """That all connections together move, in each direction; None: without limit."""
    peer_bytes_per_s_max: int | None = None
    """That each connection moves, in each direction; None: without limit."""

    @property
    def rates(self) -> tuple[int | None, int | None]:
        """Bytes a second, of the node and of each connection."""
        return self.bytes_per_s_max, self.peer_bytes_per_s_max

    @property
    def quotas(self) -> QuotaLimits:
        """What the store is told."""
        return QuotaLimits(self.author_bytes, self.peer_bytes, self.store_bytes, self.free_bytes)


def limit_table() -> list[Limit]:
    """Every limit that has a name, in the order in which people read of them."""
    return [
        Limit(field=each.name, default=each.default, **each.metadata)
        for each in fields(Limits)
        if each.metadata
    ]
