"""The page: complete HTML, readable without its script, which only keeps it up to date.

Everything that is shown may come from a peer or from whoever gave a name, and is escaped where it
is put into a text. The script has this rendered again, rather than rendering by itself: two ways to
draw a row would differ before long.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote

from peer import counted

from .values import size

ROWS_MAX: Final = 200
ALARMS_MAX: Final = 20
PEERS_DRAWN_MAX: Final = 16
_STATIC: Final = files(__package__) / "static"
PAGE_JS: Final = (_STATIC / "page.js").read_bytes()
PAGE_CSS: Final = (_STATIC / "page.css").read_bytes()

Fields = Mapping[str, Any]

_SHELL: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>bamboo-peer</title>
<link rel="stylesheet" href="/page.css">
<script src="/page.js" defer></script>
</head>
<body>
{body}
</body>
</html>
"""

_ASKING: Final = """<h1>bamboo-peer</h1>
<form id="token">
<p><label for="token-text">Token of this node (`bamboo-peer paths` names its file)</label></p>
<p><input id="token-text" name="token" type="password" autocomplete="off" required>
<button>Show</button></p>
</form>
<noscript><p>Beyond this machine the page needs its script, which sends the token.</p></noscript>"""


def token_html() -> str:
    """What whoever has shown no token gets where one is needed: nothing of the node."""
    return _SHELL.format(body=_ASKING)


Called = Callable[[Fields], str]
"""What people call the log that an object of JSON is about."""


def page_html(status: Fields, events: Sequence[Fields], called: Called) -> str:
    """The page, from the object of `status --json` and the last events, the oldest first."""
    return _SHELL.format(body="\n".join(_body(status, events, called)))


def _body(status: Fields, events: Sequence[Fields], called: Called) -> Iterator[str]:
    node: Fields = status["node"] or {}
    yield "<header>"
    yield f'<h1>bamboo-peer <span class="mono faint">{_text(status["author"])}</span></h1>'
    yield _verdict(status)
    yield f'<p class="faint">{_text(_listening(node))}</p>'
    yield "</header>"
    yield f'<section id="alarms" aria-label="alarms">{"".join(_alarms(status))}</section>'
    yield f'<section id="peers" aria-label="peers"><h2>Peers</h2>{_peers(node)}</section>'
    yield '<section id="logs" aria-label="logs"><h2>Logs</h2>'
    yield '<p><label for="search">Search </label><input id="search" type="search"></p>'
    logs = "".join(_logs(status["logs"], called))
    yield f'<div id="logs-rows" class="rows">{logs}</div></section>'
    yield f'<section id="transfers" aria-label="transfers">{_transfers(node, called)}</section>'
    told = _events(events, called)
    yield f'<section id="events" aria-label="events"><h2>Events</h2>{told}</section>'


def _text(value: object) -> str:
    shown = str(value)
    if not shown.isprintable():
        shown = shown.encode("unicode_escape").decode()
    return escape(shown)


def _verdict(status: Fields) -> str:
    state = "good" if status["in_step"] and not status["alarms"] else "bad"
    return f'<p id="verdict" data-state="{state}">{_text(status["verdict"])}</p>'


def _listening(node: Fields) -> str:
    where = ", ".join(node.get("listening", ()))
    listening = f"listening on {where}" if where else "not listening"
    return f"serving since {node.get('since', '?')}, {listening}"


def _alarms(status: Fields) -> Iterator[str]:
    if status["own_logs_read_only"]:
        yield f'<p class="alarm">own logs are read-only: {_text(status["own_logs_read_only"])}</p>'
    for alarm in status["alarms"][:ALARMS_MAX]:
        kind = alarm["kind"].replace("_", " ")
        yield f'<p class="alarm">{_text(kind)}: {_text(alarm["text"])}</p>'
    if len(status["alarms"]) > ALARMS_MAX:
        yield f'<p class="alarm">and {len(status["alarms"]) - ALARMS_MAX} more</p>'


def _key(log: Fields) -> str:
    return f"{log['author']}/{log['log_id']}"


# Peers


def _peers(node: Fields) -> str:
    connections = list(node.get("connections", ()))
    if not connections:
        return "<p>no connections</p>"
    rows = "".join(_peer_row(each) for each in connections[:ROWS_MAX])
    left = len(connections) - ROWS_MAX
    more = f"<p>and {left} more</p>" if left > 0 else ""
    return f'{_picture(connections)}<div class="rows">{rows}</div>{more}'


def _who(each: Fields) -> str:
    return each.get("name") or (each["peer_id"] or "")[:12] or each["address"]


def _flow(each: Fields) -> str:
    return (
        f"{each['entries_received']} entries and {size(int(each['bytes_received']))} in,"
        f" {each['entries_sent']} and {size(int(each['bytes_sent']))} out"
        f"{_rates(each)}"
    )


def _rates(each: Fields) -> str:
    if "rate_in" not in each:
        return ""
    return f"; now {size(each['rate_in'])}/s in, {size(each['rate_out'])}/s out"


def _peer_row(each: Fields) -> str:
    bad = "" if each["state"] == "established" else ' class="state-bad"'
    error = f'<div class="faint">{_text(each["last_error"])}</div>' if each["last_error"] else ""
    return (
        f'<details class="row" data-peer="{_text(each["address"])}"'
        f' data-state="{_text(each["state"])}"><summary><span class="head">'
        f'<span class="mono">{_text(_who(each))}</span>'
        f'<span class="mono faint">{_text(each["direction"])} {_text(each["address"])}</span>'
        f"<span{bad}>{_text(each['state'])}</span><span>{_text(_flow(each))}</span></span>"
        f"</summary>{error}{_why('peer', each['address'])}</details>"
    )


def _why(what: str, which: str) -> str:
    """Without the script a link; the script puts the sentences in its place."""
    where = f"/v1/why?{what}={quote(which, safe='')}"
    return f'<ul class="why"><li><a href="{_text(where)}">why</a></li></ul>'


def _picture(connections: Sequence[Fields]) -> str:
    """Who is connected with what, around this node; the rows below say the same in words."""
    drawn = [each for each in connections if each["state"] == "established"][:PEERS_DRAWN_MAX]
    if not drawn:
        return ""
    # As wide as a telephone, so that its texts are not made smaller there.
    width, height = 440, 190
    middle_x, middle_y = width / 2, height / 2
    parts = []
    for number, each in enumerate(drawn):
        angle = 2 * math.pi * number / len(drawn)
        x, y = middle_x + 140 * math.cos(angle), middle_y + 62 * math.sin(angle)
        label = _text(_who(each))
        parts.append(
            f'<line x1="{middle_x:.0f}" y1="{middle_y:.0f}" x2="{x:.0f}" y2="{y:.0f}"/>'
            f'<circle cx="{x:.0f}" cy="{y:.0f}" r="6"/>'
            f'<text x="{x:.0f}" y="{y + 22:.0f}" text-anchor="middle">{label}</text>'
            f"<desc>{label}: {_text(_flow(each))}</desc>"
        )
    title = f"this node and {len(drawn)} connected peer{'s' if len(drawn) > 1 else ''}"
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-labelledby="peers-title">'
        f'<title id="peers-title">{title}</title>{"".join(parts)}'
        f'<circle cx="{middle_x:.0f}" cy="{middle_y:.0f}" r="10"/></svg>'
    )


# Logs


def _logs(logs: Sequence[Fields], called: Called) -> Iterator[str]:
    # The biggest problems are in front.
    for log in logs[:ROWS_MAX]:
        yield _log_row(log, called)
    if len(logs) > ROWS_MAX:
        yield f'<p class="row">and {len(logs) - ROWS_MAX} more</p>'
    if not logs:
        yield '<p class="row">nothing is held yet</p>'


def _log_row(log: Fields, called: Called) -> str:
    held, goal = int(log["held"]), int(log["total"])
    state = log["state"]
    is_bad = state in ("forked", "invalid")
    least = "" if log["total_is_final"] or held == goal else "at least "
    notes = [f"{held:,} of {least}{goal:,} entries"]
    if log["percent"] is not None and held != goal:
        notes[0] += f" ({log['percent']} %)"
    if log["rate_entries"] or log["rate_bytes"]:
        notes.append(f"{log['rate_entries']:,g}/s, {size(log['rate_bytes'])}/s")
    if int(log["missing_payloads"]):
        notes.append(f"{counted(int(log['missing_payloads']), 'payload')} missing")
    return (
        f'<details class="row" data-log="{_text(_key(log))}" data-state="{_text(state)}">'
        f'<summary><span class="head"><span class="mono">{_text(called(log))}</span>'
        f"<span{' class=state-bad' if is_bad else ''}>{_text(state)}</span>"
        f"<span>{_text(', '.join(notes))}</span></span>"
        f'<progress max="{max(goal, 1)}" value="{held}" aria-label="entries held">'
        f"{100 * held // max(goal, 1)} %</progress></summary>"
        f'<p class="mono faint">{_text(_key(log))}</p>'
        f"{_why('log', _key(log))}</details>"
    )


def _transfers(node: Fields, called: Called) -> str:
    arriving = list(node.get("arriving", ()))
    if not arriving:
        return ""
    rows = "".join(
        f'<tr><td data-label="log" class="mono">{_text(called(each))}</td>'
        f'<td data-label="entry">{_text(each["seq"])}</td>'
        f'<td data-label="from">{_text(each["address"])}</td>'
        f'<td data-label="bytes"><progress max="{int(each["payload_bytes"]) or 1}"'
        f' value="{int(each["bytes"])}"></progress> {size(int(each["bytes"]))} of'
        f" {size(int(each['payload_bytes']))}</td></tr>"
        for each in arriving[:ROWS_MAX]
    )
    head = "<thead><tr><th>log</th><th>entry</th><th>from</th><th>bytes</th></tr></thead>"
    return f"<h2>Payloads on their way</h2><table>{head}<tbody>{rows}</tbody></table>"


def _events(events: Sequence[Fields], called: Called) -> str:
    if not events:
        return "<p>none yet</p>"
    rows = "".join(
        f"<li>{_text(each['event'])} <span class=faint>{_text(_words(each, called))}</span></li>"
        for each in reversed(events)
    )
    return f'<ol class="mono">{rows}</ol>'


def _words(event: Fields, called: Called) -> str:
    rest = {name: value for name, value in event.items() if name != "event"}
    if {"author", "log_id"} <= rest.keys() and rest["log_id"] is not None:
        rest = {"log": called(event)} | rest
        del rest["author"], rest["log_id"]
    return ", ".join(f"{name} {_plain(value)}" for name, value in rest.items() if value is not None)


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
