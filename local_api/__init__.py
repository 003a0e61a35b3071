"""What other programs of this machine are told of a node, and may ask of it, in lines of JSON.

The command line prints the same lines, so that each is made in one place. A server serves them over
HTTP, together with a page for people (everyday.md 3). Names are loaded when they are first used: a
command that lists logs needs neither Trio nor HTTP.
"""

from typing import TYPE_CHECKING

from wire import loaded_late

if TYPE_CHECKING:
    from .access import Access, load_token
    from .alarms import alarms_of, forks_that_matter
    from .entry_lines import (
        COPY_BYTES,
        PAYLOAD_BYTES_MAX,
        arrival_fields,
        payload_pieces,
        small_payload,
    )
    from .log_lines import log_line
    from .names import Names, full, target_fields, target_name, with_names
    from .peer_lines import connected_counts, connected_peers, peer_line
    from .server import ApiServer, serving_api
    from .standing import (
        LogStanding,
        Pause,
        fetches_of,
        is_held,
        log_standings,
        native_core,
        standing_record,
        verdict,
    )
    from .values import (
        EVERYTHING,
        SeqRange,
        byte_size,
        moment,
        rfc3339,
        seconds,
        seq,
        seq_range,
        size,
        some_seconds,
        span,
        u64,
    )

__all__ = [
    "COPY_BYTES",
    "EVERYTHING",
    "PAYLOAD_BYTES_MAX",
    "Access",
    "ApiServer",
    "LogStanding",
    "Names",
    "Pause",
    "SeqRange",
    "alarms_of",
    "arrival_fields",
    "byte_size",
    "connected_counts",
    "connected_peers",
    "fetches_of",
    "forks_that_matter",
    "full",
    "is_held",
    "load_token",
    "log_line",
    "log_standings",
    "moment",
    "native_core",
    "payload_pieces",
    "peer_line",
    "rfc3339",
    "seconds",
    "seq",
    "seq_range",
    "serving_api",
    "size",
    "small_payload",
    "some_seconds",
    "span",
    "standing_record",
    "target_fields",
    "target_name",
    "u64",
    "verdict",
    "with_names",
]

if not TYPE_CHECKING:
    __getattr__ = loaded_late(
        __name__,
        {
            "alarms": ("alarms_of", "forks_that_matter"),
            "access": (
                "Access",
                "load_token",
            ),
            "entry_lines": (
                "COPY_BYTES",
                "PAYLOAD_BYTES_MAX",
                "arrival_fields",
                "payload_pieces",
                "small_payload",
            ),
            "log_lines": ("log_line",),
            "names": (
                "Names",
                "full",
                "target_fields",
                "target_name",
                "with_names",
            ),
            "peer_lines": (
                "connected_counts",
                "connected_peers",
                "peer_line",
            ),
            "server": (
                "ApiServer",
                "serving_api",
            ),
            "standing": (
                "LogStanding",
                "fetches_of",
                "is_held",
                "log_standings",
                "native_core",
                "standing_record",
                "Pause",
                "verdict",
            ),
            "values": (
                "EVERYTHING",
                "SeqRange",
                "byte_size",
                "moment",
                "rfc3339",
                "seconds",
                "seq",
                "seq_range",
                "size",
                "some_seconds",
                "span",
                "u64",
            ),
        },
    )
