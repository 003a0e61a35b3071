"""Whom a node tells what happens."""

from collections.abc import Mapping

import trio

from peer.node.links.records import Observer


def unobserved(_: Mapping[str, object]) -> None:
    """The observer of a node or a gateway whose events interest nobody."""


class Teller:
    """Calls an observer. What that raises ends the node, and not the connection it is told of."""

    def __init__(self, observer: Observer, nursery: trio.Nursery) -> None:
        self._observer = observer
        self._nursery = nursery
        self._has_failed = False

    def __call__(self, event: Mapping[str, object]) -> None:
        """Tells it of an event."""
        if self._has_failed:
            return
        try:
            self._observer(event)
        except Exception as error:  # noqa: BLE001 - raised again in the node's own task
            self._has_failed = True
            self._nursery.start_soon(_raise, error)


async def _raise(error: Exception) -> None:
    raise error
