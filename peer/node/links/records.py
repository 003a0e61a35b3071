"""What can be said of a node's connections, for people and for `status`."""

from collections.abc import Callable, Mapping
from enum import StrEnum

from msgspec import Struct

from peer import Allowances

Observer = Callable[[Mapping[str, object]], object]
"""Takes an event of a node or a gateway, in the event loop: a name under "event" and values that
JSON has."""


class Direction(StrEnum):
    """Who called."""

    INCOMING = "incoming"
    OUTGOING = "outgoing"


class ConnectionState(StrEnum):
    """How far a connection has come."""

    WAITING = "waiting"
    """Ended or not made yet; another attempt follows."""
    PAUSED = "paused"
    """By `pause`; none is made before that is over."""
    CONNECTING = "connecting"
    SETUP = "setup"
    """The stream is there, the other side's setup is not."""
    ESTABLISHED = "established"
    CLOSING = "closing"


class Pace(Struct, frozen=True):
    """What a rate limit makes of one direction of a connection."""

    bytes_per_s: int
    """Moved in the last whole second."""
    waits: bool
    """Whether something had to wait for its turn a moment ago."""


class Terms(Struct, frozen=True):
    """What is in force on a connection, and how much of what is allowed is used."""

    send_greedily: bool
    """What this side is ready for..."""
    accept_greedily: bool
    greedy_sending: bool
    """... and what both come to: payloads may pass before they are verified."""
    greedy_receiving: bool
    compression_window: int
    decompression_window: int
    requests: int
    """Of ours, confirmed and not over."""
    peer_requests: int
    peer_requests_max: int
    allowances: Allowances
    sending: Pace | None
    """None: without limit."""
    receiving: Pace | None


class ConnectionInfo(Struct, frozen=True):
    """A connection, or a peer that is called again and again. Counts are of this connection."""

    address: str
    direction: Direction
    state: ConnectionState
    since_s: float
    """Since when it is in this state, on Trio's clock."""
    peer_id: str | None = None
    """In hex, what the other side has proved to be; None without TLS, and before that."""
    last_error: str | None = None
    """Why the last connection to this address ended, if not in good order."""
    attempts: int = 0
    """Calls since the last one that was answered."""
    retry_at_s: float | None = None
    bytes_received: int = 0
    bytes_sent: int = 0
    entries_received: int = 0
    entries_sent: int = 0
    payload_bytes_received: int = 0
    payload_bytes_sent: int = 0
    saved_bytes_received: int = 0
    """By how much compression made payload bytes fewer on their way."""
    saved_bytes_sent: int = 0
    logs: int = 0
    """Logs about which a request is active."""
    not_kept: str | None = None
    """Why something that came could not be kept, of several the last; it may be here now."""
    not_given: str | None = None
    """Why something that is held could not be read for the other side, of several the last."""
    terms: Terms | None = None
    """None before both sides have sent their setup."""
