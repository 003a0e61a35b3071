"""Writing the data files of one range, so that nobody ever sees a part of one.

Each is written under a hidden name and synced; when all of the range's files are there they get
their names, one after another. Killed in between, the names that exist say what is missing.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .layout import TEMPORARY, Part, sync_folder
from .manifest import WrittenFile
from .schema import KEY, SCHEMA_VERSION, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_ROWS_MAX: Final = 16_384
"""Spark cuts a file only between row groups: in one of 100,000 rows it found work for one core."""
ROW_GROUP_PAYLOAD_BYTES_MAX: Final = 16 << 20
"""Unless one payload is larger. A reader has a row group in memory for each core that it uses."""
# Hashes and signatures look random: neither dictionary nor compression helps them.
_RANDOM: Final = ("entry_hash", "backlink", "lipmaalink", "payload_hash", "signature")
_REPEATING: Final = ("author", "log_id", "payload_state", "node")


class _HashedFile:
    """A file for Arrow to write to that hashes what passes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._sha256 = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes) -> int:
        # Arrow passes buffers of its own, whose len() is in bytes too.
        self._sha256.update(data)
        self._size += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def tell(self) -> int:
        return self._size

    @property
    def closed(self) -> bool:
        return self._file.closed

    def close(self) -> None:
        """Only flushes: Arrow closes its sink, and the file has to be synced after that."""
        self._file.flush()

    def finish(self) -> tuple[int, str]:
        """Syncs and closes; size and SHA-256."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._size, self._sha256.hexdigest()

    def abandon(self) -> None:
        self._file.close()


class RangeWriter:
    """Writes the files of one range of the ingest sequence."""

    def __init__(self, root: Path, node: str, first: int, last: int) -> None:
        self._root = root
        self._node = node
        self._first = first
        self._last = last
        self._waiting: list[tuple[Path, Path]] = []

    def write(
        self, batches: list["pa.RecordBatch"], dates_done: Iterable[str] = ()
    ) -> list[WrittenFile]:
        """Writes the rows, but for dates whose file is there already; empties `batches`."""
        done = frozenset(dates_done)
        written = []
        try:
            for date, rows in by_date(batches):
                if date not in done:
                    written.append(self._write_hidden(date, rows))
            self._show()
        except BaseException:
            for temporary, _ in self._waiting:
                temporary.unlink(missing_ok=True)
            raise
        return written

    def _write_hidden(self, date: str, rows: list["pa.RecordBatch"]) -> WrittenFile:
        part = Part(self._first, self._last, date, self._node[:8])
        path = self._root / part.name
        if not path.parent.is_dir():
            path.parent.mkdir(exist_ok=True)
            sync_folder(self._root)
        temporary = path.with_name(f".{path.name}{TEMPORARY}")
        self._waiting.append((temporary, path))
        count = sum(batch.num_rows for batch in rows)
        size, digest = write_parquet(temporary, rows, self._metadata())
        return WrittenFile(part.name, count, size, digest)

    def _show(self) -> None:
        for temporary, path in self._waiting:
            temporary.replace(path)
        for folder in {path.parent for _, path in self._waiting}:
            sync_folder(folder)
        self._waiting.clear()

    def _metadata(self) -> dict[str, str]:
        return {
            "bamboo.schema_version": str(SCHEMA_VERSION),
            "bamboo.node": self._node,
            "bamboo.first_ingest": str(self._first),
            "bamboo.last_ingest": str(self._last),
        }


def release_unused() -> None:
    """Gives memory back that Arrow keeps for later: a third of what an export needs, otherwise."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def by_date(
    batches: list["pa.RecordBatch"],
) -> Iterator[tuple[str, list["pa.RecordBatch"]]]:
    """The rows of each date of `received_at`, UTC; empties `batches`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    days = [pc.cast(batch.column("received_at"), pa.date32()) for batch in batches]
    dates = sorted(set().union(*(pc.unique(each).to_pylist() for each in days)))
    if len(dates) == 1:
        # The usual case needs no copy.
        mine, batches[:] = batches[:], []
        yield dates[0].isoformat(), mine
        return
    for date in dates:
        yield (
            date.isoformat(),
            [batch.filter(pc.equal(each, date)) for batch, each in zip(batches, days, strict=True)],
        )
    batches.clear()


def sorted_table(batches: list["pa.RecordBatch"]) -> "pa.Table":
    """The rows in the order of the key; empties `batches`.

    Column by column, each let go of when it has been sorted, so that the rows are in memory once
    and one column twice.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = arrow_schema()
    table = pa.Table.from_batches(batches, schema)
    batches.clear()
    order = pc.sort_indices(table.select(KEY), sort_keys=[(name, "ascending") for name in KEY])
    columns = table.columns
    del table
    for index in range(len(columns)):
        columns[index] = columns[index].take(order)
        release_unused()
    return pa.Table.from_arrays(columns, schema=schema)


def write_parquet(
    path: Path, batches: list["pa.RecordBatch"], metadata: dict[str, str]
) -> tuple[int, str]:
    """Writes one sorted, synced file; its size and SHA-256. Empties `batches`."""
    import pyarrow.parquet as pq

    table = sorted_table(batches)
    file = _HashedFile(path)
    try:
        with pq.ParquetWriter(file, table.schema, **_options(table)) as writer:
            for start, rows in row_groups(_payload_bytes(table)):
                writer.write_table(table.slice(start, rows), row_group_size=rows)
            writer.add_key_value_metadata(metadata)
        return file.finish()
    except BaseException:
        file.abandon()
        raise
    finally:
        del table
        release_unused()


def row_groups(payload_bytes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where each row group begins, and its rows: as many as the two limits allow, at least one.

    `payload_bytes`: of each row, what it holds of its payload.
    """
    start = held = 0
    for row, size in enumerate(payload_bytes):
        full = held + size > ROW_GROUP_PAYLOAD_BYTES_MAX or row - start == ROW_GROUP_ROWS_MAX
        if row > start and full:
            yield start, row - start
            start, held = row, 0
        held += size
    if start < len(payload_bytes):
        yield start, len(payload_bytes) - start


def _payload_bytes(table: "pa.Table") -> list[int]:
    import pyarrow.compute as pc

    sizes: list[int] = pc.fill_null(pc.binary_length(table["payload"]), 0).to_pylist()
    return sizes


def _options(table: "pa.Table") -> dict[str, Any]:
    import pyarrow.parquet as pq

    schema = table.schema

    options: dict[str, Any] = {
        "compression": {name: "NONE" if name in _RANDOM else "ZSTD" for name in schema.names},
        "use_dictionary": list(_REPEATING),
        "write_page_index": True,
        "sorting_columns": [
            pq.SortingColumn(schema.get_field_index(name), descending=False) for name in KEY
        ],
        # Readers without Arrow see the same types: the footer says all there is to say.
        "store_schema": False,
    }
    if "bloom_filter_options" in signature(pq.ParquetWriter).parameters:
        options["bloom_filter_options"] = {
            "entry_hash": {"ndv": min(table.num_rows, ROW_GROUP_ROWS_MAX), "fpp": 0.05}
        }
    return options
