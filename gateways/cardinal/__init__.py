"""Cardinal streams over our logs: blocks of a chain that may fork, from producers to consumers.

`codec`, `frames` and `declared` turn bytes into values, `producing` blocks into messages,
`assembly` messages into blocks, and `ordering` says which of these are the chain: without sockets,
clock or store. `logs` finds, makes and reads the logs of a stream. Names are loaded when they are
first used. docs/cardinal.md says what it is good for.
"""

from typing import TYPE_CHECKING

from wire import loaded_late

if TYPE_CHECKING:
    from .consuming import (
        Consuming,
        Found,
        HistoryGone,
        ProducersDisagree,
        ReorgSaid,
        Said,
        Updated,
        check_streams,
        ordered,
        read_state,
    )
    from .logs import (
        FIRST_LOG,
        TOGETHER_BYTES_MAX,
        TOGETHER_ENTRIES_MAX,
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
    from .service import (
        BadMessage,
        CardinalConsumer,
        CardinalProducer,
        Conflict,
        Ready,
        Reorg,
        TooDeep,
        Update,
    )
    from .side import BadEvent, ConflictEvent, Side, View
    from .why import reasons
    from .writing import Call, SubBatch, Writer

__all__ = [
    "FIRST_LOG",
    "TOGETHER_BYTES_MAX",
    "TOGETHER_ENTRIES_MAX",
    "BadEvent",
    "BadMessage",
    "Call",
    "CardinalConsumer",
    "CardinalProducer",
    "Conflict",
    "ConflictEvent",
    "Consuming",
    "Found",
    "Gathering",
    "HistoryGone",
    "Lying",
    "NotAStream",
    "ProducersDisagree",
    "Ready",
    "Reorg",
    "ReorgSaid",
    "Said",
    "Settings",
    "Side",
    "Stream",
    "SubBatch",
    "TooDeep",
    "Unread",
    "Update",
    "Updated",
    "View",
    "Writer",
    "check_streams",
    "chosen_topics",
    "create_stream",
    "held_entries",
    "lock_name",
    "messages_of_entry",
    "new_entries",
    "ordered",
    "own_stream",
    "read_state",
    "reasons",
    "stream_of",
]

if not TYPE_CHECKING:
    __getattr__ = loaded_late(
        __name__,
        {
            "consuming": (
                "Consuming",
                "Found",
                "HistoryGone",
                "ProducersDisagree",
                "ReorgSaid",
                "Said",
                "Updated",
                "check_streams",
                "ordered",
                "read_state",
            ),
            "logs": (
                "FIRST_LOG",
                "TOGETHER_BYTES_MAX",
                "TOGETHER_ENTRIES_MAX",
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
            ),
            "service": (
                "BadMessage",
                "CardinalConsumer",
                "CardinalProducer",
                "Conflict",
                "Ready",
                "Reorg",
                "TooDeep",
                "Update",
            ),
            "side": ("BadEvent", "ConflictEvent", "Side", "View"),
            "why": ("reasons",),
            "writing": ("Call", "SubBatch", "Writer"),
        },
    )
