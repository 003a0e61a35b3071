"""Room on the disk: what was not taken in for want of it, and parts of payloads that are given up.

The store decides (logstore/quotas.py). Here it is told: once of each limit and whom it is about, as
the next entry of the same log meets the same limit. It is told again after an hour, in case the
first time was overlooked, and stands in the state of the node meanwhile.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

import trio
from msgspec import Struct

from logstore import OverQuota, StoreClosed, StoreError
from peer.node.host.store_host import StoreHost
from peer.node.links.records import Observer

log = logging.getLogger(__name__)

TELL_AGAIN_S: Final = 3600.0
TOLD_MAX: Final = 256
"""Limits and whom they are about: authors cost nothing to make."""
LOOKS: Final = 24
"""How often it is looked for stale parts in the time after which they are stale..."""
LOOK_AT_LEAST_S: Final = 3600.0
"""... and every hour at least."""


class _Reached(Struct):
    over: OverQuota
    told_s: float
    last_s: float


class Room:
    """Tells what is refused for want of room; `run` keeps room from being lost."""

    def __init__(self, host: StoreHost, observer: Observer, partial_seconds: float) -> None:
        self._host = host
        self._observer = observer
        self.partial_seconds = partial_seconds
        self._reached: dict[tuple[str, bytes], _Reached] = {}
        self.hits: Counter[str] = Counter()
        """How often something was refused or given up, by the limit's key."""
        host.quota_watchers.add(self._refused)

    def _refused(self, over: OverQuota) -> None:
        self.hits[over.key] += 1
        now = trio.current_time()
        about = {"author-bytes": over.log.author, "peer-bytes": over.giver}.get(over.key, b"")
        known = self._reached.pop((over.key, about), None)
        if known is None or now >= known.told_s + TELL_AGAIN_S:
            known = _Reached(over, now, now)
            self._observer({"event": "limit", **_fields(over)})
        known.over, known.last_s = over, now
        self._reached[over.key, about] = known
        if len(self._reached) > TOLD_MAX:
            del self._reached[next(iter(self._reached))]

    @property
    def refusals(self) -> list[tuple[Mapping[str, object], float]]:
        """The limits that were reached, and when on Trio's clock last, the latest at the end."""
        return [(_fields(each.over), each.last_s) for each in self._reached.values()]

    async def run(self) -> None:
        """Gives up parts of payloads that nothing came of for long, until the store is closed."""
        while True:
            try:
                dropped = await self._host.call(
                    lambda: self._host.store.drop_stale(self.partial_seconds)
                )
            except StoreClosed:
                return  # which ends the node, with an error of its own
            except StoreError as error:
                log.warning("parts of payloads that are stale cannot be removed yet: %s", error)
            else:
                self.hits["partial-seconds"] += dropped
                if dropped:
                    log.info("%d parts of payloads of which nothing came were removed", dropped)
            await trio.sleep(min(LOOK_AT_LEAST_S, max(1.0, self.partial_seconds / LOOKS)))


def _fields(over: OverQuota) -> dict[str, object]:
    return {
        "key": over.key,
        "peer_id": over.giver.hex() or None,
        "author": over.log.author.hex(),
        "reason": over.reason,
    }
