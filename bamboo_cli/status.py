"""`status`: in one screen who is connected, what is held and what is missing."""

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from local_api import size, target_name
from logstore import Follow, LogState, Store
from peer import counted, seq_span
from wire import LogKey

from .coming import held_words
from .errors import DONE, FAILED, Problem
from .naming import log_key
from .opening import opened_store
from .registry import Definition
from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from local_api import LogStanding

    from .terminal import Terminal

LINES_SHOWN = 10
"""Of connections, and of logs, without --all; --json has all of them."""

WIDTH = 80

State = Mapping[str, Any]

ENDINGS_SHOWN = 3
"""Of connections that ended by somebody's fault."""

PARTS_SHOWN = 5
"""Of the payloads of a log of which a part is on disk, and of those that arrive for a fetch."""


def _arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG", nargs="?", type=log_key, help="only this log")
    parser.add_argument(
        "--all",
        action="store_true",
        own_variable=True,
        help="list every log and connection, not the worst only",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        own_variable=True,
        help="exit status 1 if there is an alarm: a full disk, a fork, damage",
    )


def _status(args: "Namespace", terminal: "Terminal") -> int:
    # They load Trio, which `--help` can do without.
    from local_api import Pause, alarms_of, is_held, log_standings, standing_record, verdict
    from peer.node import serving_state

    with opened_store(args, readonly=True) as store:
        node = serving_state(store)
        logs = log_standings(store, node, args.log)
        waiting = [target for target in store.follows() if not is_held(store, target)]
        if args.log is not None:
            if not logs and args.log not in store.wants():
                raise Problem(f"{args.log}: nothing is held of this log, or known (see `why`)")
            waiting = []
        if terminal.as_json:
            record = standing_record(store, node, logs, waiting)
            terminal.record(record)
            return FAILED if args.check and record["alarms"] else DONE
        alarms = alarms_of(store, node)
        if args.log is None:
            _show_verdict(terminal, verdict(node, logs, Pause.of(store)), alarms)
            _show_node(terminal, store, node, everything=args.all)
            _show_sums(terminal, logs, waiting)
        _show_fetches(terminal, store, node, args.log, everything=args.all)
        _show_logs(terminal, logs, waiting, everything=args.all or args.log is not None)
    return FAILED if args.check and alarms else DONE


def _say(terminal: "Terminal", text: str) -> None:
    """A line; for people as many as it takes, of the width that every terminal has."""
    for line in _folded(terminal, text):
        terminal.line(line)


def _folded(terminal: "Terminal", text: str) -> list[str]:
    if not terminal.wide:
        return [text]
    inside = "    "
    return wrap(
        text, WIDTH, subsequent_indent=inside, break_long_words=False, break_on_hyphens=False
    )


def _show_verdict(terminal: "Terminal", verdict: str, alarms: "list[dict[str, object]]") -> None:
    """What most people want to know, and what they have to."""
    _say(terminal, verdict)
    for alarm in alarms[:LINES_SHOWN]:
        kind = str(alarm["kind"]).replace("_", " ")
        for line in _folded(terminal, f"! {kind}: {alarm['text']}"):
            terminal.alert(line)
    if len(alarms) > LINES_SHOWN:
        terminal.alert(f"! and {len(alarms) - LINES_SHOWN} more (--json has all)")


def _show_fetches(
    terminal: "Terminal", store: Store, node: State | None, only: LogKey | None, *, everything: bool
) -> None:
    from local_api import fetches_of  # loads Trio, as above
    from peer.node import parts_of

    found = [each for each in fetches_of(store) if only in {None, each[0]}]
    shown = found if everything else found[:LINES_SHOWN]
    for log, first, last in shown:
        parts = [
            f", the payload of entry {seq} from {part.address} ({part})"
            for seq, part in parts_of(node, log).items()
            if first <= seq <= last
        ]
        held = held_words(store.holding(log, first, last), (first, last))
        _say(
            terminal,
            f"  {terminal.called(log)}: fetching {seq_span(first, last)},"
            f" {held}{''.join(parts[:PARTS_SHOWN])}",
        )
    if len(found) > len(shown):
        _say(terminal, f"  and {len(found) - len(shown)} more to fetch (--all)")


def _show_node(terminal: "Terminal", store: Store, node: State | None, *, everything: bool) -> None:
    from local_api import native_core  # as above

    _say(terminal, f"author {store.author.hex()}")
    if (reason := store.own_logs_read_only) is not None:
        _say(terminal, f"own logs are read-only: {reason.what}; {reason.remedy}")
    _say(terminal, f"native core: {native_core(node)}")
    if node is None:
        _say(terminal, "not serving (`serve` starts the node): what peers hold is not known")
        return
    where = ", ".join(node.get("listening", ()))
    listening = f"listening on {where}" if where else "not listening"
    _say(terminal, f"serving since {node.get('since', '?')}, {listening}")
    connections = list(node.get("connections", ()))
    if not connections:
        _say(terminal, "no connections")
    # Those in trouble first.
    connections.sort(key=lambda each: each["state"] == "established")
    for each in connections[: None if everything else LINES_SHOWN]:
        _say(terminal, _connection_line(each))
    left = 0 if everything else len(connections) - LINES_SHOWN
    if left > 0:
        _say(terminal, f"  and {counted(left, 'connection')} more (--all)")
    strangers = [each for each in node.get("neighbours", ()) if not each["allowed"]]
    for each in strangers[: None if everything else LINES_SHOWN]:
        # Not as ID@ADDRESS: that is wider than a terminal, and has no place to be folded at.
        _say(terminal, f"  in the network, not allowed: {each['peer_id']} at {each['address']}")
    faults = [each for each in node.get("ended", ()) if each["kind"] in _FAULTS]
    for each in faults[0 if everything else -ENDINGS_SHOWN :]:
        _say(
            terminal,
            f"  {each['direction']} {each['address']}: {_FAULTS[each['kind']]} at {each['at']}:"
            f" {each['reason']}",
        )


_FAULTS = {
    "violation": "broke a rule of the protocol",
    "internal error": "ended by a fault here",
    "storage": "ended as the store cannot be read",
}


def _connection_line(each: State) -> str:
    from peer.node import greedy_words  # loads Trio, which `--help` can do without

    error = ""
    if each["last_error"] and each["state"] != "established":
        reason = str(each["last_error"]).removeprefix(f"{each['address']}: ")
        error = f", last error: {reason}"
        if each.get("retry_at"):
            error += f", next attempt at {each['retry_at']}"
    terms = each.get("terms")
    greedy = "" if terms is None else f", {greedy_words(terms)}"
    return (
        f"  {each['direction']} {each['address']}: {each['state']} since {each['since']},"
        f" {counted(each['entries_received'], 'entry')}"
        f" and {size(each['payload_bytes_received'])} of payloads in,"
        f" {each['entries_sent']} and {size(each['payload_bytes_sent'])} out"
        f"{greedy}{error}"
    )


def _show_sums(terminal: "Terminal", logs: "list[LogStanding]", waiting: list[Follow]) -> None:
    infos = [log.info for log in logs if log.info is not None]
    incomplete = sum(log.is_incomplete for log in logs)
    _say(
        terminal,
        f"{counted(len(infos), 'log')},"
        f" {counted(sum(info.entries for info in infos), 'entry')},"
        f" {size(sum(info.bytes for info in infos))};"
        f" {incomplete} with something missing, {len(waiting)} followed and not held yet",
    )


def _show_logs(
    terminal: "Terminal", logs: "list[LogStanding]", waiting: list[Follow], *, everything: bool
) -> None:
    broken = {LogState.FORKED, LogState.INVALID}
    bad = [log for log in logs if log.is_incomplete or log.state in broken]
    shown = logs if everything else bad[:LINES_SHOWN]
    for log in shown:
        _say(terminal, _line(terminal.called(log.key), log))
    if len(bad) > len(shown):
        _say(terminal, f"  and {counted(len(bad) - len(shown), 'log')} more (--all)")
    for target in waiting[: None if everything else LINES_SHOWN]:
        _say(terminal, f"  {target_name(target)}: followed, nothing held yet")
    if bad or waiting:
        _say(terminal, "`why LOG` says why")


def _line(called: str, log: "LogStanding") -> str:
    parts = [str(log.state)] if log.state is not LogState.LIVE else []
    held = 0 if log.info is None else log.info.entries
    parts.append(counted(held, "entry") + (f" up to {log.held}" if held < log.held else ""))
    if log.lacks.entries:
        parts.append(f"{counted(log.lacks.entries, 'entry')} missing")
    who = log.holders
    if log.behind and (who or not log.lacks.entries):
        others = f" and {len(who) - 1} more" if len(who) > 1 else ""
        by = f" ({who[0]}{others} up to {log.known})" if who else ""
        parts.append(f"behind by {log.behind}{by}")
    if log.lacks.payloads:
        parts.append(f"{counted(log.lacks.payloads, 'payload')} missing")
    parts += [f"in the middle of {each}" for each in log.arriving]
    parts += _progress(log)
    return f"  {called}: {', '.join(parts)}"


def _progress(log: "LogStanding") -> "Iterator[str]":
    """How much of it is here, how fast it comes, and when it was all here."""
    found = log.progress
    # Where no node has said anything of it, what is missing below the newest entry says it all.
    if found.held < found.total and (log.told is not None or found.is_final):
        least = "" if found.is_final else "at least "
        yield f"{found.held} of {least}{found.total} ({found.percent} %)"
    if found.rate_entries or found.rate_bytes:
        yield f"{found.rate_entries:g} entries and {size(found.rate_bytes)} a second"
        if log.is_incomplete and found.eta_s is not None:
            yield f"about {counted(found.eta_s, 'second')} left"
    if log.is_incomplete and found.in_step_at is not None:
        yield f"in step last at {found.in_step_at} with {counted(len(found.in_step_with), 'peer')}"


COMMANDS = {"status": Definition(arguments=_arguments, run=_status)}
