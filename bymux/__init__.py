"""Bymux: many byte streams over one reliable, ordered, bidirectional byte channel (bymux.md).

This layer knows nothing of bamboo, does no input or output and reads no clock: a `Connection` takes
the peer's bytes and returns events, takes commands and returns bytes. `bymux.trio_streams`, which
this package does not import, runs one over any Trio stream.
"""

from .config import INFINITE, Config, InitialStream, Limits, Role
from .connection import Connection, Statistics
from .errors import LocalProtocolError, RemoteProtocolError, Violation
from .events import (
    CloseReceived,
    CreditReceived,
    DataReceived,
    Event,
    PongReceived,
    StopReadReceived,
    StreamEnded,
    StreamOpened,
)

__all__ = [
    "INFINITE",
    "CloseReceived",
    "Config",
    "Connection",
    "CreditReceived",
    "DataReceived",
    "Event",
    "InitialStream",
    "Limits",
    "LocalProtocolError",
    "PongReceived",
    "RemoteProtocolError",
    "Role",
    "Statistics",
    "StopReadReceived",
    "StreamEnded",
    "StreamOpened",
    "Violation",
]
