"""`dump`: entries and payloads as JSON lines that `import` takes in."""

from typing import TYPE_CHECKING

from logstore import PayloadState, Store, StoredEntry

from .errors import DONE, Problem
from .opening import entries_of, held_log, opened_store
from .reading import COPY_BYTES
from .registry import Definition
from .settings import Parser
from .values import EVERYTHING, LOG_HELP, log_key, seq_range

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal


def _dump_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG", type=log_key, help=LOG_HELP)
    parser.add_argument(
        "range",
        metavar="RANGE",
        nargs="?",
        type=seq_range,
        default=EVERYTHING,
        help="SEQ, A..B, A.. or ..B, both ends included (default: the whole log)",
    )


def _dump(args: "Namespace", terminal: "Terminal") -> int:
    found = False
    with opened_store(args, readonly=True) as store:
        held_log(store, args.log)
        for stored in entries_of(store, args.log, args.range):
            _print_entry(store, stored, terminal)
            found = True
    if not found and args.range.last is not None:
        raise Problem(f"{args.log}: no entry of this range is held")
    return DONE


def _print_entry(store: Store, stored: StoredEntry, terminal: "Terminal") -> None:
    """One line; `encoded` comes first, so that `import` can judge a payload while it reads it."""
    terminal.data(b'{"encoded": "' + stored.encoded.hex().encode() + b'", "payload": ')
    if stored.payload_state is not PayloadState.PRESENT:
        terminal.data(b"null}\n")
    elif stored.payload is not None:
        terminal.data(b'"' + stored.payload.hex().encode() + b'"}\n')
    else:
        terminal.data(b'"')
        with store.open_payload(stored.key, stored.seq) as reader:
            offset = 0
            while piece := reader.read(offset, COPY_BYTES):
                terminal.data(piece.hex().encode())
                offset += len(piece)
        terminal.data(b'"}\n')


COMMANDS = {"dump": Definition(arguments=_dump_arguments, run=_dump)}
