"""`dump`: entries and payloads as JSON lines that `import` takes in."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING

from local_api import COPY_BYTES, EVERYTHING, SeqRange, rfc3339, seq_range
from logstore import (
    PayloadReader,
    PayloadState,
    PayloadUnavailable,
    Store,
    StoreDamaged,
    StoredEntry,
    StoreError,
    StoreFailed,
)
from peer import json_number, log_fields
from wire import LogKey

from .errors import DONE, FAILED, Problem
from .naming import LOG_HELP, log_key
from .opening import READ_ENTRIES, held_log, opened_store, read_page
from .registry import Definition
from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal


_DAMAGE = (StoreDamaged, StoreFailed)
"""Bytes that are not what was stored, and a disk that does not give them."""


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
    with opened_store(args, readonly=True) as store:
        held_log(store, args.log)
        dump = _Dump(store, args.log, args.range, terminal)
        dump.run()
    if not dump.found and args.range.last is not None:
        raise Problem(f"{args.log}: no entry of this range is held")
    return FAILED if dump.damaged else DONE


class _Dump:
    """One range of a log. What is damaged is named and passed over: the rest is to be rescued."""

    def __init__(self, store: Store, key: LogKey, span: SeqRange, terminal: "Terminal") -> None:
        self.found = False
        self.damaged = False
        self._store = store
        self._key = key
        self._span = span
        self._terminal = terminal

    def run(self) -> None:
        """Prints it."""
        for stored in self._entries():
            self.found = True
            self._print(stored)

    def _entries(self) -> Iterator[StoredEntry]:
        """The entries held, a few at a time, and one by one where some of them are damaged."""
        start: int | None = self._span.first
        while start is not None:
            try:
                rows = read_page(self._store, self._key, start, self._span.last)
            except _DAMAGE:
                page = self._next_held(start)
                for seq in page:
                    yield from self._entry(seq)
                start = page[-1] + 1 if page else None
            else:
                yield from rows
                start = rows[-1].seq + 1 if rows else None

    def _next_held(self, start: int) -> list[int]:
        """The numbers that are held, as many as are read at once."""
        last = self._span.last
        numbers = (
            seq
            for first, end in self._store.runs(self._key, start, limit=READ_ENTRIES)
            for seq in range(max(first, start), (end if last is None else min(end, last)) + 1)
        )
        return list(islice(numbers, READ_ENTRIES))

    def _entry(self, seq: int) -> Iterator[StoredEntry]:
        try:
            stored = self._store.entry(self._key, seq)
        except _DAMAGE as error:
            self.found = True
            self._name(error)
            return
        if stored is not None:
            yield stored

    def _name(self, error: StoreError) -> None:
        self.damaged = True
        self._terminal.note(str(error))

    def _print(self, stored: StoredEntry) -> None:
        """One line; `encoded` comes first, so that `import` can judge a payload while it reads it.

        What a log is called here is not in it, unlike elsewhere: a dump is made to be given away.

        Of an entry whose payload cannot be read there is the rest, which `import` takes too, and
        what comes after it needs.
        """
        terminal = self._terminal
        with ExitStack() as opened:
            reader = None
            if stored.payload is None and stored.payload_state is PayloadState.PRESENT:
                reader = self._checked(stored, opened)
            fields = {
                "encoded": stored.encoded.hex(),
                **log_fields(stored.key),
                "seq": json_number(stored.seq),
                "received_at": rfc3339(stored.received_at),
            }
            terminal.data(json.dumps(fields)[:-1].encode() + b', "payload": ')
            if stored.payload is not None:
                terminal.data(b'"' + stored.payload.hex().encode() + b'"}\n')
            elif reader is None:
                terminal.data(b"null}\n")
            else:
                terminal.data(b'"')
                for piece in _pieces(reader):
                    terminal.data(piece.hex().encode())
                terminal.data(b'"}\n')

    def _checked(self, stored: StoredEntry, opened: ExitStack) -> PayloadReader | None:
        """A payload that was read once: what has been printed cannot be taken back."""
        try:
            reader = self._store.open_payload(stored.key, stored.seq)
            opened.callback(reader.close)
            for _ in _pieces(reader):
                pass
        except PayloadUnavailable:
            # Dropped since its entry was read.
            return None
        except _DAMAGE as error:
            self._name(error)
            return None
        return reader


def _pieces(reader: PayloadReader) -> Iterator[bytes]:
    offset = 0
    while piece := reader.read(offset, COPY_BYTES):
        yield piece
        offset += len(piece)


COMMANDS = {"dump": Definition(arguments=_dump_arguments, run=_dump)}
