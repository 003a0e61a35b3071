"""Bringing an export up to date with a store.

Theory. The store numbers what arrives; an export is a row of ranges of these numbers without a gap.
One range is read, sorted and written at a time, so memory holds one range. Its files get their
names when all of them are on disk, then the manifest follows: a kill leaves at most one range whose
files are not all there, or whose manifest is not. The next run sees such a range by the names of
its files, reads it again and writes what is missing, under the same names.

An entry whose payload came or went gets a new number, and so a new row in a later range. A range
that is read again may therefore have fewer rows than it had: what left it comes later.

Alternative not taken: larger files by merging sorted runs on disk. A file of 64 MiB is read well,
and the runs would double what an export writes.
"""

import fcntl
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from logstore import Store, StoredEntry, wall_clock_us

from .errors import ExportBusy, OtherExport
from .extras import require
from .layout import (
    DDL,
    LOCK,
    MANIFESTS,
    Part,
    disk_errors,
    find_parts,
    remove_temporaries,
    sync_folder,
    write_whole,
)
from .manifest import Manifest, Settings, load_latest
from .ranges import FILE_BYTES_MAX, ExportResult, Progress, Run, Source
from .schema import spark_ddl

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Exporter:
    """Keeps one directory up to date with one store. For one thread at a time.

    Raises AnalyticsError where the directory or the disk is at fault, StoreError where the store
    is. Memory: about three times `file_bytes_max`, or three times the largest payload.
    """

    def __init__(
        self,
        store: Store,
        root: Path | str,
        settings: Settings | None = None,
        *,
        file_bytes_max: int = FILE_BYTES_MAX,
        clock: Callable[[], datetime] = lambda: _EPOCH + timedelta(microseconds=wall_clock_us()),
    ) -> None:
        require("pyarrow")
        self._source = Source.of(store, settings or Settings())
        self._root = Path(root)
        self._file_bytes_max = file_bytes_max
        self._clock = clock

    def pending(self) -> int:
        """How many arrivals are not in the export yet, wanted or not. Writes nothing."""
        manifest = load_latest(self._root)
        return self._source.store.position() - (manifest.last if manifest else 0)

    def plan(self) -> ExportResult:
        """What `run` would add, without writing anything. Its `files` are empty."""
        with disk_errors(self._root):
            manifest, ranges = self._look()
        done = {(part.first, part.date) for parts in ranges.values() for part in parts}
        starts = sorted(first for first, _ in ranges)
        feed = self._source.feed(manifest.last, self._source.store.position(), payloads=False)
        rows = 0
        for entry in feed:
            at = bisect_right(starts, entry.ingest) - 1
            rows += at < 0 or (starts[at], _date(entry)) not in done
        return ExportResult(
            rows,
            (),
            manifest.last + 1,
            feed.position,
            tuple(feed.left_out),
            manifest.total_rows + rows,
            manifest.total_files,
        )

    def run(self, progress: Callable[[Progress], None] = lambda _: None) -> ExportResult:
        """Adds everything that has arrived by now."""
        with disk_errors(self._root):
            self._prepare()
            with _locked(self._root):
                remove_temporaries(self._root)
                manifest, ranges = self._look()
                run = Run(
                    self._source,
                    self._root,
                    manifest,
                    file_bytes_max=self._file_bytes_max,
                    clock=self._clock,
                    progress=progress,
                )
                return run.run(ranges, self._source.store.position())

    # --- the directory --------------------------------------------------------------------------

    def _prepare(self) -> None:
        if not (self._root / MANIFESTS).is_dir():
            if self._root.exists():
                find_parts(self._root)
            (self._root / MANIFESTS).mkdir(parents=True, exist_ok=True)
            sync_folder(self._root)
        ddl = (spark_ddl() + "\n").encode()
        path = self._root / DDL
        if not path.exists() or path.read_bytes() != ddl:
            write_whole(path, ddl)

    def _look(self) -> tuple[Manifest, dict[tuple[int, int], list[Part]]]:
        """The bookmark, and the files of ranges beyond it. Raises what makes `run` impossible."""
        parts = find_parts(self._root) if self._root.exists() else []
        manifest = load_latest(self._root) or Manifest(
            0, self._source.node, self._source.settings, 1, 0
        )
        self._check(manifest)
        ranges: dict[tuple[int, int], list[Part]] = {}
        for part in parts:
            if part.node != self._source.node[:8]:
                raise self._of_another_node(part.node)
            if part.last > manifest.last:
                ranges.setdefault((part.first, part.last), []).append(part)
        newest = max((last for _, last in ranges), default=manifest.last)
        position = self._source.store.position()
        if newest > position:
            raise OtherExport(
                f"the store has {position} arrivals and the export {newest}: the store is an older "
                "one, or another",
                self._root,
                "export into another directory",
            )
        return manifest, ranges

    def _check(self, manifest: Manifest) -> None:
        if manifest.node != self._source.node:
            raise self._of_another_node(manifest.node)
        if manifest.settings != self._source.settings:
            raise OtherExport(
                f"the export was made with {manifest.settings}, not with {self._source.settings}",
                self._root,
                "use the same flags, or another directory",
            )

    def _of_another_node(self, node: str) -> OtherExport:
        return OtherExport(
            f"the directory holds the export of node {node}, this one is {self._source.node}",
            self._root,
            "each node exports into a directory of its own; name another one",
        )


def _date(entry: StoredEntry) -> str:
    return (_EPOCH + timedelta(microseconds=entry.received_at)).date().isoformat()


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    fd = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ExportBusy(
                "another process is exporting into this directory", root, "wait for it, or end it"
            ) from None
        yield
    finally:
        os.close(fd)
