"""The report page: one HTML file that opens without a network, charts drawn in place."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import Final

from .charts import SHADES_S, TEXT_PX, columns, line_chart, matrix, rows, seconds, short, time_bars
from .report_data import ReportData

_STYLE: Final = (
    """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #667085; --line: #e4e7ec; --page: #fff;
  --card: #f8f9fb; --good: #12805c; --bad: #c4320a; --c1: #2f6feb; --c2: #e5853d; --c3: #2a9d8f;
  --c4: #9b5de5; --c5: #d6396b; --c6: #7a8450; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #98a2b3; --line: #30363f;
  --page: #14181d; --card: #1c2128; --good: #3fb98a; --bad: #f97066; --c1: #6ea0ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1120px; padding: 32px 20px 64px; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 0 0 12px; }
.soft { color: var(--soft); }
code, td.key { font-family: ui-monospace, monospace; font-size: 13px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px;
  margin: 24px 0; }
.tile, section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 14px 16px; } .tile b { display: block; font-size: 24px; line-height: 1.2; }
.good b { color: var(--good); } .bad b { color: var(--bad); }
.forked { margin: 0 0 24px; padding: 14px 16px; border-radius: 10px; background: var(--bad);
  color: #fff; overflow-wrap: anywhere; }
.charts { display: grid; gap: 16px;
  grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); }
section { padding: 18px 20px; margin-bottom: 16px; overflow-x: auto; }
.charts section { margin: 0; min-width: 0; } svg { width: 100%; height: auto; display: block; }
.grid { stroke: var(--line); } .tick { fill: var(--soft); font-size: TEXT_PX; }
.line { fill: none; stroke-width: 2; }
.legend { margin: 8px 0 0; font-size: 13px; color: var(--soft); }
.legend span { margin-right: 16px; white-space: nowrap; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px;
  margin-right: 6px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: right; padding: 5px 10px; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
td.text { white-space: normal; overflow-wrap: anywhere; min-width: 200px; }
.matrix { width: auto; } .matrix th, .matrix td { padding: 4px 5px; text-align: center; }
.matrix .left { text-align: left; } small { font-size: 12px; }
.shade1 { background: #2f6feb1f; } .shade2 { background: #2f6feb3d; }
.shade3 { background: #2f6feb5c; } .shade4 { background: #2f6feb80; }
th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child, td.left, th.left {
  text-align: left; }
@media (max-width: 560px) { body { padding: 16px 10px 40px; } section { padding: 14px 10px; } }
""".replace("TEXT_PX", f"{TEXT_PX}px")
    + "".join(
        f".line.c{n} {{ stroke: var(--c{n}); }} .bar.c{n} {{ fill: var(--c{n}); }} "
        f"i.c{n} {{ background: var(--c{n}); }}\n"
        for n in range(1, 7)
    )
)

_STEPS: Final = {
    1: "second",
    10: "10 seconds",
    60: "minute",
    600: "10 minutes",
    3600: "hour",
    21600: "6 hours",
    86400: "day",
    604800: "week",
    2592000: "30 days",
}


def write_report(data: ReportData) -> str:
    """The page. Nothing of it comes from elsewhere; what peers wrote is escaped."""
    body = [
        *_forked(data.forked),
        "<h1>Replicated logs</h1>",
        f'<p class="soft">{_span(data)}, seen by {_nodes(data.nodes)}</p>',
        _tiles(data),
        '<div class="charts">',
        *_charts(data),
        "</div><br>",
        _faults(data),
        _logs(data),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Replicated logs</title><style>{_STYLE}</style></head>\n<body>"
        + "\n".join(body)
        + "</body></html>\n"
    )


_FORKED_LISTED: Final = 10


def _forked(logs: Sequence[str]) -> list[str]:
    """Above all else: whoever reads a forked log from elsewhere may read another history."""
    if not logs:
        return []
    shown = ", ".join(f"<code>{escape(log)}</code>" for log in logs[:_FORKED_LISTED])
    rest = len(logs) - _FORKED_LISTED
    more = f" and {rest} more" if rest > 0 else ""
    count = "1 log is" if len(logs) == 1 else f"{len(logs):,} logs are"
    return [f'<p class="forked"><b>{count} forked:</b> {shown}{more}</p>']


def _span(data: ReportData) -> str:
    if data.first is None or data.last is None:
        return "No entries"
    return f"{_moment(data.first)} to {_moment(data.last)} UTC"


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"


def _nodes(nodes: Sequence[str]) -> str:
    if not nodes:
        return "no node"
    names = ", ".join(f"<code>{escape(node[:16])}</code>" for node in nodes)
    return f"{'node' if len(nodes) == 1 else f'{len(nodes)} nodes:'} {names}"


_PER_NODE: Final = ("entries", "logs", "payloads", "bytes")


def _tiles(data: ReportData) -> str:
    verdict = "bad" if data.totals["faults"] else "good"
    tiles = []
    for name in ("entries", "logs", "payloads", "bytes", "faults"):
        kind = f"tile {verdict}" if name == "faults" else "tile"
        value = data.totals[name]
        shown = f"{value:,}" if value < 10_000_000 else short(value)
        label = f"{name}, all nodes" if len(data.nodes) > 1 and name in _PER_NODE else name
        tiles.append(f'<div class="{kind}" title="{value}"><b>{shown}</b>{label}</div>')
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _charts(data: ReportData) -> list[str]:
    charts = []
    if data.growth:
        title = "Growth of the largest logs, entries"
        charts.append(_section(title, line_chart(data.growth, title)))
    if data.arrivals:
        title = f"Entries per {_STEPS[data.step_s]}"
        charts.append(_section(title, time_bars(data.arrivals, data.step_s, title)))
    if data.sizes:
        title = "Payload sizes, entries from this many bytes on"
        charts.append(_section(title, columns(data.sizes, title)))
    if data.delays:
        charts.append(_delays(data))
    if data.faults:
        title = "Faults by kind"
        charts.append(_section(title, rows(data.faults, title)))
    return charts


_NODES_DRAWN: Final = 8


def _delays(data: ReportData) -> str:
    """Of nodes, over all logs: a dozen logs were no picture of ten thousand."""
    met: Counter[str] = Counter()
    for pair, cell in data.delays.items():
        for node in pair:
            met[node] += cell.entries
    names = sorted(node for node, _ in met.most_common(_NODES_DRAWN))
    place = {node: at for at, node in enumerate(names)}
    cells = {
        (place[first], place[then]): cell
        for (first, then), cell in data.delays.items()
        if first in place and then in place
    }
    shades = ", ".join(map(seconds, SHADES_S))
    words = "Row: who had an entry first. Column: who had it later. Median, and the longest below."
    if len(met) > len(names):
        words += (
            f" The {len(names)} nodes with most entries; all are in the table &quot;delay&quot;."
        )
    return _section(
        "Replication delay",
        f'{matrix(names, cells, "from, to")}<p class="legend">{words} Darker from {shades} on.</p>',
    )


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _faults(data: ReportData) -> str:
    if not data.totals["faults"]:
        return _section(
            "Audit", "<p>Every signature, link and payload was checked again: no faults.</p>"
        )
    lines = "".join(
        f'<tr><td>{escape(kind)}</td><td class="key left">{escape(where)}</td>'
        f'<td class="left text">{escape(detail)}</td></tr>'
        for kind, where, detail in data.fault_lines
    )
    head = '<tr><th>kind</th><th class="left">entry</th><th class="left">what is wrong</th></tr>'
    rest = data.totals["faults"] - len(data.fault_lines)
    more = f'<p class="soft">and {rest} more, in the table "faults"</p>' if rest > 0 else ""
    return _section("Audit", f"<table>{head}{lines}</table>{more}")


_LOG_COLUMNS: Final = ("state", "height", "newest", "entries", "payloads", "bytes", "last_arrival")


def _logs(data: ReportData) -> str:
    if not data.logs:
        return _section("Logs", "<p>There are none.</p>")
    shown = ("node", *_LOG_COLUMNS) if len(data.nodes) > 1 else _LOG_COLUMNS
    head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in ("log", *shown))
    lines = []
    for log in data.logs:
        key = f"{str(log['author'])[:16]}…/{log['log_id']}"
        cells = "".join(f"<td>{_cell(log[name])}</td>" for name in shown)
        full = f"{log['author']}/{log['log_id']} at {log['node']}"
        lines.append(f'<tr><td class="key" title="{escape(full)}">{escape(key)}</td>{cells}</tr>')
    rest = data.totals["logs"] - len(data.logs)
    more = f'<p class="soft">and {rest:,} more, in the table "logs"</p>' if rest > 0 else ""
    return _section("Largest logs", f"<table><tr>{head}</tr>{''.join(lines)}</table>{more}")


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return _moment(value)
    return f"{value:,}" if isinstance(value, int) else escape(str(value)[:16])
