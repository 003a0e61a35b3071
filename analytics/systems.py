"""What `analyze --system` writes besides: the tables of other systems' streams in an export."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .cardinal_rows import (
    cardinal_blocks,
    cardinal_chain,
    cardinal_messages,
    cardinal_reorgs,
    cardinal_updates,
)
from .datastream_rows import datastream_current, datastreams
from .ockam_rows import ockam_lag, ockam_messages, ockam_positions
from .swarm_rows import swarm_chunks, swarm_items

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class SystemTable:
    """A table, and the function of an export that it is."""

    name: str
    make: "Callable[[DataFrame], DataFrame]"
    is_large: bool = False
    """It has payloads, or rows for each record of one, so that workers write it; else the driver
    does, which holds results of a few rows for each of the export."""


SYSTEMS: Final = {
    "cardinal": (
        SystemTable("cardinal_messages", cardinal_messages, is_large=True),
        SystemTable("cardinal_blocks", cardinal_blocks, is_large=True),
        SystemTable("cardinal_updates", cardinal_updates, is_large=True),
        SystemTable("cardinal_chain", cardinal_chain, is_large=True),
        SystemTable("cardinal_reorgs", cardinal_reorgs, is_large=True),
    ),
    "datastream": (
        SystemTable("datastreams", datastreams),
        SystemTable("datastream_current", datastream_current, is_large=True),
    ),
    "ockam": (
        SystemTable("ockam_lag", ockam_lag, is_large=True),
        SystemTable("ockam_positions", ockam_positions, is_large=True),
        SystemTable("ockam_messages", ockam_messages, is_large=True),
    ),
    "swarm": (
        SystemTable("swarm_chunks", swarm_chunks, is_large=True),
        SystemTable("swarm_items", swarm_items, is_large=True),
    ),
}
"""Of each system, by its name."""
