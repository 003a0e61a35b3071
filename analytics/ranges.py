"""One run of an export: the ranges it reads, and what it does with each (see export.py)."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from logstore import Store, StoredEntry
from wire import LogKey

from .errors import NotAnExport
from .feed import Feed
from .layout import Part
from .manifest import LeftOut, Manifest, Settings, WrittenFile, describe_file, save
from .parts import RangeWriter, release_unused
from .rows import RowBuilder
from .schema import KEY
from .states import write_states

if TYPE_CHECKING:
    import pyarrow as pa

FILE_BYTES_MAX: Final = 48 << 20
"""Bytes of rows in one file, unless one payload is larger. It bounds memory too."""
_FILE_ROWS_MAX: Final = 100_000
"""Rows in one file, give or take a batch: what sorting them needs is not all in their bytes."""
_BATCH_ROWS: Final = 5_000
_BATCH_BYTES: Final = 4 << 20
_LEFT_OUT_LISTED: Final = 10_000
"""How many a manifest lists; the result has them all."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an export is."""

    position: int
    target: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What an export did."""

    rows: int
    """Rows added."""
    files: tuple[WrittenFile, ...]
    first: int
    """The range of the ingest sequence that was added; `last` is `first - 1` if that is nothing."""
    last: int
    left_out: tuple[LeftOut, ...]
    total_rows: int
    total_files: int


@dataclass(frozen=True, slots=True)
class Source:
    """What is exported: a store, and what of it."""

    store: Store
    settings: Settings
    node: str
    logs: frozenset[LogKey]
    authors: frozenset[bytes]

    @classmethod
    def of(cls, store: Store, settings: Settings) -> "Source":
        """Raises ValueError where the settings name no log or author."""
        return cls(
            store,
            settings,
            store.author.hex(),
            frozenset(LogKey.parse(log) for log in settings.logs),
            frozenset(LogKey.parse(author).author for author in settings.authors),
        )

    def wanted(self, key: LogKey) -> bool:
        """Whether a log is exported."""
        if not self.logs and not self.authors:
            return True
        return key in self.logs or key.author in self.authors

    def builder(self, *, payloads: bool = True) -> RowBuilder:
        """Makes the rows."""
        return RowBuilder(
            self.node,
            payloads=payloads and self.settings.payloads,
            payload_bytes_max=self.settings.payload_bytes_max,
        )

    def feed(self, after: int, until: int, *, payloads: bool = True) -> Feed:
        """Reads a range."""
        return Feed(self.store, self.builder(payloads=payloads), after, until, self.wanted)


class Run:
    """One run: reads ranges and adds them, each with its manifest."""

    def __init__(
        self,
        source: Source,
        root: Path,
        manifest: Manifest,
        *,
        file_bytes_max: int,
        clock: Callable[[], datetime],
        progress: Callable[[Progress], None],
    ) -> None:
        self._source = source
        self._root = root
        self._manifest = manifest
        self._file_bytes_max = file_bytes_max
        self._clock = clock
        self._progress = progress
        self._written: list[WrittenFile] = []
        self._left_out: list[LeftOut] = []
        self._target = 0

    def run(self, ranges: dict[tuple[int, int], list[Part]], target: int) -> ExportResult:
        first = self._manifest.last + 1
        self._target = target
        for (start, last), parts in sorted(ranges.items()):
            if start <= self._manifest.last:
                raise NotAnExport(
                    "the range of this file begins inside one that is exported already",
                    self._root / parts[0].name,
                    "move it away",
                )
            self._advance(start - 1)
            self._complete(last, parts)
        self._advance(target)
        write_states(self._source.store, self._root, self._source.wanted)
        return ExportResult(
            sum(file.rows for file in self._written),
            tuple(self._written),
            first,
            self._manifest.last,
            tuple(self._left_out),
            self._manifest.total_rows,
            self._manifest.total_files,
        )

    def _advance(self, until: int) -> None:
        """Adds everything up to there, in as many ranges as its size asks for."""
        feed = self._source.feed(self._manifest.last, until)
        for batches, last in self._collected(feed, self._file_bytes_max):
            self._add(last, batches, feed)
        if self._manifest.last < until:
            self._add(until, [], feed)

    def _complete(self, last: int, parts: list[Part]) -> None:
        """Adds what is missing of a range that was interrupted."""
        feed = self._source.feed(self._manifest.last, last)
        [*collected] = self._collected(feed, None)
        batches = [batch for batches, _ in collected for batch in batches]
        self._add(last, batches, feed, parts)

    def _collected(
        self, feed: Feed, bytes_max: int | None
    ) -> Iterator[tuple[list["pa.RecordBatch"], int]]:
        """Record batches for one file, and where its range ends."""
        builder = self._source.builder()
        entries: list[StoredEntry] = []
        batches: list[pa.RecordBatch] = []
        batch_bytes_max = min(_BATCH_BYTES, (bytes_max or FILE_BYTES_MAX) // 4)
        rows = size = batch_size = 0
        for entry in feed:
            entries.append(entry)
            batch_size += len(entry.encoded) + len(entry.payload or b"")
            if len(entries) < _BATCH_ROWS and batch_size < batch_bytes_max:
                continue
            batches.append(builder.batch(entries))
            release_unused()
            rows += len(entries)
            size += batches[-1].nbytes
            last = entries[-1].ingest
            entries, batch_size = [], 0
            if bytes_max is not None and (size >= bytes_max or rows >= _FILE_ROWS_MAX):
                yield batches, last
                batches, rows, size = [], 0, 0
        if entries:
            batches.append(builder.batch(entries))
        if batches:
            yield batches, feed.position

    def _add(
        self, last: int, batches: list["pa.RecordBatch"], feed: Feed, parts: Iterable[Part] = ()
    ) -> None:
        before = self._manifest
        held = [describe_file(self._root, part.name) for part in parts]
        written: list[WrittenFile] = []
        heads: dict[str, int] = {}
        if batches:
            heads = _heads(batches)
            writer = RangeWriter(self._root, self._source.node, before.last + 1, last)
            written = writer.write(batches, [part.date for part in parts])
        files = (*held, *written)
        left_out, feed.left_out = feed.left_out, []
        self._manifest = Manifest(
            number=before.number + 1,
            node=self._source.node,
            settings=self._source.settings,
            first=before.last + 1,
            last=last,
            files=files,
            heads=heads,
            left_out=tuple(left_out[:_LEFT_OUT_LISTED]),
            total_files=before.total_files + len(files),
            total_rows=before.total_rows + sum(file.rows for file in files),
            total_bytes=before.total_bytes + sum(file.bytes for file in files),
            written_at=self._clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        )
        save(self._root, self._manifest)
        self._written += written
        self._left_out += left_out
        now = self._manifest
        self._progress(Progress(last, self._target, now.total_rows, now.total_bytes))


def _heads(batches: list["pa.RecordBatch"]) -> dict[str, int]:
    import pyarrow as pa

    columns = pa.Table.from_batches([batch.select([*KEY]) for batch in batches])
    newest = columns.group_by(["author", "log_id"]).aggregate([("seq", "max")])
    names = ("author", "log_id", "seq_max")
    rows = zip(*(newest[name].to_pylist() for name in names), strict=True)
    return {f"{author}/{log_id}": seq for author, log_id, seq in rows}
