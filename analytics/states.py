"""What is known of logs that are not simply alive: ended, forked, or invalid.

Files that were written stay as they are, so rows at or after a fork that was found later stay too.
This table, rewritten as a whole when it changes, says from where on a log's rows do not count, and
holds both entries of each fork proof.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from logstore import LogInfo, LogState, Store
from wire import U64_MAX, LogKey

from .errors import ExportDamaged
from .layout import STATES, write_whole

NUMBERS: Final = ("log_id", "end_seq", "fork_seq", "invalid_seq")
STATES_DDL: Final = (
    "author STRING, log_id DECIMAL(20,0), state STRING, end_seq DECIMAL(20,0), "
    "fork_seq DECIMAL(20,0), invalid_seq DECIMAL(20,0), fork_first STRING, fork_second STRING"
)


def write_states(store: Store, root: Path, wanted: Callable[[LogKey], bool]) -> None:
    """Brings the table up to date with the store; touches nothing if nothing changed."""
    lines = [
        json.dumps(_fields(store, info)) + "\n"
        for info in store.logs()
        if info.state is not LogState.LIVE and wanted(info.key)
    ]
    content = "".join(lines).encode()
    path = root / STATES
    if not path.exists() or path.read_bytes() != content:
        write_whole(path, content)


def _fields(store: Store, info: LogInfo) -> dict[str, str | None]:
    proof = store.fork(info.key) if info.state is LogState.FORKED else None
    return {
        "author": info.key.author.hex(),
        "log_id": str(info.key.log_id),
        "state": str(info.state),
        "end_seq": _optional(info.end_seq),
        "fork_seq": _optional(info.fork_seq),
        "invalid_seq": _optional(info.invalid_seq),
        "fork_first": None if proof is None else proof.first.hex(),
        "fork_second": None if proof is None else proof.second.hex(),
    }


def _optional(number: int | None) -> str | None:
    return None if number is None else str(number)


def read_states(root: Path | str) -> list[dict[str, Any]]:
    """The rows of the table; numbers as strings of digits. Raises ExportDamaged."""
    path = Path(root) / STATES
    if not path.exists():
        return []
    try:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for row in rows:
            _check_numbers(row)
    except (ValueError, KeyError, TypeError) as error:
        raise ExportDamaged(
            "the states of logs cannot be read", path, "remove it; the next export writes it again"
        ) from error
    return rows


def _check_numbers(row: dict[str, Any]) -> None:
    """Raises ValueError, KeyError, TypeError."""
    for name in NUMBERS:
        if row[name] is not None and not 0 <= int(row[name]) <= U64_MAX:
            raise ValueError(f"{name} is no number of 64 bits")
