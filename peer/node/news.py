"""What a node tells of its logs: how they grow, and what is wrong with them, once each.

What was told is remembered for as long as the node runs. A fork or a contest does not end by
itself, and `status` shows it for as long as it lasts; said with every entry that comes it would
bury the rest of what is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peer import LogChanged, json_number, log_fields

if TYPE_CHECKING:
    from collections.abc import Iterable

    from logstore import Contested
    from peer.node.links.records import Observer
    from wire import LogKey


class News:
    """Tells an observer what happens to logs."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._forks: set[LogKey] = set()
        self._contests: set[LogKey] = set()

    def changed(self, change: LogChanged) -> None:
        """A log has other heights, or a fork."""
        numbers = {"height": json_number(change.height), "newest": json_number(change.newest)}
        self._observer({"event": "log_advanced", **log_fields(change.log), **numbers})
        if change.fork is not None and change.log not in self._forks:
            self._forks.add(change.log)
            seq = json_number(change.fork)
            self._observer({"event": "fork", **log_fields(change.log), "seq": seq})

    def contested(self, contests: Iterable[Contested]) -> None:
        """Own logs that another machine with the same key may have gone on with."""
        for each in contests:
            if each.key not in self._contests:
                self._contests.add(each.key)
                what = {"seq": json_number(each.seq), "reason": each.what}
                self._observer({"event": "contested", **log_fields(each.key), **what})
