"""`drop`, `verify` and `backup`: what keeps a store small, sound and safe."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from local_api import seq_range, size
from logstore import Fault, LogVerdict, Store, StoreError, StoreFull, is_open_to_others
from peer import counted, json_number, log_fields
from wire import U64_MAX, LogKey

from .errors import DONE, FAILED, Problem
from .naming import LOG_HELP, log_key
from .opening import known_log, opened_store
from .registry import Definition
from .settings import Parser, checked_path, store_path

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal


def _drop_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG", type=log_key, help=LOG_HELP)
    parser.add_argument(
        "range",
        metavar="RANGE",
        type=seq_range,
        help="SEQ, A..B, A.. or ..B, both ends included",
    )


def _drop(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args) as store:
        last = U64_MAX if args.range.last is None else args.range.last
        dropped = store.drop(args.log, args.range.first, last)
    terminal.result(
        log_fields(args.log)
        | {
            "count": dropped.count,
            "bytes": json_number(dropped.bytes),
            "freed": json_number(dropped.freed),
        },
        f"{counted(dropped.count, 'payload')}, {size(dropped.bytes)} deleted"
        + (" (`compact` gives the room to the disk)" if dropped.freed < dropped.bytes else ""),
    )
    return DONE


def _verify_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG", nargs="?", type=log_key, help="only this log")


def _verify(args: "Namespace", terminal: "Terminal") -> int:
    faults: list[Fault] = []
    verdicts: list[LogVerdict] = []
    path = store_path(args)
    if is_open_to_others(path):
        terminal.note(f"{path}: other users may look into it; opening it to write puts that right")
    with opened_store(args, readonly=True) as store:
        if args.log is not None:
            known_log(store, args.log)
        for found in store.verify(args.log):
            if isinstance(found, Fault):
                faults.append(found)
                terminal.note(f"fault: {found}")
            else:
                verdicts.append(found)
                _print_verdict(found, terminal)
    if not is_open_to_others(path):
        # To open it to write would put right what was only to be looked at.
        _remember(path, args.log, verdicts, faults)
    return FAILED if faults else DONE


def _remember(
    path: Path, only: LogKey | None, verdicts: list[LogVerdict], faults: list[Fault]
) -> None:
    """Has `status` know what was found; a disk that can only be read keeps nobody from looking."""
    with suppress(StoreError), Store.open(path) as store:
        for verdict in verdicts:
            key = verdict.info.key
            # Of most logs there is nothing to say, and nothing was said before.
            store.alarms.verified(key, [each for each in faults if each.key == key])
        if only is None:
            rest = [each for each in faults if each.key is None]
            store.alarms.verified(None, rest, whole=True)


def _print_verdict(verdict: LogVerdict, terminal: "Terminal") -> None:
    info = verdict.info
    fields = {
        "ok": not verdict.faults,
        "faults": verdict.faults,
        "entries": verdict.entries,
        "payloads": verdict.payloads,
        "bytes": json_number(info.bytes),
        "state": str(info.state),
    }
    entries, payloads = counted(verdict.entries, "entry"), counted(verdict.payloads, "payload")
    counts = f"{entries}, {payloads}, {size(info.bytes)}"
    outcome = counted(verdict.faults, "fault") if verdict.faults else "ok"
    terminal.result(log_fields(info.key) | fields, f"{info.key}  {outcome}  {counts}")


def _backup_arguments(parser: Parser) -> None:
    parser.add_argument(
        "directory",
        metavar="DIR",
        type=Path,
        help="made, or an earlier backup of this store, which is brought up to date",
    )


def _backup(args: "Namespace", terminal: "Terminal") -> int:
    directory = checked_path(args.directory)
    # A disk that is dying can often only be read.
    with opened_store(args, readonly=True) as store:
        try:
            made = store.backup(directory)
        except StoreFull:
            raise Problem(
                f"{directory}: there is no room for a copy; free space, or name another disk"
            ) from None
        sums = store.statistics()
    counts = f"{counted(sums.logs, 'log')}, {counted(sums.entries, 'entry')}, "
    counts += f"{counted(sums.payloads, 'payload')}, {size(sums.bytes)}"
    if made.incremental:
        new = f"{counted(made.entries, 'entry')} new or changed"
        counts += f"; {new}, {size(made.bytes_written)} written"
    terminal.result(
        {
            "directory": str(directory.absolute()),
            "logs": sums.logs,
            "entries": sums.entries,
            "payloads": sums.payloads,
            "bytes": json_number(sums.bytes),
            "incremental": made.incremental,
            "bytes_written": json_number(made.bytes_written),
        },
        f"{directory.absolute()}: {counts}",
    )
    return DONE


COMMANDS = {
    "drop": Definition(arguments=_drop_arguments, run=_drop),
    "verify": Definition(arguments=_verify_arguments, run=_verify),
    "backup": Definition(arguments=_backup_arguments, run=_backup),
}
