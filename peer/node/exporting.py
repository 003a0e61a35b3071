"""An export that goes on beside a node: its steps in a thread, its events to the node's observer.

What exports is handed in, so that this layer needs none of its libraries.
"""

from collections.abc import Mapping
from typing import Final, Protocol

import trio

from peer.node.links.records import Observer

POLL_S: Final = 1.0


class Export(Protocol):
    """Something that brings an export up to date when it is time to. Blocks; for one thread."""

    def attempt(self, now: float) -> Mapping[str, object] | None:
        """Exports if it is time to; the event to tell. Its own failures are events too."""

    def conclude(self) -> Mapping[str, object] | None:
        """Exports what is left."""


async def run_export(export: Export, observer: Observer, *, poll_s: float = POLL_S) -> None:
    """Runs until cancelled; then what is left is exported before this returns."""
    try:
        while True:
            _tell(observer, await trio.to_thread.run_sync(export.attempt, trio.current_time()))
            await trio.sleep(poll_s)
    finally:
        # A file that was begun is never half a file; but what is pending should be in one.
        with trio.CancelScope(shield=True):
            _tell(observer, await trio.to_thread.run_sync(export.conclude))


def _tell(observer: Observer, event: Mapping[str, object] | None) -> None:
    if event is not None:
        observer(event)
