"""`export`: brings a Parquet export up to date with the store, once or until interrupted."""

import re
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from analytics import AnalyticsError, ContinuousExport, Exporter, ExportResult, Progress, Settings
from local_api import byte_size, size
from logstore import Store, StoreError
from peer import counted, json_number

from .errors import DONE, FAILED, Problem
from .naming import author_key, log_key
from .opening import opened_store
from .registry import Definition
from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal

_POLL_S = 1.0


def byte_count(text: str) -> int:
    """`1000`, `64MiB`. Raises ValueError."""
    count = byte_size(text)
    if not count:
        raise ValueError(f"{text[:40]!r} is no number of bytes above 0, like 1000000 or 64MiB")
    return count


def seconds(text: str) -> timedelta:
    """A number of seconds above 0. Raises ValueError."""
    match = re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text, re.ASCII)
    if match is None or float(text) == 0:
        raise ValueError(f"{text[:40]!r} is no number of seconds above 0")
    return timedelta(seconds=float(text))


def _export_arguments(parser: Parser) -> None:
    parser.add_argument("directory", metavar="DIR", type=Path, help="made if it does not exist")
    parser.add_argument(
        "--log", metavar="LOG", action="append", type=log_key, default=[], help="only these logs"
    )
    parser.add_argument(
        "--author",
        metavar="AUTHOR",
        action="append",
        type=author_key,
        default=[],
        help="only the logs of these authors",
    )
    parser.add_argument("--no-payload", action="store_true", help="leave payloads out")
    parser.add_argument(
        "--max-payload-bytes",
        metavar="N",
        type=byte_count,
        default=1 << 30,
        help="leave larger payloads out, and say so in their rows (default: 1GiB)",
    )
    parser.add_argument(
        "--max-file-bytes",
        metavar="N",
        type=byte_count,
        default=48 << 20,
        help="bytes of rows in one file (default: 48MiB); it bounds memory too",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be added, and end")
    parser.add_argument("--watch", action="store_true", help="go on until SIGINT or SIGTERM")
    parser.add_argument(
        "--max-file-age",
        metavar="S",
        type=seconds,
        default=timedelta(seconds=60),
        help="with --watch: seconds that an entry waits for its file at most (default: 60)",
    )


def _export(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args, readonly=True) as store:
        settings = Settings(
            logs=tuple(sorted({str(log) for log in args.log})),
            authors=tuple(sorted({author.hex() for author in args.author})),
            payloads=not args.no_payload,
            payload_bytes_max=args.max_payload_bytes,
        )
        try:
            if args.watch and not args.dry_run:
                return _watch(args, store, settings, terminal)
            exporter = Exporter(store, args.directory, settings, file_bytes_max=args.max_file_bytes)
            progress = _ProgressLines(terminal)
            result = exporter.plan() if args.dry_run else exporter.run(progress)
        except (AnalyticsError, StoreError) as error:
            raise Problem(str(error)) from error
    return _report(args, result, terminal)


class _ProgressLines:
    """Says now and then how far the work is, if somebody looks or asked for it."""

    def __init__(self, terminal: "Terminal") -> None:
        self._terminal = terminal
        self._started = time.monotonic()
        self._first: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        first = self._first = self._first or progress
        done = progress.position - first.position
        left = progress.target - progress.position
        rate = done / max(time.monotonic() - self._started, 1e-9)
        remaining = f", {left / rate:.0f} s left" if rate else ""
        self._terminal.progress(
            f"{progress.rows} rows, {size(progress.bytes)}, {rate:.0f} rows/s{remaining}"
        )


def _report(args: "Namespace", result: ExportResult, terminal: "Terminal") -> int:
    written = sum(file.bytes for file in result.files)
    fields = {
        "directory": str(args.directory.absolute()),
        "dry_run": bool(args.dry_run),
        "rows": result.rows,
        "files": len(result.files),
        "bytes": json_number(written),
        "first_ingest": result.first,
        "last_ingest": result.last,
        "left_out": len(result.left_out),
        "total_rows": result.total_rows,
        "total_files": result.total_files,
    }
    if args.dry_run:
        text = f"{counted(result.rows, 'entry')} would be added"
    else:
        files = counted(len(result.files), "file")
        text = f"{counted(result.rows, 'entry')} added, {files} written, {size(written)}"
    terminal.result(fields, text)
    for each in result.left_out:
        terminal.note(f"left out: {each.where}: {each.why}")
    terminal.flush()
    return FAILED if result.left_out else DONE


def _watch(args: "Namespace", store: Store, settings: Settings, terminal: "Terminal") -> int:
    continuous = ContinuousExport(
        store,
        args.directory,
        settings,
        file_bytes_max=args.max_file_bytes,
        file_age_max=args.max_file_age,
    )
    stop = threading.Event()
    status = DONE
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in kept:
        signal.signal(number, lambda *_: stop.set())
    try:
        while not stop.is_set():
            waited = continuous.waits is not None
            result = continuous.step(time.monotonic())
            if continuous.waits is not None and not waited:
                terminal.note(continuous.waits)
            if result is not None and (result.rows or result.left_out):
                status = max(status, _report(args, result, terminal))
            stop.wait(min(_POLL_S, args.max_file_age.total_seconds() / 2))
        result = continuous.finish()
        if result.rows or result.left_out:
            status = max(status, _report(args, result, terminal))
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    return status


COMMANDS = {"export": Definition(arguments=_export_arguments, run=_export)}
