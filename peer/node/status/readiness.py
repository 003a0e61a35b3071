"""Whether a node can do its work: its store can be written, and it listens."""

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import trio

from peer.node.links.connection import words_of
from peer.node.node import Node

KNOWN_S: Final = 5.0
"""How long an answer is good for: whoever asks all the time costs the disk little."""
PATIENCE_S: Final = 5.0
PROBE_BYTES: Final = 4096


class Readiness:
    """Finds out why a node is not ready; asked together, it looks once."""

    def __init__(self, node: Node, write: Callable[[Path], str | None] | None = None) -> None:
        """`write`: tries to write in a folder, in a thread; why that fails, or None."""
        self._node = node
        self._folder = node.host.store.path
        self._write = write or write_trouble
        self._lock = trio.Lock()
        # Of a disk that hangs there is one thread that waits, and not one for each request.
        self._limiter = trio.CapacityLimiter(1)
        self._known: tuple[float, str | None] | None = None

    async def reasons(self) -> list[str]:
        """Why the node is not ready, a line each; none if it is."""
        found = [] if self._node.addresses else ["nothing listens"]
        trouble = await self._store_trouble()
        return found if trouble is None else [*found, trouble]

    async def _store_trouble(self) -> str | None:
        if self._folder is None:
            return None
        async with self._lock:
            if self._known is None or trio.current_time() - self._known[0] >= KNOWN_S:
                trouble: str | None = f"the store took no write in {PATIENCE_S:.0f} s"
                with trio.move_on_after(PATIENCE_S):
                    trouble = await trio.to_thread.run_sync(
                        partial(self._write, self._folder),
                        limiter=self._limiter,
                        abandon_on_cancel=True,
                    )
                self._known = (trio.current_time(), trouble)
            return self._known[1]


def write_trouble(folder: Path) -> str | None:
    """Why nothing can be written where the store is; None if it can.

    A file without a name, which nobody sees and no crash leaves behind; the database itself is not
    written to, since that would wake every process that waits for news of it.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"the store cannot be written: {words_of(error)}"
    return None
