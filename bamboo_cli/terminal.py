"""What is printed: data on standard output, everything else on standard error.

Names and reasons may come from a peer, so everything but a payload is escaped before it is
printed. Standard output is written in large pieces; `flush` before anybody waits for it.
"""

import json
import os
import select
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final, TextIO, cast

from local_api import full, with_names

from .errors import Problem, WrongUsage

if TYPE_CHECKING:
    from io import BufferedReader

    from local_api import Names
    from logstore import Named

_WRITE_BYTES: Final = 1 << 16
FIRST_COLUMN_MIN: Final = 16


class OutputClosed(Exception):  # noqa: N818 - the reader had enough, as with `| head`
    """Nobody reads standard output any more."""


def escape(text: str) -> str:
    """`text` with everything that could move a terminal's cursor, or hide, as an escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode()
        for char in text
    )


class Pairs:
    """An object of JSON of which the members come one after another."""

    def __init__(self, pairs: Iterable[tuple[str, object]]) -> None:
        self.pairs = pairs


class Items:
    """An array of JSON of which the items come one after another."""

    def __init__(self, items: Iterable[object]) -> None:
        self.items = items


def _pieces(value: object) -> Iterator[str]:
    """JSON as `Terminal.record` prints it, in one piece what is no more than that."""
    between = ""
    if not _is_long(value):
        yield json.dumps(value)
        return
    if isinstance(value, Mapping | Pairs):
        yield "{"
        for name, member in value.items() if isinstance(value, Mapping) else value.pairs:
            yield f"{between}{json.dumps(name)}: "
            yield from _pieces(member)
            between = ", "
        yield "}"
    elif isinstance(value, list | Items):
        yield "["
        for item in value if isinstance(value, list) else value.items:
            yield between
            yield from _pieces(item)
            between = ", "
        yield "]"


def _is_long(value: object) -> bool:
    """Whether there is anything in it that comes one after another."""
    if isinstance(value, Mapping):
        return any(map(_is_long, value.values()))
    if isinstance(value, list):
        return any(isinstance(item, Mapping) and _is_long(item) for item in value)
    return isinstance(value, Pairs | Items)


PROGRESS_EVERY_S = 1.0


class Terminal:
    """The three standard streams, any of which may be closed."""

    def __init__(self, *, as_json: bool = False, verbose: bool = False) -> None:
        self.as_json = as_json
        self.json_is_asked = False
        """Whether the command line itself says so, and not a setting for all commands."""
        self.verbose = verbose
        self.names: Names | None = None
        """What things are called in the store that a command works on, once that is open."""
        self._pending = bytearray()
        self._said = time.monotonic()
        """When it was said last how far something is."""

    @property
    def input(self) -> "BufferedReader":
        """Standard input, as bytes."""
        if sys.stdin is None or sys.stdin.closed:
            raise Problem("standard input is closed; name a file, or send the data into a pipe")
        if sys.stdin.isatty():
            self.note("reading from the terminal; Ctrl-D at the start of a line ends it")
        else:
            self.detail("reading standard input")
        return cast("BufferedReader", sys.stdin.buffer)

    @property
    def wide(self) -> bool:
        """Whether people look at standard output."""
        return sys.stdout is not None and sys.stdout.isatty()

    @property
    def coloured(self) -> bool:
        """Whether colours are wanted on standard output."""
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        return self.wide and not plain

    def data(self, data: bytes) -> None:
        """Prints bytes as they are."""
        self._pending += data
        if len(self._pending) >= _WRITE_BYTES:
            self.flush()

    def line(self, text: str) -> None:
        """Prints a line."""
        self.data(escape(text).encode("utf-8", "backslashreplace") + b"\n")

    def called(self, target: "Named") -> str:
        """A log or an author: short for people, in full for programs."""
        return full(target) if self.names is None or not self.wide else self.names.shown(target)

    def heading(self, text: str) -> None:
        """Prints a line above a table, for people only."""
        if self.coloured:
            self.data(b"\x1b[1m" + text.encode() + b"\x1b[0m\n")
        elif self.wide:
            self.line(text)

    def alert(self, text: str) -> None:
        """Prints a line that people should not miss."""
        mark, end = (b"\x1b[1;31m", b"\x1b[0m") if self.coloured else (b"", b"")
        self.data(mark + escape(text).encode("utf-8", "backslashreplace") + end + b"\n")

    def record(self, fields: Mapping[str, object]) -> None:
        """Prints one JSON object."""
        named = with_names(fields, self.names)
        self.data(json.dumps(named, separators=(", ", ": ")).encode() + b"\n")

    def stream(self, fields: Mapping[str, object]) -> None:
        """As `record`, of what may be larger than memory is wanted to be: `Pairs` and `Items`."""
        for piece in _pieces(fields):
            self.data(piece.encode())
        self.data(b"\n")

    def refuse_json(self, command: str) -> None:
        """For what prints bytes that are no lines. A setting for all commands is passed over.

        Raises WrongUsage where it was asked for by itself.
        """
        if self.json_is_asked:
            raise WrongUsage(f"{command} prints no JSON: leave --json out")
        self.as_json = False

    def result(self, fields: Mapping[str, object], text: str) -> None:
        """Prints one thing: `fields` under --json, else `text`."""
        if self.as_json:
            self.record(fields)
        else:
            self.line(text)

    def table(
        self, headings: Sequence[str], rows: Sequence[Sequence[object]], *, right: str = ""
    ) -> None:
        """Prints rows below one another, with headings for people.

        `right`: a letter for each column, `r` for numbers. On a terminal the first column gives way
        where a row would take two lines.
        """
        cells = [[escape(str(cell)) for cell in row] for row in rows]
        shown = [list(headings), *cells] if self.wide else cells
        widths = [max(map(len, column), default=0) for column in zip(*shown, strict=True)]
        if self.wide and widths:
            rest = sum(widths[1:]) + 2 * (len(widths) - 1)
            widths[0] = min(widths[0], max(FIRST_COLUMN_MIN, get_terminal_size().columns - rest))
        for number, row in enumerate(shown):
            padded = [
                cell.rjust(width) if right[place : place + 1] == "r" else cell.ljust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            if len(row[0]) > widths[0]:
                # Both ends: of names it is often the end in which they differ.
                half = (widths[0] - 1) // 2
                padded[0] = f"{row[0][: widths[0] - 1 - half]}~{row[0][len(row[0]) - half :]}"
            text = "  ".join(padded).rstrip()
            if number == 0 and self.wide:
                self.heading(text)
            else:
                self.line(text)

    def listing(self, fields: Iterable[tuple[str, object]]) -> None:
        """Prints names and values, one below the other."""
        words = {None: "-", True: "yes", False: "no"}
        pairs = [
            (name, words[value] if value is None or isinstance(value, bool) else str(value))
            for name, value in fields
        ]
        width = max(len(name) for name, _ in pairs)
        for name, value in pairs:
            self.line(f"{name:<{width}}  {value}")

    def note(self, text: str) -> None:
        """Says something on standard error."""
        error: TextIO | None = sys.stderr
        if error is None or error.closed:
            return
        # Whoever reads both streams sees them in the order in which things happened.
        self.flush()
        try:
            error.write(escape(text) + "\n")
            error.flush()
        except OSError:
            return

    def note_record(self, fields: Mapping[str, object]) -> None:
        """Says one JSON object on standard error: of what has standard output for its bytes."""
        self.note(json.dumps(with_names(fields, self.names), separators=(", ", ": ")))

    @property
    def shows_progress(self) -> bool:
        """Whether somebody looks at standard error, or asked for it."""
        return self.verbose or (sys.stderr is not None and sys.stderr.isatty())

    def progress(self, text: str, *, at_once: bool = False) -> None:
        """Says how far something is, if somebody looks or asked for it: each second at most.

        `at_once`: since nothing more can be said for long.
        """
        now = time.monotonic()
        if self.shows_progress and (at_once or now - self._said >= PROGRESS_EVERY_S):
            self._said = now
            self.note(text)

    def detail(self, text: str) -> None:
        """Says something on standard error under --verbose."""
        if self.verbose:
            self.note(text)

    def flush(self) -> None:
        """Returns once everything printed so far is with the operating system.

        Raises OutputClosed if nobody reads it, Problem if it cannot be written.
        """
        if not self._pending:
            return
        data, self._pending = bytes(self._pending), bytearray()
        if sys.stdout is None or sys.stdout.closed:
            raise OutputClosed
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise OutputClosed from None
        except OSError as error:
            raise Problem(f"standard output cannot be written: {error.strerror}") from None

    def check_read(self) -> None:
        """For whoever waits, and has nothing to print by which that would come out.

        Raises OutputClosed if standard output is a pipe or a socket that nobody reads any more, as
        far as the system tells.
        """
        try:
            number = sys.stdout.fileno()
            mode = os.fstat(number).st_mode
        except (OSError, ValueError, AttributeError):  # closed, or nothing of the system's
            return
        if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
            return
        # Nothing is asked for: that the other end is gone is told all the same, by Linux of a pipe
        # as an error, elsewhere and of a socket as its end.
        poll = select.poll()
        poll.register(number, 0)
        if any(told & (select.POLLERR | select.POLLHUP) for _, told in poll.poll(0)):
            raise OutputClosed
