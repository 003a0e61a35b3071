"""An export beside a running node: new files when what is pending is old or large enough."""

from datetime import timedelta
from pathlib import Path
from typing import Final

from logstore import Store, StoreError

from .errors import AnalyticsError, ExportBusy
from .export import Exporter
from .manifest import Settings
from .ranges import FILE_BYTES_MAX, ExportResult

FILE_AGE_MAX: Final = timedelta(seconds=60)
_ROW_BYTES_GUESS: Final = 650
"""An entry with a payload of 256 bytes."""


class ContinuousExport:
    """Keeps an export up to date while a node runs. For one thread at a time.

    Who runs it calls `step` every second or so, in a thread, and `finish` at the end. `now` is a
    monotonic time in seconds. Memory is that of an `Exporter`. While another process exports into
    the directory, it is waited for.
    """

    def __init__(
        self,
        store: Store,
        root: Path | str,
        settings: Settings | None = None,
        *,
        file_bytes_max: int = FILE_BYTES_MAX,
        file_age_max: timedelta = FILE_AGE_MAX,
    ) -> None:
        self._store = store
        self._exporter = Exporter(store, root, settings, file_bytes_max=file_bytes_max)
        self._file_bytes_max = file_bytes_max
        self._age_max_s = file_age_max.total_seconds()
        self._row_bytes = float(_ROW_BYTES_GUESS)
        self._exported: int | None = None
        self._version = 0
        self._pending_since: float | None = None
        self._not_before = float("-inf")
        self.waits: str | None = None
        """What the last step waits for, in a sentence: another process that has the directory."""

    def step(self, now: float) -> ExportResult | None:
        """Exports if it is time to; None if it is not, or if it has to wait (`waits`).

        Cheap when nothing has happened.
        """
        if self._exported is None:
            # What a run before this one left behind is old already.
            return self._run_unless_busy()
        pending = self._store.position() - self._exported
        # Not only what arrives: that a log is forked is found out without any arrival.
        if pending == 0 and self._store.data_version() == self._version:
            self._pending_since = None
            return None
        if self._pending_since is None:
            self._pending_since = now
        large = pending * self._row_bytes >= self._file_bytes_max
        if large or now - self._pending_since >= self._age_max_s:
            return self._run_unless_busy()
        return None

    def attempt(self, now: float) -> dict[str, object] | None:
        """`step` for a node, which goes on when its export cannot: the event to tell, or None.

        After a failure the next attempt waits as long as a file does. That another process has the
        directory is told once.
        """
        if now < self._not_before:
            return None
        waited = self.waits is not None
        try:
            result = self.step(now)
        except (AnalyticsError, StoreError) as error:
            self._not_before = now + self._age_max_s
            return {"event": "export_failed", "reason": str(error)}
        if self.waits is not None and not waited:
            return {"event": "export_failed", "reason": self.waits}
        return None if result is None else _event(result)

    def conclude(self) -> dict[str, object] | None:
        """`finish` in the same way."""
        try:
            return _event(self.finish())
        except (AnalyticsError, StoreError) as error:
            return {"event": "export_failed", "reason": str(error)}

    def finish(self) -> ExportResult:
        """Exports what is left, and waits for nobody."""
        return self._run()

    def _run_unless_busy(self) -> ExportResult | None:
        try:
            result = self._run()
        except ExportBusy as error:
            self.waits = f"{error.what}: {error.where}; it is waited for"
            return None
        self.waits = None
        return result

    def _run(self) -> ExportResult:
        version = self._store.data_version()
        result = self._exporter.run()
        self._exported, self._version = result.last, version
        self._pending_since = None
        if result.rows:
            self._row_bytes = sum(file.bytes for file in result.files) / result.rows
        return result


def _event(result: ExportResult) -> dict[str, object] | None:
    if not result.rows and not result.left_out:
        return None
    return {
        "event": "exported",
        "rows": result.rows,
        "files": len(result.files),
        "last_ingest": result.last,
        "total_rows": result.total_rows,
        "left_out": [f"{each.where}: {each.why}" for each in result.left_out],
    }
