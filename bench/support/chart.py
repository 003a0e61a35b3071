"""Charts as SVG files, drawn from numbers alone: a line over a logarithmic axis that may hold 0.

A file brings its own background and style sheet, as the page that shows it gives it neither, and
follows the reader's choice of light or dark.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import log10
from typing import Final

from analytics.charts import nice_max

WIDTH: Final = 800
HEIGHT: Final = 360
LEFT: Final = 84
RIGHT: Final = 156
TOP: Final = 64
BOTTOM: Final = 58
Y_TICKS: Final = 5
X_LABEL_WIDTH: Final = 38
"""Labels of the axis that would come closer to each other are left out."""
LINE_LABEL_HEIGHT: Final = 30
BEYOND: Final = 2.5
"""A line that many times above the highest mark is told at the top, and squeezes nothing."""

STYLE: Final = """
svg { font: 12px system-ui, sans-serif; }
.card { fill: #ffffff; stroke: #d0d7de; }
text { fill: #1f2328; }
.title { font-size: 15px; font-weight: 600; }
.tick, .about { fill: #59636e; }
.grid { stroke: #d8dee4; }
.axis { stroke: #59636e; }
.curve { fill: none; stroke: #0757ba; stroke-width: 2; }
.mark { fill: #0757ba; }
.range { stroke: #0757ba; }
.tick, .note { font-size: 11px; }
.note { fill: #59636e; }
.halo { stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round; }
.level { stroke: #9a4b00; stroke-dasharray: 6 4; }
.name { fill: #9a4b00; }
@media (prefers-color-scheme: dark) {
  .card { fill: #0d1117; stroke: #3d444d; }
  text { fill: #f0f6fc; }
  .tick, .about { fill: #a5adb7; }
  .grid { stroke: #2a3038; }
  .axis { stroke: #a5adb7; }
  .curve, .range { stroke: #58a6ff; }
  .mark { fill: #58a6ff; }
  .note { fill: #a5adb7; }
  .halo { stroke: #0d1117; }
  .level { stroke: #e09b4f; }
  .name { fill: #e09b4f; }
}
"""


@dataclass(frozen=True)
class Mark:
    """One measured value, with its range; `x_label` stands on the axis, `note` over the value."""

    x: float
    x_label: str
    value: float
    low: float
    high: float
    note: str = ""


@dataclass(frozen=True)
class Level:
    """A value to compare with, whatever `x` is."""

    name: str
    value: float


@dataclass(frozen=True)
class Chart:
    """What stands around the marks. `about`: how they were measured."""

    title: str
    about: str
    x_name: str
    y_name: str


class _Scales:
    """Where values are: `x` by powers of ten, and 0 a power before the least one; `y` from 0."""

    def __init__(self, xs: Sequence[float], top: float) -> None:
        above = [x for x in xs if x > 0] or [1.0]
        self.has_zero = min(xs) <= 0
        self.first = log10(min(above)) - (1 if self.has_zero else 0)
        self.span = max(log10(max(above)) - self.first, 1e-9)
        self.top = top

    def x(self, value: float) -> float:
        share = (log10(value) - self.first) / self.span if value > 0 else 0.0
        # One mark alone stands in the middle.
        share = share if self.span > 1e-6 else 0.5
        return LEFT + 24 + share * (WIDTH - LEFT - RIGHT - 48)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.top


def drawn(chart: Chart, marks: Sequence[Mark], levels: Iterable[Level] = ()) -> str:
    """The chart as the text of a file."""
    marks = sorted(marks, key=lambda mark: mark.x)
    highest = max(mark.high for mark in marks)
    levels = sorted(levels, key=lambda level: level.value)
    inside = [level.value for level in levels if level.value <= BEYOND * highest]
    scales = _Scales([mark.x for mark in marks], nice_max(1.08 * max([highest, *inside])))
    body = [
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="6"/>',
        _text("title", 16, 26, chart.title),
        _text("about", 16, 45, chart.about),
        *_axes(chart, marks, scales),
        *_levels(levels, scales),
        *_curve(marks, scales),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}">\n'
        f"<title>{escape(chart.title)}</title>\n<style>{STYLE}</style>\n"
        + "\n".join(body)
        + "\n</svg>\n"
    )


def number(value: float) -> str:
    """As people write it: thousands apart, three digits that count."""
    return f"{float(f'{value:.3g}'):,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _text(
    kind: str, x: float, y: float, text: str, *, anchor: str = "start", more: str = ""
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}{more}>{escape(text)}</text>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _axes(chart: Chart, marks: Sequence[Mark], scales: _Scales) -> list[str]:
    """Both axes with their names, a grid for `y`, and a tick for each mark."""
    parts = []
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for tick in range(Y_TICKS + 1):
        value = scales.top * tick / Y_TICKS
        parts.append(_line("grid", LEFT, scales.y(value), right, scales.y(value)))
        parts.append(_text("tick", LEFT - 8, scales.y(value) + 4, number(value), anchor="end"))
    parts.append(_line("axis", LEFT, bottom, right, bottom))
    free_from = 0.0
    for mark in marks:
        x = scales.x(mark.x)
        parts.append(_line("axis", x, bottom, x, bottom + 5))
        if x >= free_from:
            parts.append(_text("tick", x, bottom + 20, mark.x_label, anchor="middle"))
            free_from = x + X_LABEL_WIDTH
    if scales.has_zero and len(marks) > 1:
        # The axis is broken between 0 and the powers of ten.
        x = (scales.x(0) + scales.x(marks[1].x)) / 2
        parts.extend(_line("axis", x + by - 3, bottom + 5, x + by + 3, bottom - 5) for by in (0, 5))
    middle = (TOP + bottom) / 2
    turned = f' transform="rotate(-90 20 {middle:.1f})"'
    parts.append(_text("tick", (LEFT + right) / 2, HEIGHT - 16, chart.x_name, anchor="middle"))
    parts.append(_text("tick", 20, middle, chart.y_name, anchor="middle", more=turned))
    return parts


def _levels(levels: Sequence[Level], scales: _Scales) -> list[str]:
    """Dashed lines, their names at the right, each above the one below it."""
    parts = []
    right, lowest = WIDTH - RIGHT, float(HEIGHT - BOTTOM)
    for level in levels:
        if level.value > scales.top:
            lowest = min(lowest, TOP + 2.0)
            value = f"↑ {number(level.value)}"
        else:
            y = scales.y(level.value)
            parts.append(_line("level", LEFT, y, right, y))
            lowest = min(lowest, y + 4)
            value = number(level.value)
        parts.append(_text("name", right + 8, lowest, level.name))
        parts.append(_text("name", right + 8, lowest + 14, value))
        lowest -= LINE_LABEL_HEIGHT
    return parts


def _curve(marks: Sequence[Mark], scales: _Scales) -> list[str]:
    """The marks, their ranges and values, and the line through them; none from 0 on."""
    parts = [
        _line("curve", scales.x(one.x), scales.y(one.value), scales.x(two.x), scales.y(two.value))
        for one, two in pairwise(marks)
        if one.x > 0
    ]
    for mark in marks:
        x, y = scales.x(mark.x), scales.y(mark.value)
        if mark.high > mark.low:
            parts.append(_line("range", x, scales.y(mark.low), x, scales.y(mark.high)))
        told = f"{mark.x_label}: {number(mark.value)}, {number(mark.low)} to {number(mark.high)}"
        parts.append(
            f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="4">'
            f"<title>{escape(told)}</title></circle>"
        )
        above = scales.y(mark.high) - 10
        parts += _told("value", x, above, number(mark.value))
        if mark.note:
            parts += _told("note", x, above - 15, mark.note)
    return parts


def _told(kind: str, x: float, y: float, text: str) -> list[str]:
    """A word over lines: on a rim of the background, as not all viewers know how to paint one."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="middle"'
    rim = f'<text class="{kind} halo" aria-hidden="true" {place}>{escape(text)}</text>'
    return [rim, _text(kind, x, y, text, anchor="middle")]
