"""What `analyze --system` writes besides: the tables of other systems' streams in an export."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .datastream_rows import datastream_current, datastreams
from .ockam_rows import ockam_lag, ockam_messages, ockam_positions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class SystemTable:
    """A table, and the function of an export that it is."""

    name: str
    make: "Callable[[DataFrame], DataFrame]"
    has_payloads: bool = False
    """Then it is as large as the export, and workers write it; else the driver does."""


SYSTEMS: Final = {
    "datastream": (
        SystemTable("datastreams", datastreams),
        SystemTable("datastream_current", datastream_current, has_payloads=True),
    ),
    "ockam": (
        SystemTable("ockam_lag", ockam_lag),
        SystemTable("ockam_positions", ockam_positions),
        SystemTable("ockam_messages", ockam_messages, has_payloads=True),
    ),
}
"""Of each system, by its name."""
