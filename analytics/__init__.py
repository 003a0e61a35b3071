"""Replicated logs for analysts: a Parquet export that is always consistent, and Spark over it.

Below it are `logstore` and `wire`; pyarrow and pyspark are extras that are imported here only, and
only when they are used. Names are loaded when they are first used too.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .auditing import KINDS, Audit, audit
    from .cardinal_rows import (
        cardinal_blocks,
        cardinal_blocks_stream,
        cardinal_chain,
        cardinal_messages,
        cardinal_reorgs,
        cardinal_updates,
    )
    from .class_archive import Prepared, cache_folder, prepare_classes
    from .continuous import ContinuousExport
    from .datastream_rows import datastream_current, datastream_entries, datastreams
    from .describe import Payloads, activity, entries, logs, payloads, replication_delay
    from .errors import (
        AnalyticsError,
        BadInput,
        BadOption,
        BadQuery,
        ClassesNotPrepared,
        ExportBusy,
        ExportDamaged,
        ExportFailed,
        ExportTooNew,
        JavaMissing,
        MissingExtra,
        NotAnExport,
        OffsetRefused,
        OtherExport,
        QueryFailed,
        SparkFailed,
    )
    from .export import Exporter
    from .inputs import check_exports, check_named
    from .java import ensure_java
    from .manifest import LeftOut, Manifest, Settings, WrittenFile, load_all
    from .ockam_rows import ockam_lag, ockam_messages, ockam_positions, write_ockam_messages
    from .progress import StageProgress
    from .querying import Answer, query_exports
    from .ranges import ExportResult, Progress
    from .reading import latest, read_export, read_log_states, register_views
    from .schema import SCHEMA_VERSION, spark_ddl, spark_schema
    from .session import ensure_spark, ship_packages, start_spark
    from .source import BambooDataSource
    from .stages import Stage, analyze
    from .streaming import (
        read_export_stream,
        stream_entries,
        stream_windows,
        sum_windows,
        write_stream,
    )
    from .swarm_rows import swarm_chunks, swarm_items
    from .systems import SYSTEMS

# What is loaded for a name: nothing but the module that it is in. Not by `wire.loaded_late`: Spark
# loads this package in workers before anybody knows whether they have what `wire` needs.
_HOMES = {
    "stages": ("Stage", "analyze"),
    "auditing": ("KINDS", "Audit", "audit"),
    "cardinal_rows": (
        "cardinal_blocks",
        "cardinal_blocks_stream",
        "cardinal_chain",
        "cardinal_messages",
        "cardinal_reorgs",
        "cardinal_updates",
    ),
    "class_archive": ("Prepared", "cache_folder", "prepare_classes"),
    "continuous": ("ContinuousExport",),
    "datastream_rows": ("datastream_current", "datastream_entries", "datastreams"),
    "describe": ("Payloads", "activity", "entries", "logs", "payloads", "replication_delay"),
    "export": ("Exporter",),
    "inputs": ("check_exports", "check_named"),
    "java": ("ensure_java",),
    "manifest": ("LeftOut", "Manifest", "Settings", "WrittenFile", "load_all"),
    "ockam_rows": ("ockam_lag", "ockam_messages", "ockam_positions", "write_ockam_messages"),
    "progress": ("StageProgress",),
    "querying": ("Answer", "query_exports"),
    "ranges": ("ExportResult", "Progress"),
    "reading": ("latest", "read_export", "read_log_states", "register_views"),
    "schema": ("SCHEMA_VERSION", "spark_ddl", "spark_schema"),
    "session": ("ensure_spark", "ship_packages", "start_spark"),
    "source": ("BambooDataSource",),
    "swarm_rows": ("swarm_chunks", "swarm_items"),
    "systems": ("SYSTEMS",),
    "streaming": (
        "read_export_stream",
        "stream_entries",
        "stream_windows",
        "sum_windows",
        "write_stream",
    ),
}

__all__ = [
    "KINDS",
    "SCHEMA_VERSION",
    "SYSTEMS",
    "AnalyticsError",
    "Answer",
    "Audit",
    "BadInput",
    "BadOption",
    "BadQuery",
    "BambooDataSource",
    "ClassesNotPrepared",
    "ContinuousExport",
    "ExportBusy",
    "ExportDamaged",
    "ExportFailed",
    "ExportResult",
    "ExportTooNew",
    "Exporter",
    "JavaMissing",
    "LeftOut",
    "Manifest",
    "MissingExtra",
    "NotAnExport",
    "OffsetRefused",
    "OtherExport",
    "Payloads",
    "Prepared",
    "Progress",
    "QueryFailed",
    "Settings",
    "SparkFailed",
    "Stage",
    "StageProgress",
    "WrittenFile",
    "activity",
    "analyze",
    "audit",
    "cache_folder",
    "cardinal_blocks",
    "cardinal_blocks_stream",
    "cardinal_chain",
    "cardinal_messages",
    "cardinal_reorgs",
    "cardinal_updates",
    "check_exports",
    "check_named",
    "datastream_current",
    "datastream_entries",
    "datastreams",
    "ensure_java",
    "ensure_spark",
    "entries",
    "latest",
    "load_all",
    "logs",
    "ockam_lag",
    "ockam_messages",
    "ockam_positions",
    "payloads",
    "prepare_classes",
    "query_exports",
    "read_export",
    "read_export_stream",
    "read_log_states",
    "register_views",
    "replication_delay",
    "ship_packages",
    "spark_ddl",
    "spark_schema",
    "start_spark",
    "stream_entries",
    "stream_windows",
    "sum_windows",
    "swarm_chunks",
    "swarm_items",
    "write_ockam_messages",
    "write_stream",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = next((home for home, names in _HOMES.items() if name in names), "errors")
        value = globals()[name] = getattr(import_module(f".{home}", __name__), name)
        return value
