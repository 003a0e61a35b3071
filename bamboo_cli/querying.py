"""`sql`: one question to exports, in SQL: a table for people, CSV for pipes, JSON for programs."""

import csv
import io
import json
import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from analytics import AnalyticsError, Answer, BadQuery, query_exports
from peer import json_number

from .errors import DONE, Problem, WrongUsage
from .registry import Definition
from .settings import Parser
from .terminal import escape

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal

Row = tuple[object, ...]

_CELL_MIN: Final = 8
"""Characters of a cell that are shown however narrow the terminal is."""
_GAP: Final = "  "


def _arguments(parser: Parser) -> None:
    parser.add_argument(
        "lake", metavar="LAKE", nargs="+", type=Path, help="what `export` made, of one node each"
    )
    parser.add_argument(
        "query",
        metavar="QUERY",
        help="one SELECT, of the views entries, entries_latest, logs and forks",
    )


def _sql(args: "Namespace", terminal: "Terminal") -> int:
    try:
        with query_exports(args.lake, args.query) as answer:
            _print(answer, terminal)
            terminal.flush()
    except BadQuery as error:
        raise WrongUsage(str(error)) from error
    except AnalyticsError as error:
        raise Problem(str(error)) from error
    return DONE


def _print(answer: Answer, terminal: "Terminal") -> None:
    if terminal.as_json:
        names = _different(answer.names)
        for rows in answer.batches():
            for row in rows:
                terminal.record(dict(zip(names, map(_json_value, row), strict=True)))
    elif terminal.wide:
        _print_table(answer, terminal)
    else:
        _print_csv(answer, terminal)


def _different(names: Sequence[str]) -> list[str]:
    """Names that no two columns share, as the members of an object have to be."""
    found: list[str] = []
    for name in names:
        number, candidate = 1, name
        while candidate in found:
            candidate = f"{name}_{number}"
            number += 1
        found.append(candidate)
    return found


def _print_csv(answer: Answer, terminal: "Terminal") -> None:
    heading: list[Row] = [tuple(answer.names)]
    for rows in chain([heading], answer.batches()):
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([map(_text, row) for row in rows])
        terminal.data(text.getvalue().encode("utf-8", "backslashreplace"))


def _print_table(answer: Answer, terminal: "Terminal") -> None:
    """Columns as wide as their first rows need, all within the terminal's width if that is enough
    for _CELL_MIN characters of each."""
    names = [escape(name) for name in answer.names]
    width = shutil.get_terminal_size().columns
    batches = _cells(answer)
    first = next(batches, [])
    wanted = [max(map(len, cells)) for cells in zip(names, *first, strict=True)]
    widths = _fitted(wanted, width - len(_GAP) * (len(names) - 1))
    right = answer.are_numbers
    terminal.heading(_table_line(names, widths, right))
    for rows in chain([first], batches):
        for row in rows:
            terminal.line(_table_line(row, widths, right))


def _cells(answer: Answer) -> Iterator[list[list[str]]]:
    for rows in answer.batches():
        yield [["-" if value is None else escape(_text(value)) for value in row] for row in rows]


def _fitted(wanted: Sequence[int], room: int) -> list[int]:
    """Widths of columns: the widest ones are cut until all have room."""
    most = max(wanted, default=0)
    while most > _CELL_MIN and sum(min(each, most) for each in wanted) > room:
        most -= 1
    return [min(each, most) for each in wanted]


def _table_line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = []
    for cell, width, is_right in zip(cells, widths, right, strict=True):
        shown = cell if len(cell) <= width else cell[: width - 1] + "…"
        parts.append(shown.rjust(width) if is_right else shown.ljust(width))
    return _GAP.join(parts).rstrip()


def _text(value: object) -> str:
    """A value as CSV has it: nothing for null, bytes as hex, times as elsewhere."""
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case list() | dict():
            return json.dumps(_json_value(value))
        case Decimal():
            return format(value, "f")
        case _:
            return str(_json_value(value))


def _json_value(value: object) -> object:
    """A value as JSON has it: bytes as hex, and as text the numbers that JSON readers get wrong."""
    match value:
        case None | bool() | str():
            return value
        case bytes():
            return value.hex()
        case int():
            return value if json_number(abs(value)) == abs(value) else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return _json_decimal(value)
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        case datetime() | date() | time():
            return value.isoformat()
        case list():
            return [_json_value(each) for each in value]
        case dict():
            return {str(name): _json_value(each) for name, each in value.items()}
        case _:
            return str(value)


def _json_decimal(value: Decimal) -> object:
    if value == value.to_integral_value():
        return _json_value(int(value))
    with suppress(OverflowError):
        number = float(value)
        if Decimal(repr(number)) == value:
            return number
    return format(value, "f")


COMMANDS = {"sql": Definition(arguments=_arguments, run=_sql)}
