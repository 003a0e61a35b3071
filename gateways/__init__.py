"""Other systems' streams over our logs: what every gateway needs, once.

A gateway is a view on logs: what its clients write becomes entries of the node's own author, and
what they read comes from any replica. Each one is a package in here; this root is the frame that
they stand on. Names are loaded when they are first used, so that sans-io modules of a gateway can
be taken without Trio and SQLite. Nothing below imports `gateways`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .hosting import LogHost, Observer, store_of, unobserved
    from .locks import WriterLock
    from .log_ids import Sign, create_logs, free_ids
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
    from .reception import Ended, Reception, receive_some, send_bounded, send_now
    from .running import Running, outlasting
    from .side_table import SideTable

_HOMES = {
    "Ended": "reception",
    "LogHost": "hosting",
    "Observer": "hosting",
    "Prefix": "prefix",
    "Reception": "reception",
    "Running": "running",
    "SideTable": "side_table",
    "Standing": "prefix",
    "WriterLock": "locks",
    "Sign": "log_ids",
    "create_logs": "log_ids",
    "free_ids": "log_ids",
    "entries_from": "prefix",
    "holds_still": "prefix",
    "outlasting": "running",
    "read_to_damage": "prefix",
    "receive_some": "reception",
    "send_bounded": "reception",
    "send_now": "reception",
    "sound_entries": "prefix",
    "sound_entry": "prefix",
    "standing_of": "prefix",
    "store_of": "hosting",
    "unobserved": "hosting",
}

__all__ = [
    "Ended",
    "LogHost",
    "Observer",
    "Prefix",
    "Reception",
    "Running",
    "SideTable",
    "Sign",
    "Standing",
    "WriterLock",
    "create_logs",
    "entries_from",
    "free_ids",
    "holds_still",
    "outlasting",
    "read_to_damage",
    "receive_some",
    "send_bounded",
    "send_now",
    "sound_entries",
    "sound_entry",
    "standing_of",
    "store_of",
    "unobserved",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value
        return value
