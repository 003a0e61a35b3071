"""`forks`: the proofs that an author signed two entries with one number: list, show, pass on."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from logstore import ForkProof, NotAFork, Store, check_fork
from peer import json_number, log_fields
from wire import EntryError, decode_entry

from .errors import DONE, FAILED, Problem, WrongUsage
from .naming import resolved_log
from .opening import opened_store
from .reading import signed_fields
from .registry import Definition
from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal

LINE_BYTES_MAX = 1 << 16
"""Of a proof in a file; two entries are less than 2 KiB as hex."""


def _arguments(parser: Parser) -> None:
    parser.add_argument(
        "action",
        metavar="list|show|export|import|verify|dismiss",
        nargs="?",
        default="list",
        help="list: every forked log (the default); show LOG: both entries; export LOG [FILE]: the"
        " proof, for others; import FILE: check and record proofs; verify FILE: only check them;"
        " dismiss LOG: that it is forked is no alarm of `status` any more",
    )
    parser.add_argument(
        "subject", metavar="LOG or FILE", nargs="?", help="FILE - is standard input"
    )
    parser.add_argument("file", metavar="FILE", nargs="?", type=Path, help="of export: a new one")
    parser.add_argument("--undo", action="store_true", help="of dismiss: it is an alarm again")


def _forks(args: "Namespace", terminal: "Terminal") -> int:
    match args.action, args.subject, args.file:
        case "list", None, None:
            return _list(args, terminal)
        case "show", str() as log, None:
            return _show(args, log, terminal)
        case "export", str() as log, file:
            return _export(args, log, file, terminal)
        case "dismiss", str() as log, None:
            return _dismiss(args, log, terminal)
        case "import", str() as file, None:
            return _import(args, Path(file), terminal)
        case "verify", str() as file, None:
            return _verify(Path(file), terminal)
        case ("show" | "export" | "dismiss") as action, None, _:
            raise WrongUsage(f"forks {action}: name a LOG")
        case ("import" | "verify") as action, None, _:
            raise WrongUsage(f"forks {action}: name a FILE, or - for standard input")
        case "list" | "show" | "import" | "verify" | "dismiss", _, _:
            raise WrongUsage(f"forks {args.action}: too many arguments")
        case _:
            raise WrongUsage(
                f"forks: {args.action!r} is none of list, show, export, import, verify and dismiss"
            )


def _fields(proof: ForkProof) -> dict[str, object]:
    return log_fields(proof.key) | {
        "seq": json_number(proof.seq),
        "first": proof.first.hex(),
        "second": proof.second.hex(),
    }


def _list(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args, readonly=True) as store:
        for proof in store.forks():
            terminal.result(_fields(proof), f"{proof.key}/{proof.seq}")
    return DONE


def _proof(store: Store, text: str) -> ForkProof:
    key = resolved_log(store, text)
    proof = store.fork(key)
    if proof is None:
        raise Problem(f"{key}: is not known to be forked (`forks` lists what is)")
    return proof


def _show(args: "Namespace", log: str, terminal: "Terminal") -> int:
    with opened_store(args, readonly=True) as store:
        proof = _proof(store, log)
    key = proof.key
    first, second = signed_fields(proof.first), signed_fields(proof.second)
    differs = [name for name in first if first[name] != second[name]]
    if terminal.as_json:
        named = {"seq": json_number(proof.seq), "differs": differs}
        terminal.record(log_fields(key) | named | {"first": first, "second": second})
        return DONE
    terminal.line(f"entry {proof.seq} of log {key.log_id} was signed twice by {key.author.hex()}")
    width = max(map(len, first))
    for name, value in first.items():
        if name in differs:
            terminal.line(f"* {name:<{width}}  {_text(value)}")
            terminal.line(f"* {'':<{width}}  {_text(second[name])}")
        else:
            terminal.line(f"  {name:<{width}}  {_text(value)}")
    return DONE


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _export(args: "Namespace", log: str, file: Path | None, terminal: "Terminal") -> int:
    to_stdout = file is None or str(file) == "-"
    if to_stdout:
        # It is a proof for others, in the form that they read, whatever JSON is printed here.
        terminal.refuse_json("forks export to standard output")
    with opened_store(args, readonly=True) as store:
        proof = _proof(store, log)
    line = json.dumps(_fields(proof)).encode() + b"\n"
    if file is None or to_stdout:
        terminal.data(line)
        return DONE
    # Not over something else: a proof is worth keeping.
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        raise Problem(f"{file}: it is there already; name a new file") from None
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(line)
    except OSError:
        file.unlink()
        raise
    terminal.result({"file": str(file.absolute())} | _fields(proof), str(file.absolute()))
    return DONE


def _dismiss(args: "Namespace", log: str, terminal: "Terminal") -> int:
    with opened_store(args) as store:
        key = _proof(store, log).key
        change = store.alarms.undo_dismissal if args.undo else store.alarms.dismiss
        changed = change(key)
    if log != str(key):
        terminal.note(f"{log} is {key}")
    if terminal.as_json:
        terminal.record(log_fields(key) | {"dismissed": not args.undo, "changed": changed})
    return DONE


def _import(args: "Namespace", file: Path, terminal: "Terminal") -> int:
    bad = False
    with opened_store(args) as store:
        for number, found in _proofs(file, terminal):
            if isinstance(found, str):
                bad = True
                terminal.note(f"line {number}: {found}")
                continue
            kept = store.record_fork(found.key, found.first, found.second)
            terminal.result(_fields(kept), f"{kept.key}/{kept.seq}")
    return FAILED if bad else DONE


def _verify(file: Path, terminal: "Terminal") -> int:
    bad = False
    for number, found in _proofs(file, terminal):
        if isinstance(found, str):
            bad = True
            terminal.note(f"line {number}: {found}")
        else:
            terminal.result(_fields(found), f"{found.key}/{found.seq}")
    return FAILED if bad else DONE


def _proofs(file: Path, terminal: "Terminal") -> Iterator[tuple[int, ForkProof | str]]:
    """Each line of a file: a proof that holds, or why it is none."""
    if str(file) == "-":
        yield from _checked(terminal.input)
    else:
        with file.open("rb") as lines:
            yield from _checked(lines)


def _checked(lines: BinaryIO) -> Iterator[tuple[int, ForkProof | str]]:
    number = 0
    while line := lines.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            yield number, "it is too long for a proof; what follows was not read"
            return
        if line.strip():
            yield number, _check(line)


def _check(line: bytes) -> ForkProof | str:
    try:
        record = json.loads(line)
        first, second = bytes.fromhex(record["first"]), bytes.fromhex(record["second"])
        key = decode_entry(first).key
    except (ValueError, KeyError, TypeError, EntryError):
        return "it is no proof: JSON with the encodings `first` and `second` as hex is expected"
    try:
        return check_fork(key, first, second)
    except NotAFork as error:
        return error.what


COMMANDS = {"forks": Definition(arguments=_arguments, run=_forks)}
