"""Data streams with bookmarks over our logs: served to, and relayed from, other programs.

Names are loaded when they are first used: `codec` and `sessions`, which are sans-io, come without
Trio and SQLite. docs/datastream.md says what programs and people do with them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .errors import (
        FileRefused,
        HistoryDiffers,
        NotAStream,
        RequestRefused,
        ServerFailed,
        StreamBroken,
        StreamError,
        StreamMismatch,
    )
    from .files import ExportedFile, ImportedFile, export_file, import_file
    from .logs import State, StreamLog
    from .relaying import relay
    from .remote import DataStreamClient
    from .service import DataStreamServer
    from .source import Batch, DataStreamSource, Operation
    from .stream import DataStream

_HOMES = {
    "Batch": "source",
    "DataStream": "stream",
    "DataStreamClient": "remote",
    "DataStreamServer": "service",
    "DataStreamSource": "source",
    "ExportedFile": "files",
    "FileRefused": "errors",
    "HistoryDiffers": "errors",
    "ImportedFile": "files",
    "NotAStream": "errors",
    "Operation": "source",
    "RequestRefused": "errors",
    "ServerFailed": "errors",
    "State": "logs",
    "StreamBroken": "errors",
    "StreamError": "errors",
    "StreamLog": "logs",
    "StreamMismatch": "errors",
    "export_file": "files",
    "import_file": "files",
    "relay": "relaying",
}

__all__ = [
    "Batch",
    "DataStream",
    "DataStreamClient",
    "DataStreamServer",
    "DataStreamSource",
    "ExportedFile",
    "FileRefused",
    "HistoryDiffers",
    "ImportedFile",
    "NotAStream",
    "Operation",
    "RequestRefused",
    "ServerFailed",
    "State",
    "StreamBroken",
    "StreamError",
    "StreamLog",
    "StreamMismatch",
    "export_file",
    "import_file",
    "relay",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value
        return value
