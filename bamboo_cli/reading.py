"""`logs`, `entry` and `cat`: what the store holds."""

from typing import TYPE_CHECKING

from local_api import log_line, rfc3339, seq, size
from logstore import FULL, LogInfo, PayloadState, Store, StoredEntry, Subscription, subscription_of
from peer import json_number, log_fields
from wire import LogKey, decode_entry, yamf_hash

from .errors import DONE, Problem
from .naming import LOG_HELP, log_key
from .opening import held_log, opened_store
from .registry import Definition
from .settings import Parser

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal


def _logs_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG", nargs="?", type=log_key, help="only this log")


_HEADINGS = ("LOG", "HEIGHT", "NEWEST", "ENTRIES", "PAYLOADS", "SIZE", "STATE")
_COLUMNS = "{:<66}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {}"
"""Of programs that read it, who are not to wait until the last log is known."""


def _logs(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args, readonly=True) as store:
        infos = store.logs() if args.log is None else iter([held_log(store, args.log)])
        if terminal.wide and not terminal.as_json:
            rows = [_cells(info, terminal) for info in infos if info.entries]
            terminal.table(_HEADINGS, rows, right="lrrrrrl")
            return DONE
        subscriptions = store.subscriptions()
        for info in infos:
            if not info.entries:
                # A proof against a log may be kept without any of it.
                continue
            wanted = FULL if info.key.author == store.author else None
            wanted = wanted or subscription_of(subscriptions, info.key)
            _print_log(store, info, wanted, terminal)
    return DONE


def _print_log(
    store: Store, info: LogInfo, wanted: Subscription | None, terminal: "Terminal"
) -> None:
    if not terminal.as_json:
        terminal.line(_COLUMNS.format(*_cells(info, terminal)))
        return
    terminal.record(log_line(store, info, wanted))


def _cells(info: LogInfo, terminal: "Terminal") -> tuple[object, ...]:
    counts = (info.height, info.newest, info.entries, info.payloads, size(info.bytes))
    return (terminal.called(info.key), *counts, str(info.state))


def _entry_arguments(parser: Parser) -> None:
    parser.add_argument("log", metavar="LOG", type=log_key, help=LOG_HELP)
    parser.add_argument("seq", metavar="SEQ", type=seq, help="its number, from 1 on")
    parser.add_argument("--raw", action="store_true", help="print its canonical bytes, and no more")


def _entry(args: "Namespace", terminal: "Terminal") -> int:
    if args.raw:
        terminal.refuse_json("entry --raw")
    with opened_store(args, readonly=True) as store:
        held_log(store, args.log)
        stored = store.entry(args.log, args.seq)
        if stored is None:
            raise Problem(f"{args.log}/{args.seq}: {why_not_held(store, args.log, args.seq)}")
    if args.raw:
        terminal.data(stored.encoded)
    elif terminal.as_json:
        terminal.record(entry_fields(stored))
    else:
        terminal.listing(entry_fields(stored).items())
    return DONE


def entry_fields(stored: StoredEntry) -> dict[str, object]:
    """An entry and what is known of it, as JSON output names it."""
    place = log_fields(stored.key) | {"seq": json_number(stored.seq)}
    known = {
        "payload_state": str(stored.payload_state),
        "received_at": rfc3339(stored.received_at),
    }
    return place | signed_fields(stored.encoded) | known


def signed_fields(encoded: bytes) -> dict[str, object]:
    """What an author signed beside the place of the entry, and the entry's hash."""
    entry = decode_entry(encoded)
    return {
        "end_of_log": entry.is_end,
        "lipmaalink": None if entry.lipmaalink is None else entry.lipmaalink.hex(),
        "backlink": None if entry.backlink is None else entry.backlink.hex(),
        "payload_bytes": json_number(entry.payload_bytes),
        "payload_hash": entry.payload_hash.hex(),
        "signature": entry.signature.hex(),
        "hash": yamf_hash(encoded).hex(),
    }


def why_not_held(store: Store, key: LogKey, due: int) -> str:
    """Words for why an entry, or its payload, is not to be had."""
    stored = store.entry(key, due)
    if stored is not None:
        if stored.payload_state is PayloadState.DELETED:
            return "its payload was deleted here (`fetch` brings it again)"
        return "its payload is not held (`fetch` brings it)"
    info = held_log(store, key)
    if info.fork_seq is not None and due >= info.fork_seq:
        return f"nothing from {info.fork_seq} on is valid, which was signed twice (`forks show`)"
    if info.invalid_seq is not None and due >= info.invalid_seq:
        return f"nothing from {info.invalid_seq} on is valid, whose payload has the wrong size"
    if info.end_seq is not None and due > info.end_seq:
        return f"the log ended with entry {info.end_seq}"
    return "this entry is not held"


COMMANDS = {
    "logs": Definition(arguments=_logs_arguments, run=_logs),
    "entry": Definition(arguments=_entry_arguments, run=_entry),
}
