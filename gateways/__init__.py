"""Other systems' streams over our logs: what every gateway needs, once.

A gateway is a view on logs: what its clients write becomes entries of the node's own author, and
what they read comes from any replica. Each one is a package in here; this root is the frame that
they stand on. Names are loaded when they are first used, so that sans-io modules of a gateway can
be taken without Trio and SQLite. Nothing below imports `gateways`.
"""

from typing import TYPE_CHECKING

from wire import loaded_late

if TYPE_CHECKING:
    from .applied import APPLIED_COLUMNS, applied_ingest, applied_row
    from .calling import again, beside
    from .hosting import LogHost, store_of
    from .locks import WriterLock
    from .log_ids import Sign, create_logs, free_ids, free_runs
    from .met import DeclaredRow, Met, MetLog
    from .newest_state import NewestState, Said
    from .prefix import (
        Prefix,
        Standing,
        entries_from,
        holds_still,
        read_to_damage,
        sound_entries,
        sound_entry,
        standing_of,
    )
    from .reception import (
        Ended,
        Reception,
        is_lost,
        receive_later,
        receive_some,
        send_bounded,
        send_now,
        send_off,
        why_ended,
    )
    from .running import Running, outlasting
    from .saving import Saver
    from .side_table import SideTable, pack_u64, side_path, unpack_u64

__all__ = [
    "APPLIED_COLUMNS",
    "DeclaredRow",
    "Ended",
    "LogHost",
    "Met",
    "MetLog",
    "NewestState",
    "Prefix",
    "Reception",
    "Running",
    "Said",
    "Saver",
    "SideTable",
    "Sign",
    "Standing",
    "WriterLock",
    "again",
    "applied_ingest",
    "applied_row",
    "beside",
    "create_logs",
    "entries_from",
    "free_ids",
    "free_runs",
    "holds_still",
    "is_lost",
    "outlasting",
    "pack_u64",
    "read_to_damage",
    "receive_later",
    "receive_some",
    "send_bounded",
    "send_now",
    "send_off",
    "side_path",
    "sound_entries",
    "sound_entry",
    "standing_of",
    "store_of",
    "unpack_u64",
    "why_ended",
]

if not TYPE_CHECKING:
    __getattr__ = loaded_late(
        __name__,
        {
            "applied": ("APPLIED_COLUMNS", "applied_ingest", "applied_row"),
            "calling": ("again", "beside"),
            "hosting": ("LogHost", "store_of"),
            "locks": ("WriterLock",),
            "log_ids": ("Sign", "create_logs", "free_ids", "free_runs"),
            "met": ("DeclaredRow", "Met", "MetLog"),
            "newest_state": ("NewestState", "Said"),
            "prefix": (
                "Prefix",
                "Standing",
                "entries_from",
                "holds_still",
                "read_to_damage",
                "sound_entries",
                "sound_entry",
                "standing_of",
            ),
            "reception": (
                "Ended",
                "Reception",
                "is_lost",
                "receive_later",
                "receive_some",
                "send_bounded",
                "send_now",
                "send_off",
                "why_ended",
            ),
            "running": ("Running", "outlasting"),
            "saving": ("Saver",),
            "side_table": ("SideTable", "pack_u64", "side_path", "unpack_u64"),
        },
    )
