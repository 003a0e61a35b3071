"""`status`: in one screen who is connected, what is held and what is missing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from logstore import FULL, Follow, LogInfo, LogState, Shortfall, Store, subscription_of
from peer import counted, json_number, log_fields, seq_span
from wire import NATIVE_STATE, LogKey, NativeState

from .coming import held_words
from .errors import DONE, Problem
from .following import target_fields, target_name
from .naming import log_key
from .opening import opened_store
from .registry import Definition
from .settings import Parser
from .values import size

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal

LINES_SHOWN = 10
"""Of connections, and of logs, without --all; --json has all of them."""

State = Mapping[str, Any]

ENDINGS_SHOWN = 3
"""Of connections that ended by somebody's fault."""

PARTS_SHOWN = 5
"""Of the payloads of a log of which a part is on disk, and of those that arrive for a fetch."""

_NOTHING = Shortfall(0, 0)


def _arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG", nargs="?", type=log_key, help="only this log")
    parser.add_argument(
        "--all",
        action="store_true",
        own_variable=True,
        help="list every log and connection, not the worst only",
    )


@dataclass(frozen=True, slots=True)
class _Log:
    """What is held of a log, and what connected peers have said of it."""

    key: LogKey
    info: LogInfo | None
    told: State | None
    lacks: Shortfall
    """What is wanted of it and not held, up to the newest entry held."""
    arriving: tuple[str, ...] = ()
    """The payloads of which a part has come, in words."""

    @property
    def height(self) -> int:
        return 0 if self.info is None else self.info.height

    @property
    def held(self) -> int:
        return 0 if self.info is None else self.info.newest

    @property
    def state(self) -> LogState:
        return LogState.LIVE if self.info is None else self.info.state

    @property
    def peers(self) -> list[State]:
        return [] if self.told is None else list(self.told["peers"])

    @property
    def known(self) -> int:
        """The newest entry that anybody is known to hold."""
        return max((int(each["newest"]) for each in self.peers), default=0)

    @property
    def behind(self) -> int:
        return 0 if self.told is None else int(self.told["behind"])

    @property
    def holders(self) -> list[str]:
        """Who holds more than we, the one that it is fetched from first."""
        ahead = [each for each in self.peers if int(each["newest"]) > self.held]
        ahead.sort(key=lambda each: (not each.get("fetching"), -int(each["newest"])))
        return [each["address"] for each in ahead]

    @property
    def is_incomplete(self) -> bool:
        return bool(self.behind or self.lacks.payloads or self.lacks.entries)

    @property
    def rank(self) -> tuple[object, ...]:
        """Sorts the biggest problems to the front."""
        sound = self.state in {LogState.LIVE, LogState.ENDED}
        return (sound, -self.behind, not self.lacks.entries, -self.lacks.payloads, self.key)

    def fields(self) -> dict[str, object]:
        return log_fields(self.key) | {
            "height": json_number(self.height),
            "newest": json_number(self.held),
            "known": json_number(max(self.known, self.held)),
            "behind": json_number(self.behind),
            "entries": json_number(0 if self.info is None else self.info.entries),
            "missing_payloads": json_number(self.lacks.payloads),
            "state": str(self.state),
            "peers": self.peers,
        }

    def line(self) -> str:
        parts = [str(self.state)] if self.state is not LogState.LIVE else []
        held = 0 if self.info is None else self.info.entries
        parts.append(counted(held, "entry") + (f" up to {self.held}" if held < self.held else ""))
        if self.lacks.entries:
            parts.append(f"{counted(self.lacks.entries, 'entry')} missing")
        who = self.holders
        if self.behind and (who or not self.lacks.entries):
            others = f" and {len(who) - 1} more" if len(who) > 1 else ""
            by = f" ({who[0]}{others} up to {self.known})" if who else ""
            parts.append(f"behind by {self.behind}{by}")
        if self.lacks.payloads:
            parts.append(f"{counted(self.lacks.payloads, 'payload')} missing")
        parts += [f"in the middle of {each}" for each in self.arriving]
        return f"  {self.key}: {', '.join(parts)}"


def _status(args: "Namespace", terminal: "Terminal") -> int:
    from peer.node import serving_state  # loads Trio, which `--help` can do without

    with opened_store(args, readonly=True) as store:
        node = serving_state(store)
        logs = _logs(store, node, args.log)
        waiting = [target for target in store.follows() if not _is_held(store, target)]
        if args.log is not None:
            if not logs and args.log not in store.wants():
                raise Problem(f"{args.log}: nothing is held of this log, or known (see `why`)")
            waiting = []
        if terminal.as_json:
            terminal.record(_record(store, node, logs, waiting))
            return DONE
        if args.log is None:
            _show_node(terminal, store, node, everything=args.all)
            _show_sums(terminal, logs, waiting)
        _show_fetches(terminal, store, node, args.log, everything=args.all)
        _show_logs(terminal, logs, waiting, everything=args.all or args.log is not None)
    return DONE


def _logs(store: Store, node: State | None, only: LogKey | None) -> list[_Log]:
    """Every log that is held, or that a peer holds and we want; the biggest problems first."""
    told = {_key(each): each for each in (node or {}).get("logs", ())}
    parts = store.partial_payloads()
    arriving = {
        key: tuple(_arriving(store, node, key, parts.get(key, []))) for key in (*told, *parts)
    }
    found = []
    if only is not None:
        info = store.log(only)
        held = [info] if info is not None else []
        if info is None and only in told:
            found.append(_Log(only, None, told[only], _NOTHING, arriving[only]))
    else:
        held = list(store.logs())
    subscriptions = store.subscriptions()
    for info in held:
        own = info.key.author == store.author
        wanted = FULL if own else subscription_of(subscriptions, info.key)
        # Of what nobody here follows, nothing is missing.
        lacks = _NOTHING if wanted is None else store.shortfall(info.key, wanted)
        inside = arriving.get(info.key, ())
        found.append(_Log(info.key, info, told.pop(info.key, None), lacks, inside))
    if only is None:
        found += [
            _Log(key, None, each, _NOTHING, arriving[key])
            for key, each in told.items()
            if int(each["behind"])
        ]
    return sorted(found, key=lambda log: log.rank)


def _arriving(store: Store, node: State | None, key: LogKey, parts: list[int]) -> Iterator[str]:
    """The payloads of which a part is on disk, and those that are coming."""
    from peer.node import part_of_payload, parts_of  # loads Trio, which `--help` can do without

    for seq in sorted({*parts_of(node, key), *parts[:PARTS_SHOWN]}):
        yield part_of_payload(store, node, key, seq)


def _key(told: State) -> LogKey:
    return LogKey(bytes.fromhex(told["author"]), int(told["log_id"]))


def _is_held(store: Store, target: Follow) -> bool:
    """Whether anything is held of what is followed."""
    if isinstance(target, LogKey):
        return store.log(target) is not None
    return not isinstance(target, bytes) or any(True for _ in store.logs(target))


def _record(
    store: Store, node: State | None, logs: list[_Log], waiting: list[Follow]
) -> Mapping[str, object]:
    shown = None if node is None else {name: node[name] for name in node if name != "logs"}
    reason = store.own_logs_read_only
    return {
        "author": store.author.hex(),
        "own_logs_read_only": None if reason is None else str(reason),
        "serving": node is not None,
        "native_core": _native_core(node).fields(),
        "node": shown,
        "logs": [log.fields() for log in logs],
        "nothing_held_yet": [target_fields(target) for target in waiting],
        "fetching": [
            _fetch_fields(store, log, first, last) for log, first, last in _fetches(store)
        ],
    }


def _fetches(store: Store) -> list[tuple[LogKey, int, int]]:
    """What `fetch` waits for; after one that was killed, until another one takes it back."""
    return [(log, *range_) for log, ranges in store.wants().items() for range_ in ranges]


def _fetch_fields(store: Store, log: LogKey, first: int, last: int) -> dict[str, object]:
    held = store.holding(log, first, last)
    return log_fields(log) | {
        "first": json_number(first),
        "last": json_number(last),
        "held_entries": json_number(held.entries),
        "held_payloads": json_number(held.payloads),
    }


def _show_fetches(
    terminal: "Terminal", store: Store, node: State | None, only: LogKey | None, *, everything: bool
) -> None:
    from peer.node import parts_of  # loads Trio, which `--help` can do without

    found = [each for each in _fetches(store) if only in {None, each[0]}]
    shown = found if everything else found[:LINES_SHOWN]
    for log, first, last in shown:
        parts = [
            f", the payload of entry {seq} from {part.address} ({part})"
            for seq, part in parts_of(node, log).items()
            if first <= seq <= last
        ]
        held = held_words(store.holding(log, first, last), (first, last))
        terminal.line(
            f"  {log}: fetching {seq_span(first, last)}, {held}{''.join(parts[:PARTS_SHOWN])}"
        )
    if len(found) > len(shown):
        terminal.line(f"  and {len(found) - len(shown)} more to fetch (--all)")


def _show_node(terminal: "Terminal", store: Store, node: State | None, *, everything: bool) -> None:
    terminal.line(f"author {store.author.hex()}")
    if (reason := store.own_logs_read_only) is not None:
        terminal.line(f"own logs are read-only: {reason.what}; {reason.remedy}")
    terminal.line(f"native core: {_native_core(node)}")
    if node is None:
        terminal.line("not serving (`serve` starts the node): what peers hold is not known")
        return
    where = ", ".join(node.get("listening", ()))
    listening = f"listening on {where}" if where else "not listening"
    terminal.line(f"serving since {node.get('since', '?')}, {listening}")
    connections = list(node.get("connections", ()))
    if not connections:
        terminal.line("no connections")
    # Those in trouble first.
    connections.sort(key=lambda each: each["state"] == "established")
    for each in connections[: None if everything else LINES_SHOWN]:
        terminal.line(_connection_line(each))
    left = 0 if everything else len(connections) - LINES_SHOWN
    if left > 0:
        terminal.line(f"  and {counted(left, 'connection')} more (--all)")
    faults = [each for each in node.get("ended", ()) if each["kind"] in _FAULTS]
    for each in faults[0 if everything else -ENDINGS_SHOWN :]:
        terminal.line(
            f"  {each['direction']} {each['address']}: {_FAULTS[each['kind']]} at {each['at']}:"
            f" {each['reason']}"
        )


def _native_core(node: State | None) -> NativeState:
    """Which one the node runs, or else this program."""
    told = None if node is None else node.get("native_core")
    return NATIVE_STATE if told is None else NativeState(told["version"], told["reason"] or "")


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


def _show_sums(terminal: "Terminal", logs: list[_Log], waiting: list[Follow]) -> None:
    infos = [log.info for log in logs if log.info is not None]
    incomplete = sum(log.is_incomplete for log in logs)
    terminal.line(
        f"{counted(len(infos), 'log')},"
        f" {counted(sum(info.entries for info in infos), 'entry')},"
        f" {size(sum(info.bytes for info in infos))};"
        f" {incomplete} with something missing, {len(waiting)} followed and not held yet"
    )


def _show_logs(
    terminal: "Terminal", logs: list[_Log], waiting: list[Follow], *, everything: bool
) -> None:
    broken = {LogState.FORKED, LogState.INVALID}
    bad = [log for log in logs if log.is_incomplete or log.state in broken]
    shown = logs if everything else bad[:LINES_SHOWN]
    for log in shown:
        terminal.line(log.line())
    if len(bad) > len(shown):
        terminal.line(f"  and {counted(len(bad) - len(shown), 'log')} more (--all)")
    for target in waiting[: None if everything else LINES_SHOWN]:
        terminal.line(f"  {target_name(target)}: followed, nothing held yet")
    if bad or waiting:
        terminal.line("`why LOG` says why")


COMMANDS = {"status": Definition(arguments=_arguments, run=_status)}
