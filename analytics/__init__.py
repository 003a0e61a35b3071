"""Replicated logs for analysts: a Parquet export that is always consistent, and Spark over it.

Below it are `logstore` and `wire`; pyarrow and pyspark are extras that are imported here only, and
only when they are used. Names are loaded when they are first used too.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .continuous import ContinuousExport
    from .errors import (
        AnalyticsError,
        BadInput,
        BadOption,
        ExportBusy,
        ExportDamaged,
        ExportFailed,
        ExportTooNew,
        JavaMissing,
        MissingExtra,
        NotAnExport,
        OffsetRefused,
        OtherExport,
        SparkFailed,
    )
    from .export import Exporter
    from .manifest import LeftOut, Settings, WrittenFile
    from .ranges import ExportResult, Progress
    from .schema import spark_ddl, spark_schema
    from .source import BambooDataSource

# What is loaded for a name: nothing but the module that it is in.
_HOMES = {
    "continuous": ("ContinuousExport",),
    "export": ("Exporter",),
    "manifest": ("LeftOut", "Settings", "WrittenFile"),
    "ranges": ("ExportResult", "Progress"),
    "schema": ("spark_ddl", "spark_schema"),
    "source": ("BambooDataSource",),
}

__all__ = [
    "AnalyticsError",
    "BadInput",
    "BadOption",
    "BambooDataSource",
    "ContinuousExport",
    "ExportBusy",
    "ExportDamaged",
    "ExportFailed",
    "ExportResult",
    "ExportTooNew",
    "Exporter",
    "JavaMissing",
    "LeftOut",
    "MissingExtra",
    "NotAnExport",
    "OffsetRefused",
    "OtherExport",
    "Progress",
    "Settings",
    "SparkFailed",
    "WrittenFile",
    "spark_ddl",
    "spark_schema",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = next((home for home, names in _HOMES.items() if name in names), "errors")
        value = globals()[name] = getattr(import_module(f".{home}", __name__), name)
        return value
