"""`analyze`: runs the Spark pipeline over exports, and prepares Spark for starting faster."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from analytics import (
    AnalyticsError,
    Stage,
    StageProgress,
    analyze,
    check_exports,
    check_named,
    ensure_spark,
    prepare_classes,
    start_spark,
)

from .errors import DONE, FAILED, Problem, WrongUsage
from .registry import Definition
from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal


def _analyze_arguments(parser: Parser) -> None:
    parser.add_argument(
        "directory", metavar="DIR", nargs="*", help="what `export` made; several are read together"
    )
    parser.add_argument("--to", metavar="OUT", type=Path, help="for tables and the report page")
    parser.add_argument(
        "--prepare",
        action="store_true",
        help="analyse nothing: once, keep Java's classes on disk, so that Spark starts faster",
    )
    parser.add_argument(
        "--master",
        metavar="URL",
        default="local[*]",
        help="the Spark to run on (default: local[*])",
    )
    parser.add_argument(
        "--window",
        metavar="SPAN",
        default="1 hour",
        own_variable=True,
        help="of activity, as Spark names spans of time (default: 1 hour)",
    )
    parser.add_argument(
        "--payload-schema",
        metavar="DDL",
        help="decode payloads that are JSON; the columns as Spark's DDL, like 'text STRING'",
    )
    parser.add_argument(
        "--system",
        metavar="NAME",
        action="append",
        type=_system,
        default=[],
        help="writes these tables too: of cardinal, datastream, ockam, swarm; may be repeated",
    )
    parser.add_argument(
        "--driver-memory", metavar="SIZE", default="1g", help="for Spark's driver (default: 1g)"
    )
    parser.add_argument(
        "--conf",
        metavar="KEY=VALUE",
        action="append",
        type=_setting,
        default=[],
        help="a setting of Spark; may be repeated",
    )


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        # Not the text itself: it may be a secret.
        raise ValueError("a setting of Spark is KEY=VALUE, like spark.executor.memory=2g")
    return key, value


def _system(text: str) -> str:
    from analytics import SYSTEMS

    if text not in SYSTEMS:
        raise ValueError(f"{text[:40]!r} is none of {', '.join(SYSTEMS)}")
    return text


def _analyze(args: "Namespace", terminal: "Terminal") -> int:
    if args.prepare:
        return _prepare(args, terminal)
    if not (args.directory and args.to):
        raise WrongUsage("analyze: name a DIR and --to OUT, or say --prepare")
    faults = 0
    settings = {"spark.driver.memory": args.driver_memory, **dict(args.conf)}
    try:
        # What cannot be read is said at once: Java takes seconds to start, Spark's Python one.
        check_named(args.directory)
        ensure_spark()
        check_exports(args.directory)
        with start_spark(args.master, "bamboo-peer analyze", settings) as spark:
            for stage in analyze(
                spark,
                args.directory,
                args.to,
                window=args.window,
                payload_schema=args.payload_schema,
                systems=args.system,
                progress=progress_lines(terminal),
            ):
                faults += int(str(stage.summary.get("faults", 0)))
                _report(stage, terminal)
    except AnalyticsError as error:
        raise Problem(str(error)) from error
    return FAILED if faults else DONE


def _prepare(args: "Namespace", terminal: "Terminal") -> int:
    if args.directory:
        raise WrongUsage("analyze --prepare: it takes no DIR")
    terminal.detail("a small lake is analysed, and Java writes the classes that it loads")
    try:
        found = prepare_classes()
    except AnalyticsError as error:
        raise Problem(str(error)) from error
    megabytes = f"{found.bytes / 1e6:.0f} MB"
    terminal.result(
        {
            "archive": str(found.path),
            "bytes": found.bytes,
            "made": found.made,
            "seconds": round(found.seconds, 3),
        },
        f"made in {found.seconds:.0f} s, {megabytes} of Java's classes: {found.path}"
        if found.made
        else f"nothing to do, Java's classes are there, {megabytes}: {found.path}",
    )
    return DONE


def progress_lines(terminal: "Terminal") -> Callable[[StageProgress], None] | None:
    """Says how far a stage is, a line each time; None where nobody looks or asked for it."""
    if not terminal.shows_progress:
        return None
    return lambda progress: terminal.note(progress_words(progress))


def progress_words(progress: StageProgress) -> str:
    """Rows read of all, their rate and what is left at this rate; else the tasks of Spark."""
    words = []
    if progress.rows_total is not None:
        words.append(f"{min(progress.rows, progress.rows_total)} of {progress.rows_total} rows")
    left = progress.seconds_left
    if left is None:
        words.append(f"{progress.tasks} of {progress.tasks_total} tasks")
    else:
        words += [f"{progress.rows_per_s:.0f} rows/s", f"{left:.0f} s left"]
    return f"{progress.stage:<9} {progress.seconds:7.1f} s  {', '.join(words)}"


def _report(stage: Stage, terminal: "Terminal") -> None:
    words = ", ".join(
        f"{value} {name.replace('_', ' ')}" if isinstance(value, int) else f"{name}: {value}"
        for name, value in stage.summary.items()
        if value != {}
    )
    terminal.result(
        {"stage": stage.name, "seconds": round(stage.seconds, 3), **stage.summary},
        f"{stage.name:<9} {stage.seconds:7.1f} s  {words}",
    )
    for line in stage.faults:
        terminal.note(f"fault: {line}")
    terminal.flush()


COMMANDS = {"analyze": Definition(arguments=_analyze_arguments, run=_analyze)}
