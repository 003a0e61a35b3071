"""Cardinal streams over our logs: blocks of a chain that may fork, from producers to consumers.

`codec`, `frames` and `declared` turn bytes into values, `producing` blocks into messages,
`assembly` messages into blocks, and `ordering` says which of these are the chain: without sockets,
clock or store. `logs` finds, makes and reads the logs of a stream. Names are loaded when they are
first used. docs/cardinal.md says what it is good for.
"""

from typing import TYPE_CHECKING

from wire import loaded_late

if TYPE_CHECKING:
    from .logs import (
        FIRST_LOG,
        Gathering,
        Lying,
        NotAStream,
        Settings,
        Stream,
        Unread,
        chosen_topics,
        create_stream,
        held_entries,
        lock_name,
        messages_of_entry,
        new_entries,
        own_stream,
        stream_of,
    )

__all__ = [
    "FIRST_LOG",
    "Gathering",
    "Lying",
    "NotAStream",
    "Settings",
    "Stream",
    "Unread",
    "chosen_topics",
    "create_stream",
    "held_entries",
    "lock_name",
    "messages_of_entry",
    "new_entries",
    "own_stream",
    "stream_of",
]

if not TYPE_CHECKING:
    __getattr__ = loaded_late(__name__, {"logs": tuple(__all__)})
