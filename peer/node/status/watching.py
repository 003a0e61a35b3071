"""Looks at a node while something comes: asks for totals, and tells when it is in step again.

A node in which nothing happens is not looked at: whatever is stored wakes this up, and each
connection that comes, and it looks once a second for as long as something moves. Without an
observer there is nobody to tell, and it is not run: then whoever asks for the status has totals
asked for (`Overview.state`), as the status file of `serve` does each second.

The event `in_step` says that all is here that connected peers hold and that is wanted, behind a
moment in which that was not so: after somebody has come, or a log was seen to be behind. A log that
is followed closely, whose entries are here within the second, makes no such events. While a peer
may still have more than it has said (`Overview.may_lack_more`), nothing is told.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import trio

from logstore import StoreError
from peer import LogChanged
from peer.node.links.records import Observer
from peer.node.node import Node

from .overview import Overview

LOOK_S: Final = 1.0
_COMINGS: Final = frozenset(("connected", "disconnected", "violation"))


class Watch:
    """Tells an observer `in_step`, beside what the node tells it itself."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._news = trio.Event()
        self._was_out = False
        self._scope = trio.CancelScope()

    def take(self, event: Mapping[str, object]) -> None:
        """An event of the node, which is handed on."""
        if event["event"] in _COMINGS:
            self._was_out |= event["event"] == "connected"
            self._news.set()
        self._observer(event)

    async def run(self, node: Node, overview: Callable[[], Awaitable[Overview]]) -> None:
        """Until `end`; a fault is told, and ends nothing but this."""
        node.host.watchers.add(self._changed)
        try:
            with self._scope:
                while True:
                    await self._news.wait()
                    self._news = trio.Event()
                    await trio.sleep(LOOK_S)
                    self._look(await overview(), node.observer)
        except StoreError:
            pass  # it is closed, or cannot be read, which the node tells
        except Exception as error:  # noqa: BLE001 - the node goes on
            node.host.faults.tell("looking at how it stands", error)
        finally:
            node.host.watchers.discard(self._changed)

    def end(self) -> None:
        """Looks no more."""
        self._scope.cancel()

    def _changed(self, _: Sequence[LogChanged]) -> None:
        self._news.set()

    def _look(self, overview: Overview, tell: Observer) -> None:
        peers = overview.look()
        if overview.progress.now_moving():
            self._news.set()
        if overview.lacks_something():
            self._was_out = True
        elif self._was_out and peers and overview.may_lack_more():
            # The answer that nothing more is there stores nothing, so that it wakes nobody up.
            self._news.set()
        elif self._was_out and peers:
            self._was_out = False
            # By way of the node, which ends if an observer fails.
            tell({"event": "in_step", "peers": list(peers)})
