"""A log as `logs` and the local API print it (docs/cli.md, logs)."""

from typing import TYPE_CHECKING

from logstore import FULL, LogInfo, Store, Subscription, subscription_of
from peer import json_number, log_fields

from .values import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator


def held_logs(store: Store) -> "Iterator[tuple[LogInfo, Subscription | None]]":
    """The logs of which an entry is held, and what is wanted of each; None: nobody follows it."""
    subscriptions = store.subscriptions()
    for info in store.logs():
        # A proof against a log may be kept without any of it.
        if info.entries:
            own = info.key.author == store.author
            yield info, FULL if own else subscription_of(subscriptions, info.key)


def log_line(store: Store, info: LogInfo, wanted: Subscription | None) -> dict[str, object]:
    """A line of JSON."""
    return log_fields(info.key) | {
        "height": json_number(info.height),
        "newest": json_number(info.newest),
        "entries": info.entries,
        "payloads": info.payloads,
        "bytes": json_number(info.bytes),
        "state": str(info.state),
        "missing_payloads": _missing_payloads(store, info, wanted),
        "own": info.key.author == store.author,
        "end_seq": _optional(info.end_seq),
        "fork_seq": _optional(info.fork_seq),
        "invalid_seq": _optional(info.invalid_seq),
        "newest_at": None if info.newest_at is None else rfc3339(info.newest_at),
        "newest_from": info.newest_from,
    }


def _missing_payloads(store: Store, info: LogInfo, wanted: Subscription | None) -> int:
    """Those that are wanted; of a log that nobody here follows, all that are not held."""
    return info.missing_payloads if wanted is None else store.shortfall(info.key, wanted).payloads


def _optional(number: int | None) -> int | str | None:
    return None if number is None else json_number(number)
