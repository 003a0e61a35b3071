"""`trace show`: a trace that `serve --trace` or `sync --trace` writes, for people or filtered."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from local_api import u64
from peer import log_fields

from .errors import DONE, Problem, WrongUsage
from .naming import Written, log_key
from .opening import opened_store
from .registry import Definition
from .settings import Parser
from .trace_lines import Line, Narrator

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal

POLL_S: Final = 0.2
READ_BYTES: Final = 1 << 18

Record = Mapping[str, Any]


def trace_argument(parser: Parser) -> None:
    """`--trace`, for commands that connect."""
    parser.add_argument(
        "--trace",
        metavar="FILE",
        type=Path,
        help="write every message of every connection to FILE, for `trace show`; replaces a trace",
    )


def _arguments(parser: Parser) -> None:
    parser.add_argument("action", metavar="show", help="show: print the trace in FILE")
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument(
        "--peer", metavar="HOST[:PORT]", help="only connections with this peer, as status names it"
    )
    parser.add_argument("--log", metavar="LOG", type=log_key, help="only messages about this log")
    parser.add_argument(
        "--request", metavar="N", type=u64, help="only messages of requests with this number"
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        own_variable=True,
        help="go on with what is written, until interrupted",
    )


def _trace(args: "Namespace", terminal: "Terminal") -> int:
    if args.action != "show":
        raise WrongUsage(f"trace: {args.action!r} is not show")
    if isinstance(args.log, Written):
        # A trace needs no store, only such an argument does.
        with opened_store(args, readonly=True):
            pass
    narrator = Narrator()
    try:
        with args.file.open("rb") as file:
            _show(args, file, narrator, terminal)
    finally:
        # Also when interrupted: what came last is what was waited for.
        _print(narrator.rest(), terminal)
    return DONE


def _show(args: "Namespace", file: BinaryIO, narrator: Narrator, terminal: "Terminal") -> None:
    found_any = False
    for line in _lines(file, follow=args.follow):
        if line is None:
            _print(narrator.rest(), terminal)
            terminal.flush()
            terminal.check_read()
            continue
        record = _record(line)
        if not found_any and (record is None or not _is_of_a_trace(record)):
            raise Problem(f"{args.file}: no trace (`serve --trace FILE` writes one)")
        found_any = True
        if record is None:
            terminal.note(f"{args.file}: left out what is no record: {line[:60]!r}")
        elif _is_wanted(record, args):
            if terminal.as_json:
                terminal.data(line + b"\n")
            else:
                _print(narrator.take(record), terminal)
    if not found_any:
        raise Problem(f"{args.file}: nothing is in there yet (`--follow` waits for it)")


def _lines(file: BinaryIO, *, follow: bool) -> Iterator[bytes | None]:
    """The whole lines of a file; None whenever there are no more of them yet.

    A last line without its end is being written, or never will be: it is left out.
    """
    pending = b""
    while True:
        if data := file.read(READ_BYTES):
            *lines, pending = (pending + data).split(b"\n")
            yield from lines
        elif not follow:
            return
        else:
            yield None
            time.sleep(POLL_S)
            if os.fstat(file.fileno()).st_size < file.tell():
                # A new trace has taken its place.
                pending = b""
                file.seek(0)


def _record(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _is_of_a_trace(record: Record) -> bool:
    return "bamboo_peer_trace" in record or "channel" in record


def _is_wanted(record: Record, args: "Namespace") -> bool:
    """What says where one is passes every filter but that for peers."""
    peer = record.get("peer")
    if args.peer is not None and peer is not None:
        host = str(peer).rpartition(":")[0]
        if args.peer not in {peer, host, host.strip("[]")}:
            return False
    if record.get("channel") in {None, "connection", "trace"}:
        return True
    if args.request is not None and str(record.get("request")) != str(args.request):
        return False
    if args.log is None:
        return True
    wanted = log_fields(args.log)
    return all(record.get(name) == value for name, value in wanted.items())


def _print(lines: Iterator[Line], terminal: "Terminal") -> None:
    for line in lines:
        if line.alert:
            # In the margin, so that the columns stay where they are.
            terminal.alert("!!" + line.text[2:])
        else:
            terminal.line(line.text)


COMMANDS = {"trace": Definition(arguments=_arguments, run=_trace)}
