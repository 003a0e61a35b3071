"""Data streams with bookmarks over our logs: served to, and relayed from, other programs.

Names are loaded when they are first used: `codec` and `sessions`, which are sans-io, come without
Trio and SQLite. docs/datastream.md says what programs and people do with them.
"""

from typing import TYPE_CHECKING

from wire import loaded_late

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
    __getattr__ = loaded_late(
        __name__,
        {
            "errors": (
                "FileRefused",
                "HistoryDiffers",
                "NotAStream",
                "RequestRefused",
                "ServerFailed",
                "StreamBroken",
                "StreamError",
                "StreamMismatch",
            ),
            "files": ("ExportedFile", "ImportedFile", "export_file", "import_file"),
            "logs": ("State", "StreamLog"),
            "relaying": ("relay",),
            "remote": ("DataStreamClient",),
            "service": ("DataStreamServer",),
            "source": ("Batch", "DataStreamSource", "Operation"),
            "stream": ("DataStream",),
        },
    )
