"""`cat` and `tail`: payloads by number and without a gap, or entries in the order of arrival.

`cat` reads a log, `tail` the store's change feed. What the feed has is what came, so an entry is
there again once its payload has come, or has gone: `tail` waits for payloads and takes those rows
alone, and with `--no-payload`, where both would do, it remembers which entries it has printed.

Whoever follows looks at a number that every commit of any process changes (`data_version`), ten
times a second: to be told by the system which file has changed costs more than to look, and does
not exist everywhere.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final

from local_api import (
    EVERYTHING,
    PAYLOAD_BYTES_MAX,
    SeqRange,
    arrival_fields,
    byte_size,
    moment,
    payload_pieces,
    rfc3339,
    seq_range,
    small_payload,
    u64,
)
from logstore import OpenCursor, PayloadState, PayloadUnavailable, Store, StoredEntry, check_name
from wire import LogKey

from .errors import DONE, Problem
from .naming import LOG_HELP, log_key
from .opening import READ_BYTES, READ_ENTRIES, held_log, opened_store, read_page
from .reading import why_not_held
from .registry import Definition
from .settings import Parser
from .terminal import escape

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal

POLL_S: Final = 0.1
LAST: Final = 10
"""So many entries `tail` prints that are here already."""
STORED_EVERY: Final = 1000
STORED_EVERY_S: Final = 1.0
"""A cursor is stored after so many entries or so long, and when nothing is left."""


def _common_arguments(parser: Parser, last: str) -> None:
    parser.add_argument("-n", dest="last", metavar="N", type=u64, own_variable="last", help=last)
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=moment,
        own_variable=True,
        help="only what was received then or later: 2026-01-31, 2026-01-31T12:00:00Z, or a span"
        " before now (90s, 10m, 2h, 7d)",
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        own_variable=True,
        help="go on with what comes, until interrupted",
    )
    parser.add_argument(
        "--max-payload",
        metavar="BYTES",
        type=byte_size,
        default=PAYLOAD_BYTES_MAX,
        own_variable=True,
        help="with --json, leave larger payloads out (default: 1M)",
    )


def _until_interrupted(
    work: "Callable[[Namespace, Terminal], None]", args: "Namespace", terminal: "Terminal"
) -> int:
    """Who follows is done when he says so."""
    try:
        work(args, terminal)
    except KeyboardInterrupt:
        if not args.follow:
            raise
        terminal.flush()
    return DONE


# By number


def _cat_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG", type=log_key, help=LOG_HELP)
    parser.add_argument(
        "range",
        metavar="RANGE",
        nargs="?",
        type=seq_range,
        default=EVERYTHING,
        help="SEQ, A..B, A.. or ..B, both ends included (default: the whole log)",
    )
    _common_arguments(parser, "the last N of these; 0: none")


def _cat(args: "Namespace", terminal: "Terminal") -> None:
    span: SeqRange = args.range
    with opened_store(args, readonly=True) as store:
        if not args.follow:
            held_log(store, args.log)
        due = _first_due(store, args)
        while True:
            version = store.data_version()
            due = _print_from(store, args, due, terminal)
            if span.last is not None and due > span.last:
                return
            terminal.flush()
            info = store.log(args.log)
            # An open range ends with what is held, or may exist; a closed one has to be there to
            # its end.
            held = 0 if info is None else info.newest
            ended = info is not None and info.end_seq == held and held > 0
            if span.last is None and due > held and (ended or not args.follow):
                return
            if not args.follow or (info is not None and due > info.servable):
                raise Problem(f"{args.log}/{due}: {why_not_held(store, args.log, due)}")
            _wait_for_change(store, version, terminal)


def _first_due(store: Store, args: "Namespace") -> int:
    """The first entry that is to be printed."""
    span: SeqRange = args.range
    if args.last is None and args.since is None:
        return span.first
    info = store.log(args.log)
    newest = 0 if info is None else info.newest
    last = newest if span.last is None else min(span.last, newest)
    if args.last is not None and args.since is None:
        return max(span.first, last - int(args.last) + 1)
    found = store.first_since(args.log, span.first, last, args.since, args.last)
    return max(span.first, last + 1) if found is None else found


def _print_from(store: Store, args: "Namespace", due: int, terminal: "Terminal") -> int:
    """Prints what is there without a gap; returns the number that is lacking."""
    span: SeqRange = args.range
    while span.last is None or due <= span.last:
        rows = read_page(store, args.log, due, span.last)
        if not rows:
            return due
        for stored in rows:
            if stored.seq != due or stored.payload_state is not PayloadState.PRESENT:
                return due
            if args.since is None or stored.received_at >= args.since:
                _print_payload(store, stored, args, terminal)
            due += 1
    return due


def _print_payload(
    store: Store, stored: StoredEntry, args: "Namespace", terminal: "Terminal"
) -> None:
    if terminal.as_json:
        terminal.record(_fields(store, stored, args, terminal))
        return
    try:
        for piece in payload_pieces(store, stored):
            terminal.data(piece)
    except PayloadUnavailable as error:
        raise Problem(str(error)) from None


def _fields(
    store: Store, stored: StoredEntry, args: "Namespace", terminal: "Terminal"
) -> dict[str, object]:
    payload = small_payload(store, stored, args.max_payload)
    name = None if terminal.names is None else terminal.names.of(stored.key)
    return arrival_fields(stored, payload, name)


# By arrival


def _tail_arguments(parser: Parser) -> None:
    parser.add_argument(
        "log", metavar="LOG", nargs="?", type=log_key, help=f"only this log: {LOG_HELP}"
    )
    _common_arguments(
        parser, "the last N of what the rest selects (10, unless there is --since or --cursor)"
    )
    parser.add_argument(
        "--no-payload",
        action="store_true",
        own_variable=True,
        help="entries as soon as they are verified, whether their payloads are here or not",
    )
    parser.add_argument(
        "--cursor",
        metavar="NAME",
        type=check_name,
        own_variable=True,
        help="go on behind what was printed by this cursor, and remember how far that was; one"
        " that is new begins with the oldest, unless -n or --since say otherwise",
    )


def _tail(args: "Namespace", terminal: "Terminal") -> None:
    with opened_store(args, readonly=args.cursor is None) as store, ExitStack() as opened:
        if args.log is not None and not args.follow:
            held_log(store, args.log)
        start = _first_place(store, args)
        cursor: OpenCursor | None = None
        if args.cursor is not None:
            cursor = opened.enter_context(store.cursors.reading(args.cursor, args.log, start))
            start = cursor.position
        tail = _Tail(store, args, terminal)
        bookmark = _Bookmark(cursor, terminal)
        while True:
            version = store.data_version()
            for position, entries in tail.pages(start):
                for stored in entries:
                    tail.print(stored)
                    bookmark.printed(stored.ingest)
                start = position
            bookmark.nothing_left(start)
            if not args.follow:
                return
            _wait_for_change(store, version, terminal)


def _first_place(store: Store, args: "Namespace") -> int:
    """Behind which arrival a reader begins who has no cursor yet."""
    if args.last is None and args.since is None and args.cursor is not None:
        return 0
    last = LAST if args.last is None and args.since is None else args.last
    return store.place_before(last, args.log, has_payload=not args.no_payload, since=args.since)


class _Tail:
    """Prints what arrives."""

    def __init__(self, store: Store, args: "Namespace", terminal: "Terminal") -> None:
        self._store = store
        self._args = args
        self._terminal = terminal
        # A cursor says by itself where to go on, in its first run as in every other one.
        self._since = args.since if args.cursor is None else None
        self._printed = _Printed() if args.no_payload else None

    def pages(self, after: int) -> Iterator[tuple[int, list[StoredEntry]]]:
        """What there is behind a place, and up to which place that is."""
        while True:
            entries, position = self._store.read_arrivals(
                after,
                self._args.log,
                has_payload=not self._args.no_payload,
                since=self._since,
                entries_max=READ_ENTRIES,
                bytes_max=READ_BYTES,
            )
            yield position, entries
            if not entries:
                return
            after = position

    def print(self, stored: StoredEntry) -> None:
        """Prints an entry, unless that was done before its payload came."""
        if self._printed is not None and not self._printed.add(stored.key, stored.seq):
            return
        terminal = self._terminal
        if terminal.as_json:
            terminal.record(_fields(self._store, stored, self._args, terminal))
            return
        columns = [str(stored.seq), _time(stored.received_at, terminal), self._words(stored)]
        if self._args.log is None:
            columns.insert(0, terminal.called(stored.key))
        text = "  ".join(columns)
        if terminal.wide:
            width = get_terminal_size().columns
            text = text if len(text) <= width else f"{text[: width - 1]}~"
        terminal.line(text)

    def _words(self, stored: StoredEntry) -> str:
        # No line of a terminal is so long that more of a payload would be looked at.
        bytes_max = 1 << 16 if self._terminal.wide else PAYLOAD_BYTES_MAX
        payload = small_payload(self._store, stored, bytes_max)
        if payload is not None:
            try:
                return escape(payload.decode())
            except UnicodeDecodeError:
                pass
        held = stored.payload_state is PayloadState.PRESENT
        state = "" if held else f", {stored.payload_state}"
        return f"<{stored.payload_bytes:,} bytes{state}>"


def _time(received_at: int, terminal: "Terminal") -> str:
    text = rfc3339(received_at)
    return f"{text[:10]} {text[11:19]}" if terminal.wide else text


class _Printed:
    """Which entries were printed, as ranges of each log: what has few gaps takes little room."""

    def __init__(self) -> None:
        self._ranges: dict[LogKey, list[list[int]]] = {}

    def add(self, key: LogKey, seq: int) -> bool:
        """False if it was there."""
        ranges = self._ranges.setdefault(key, [])
        place = len(ranges)
        # Most come behind what is there.
        while place and ranges[place - 1][0] > seq:
            place -= 1
        before = ranges[place - 1] if place else None
        if before is not None and seq <= before[1]:
            return False
        behind = ranges[place] if place < len(ranges) else None
        joins_before = before is not None and before[1] == seq - 1
        joins_behind = behind is not None and behind[0] == seq + 1
        if joins_before and joins_behind:
            assert before is not None
            assert behind is not None
            before[1] = behind[1]
            del ranges[place]
        elif joins_before:
            assert before is not None
            before[1] = seq
        elif joins_behind:
            assert behind is not None
            behind[0] = seq
        else:
            ranges.insert(place, [seq, seq])
        return True


class _Bookmark:
    """Stores a cursor behind what was printed *and* flushed: whoever reads it has the lines."""

    def __init__(self, cursor: OpenCursor | None, terminal: "Terminal") -> None:
        self._cursor = cursor
        self._terminal = terminal
        self._count = 0
        self._stored_at = time.monotonic()

    def printed(self, ingest: int) -> None:
        """An entry was printed."""
        self._count += 1
        is_due = time.monotonic() - self._stored_at >= STORED_EVERY_S
        if self._cursor is not None and (self._count >= STORED_EVERY or is_due):
            self._store(ingest)

    def nothing_left(self, position: int) -> None:
        """Everything up to there is printed."""
        self._store(position)

    def _store(self, position: int) -> None:
        self._terminal.flush()
        # Where nothing was printed there is nothing to store: what passes by on other logs would
        # cost a sync ten times a second.
        if self._cursor is not None and self._count:
            self._cursor.acknowledge(position)
        self._count = 0
        self._stored_at = time.monotonic()


def _wait_for_change(store: Store, version: int, terminal: "Terminal") -> None:
    """Returns once any process has committed something since the version was read.

    Raises OutputClosed if nobody reads any more: `tail --follow | head` ends with `head`.
    """
    while store.data_version() == version:
        terminal.check_read()
        time.sleep(POLL_S)


COMMANDS = {
    "cat": Definition(arguments=_cat_arguments, run=partial(_until_interrupted, _cat)),
    "tail": Definition(arguments=_tail_arguments, run=partial(_until_interrupted, _tail)),
}
