"""`init` and `append`: the author's own logs."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from local_api import u64
from logstore import Appended, Store, StoreError
from peer import json_number, log_fields

from .asking import Asker
from .errors import DONE, Problem, WrongUsage
from .keys import IMPORTED
from .lines import LineBytes, Readable, check_is_stdin, line_batches
from .opening import KEY_FILE, check_is_free, opened_store
from .registry import Definition
from .settings import PROGRAM, Parser, store_path

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal

BATCH_ENTRIES_MAX = 1000
"""Entries that become durable together: many a sync, and still soon."""


def _no_arguments(_: Parser) -> None:
    """Nothing but the flags of every command."""


def _init(args: "Namespace", terminal: "Terminal") -> int:
    path = store_path(args)
    check_is_free(path)
    has_key = (path / KEY_FILE).exists()
    try:
        with Store.create(path, imported=has_key) as store:
            author = store.author
    except StoreError as error:
        raise Problem(str(error)) from error
    if has_key:
        terminal.note(f"{path / KEY_FILE} was there already, so its author is the same")
        terminal.note(IMPORTED)
    terminal.detail(f"created {path.absolute()}; keep {path.absolute() / 'author.key'} secret")
    terminal.result({"author": author.hex()}, author.hex())
    return DONE


def _append_arguments(parser: Parser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="*", help="one entry each; - is stdin")
    parser.add_argument("--log-id", metavar="N", type=u64, default=0, help="the log (default: 0)")
    parser.add_argument("--lines", action="store_true", help="every line of stdin is an entry")
    parser.add_argument(
        "--allow-empty", action="store_true", help="sign an entry of a payload of no bytes, too"
    )
    parser.add_argument("--end-of-log", action="store_true", help="the last entry ends the log")
    parser.add_argument(
        "--ask-first",
        action="store_true",
        help="sign only after a peer has said what it holds of the log",
    )
    parser.add_argument("--offline", action="store_true", help="sign without asking any peer")


def _append(args: "Namespace", terminal: "Terminal") -> int:
    files: list[str] = args.files or ["-"]
    if args.lines:
        check_is_stdin("append", files)
    if files.count("-") > 1:
        raise WrongUsage("append: standard input (-) can be one entry only")
    if args.ask_first and args.offline:
        raise WrongUsage("append: --ask-first asks peers, and --offline does not; choose one")
    always = True if args.ask_first else False if args.offline else None
    with opened_store(args) as store:
        asker = Asker(store, [args.log_id], terminal, always=always)
        if args.lines:
            return _append_lines(store, args, terminal, asker)
        asker.ask()
        payloads = [_payload(name, terminal) for name in files]
        staged = store.stage(payloads)
        empty = [name for name, each in zip(files, staged, strict=True) if not each.payload_bytes]
        if empty and not args.allow_empty:
            store.release(staged)
            raise Problem(_nothing_in(empty[0]))
        _print(
            store.append_staged(staged, log_id=args.log_id, end_of_log=args.end_of_log), terminal
        )
    return DONE


def _nothing_in(name: str) -> str:
    """An entry cannot be taken back: a command that failed in front of a pipe is to sign none."""
    where = "standard input" if name == "-" else name
    return f"{where}: there is nothing in it, so nothing was signed; --allow-empty signs that"


def _append_lines(store: Store, args: "Namespace", terminal: "Terminal", asker: Asker) -> int:
    ended = False
    for lines, is_last in _batches(terminal.input, hold_last=args.end_of_log):
        ended = args.end_of_log and is_last
        asker.ask()
        # On disk when it returns; only then does anybody read its name.
        _print(store.append(lines, log_id=args.log_id, end_of_log=ended), terminal)
        terminal.flush()
        for line in lines:
            if not isinstance(line, bytes):
                line.close()
    if args.end_of_log and not ended:
        raise Problem("append --end-of-log: standard input held no line to end the log with")
    return DONE


def _batches(stream: Readable, *, hold_last: bool) -> Iterator[tuple[list[LineBytes], bool]]:
    """Lines to append at once; with `hold_last` the very last one comes alone and is marked."""
    waiting: list[LineBytes] = []
    for lines in line_batches(stream):
        waiting += lines
        kept = 1 if hold_last else 0
        while len(waiting) > kept:
            count = min(len(waiting) - kept, BATCH_ENTRIES_MAX)
            yield waiting[:count], False
            del waiting[:count]
    if waiting:
        yield waiting, True


def _payload(name: str, terminal: "Terminal") -> Path | BinaryIO:
    """What one FILE stands for. Raises Problem or OSError before anything is appended."""
    if name == "-":
        return terminal.input
    path = Path(name)
    if path.is_dir():
        raise Problem(f"{name}: is a directory; name files")
    # A pipe must not be opened twice: whoever writes into it would be told that nobody reads.
    try:
        if path.is_file() or not path.exists():
            path.open("rb").close()
    except FileNotFoundError as error:
        text = f"printf %s {shlex.quote(name)} | {PROGRAM} append"
        raise Problem(f"{name}: {error.strerror}; to append text: `{text}`") from None
    return path


def _print(added: Sequence[Appended], terminal: "Terminal") -> None:
    for entry in added:
        terminal.result(
            log_fields(entry.key) | {"seq": json_number(entry.seq), "hash": entry.hash.hex()},
            f"{entry.key}/{entry.seq}",
        )


COMMANDS = {
    "init": Definition(arguments=_no_arguments, run=_init),
    "append": Definition(arguments=_append_arguments, run=_append),
}
