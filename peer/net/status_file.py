"""The live state of a serving node, for `status` in another process.

A small JSON file in the store's directory, replaced atomically, at most once a second and only
when it has changed. A socket was not taken: a file needs nobody who answers, survives as the last
known state when the node is gone, and costs an idle node nothing. Whether the node still runs is
told by its lock, not by the file.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import trio

from .node import Node

STATUS_FILE: Final = "status.json"
INTERVAL_S: Final = 1.0


class StatusFile:
    """Writes the state of a node until cancelled."""

    def __init__(self, folder: Path, node: Node) -> None:
        self._path = folder / STATUS_FILE
        self._node = node
        self._started = datetime.now(UTC)
        self._written: Mapping[str, object] | None = None

    async def run(self) -> None:
        """A full or read-only disk is no reason to end a node: then `status` knows less."""
        while True:
            state = self._state()
            if state != self._written:
                with suppress(OSError):
                    await trio.to_thread.run_sync(self._write, state)
                    self._written = state
            await trio.sleep(INTERVAL_S)

    def _state(self) -> Mapping[str, object]:
        now, clock = datetime.now(UTC), trio.current_time()
        connections = [
            {
                "address": info.address,
                "direction": str(info.direction),
                "state": str(info.state),
                "since": _moment(now - timedelta(seconds=clock - info.since_s)),
                "last_error": info.last_error,
                "attempts": info.attempts,
                "entries_received": info.entries_received,
                "entries_sent": info.entries_sent,
                "bytes_received": info.bytes_received,
                "bytes_sent": info.bytes_sent,
            }
            for info in self._node.connections()
        ]
        return {
            "pid": os.getpid(),
            "since": _moment(self._started),
            "listening": [str(address) for address in self._node.addresses],
            "connections": connections,
        }

    def _write(self, state: Mapping[str, object]) -> None:
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps(state) + "\n", encoding="utf-8")
        temporary.replace(self._path)


def read_status(folder: Path) -> Mapping[str, object] | None:
    """What the last node wrote; None if there is nothing that can be read."""
    try:
        state = json.loads((folder / STATUS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) else None


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
