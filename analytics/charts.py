"""Charts as SVG, drawn from numbers alone. Colours are the page's style sheet's."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from math import floor, log10
from typing import Final

WIDTH: Final = 720
HEIGHT: Final = 240
_LEFT: Final = 64
_RIGHT: Final = 16
_TOP: Final = 12
_BOTTOM: Final = 34
_ROW: Final = 26
_TICKS: Final = 4

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
        for tick in range(_TICKS + 1):
            moment = datetime.fromtimestamp(
                self.first.timestamp() + self.seconds * tick / _TICKS, self.first.tzinfo
            )
            anchor = ("start", *["middle"] * (_TICKS - 1), "end")[tick]
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
    every = max(1, -(-len(values) // 14))
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


def rows(values: Sequence[tuple[str, float, float]], unit: str, label: str) -> str:
    """A row for each name: a bar up to the first number, a thin line up to the second."""
    left = 300
    top = nice_max(max(most for _, _, most in values))
    scale = (WIDTH - left - 130) / top
    body = []
    for number, (name, value, most) in enumerate(values):
        y = _TOP + number * _ROW
        body.append(_text(left - 10, y + 13, name, "end"))
        body.append(
            f'<line class="range" x1="{left}" x2="{left + most * scale:.1f}" '
            f'y1="{y + 9}" y2="{y + 9}"/>'
        )
        body.append(
            f'<rect class="bar c1" x="{left}" y="{y + 2}" width="{max(1, value * scale):.1f}" '
            f'height="14"><title>{escape(name)}: {value:g} {unit}</title></rect>'
        )
        end = left + max(value, most) * scale + 8
        body.append(_text(end, y + 13, f"{short(value)} {unit}, most {short(most)}", "start"))
    return _svg(_TOP * 2 + _ROW * len(values), body, label)
