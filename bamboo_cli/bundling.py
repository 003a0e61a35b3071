"""`bundle`: what another store lacks, carried in a file or a pipe (docs/cli.md, bundle)."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from local_api import size
from logstore import (
    BundleExported,
    BundleImported,
    Store,
    export_bundle,
    from_os_error,
    import_bundle,
    write_have,
)
from peer import counted, json_number
from wire import LogKey

from .errors import DONE, FAILED, FORKED, INCOMPLETE, Problem, first_status
from .naming import resolved
from .opening import opened_store
from .settings import Parser, store_path
from .verbs import Verb, Verbs

if TYPE_CHECKING:
    from argparse import Namespace
    from contextlib import AbstractContextManager
    from io import BufferedReader

    from logstore import Follow

    from .terminal import Terminal

_PIPE = "-"


class _Output:
    """Standard output, as a binary file that is written to."""

    def __init__(self, terminal: "Terminal") -> None:
        self._terminal = terminal

    def write(self, data: bytes) -> None:
        self._terminal.data(data)


def _report(terminal: "Terminal", name: str, fields: dict[str, object], text: str) -> None:
    """What was written: where a pipe takes the bytes, on standard error."""
    if name != _PIPE:
        terminal.result({"file": str(Path(name).absolute())} | fields, f"{name}: {text}")
        return
    terminal.flush()
    if terminal.as_json:
        terminal.note_record({"file": _PIPE} | fields)
    else:
        terminal.detail(text)


def _input(name: str, terminal: "Terminal") -> "AbstractContextManager[BufferedReader]":
    """A file that is read, or standard input."""
    return nullcontext(terminal.input) if name == _PIPE else Path(name).open("rb")


# have


def _have(args: "Namespace", terminal: "Terminal") -> int:
    (name,) = args.words
    with opened_store(args, readonly=True) as store:
        if name == _PIPE:
            logs = write_have(store, _Output(terminal))
        else:
            with _replaced(Path(name)) as file:
                logs = write_have(store, file)
    _report(terminal, name, {"logs": logs}, counted(logs, "log"))
    return DONE


@contextmanager
def _replaced(path: Path) -> Iterator[BinaryIO]:
    """A file that is whole, or as it was before. Raises Problem."""
    if path.exists() and not path.is_file():
        with path.open("wb") as pipe:
            yield pipe
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise Problem(str(from_os_error(error, path))) from error


# export


def _export_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--have",
        metavar="FILE",
        help="leave out what the receiver holds, by what `bundle have` has written there",
    )
    parser.add_argument("--no-payload", action="store_true", help="leave payloads out")


def _export(args: "Namespace", terminal: "Terminal") -> int:
    name, *texts = args.words
    to = _Output(terminal) if name == _PIPE else Path(name)
    # To remember that others may have own entries from now on, where that can be remembered.
    readonly = not os.access(store_path(args), os.W_OK)
    with opened_store(args, readonly=readonly) as store:
        targets = [_target(store, text) for text in texts] or None
        have = nullcontext() if args.have is None else _input(args.have, terminal)
        with have as held:
            done = export_bundle(
                store,
                to,
                targets,
                have=held,
                payloads=not args.no_payload,
                report=terminal.note,
            )
    _report(terminal, name, _exported_fields(done), _exported_text(done))
    return FAILED if done.damaged else DONE


def _target(store: Store, text: str) -> "Follow":
    """A log, or an author and all of his logs. Raises Problem if nothing is held of it."""
    found = resolved(store, text)
    if isinstance(found, LogKey):
        is_held = store.log(found) is not None
    else:
        is_held = next(store.logs(found), None) is not None
    if not is_held:
        raise Problem(f"{text}: nothing is held of it (`logs` lists what is)")
    return found


def _exported_fields(done: BundleExported) -> dict[str, object]:
    return {
        "logs": done.logs,
        "entries": json_number(done.entries),
        "payloads": json_number(done.payloads),
        "bytes": json_number(done.bytes),
        "resumed_at": None if done.resumed_at is None else json_number(done.resumed_at),
    }


def _exported_text(done: BundleExported) -> str:
    counts = [counted(done.logs, "log"), counted(done.entries, "entry")]
    text = ", ".join([*counts, counted(done.payloads, "payload"), size(done.bytes)])
    if done.resumed_at == done.bytes:
        return f"{text}, complete before"
    return text if done.resumed_at is None else f"{text}, {size(done.resumed_at)} of it before"


# import


def _import(args: "Namespace", terminal: "Terminal") -> int:
    (name,) = args.words
    with opened_store(args) as store, _input(name, terminal) as stream:
        done = import_bundle(
            store, stream, lambda offset, why: terminal.note(f"offset {offset}: {why}")
        )
    for proof in done.forks:
        terminal.note(
            f"{proof.key} is forked at entry {proof.seq}, nothing from there on is taken in"
            " (see `forks`)"
        )
    if done.cut_short:
        terminal.note(f"{name}: it ends before its end; what was whole is stored, import all of it")
    terminal.result(_imported_fields(done), _imported_text(done))
    return first_status(
        status
        for status, holds in (
            (FAILED, done.bad),
            (FORKED, done.forks),
            (INCOMPLETE, done.cut_short),
        )
        if holds
    )


def _imported_fields(done: BundleImported) -> dict[str, object]:
    return {
        "entries": json_number(done.entries),
        "payloads": json_number(done.payloads),
        "already_held": json_number(done.already_held),
        "bad": json_number(done.bad),
        "cut_short": done.cut_short,
    }


def _imported_text(done: BundleImported) -> str:
    return (
        f"{counted(done.entries, 'entry')} and {counted(done.payloads, 'payload')} stored,"
        f" {counted(done.already_held, 'entry')} held already,"
        f" {counted(done.bad, 'bad record')}" + ", cut short" * done.cut_short
    )


COMMANDS = {
    "bundle": Verbs(
        "bundle",
        "carry in a file or a pipe what another store lacks",
        {
            "have": Verb(
                "FILE", "write what this store holds, for an export that leaves it out", _have
            ),
            "export": Verb(
                "FILE [TARGET...]",
                "write logs, or go on with a file that was cut short",
                _export,
                _export_arguments,
            ),
            "import": Verb("FILE", "verify and store what an export has written", _import),
        },
    )
}
