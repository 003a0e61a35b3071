"""`format("bamboo")`: a store directory as a Spark data source, in batches and as a stream.

A batch reads log by log, so an entry whose payload comes or goes meanwhile is still one row. A
stream reads the ingest sequence; its offset is one number of it, and an entry whose payload comes
or goes later comes again, with a larger number.

Partitions are read in Python workers, each of which opens the store for reading for itself. So the
directory has to be on a disk that every worker sees: this is for `local[*]`, or for a snapshot on a
shared disk. On a cluster, read an export.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from logstore import Store
from wire import LogKey

from .errors import OffsetRefused
from .schema import spark_schema
from .source_options import Options, one_sentence
from .source_rows import read_log, read_range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

OFFSET_VERSION: Final = 1
PARTITION_ROWS: Final = 100_000
_SPARSE: Final = 4
"""A log is not cut by numbers if it spans this many times what it holds."""


@dataclass
class LogsPartition(InputPartition):
    """Stretches of logs: key, first and last entry."""

    logs: list[tuple[LogKey, int, int]]


@dataclass
class RangePartition(InputPartition):
    """A range of the ingest sequence, both ends included."""

    first: int
    last: int


class BambooDataSource(DataSource):
    """The data source. Options: see docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """The short name of the format."""
        return "bamboo"

    def schema(self) -> "StructType":
        """The columns of an export; a wrong option is refused here, before anything is read."""
        self._parse()
        return spark_schema()

    def reader(self, schema: "StructType") -> DataSourceReader:
        """Reads what is there now."""
        options = self._parse()
        return PushingReader(options) if options.push_filters else BambooReader(options)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        """Reads what arrives."""
        return BambooStreamReader(self._parse())

    def _parse(self) -> Options:
        with one_sentence():
            return Options.parse(self.options)


class BambooReader(DataSourceReader):
    """One reading of a store."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Stretches of logs, about as many rows in each."""
        partitions: list[InputPartition] = []
        stretches: list[tuple[LogKey, int, int]] = []
        room = PARTITION_ROWS
        with one_sentence(), self._options.open_store() as store:
            for key, first, last, entries in self._stretches(store):
                stretches.append((key, first, last))
                room -= entries
                if room <= 0:
                    partitions.append(LogsPartition(stretches))
                    stretches, room = [], PARTITION_ROWS
        if stretches or not partitions:
            partitions.append(LogsPartition(stretches))
        return partitions

    def _stretches(self, store: Store) -> Iterator[tuple[LogKey, int, int, int]]:
        options = self._options
        for info in store.logs(options.author):
            if options.log_id is not None and info.key.log_id != options.log_id:
                continue
            first, last = max(options.first, 1), min(options.last, info.newest)
            if last - first >= _SPARSE * info.entries:
                yield info.key, first, last, info.entries
                continue
            for start in range(first, last + 1, PARTITION_ROWS):
                end = min(start + PARTITION_ROWS - 1, last)
                yield info.key, start, end, end - start + 1

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The rows of some logs."""
        assert isinstance(partition, LogsPartition)
        with self._options.open_store() as store:
            for key, first, last in partition.logs:
                yield from read_log(store, self._options, key, first, last)


class PushingReader(BambooReader):
    """A reader that takes `author = ...` and `log_id = ...` from the query.

    Spark refuses readers with `pushFilters` unless spark.sql.python.filterPushdown.enabled is set.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Notes what it can use; Spark still looks at every row."""
        for each in filters:
            if isinstance(each, EqualTo):
                self._options = self._options.narrowed(each.attribute, each.value)
            yield each


class BambooStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What arrives in a store, from its first entry on."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._until: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Before everything."""
        return self._offset(0)

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxRowsPerBatch`, if it is set."""
        rows = self._options.rows_per_batch_max
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends. Each number is one row at most, so no row need be counted."""
        after = self._position(start)
        with self._options.open_store() as store:
            position = store.position()
            if after > position:
                after = self._lost(after, position)
        end = position if self._until is None else min(position, self._until)
        if isinstance(limit, ReadMaxRows):
            end = min(end, after + limit.max_rows)
        return self._offset(max(after, end))

    def prepareForTriggerAvailableNow(self) -> None:
        """Ends at what is there now."""
        with self._options.open_store() as store:
            self._until = store.position()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Pieces of the range."""
        after, until = self._position(start), self._position(end)
        return [
            RangePartition(first + 1, min(first + PARTITION_ROWS, until))
            for first in range(after, until, PARTITION_ROWS)
        ]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The rows of a range."""
        assert isinstance(partition, RangePartition)
        with self._options.open_store() as store:
            yield from read_range(store, self._options, partition.first, partition.last)

    def _offset(self, ingest: int) -> dict[str, Any]:
        return {"v": OFFSET_VERSION, "node": self._options.node(), "ingest": ingest}

    def _position(self, offset: dict[str, Any]) -> int:
        if offset.get("v") != OFFSET_VERSION:
            raise OffsetRefused(
                f"the offset has version {offset.get('v')}, this program knows {OFFSET_VERSION}",
                "the query's checkpoint",
                "use the version that wrote it, or a new checkpoint",
            )
        node, ingest = offset["node"], int(offset["ingest"])
        if node != self._options.node():
            if self._options.fail_on_data_loss:
                raise OffsetRefused(
                    f"the offset is of node {node}, the store is of {self._options.node()}",
                    "the query's checkpoint",
                    "use a new checkpoint, or set failOnDataLoss=false to begin at the start",
                )
            return 0
        return ingest

    def _lost(self, after: int, position: int) -> int:
        if self._options.fail_on_data_loss:
            raise OffsetRefused(
                f"the query has read {after} arrivals and the store has {position}: it is an older "
                "one",
                self._options.path,
                "use a new checkpoint, or set failOnDataLoss=false to go on from here",
            )
        return position
