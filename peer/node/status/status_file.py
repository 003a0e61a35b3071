"""The live state of what serves on a store, for `status` in another process.

A small JSON file in the store's directory, replaced atomically, at most once a second and only
when it has changed. A socket was not taken: a file needs nobody who answers, survives as the last
known state when the node is gone, and costs an idle node nothing. Whether the node still runs is
told by its lock, not by the file.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

import trio

from logstore import NodeLock, Store
from peer.node.links.addresses import Address

STATUS_FILE: Final = "status.json"
INTERVAL_S: Final = 1.0
SHARE: Final = 20
"""Finding out how the node is takes one part in so many of its time at most."""


class StatusFile:
    """Writes the state of a node until cancelled; a gateway's has a `name` of its own."""

    def __init__(
        self, folder: Path, state: Callable[[], Mapping[str, object]], name: str = STATUS_FILE
    ) -> None:
        self._path = folder / name
        self._state = state
        self._written: Mapping[str, object] | None = None

    async def run(self) -> None:
        """A full or read-only disk is no reason to end a node: then `status` knows less."""
        while True:
            began_s = trio.current_time()
            state = self._state()
            took_s = trio.current_time() - began_s
            if state != self._written:
                with suppress(OSError):
                    await trio.to_thread.run_sync(self._write, state)
                    self._written = state
            # With very many logs behind at very many peers it takes a moment of the event loop.
            await trio.sleep(max(INTERVAL_S, SHARE * took_s))

    def _write(self, state: Mapping[str, object]) -> None:
        temporary = self._path.with_suffix(".tmp")
        text = json.dumps(state) + "\n"
        try:
            with open(temporary, "w", encoding="utf-8", opener=_private) as file:
                file.write(text)
            temporary.replace(self._path)
        except OSError:
            # On a full disk there is room where it stands, and just then it is asked for.
            temporary.unlink(missing_ok=True)
            with self._path.open("r+", encoding="utf-8") as file:
                file.write(text)
                file.truncate()


def _private(path: str, flags: int) -> int:
    """Opens a file that its owner alone reads, as all of a store."""
    return os.open(path, flags, 0o600)


def serving_state(store: Store) -> Mapping[str, object] | None:
    """The state of the node that serves a store; None if none does. Raises StoreError."""
    if store.path is None or not NodeLock.is_held(store.path):
        return None
    return read_status(store.path) or {}


def served_at(store: Store) -> list[Address]:
    """Where the node that serves a store listens; nowhere if none does. Raises StoreError."""
    state = serving_state(store) or {}
    listening = cast("Iterable[str]", state.get("listening", ()))
    return [Address.parse(each, unix=True) for each in listening]


def read_status(folder: Path, name: str = STATUS_FILE) -> Mapping[str, object] | None:
    """What was written last; None if there is nothing that can be read."""
    try:
        state = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) else None
