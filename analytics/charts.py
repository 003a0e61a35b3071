"""Charts as SVG, drawn from numbers alone. Colours are the page's style sheet's.

A chart is scaled to the width that it gets, its texts with it. So it is drawn for the narrowest,
WIDTH, where a text is as large as the style sheet says; on a wide page it is a fifth larger.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from math import ceil, floor, log10
from typing import Final, NamedTuple

WIDTH: Final = 440
HEIGHT: Final = 220
TEXT_PX: Final = 12
"""The size of texts where nothing is scaled; the style sheet's."""
_CHAR: Final = 7.2
"""What a character of this size takes at most: digits and capitals of the widest fonts."""
_LEFT: Final = 44
_RIGHT: Final = 10
_TOP: Final = 10
_BOTTOM: Final = 30
_ROW: Final = 26
_TICKS: Final = 4
_TIME_TICKS: Final = 2

Point = tuple[datetime, float]


def short(number: float) -> str:
    """A number in few characters."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def nice_max(value: float) -> float:
    """A round number not below `value`, to end an axis with."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * (1 - 1e-9))


def _svg(height: int, body: Sequence[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">'
        + "".join(body)
        + "</svg>"
    )


def _text(x: float, y: float, text: str, anchor: str = "middle", kind: str = "tick") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _y_axis(top: float) -> list[str]:
    parts = []
    span = HEIGHT - _TOP - _BOTTOM
    for tick in range(_TICKS + 1):
        y = HEIGHT - _BOTTOM - span * tick / _TICKS
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(_text(_LEFT - 8, y + 4, short(top * tick / _TICKS), "end"))
    return parts


class _TimeAxis:
    def __init__(self, first: datetime, last: datetime) -> None:
        self.first = first
        self.seconds = max((last - first).total_seconds(), 1.0)

    def x(self, at: datetime) -> float:
        share = (at - self.first).total_seconds() / self.seconds
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    def labels(self) -> list[str]:
        style = "%H:%M:%S" if self.seconds < 3600 else "%d %b %H:%M"
        style = "%d %b %Y" if self.seconds > 7 * 86400 else style
        parts = []
        for tick in range(_TIME_TICKS + 1):
            moment = datetime.fromtimestamp(
                self.first.timestamp() + self.seconds * tick / _TIME_TICKS, self.first.tzinfo
            )
            anchor = ("start", *["middle"] * (_TIME_TICKS - 1), "end")[tick]
            parts.append(_text(self.x(moment), HEIGHT - 12, moment.strftime(style), anchor))
        return parts


def line_chart(series: Mapping[str, Sequence[Point]], label: str) -> str:
    """Lines over time, with a legend below."""
    moments = [at for points in series.values() for at, _ in points]
    top = nice_max(max(value for points in series.values() for _, value in points))
    axis = _TimeAxis(min(moments), max(moments))
    body = [*_y_axis(top), *axis.labels()]
    span = HEIGHT - _TOP - _BOTTOM
    for number, (name, points) in enumerate(series.items(), 1):
        path = " ".join(
            f"{axis.x(at):.1f},{HEIGHT - _BOTTOM - span * value / top:.1f}" for at, value in points
        )
        body.append(
            f'<polyline class="line c{number}" points="{path}">'
            f"<title>{escape(name)}: {short(points[-1][1])}</title></polyline>"
        )
    legend = "".join(
        f'<span><i class="c{number}"></i>{escape(name)}</span>'
        for number, name in enumerate(series, 1)
    )
    return _svg(HEIGHT, body, label) + f'<p class="legend">{legend}</p>'


def time_bars(points: Sequence[Point], step_s: int, label: str) -> str:
    """A bar for each step of time."""
    top = nice_max(max(value for _, value in points))
    first, last = points[0][0], points[-1][0]
    last = datetime.fromtimestamp(last.timestamp() + step_s, last.tzinfo)
    axis = _TimeAxis(first, last)
    width = max(1.0, (WIDTH - _LEFT - _RIGHT) * step_s / axis.seconds - 1)
    span = HEIGHT - _TOP - _BOTTOM
    body = [*_y_axis(top), *axis.labels()]
    for at, value in points:
        height = span * value / top
        body.append(
            f'<rect class="bar c1" x="{axis.x(at):.1f}" y="{HEIGHT - _BOTTOM - height:.1f}" '
            f'width="{width:.1f}" height="{height:.1f}">'
            f"<title>{at:%Y-%m-%d %H:%M:%S}: {value:.0f}</title></rect>"
        )
    return _svg(HEIGHT, body, label)


def columns(values: Sequence[tuple[str, float]], label: str) -> str:
    """A column for each name."""
    top = nice_max(max(value for _, value in values))
    slot = (WIDTH - _LEFT - _RIGHT) / len(values)
    width = min(slot * 0.8, 56)
    span = HEIGHT - _TOP - _BOTTOM
    every = max(1, ceil(_CHAR * (1 + max(len(name) for name, _ in values)) / slot))
    body = _y_axis(top)
    for number, (name, value) in enumerate(values):
        x, height = _LEFT + slot * (number + 0.5), span * value / top
        body.append(
            f'<rect class="bar c1" x="{x - width / 2:.1f}" y="{HEIGHT - _BOTTOM - height:.1f}" '
            f'width="{width:.1f}" height="{height:.1f}">'
            f"<title>{escape(name)}: {value:g}</title></rect>"
        )
        if number % every == 0:
            body.append(_text(x, HEIGHT - 12, name))
    return _svg(HEIGHT, body, label)


def rows(values: Sequence[tuple[str, float]], label: str) -> str:
    """A row for each name, its bar, and the number behind it."""
    left = 10 + _CHAR * max(len(name) for name, _ in values)
    top = nice_max(max(value for _, value in values))
    scale = (WIDTH - left - 8 * _CHAR) / top
    body = []
    for number, (name, value) in enumerate(values):
        y = _TOP + number * _ROW
        body.append(_text(left - 10, y + 13, name, "end"))
        body.append(
            f'<rect class="bar c1" x="{left:.1f}" y="{y + 2}" '
            f'width="{max(1, value * scale):.1f}" height="14">'
            f"<title>{escape(name)}: {value:g}</title></rect>"
        )
        body.append(_text(left + value * scale + 8, y + 13, short(value), "start"))
    return _svg(_TOP * 2 + _ROW * len(values), body, label)


class Cell(NamedTuple):
    """What a matrix shows at a place."""

    median_s: float
    most_s: float
    entries: int


SHADES_S: Final = (0.1, 1.0, 10.0, 60.0)
"""A cell is shaded more from each of these on: of all pages in the same way."""


def matrix(names: Sequence[str], cells: Mapping[tuple[int, int], Cell], corner: str) -> str:
    """A table with a row and a column for each name; `cells` by their places from 0.

    A table and no drawing: it is read aloud, copied, and as legible as any text. Columns are headed
    by numbers, for which rows have the names, so that eight of them have room on a telephone.
    """
    places = range(len(names))
    head = "".join(f'<th title="{escape(names[at])}">{at + 1}</th>' for at in places)
    lines = "".join(
        f'<tr><th class="key left">{at + 1} {escape(name[:8])}</th>'
        + "".join(_cell(names, cells, at, to) for to in places)
        + "</tr>"
        for at, name in enumerate(names)
    )
    first = f'<th class="left">{escape(corner)}</th>'
    return f'<table class="matrix"><tr>{first}{head}</tr>{lines}</table>'


def _cell(names: Sequence[str], cells: Mapping[tuple[int, int], Cell], at: int, to: int) -> str:
    found = cells.get((at, to))
    if found is None:
        return "<td>-</td>"
    shade = sum(found.median_s >= limit for limit in SHADES_S)
    title = (
        f"{names[at][:8]} to {names[to][:8]}: median {found.median_s:g} s, "
        f"longest {found.most_s:g} s, {found.entries:,} entries"
    )
    return (
        f'<td class="shade{shade}" title="{escape(title)}">{seconds(found.median_s)}'
        f"<br><small>{seconds(found.most_s)}</small></td>"
    )


def seconds(count: float) -> str:
    """A time in at most five characters, with its unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 0.9995)):
        if count >= size:
            number = count / (1 if unit == "s" else size)
            return f"{number:.1f}{unit}" if number < 9.95 else f"{number:.0f}{unit}"
    return f"{count * 1000:.0f}ms"
