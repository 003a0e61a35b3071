"""The session engine of a peer: bytes and events in, commands and bytes out.

No clock, no sockets, no disk and no randomness of its own: peer.node gives it those, and `peer.api`
is what programs embed. Names are loaded when they are first used, so that commands start fast and
`import peer` loads neither the engine nor Trio.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peer.planner.log_table import LogTable
    from peer.planner.source_book import SourceBook
    from peer.planner.source_records import SourceSeat
    from peer.planner.sourcing import claim_all
    from peer.protocol.buckets import Buckets, LogBucket
    from peer.protocol.commands import (
        CheckEvidence,
        ClosePayload,
        Command,
        FinishPayload,
        Ingest,
        IngestItem,
        LookUp,
        OpenPayload,
        ReadEntries,
        ReadPayload,
        StopReading,
        WritePayload,
    )
    from peer.protocol.config import Compression, SessionConfig, default_setup
    from peer.protocol.errors import LocalMisuse, RemoteViolation, SessionTimeout, Violation
    from peer.protocol.events import (
        ArrivalChanged,
        EntriesRead,
        Event,
        HeldEntry,
        Ingested,
        IngestFailed,
        Interests,
        InterestsChanged,
        LogChanged,
        LogView,
        LookedUp,
        PayloadFinished,
        PayloadRead,
        PayloadWithdrawn,
        PayloadWritten,
        Refusal,
        SourceChanged,
        StorageFailed,
        Verdict,
    )
    from peer.protocol.notices import (
        Arriving,
        EntriesReceived,
        EntriesSent,
        FetchEnded,
        Limit,
        LimitMet,
        NewestLearned,
        Notice,
        PayloadReceived,
        PeerHolds,
        RequestCancelled,
        RequestConfirmed,
        RequestGivenUp,
        SetUp,
        SyncFinished,
    )
    from peer.protocol.plain import counted, json_number, log_fields, seq_span
    from peer.protocol.refunds import RefundBucket
    from peer.protocol.scope import Scope
    from peer.protocol.tracing import Tracer

    from .session import Allowances, Session, SessionStatistics

_HOMES = (
    "protocol.buckets",
    "protocol.plain",
    "protocol.commands",
    "protocol.config",
    "protocol.errors",
    "protocol.events",
    "planner.log_table",
    "protocol.notices",
    "protocol.refunds",
    "protocol.scope",
    "session",
    "planner.source_book",
    "planner.source_records",
    "planner.sourcing",
    "protocol.tracing",
)
_IN_API = frozenset(("Peer", "sync"))

__all__ = [
    "Allowances",
    "ArrivalChanged",
    "Arriving",
    "Buckets",
    "CheckEvidence",
    "ClosePayload",
    "Command",
    "Compression",
    "EntriesRead",
    "EntriesReceived",
    "EntriesSent",
    "Event",
    "FetchEnded",
    "FinishPayload",
    "HeldEntry",
    "Ingest",
    "IngestFailed",
    "IngestItem",
    "Ingested",
    "Interests",
    "InterestsChanged",
    "Limit",
    "LimitMet",
    "LocalMisuse",
    "LogBucket",
    "LogChanged",
    "LogTable",
    "LogView",
    "LookUp",
    "LookedUp",
    "NewestLearned",
    "Notice",
    "OpenPayload",
    "PayloadFinished",
    "PayloadRead",
    "PayloadReceived",
    "PayloadWithdrawn",
    "PayloadWritten",
    "PeerHolds",
    "ReadEntries",
    "ReadPayload",
    "RefundBucket",
    "Refusal",
    "RemoteViolation",
    "RequestCancelled",
    "RequestConfirmed",
    "RequestGivenUp",
    "Scope",
    "Session",
    "SessionConfig",
    "SessionStatistics",
    "SessionTimeout",
    "SetUp",
    "SourceBook",
    "SourceChanged",
    "SourceSeat",
    "StopReading",
    "StorageFailed",
    "SyncFinished",
    "Tracer",
    "Verdict",
    "Violation",
    "WritePayload",
    "claim_all",
    "counted",
    "default_setup",
    "json_number",
    "log_fields",
    "seq_span",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        homes = ("api",) if name in _IN_API else _HOMES
        for home in homes if name in _IN_API or name in __all__ else ():
            value = getattr(import_module(f".{home}", __name__), name, None)
            if value is not None:
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
