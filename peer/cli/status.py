"""`status`: in one screen who is connected, what is held and what is missing."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from logstore import Follow, LogInfo, LogState, NodeLock, Store, StoreLocked
from peer import json_number, log_fields
from wire import LogKey

from .errors import DONE
from .following import target_fields, target_name
from .online import counted
from .opening import opened_store
from .registry import Definition
from .settings import Parser, store_path
from .values import size

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal

LOGS_SHOWN = 20
"""On a screen for people; --json has all of them."""


def _no_arguments(_: Parser) -> None:
    """Nothing but the flags of every command."""


def _status(args: "Namespace", terminal: "Terminal") -> int:
    with opened_store(args) as store:
        node = _node(store, store_path(args))
        logs = list(store.logs())
        waiting = [target for target in store.follows() if not _is_held(store, target)]
        if terminal.as_json:
            terminal.record(_record(store, node, logs, waiting))
        else:
            _show(terminal, store, node, logs, waiting)
    return DONE


def _is_held(store: Store, target: Follow) -> bool:
    """Whether anything is held of what is followed."""
    if isinstance(target, LogKey):
        return store.log(target) is not None
    return not isinstance(target, bytes) or any(True for _ in store.logs(target))


def _node(store: Store, folder: Path) -> Mapping[str, object] | None:
    """The state of the node that serves this store, or None."""
    from peer.net import read_status

    try:
        lock: NodeLock = store.lock_node()
    except StoreLocked:
        return read_status(folder) or {}
    lock.close()
    return None


def _record(
    store: Store,
    node: Mapping[str, object] | None,
    logs: list[LogInfo],
    waiting: list[Follow],
) -> Mapping[str, object]:
    return {
        "author": store.author.hex(),
        "serving": node is not None,
        "node": node,
        "logs": [
            log_fields(log.key)
            | {
                "height": json_number(log.height),
                "newest": json_number(log.newest),
                "entries": json_number(log.entries),
                "missing_payloads": json_number(log.missing_payloads),
                "state": str(log.state),
            }
            for log in logs
        ],
        "nothing_held_yet": [target_fields(target) for target in waiting],
    }


def _show(
    terminal: "Terminal",
    store: Store,
    node: Mapping[str, object] | None,
    logs: list[LogInfo],
    waiting: list[Follow],
) -> None:
    terminal.line(f"author {store.author.hex()}")
    if node is None:
        terminal.line("not serving (`serve` starts the node)")
    else:
        _show_node(terminal, node)
    total = sum(log.bytes for log in logs)
    missing = [log for log in logs if log.missing_payloads or log.height < log.newest]
    terminal.line(
        f"{counted(len(logs), 'log')},"
        f" {counted(sum(log.entries for log in logs), 'entry')}, {size(total)};"
        f" {len(missing)} with something missing, {len(waiting)} followed and not held yet"
    )
    forked = [log for log in logs if log.state is LogState.FORKED]
    for log in [*forked, *missing][:LOGS_SHOWN]:
        gaps = f", entries missing after {log.height}" if log.height < log.newest else ""
        missed = counted(log.missing_payloads, "payload")
        payloads = f", {missed} missing" if log.missing_payloads else ""
        terminal.line(f"  {log.key}: {log.state}, {counted(log.height, 'entry')}{gaps}{payloads}")
    for target in waiting[:LOGS_SHOWN]:
        terminal.line(f"  {target_name(target)}: followed, nothing held yet")


def _show_node(terminal: "Terminal", node: Mapping[str, object]) -> None:
    listening = node.get("listening")
    where = ", ".join(map(str, listening)) if isinstance(listening, list) and listening else "-"
    terminal.line(f"serving since {node.get('since', '?')}, listening on {where}")
    connections = node.get("connections")
    if not isinstance(connections, list) or not connections:
        terminal.line("no connections")
        return
    for each in connections:
        waits = each.get("last_error") and each["state"] != "established"
        error = f", last error: {each['last_error']}" if waits else ""
        terminal.line(
            f"  {each['direction']} {each['address']}: {each['state']} since {each['since']},"
            f" {each['entries_received']} entries in, {each['entries_sent']} out{error}"
        )


COMMANDS = {"status": Definition(arguments=_no_arguments, run=_status)}
