"""What a session tells of itself in numbers."""

from msgspec import Struct


class SessionStatistics(Struct, frozen=True):
    """Counters of one session. Bytes are those of the transport; payload bytes are uncompressed."""

    bytes_received: int
    bytes_sent: int
    entries_received: int
    entries_sent: int
    payload_bytes_received: int
    payload_bytes_sent: int
    saved_bytes_received: int
    """By how much compression made the payload bytes fewer."""
    saved_bytes_sent: int
    requests: int


class Allowances(Struct, frozen=True):
    """How much of what the two sides allow each other is used."""

    proposals_left: int
    """That the other side takes from us now."""
    incoming_bytes: int
    """Of the data channel: here, and not yet stored or thrown away..."""
    incoming_bytes_max: int
    """... of so many that the other side may send ahead."""
    outgoing_bytes: int
    """Of the data channel: sent, and not given back by the other side's credit..."""
    outgoing_bytes_max: int | None
    """... of so many that it takes ahead; None: without limit."""
    outgoing_waits: bool
    """Whether nothing more may be sent until the other side is done with some of it."""
