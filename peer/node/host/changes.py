"""What changed in the store since the last look, by whichever process.

Used in the writing thread only, after each of its transactions and when `is_stale` says that
another process has committed something.

Where a few entries are new they are *fresh*: read here, by who is in a thread already, and handed
to all that want to read them next. A live entry is read by each session that sends it on and by
each program that waits for it, and for every one of them a way to a thread and back takes as long
as storing it.
"""

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from logstore import Store, StoreClosed, StoreError
from peer import LogChanged
from peer.node.interests import Wanted
from wire import LogKey

from .reading import Fresh, log_changed

log = logging.getLogger(__name__)


FRESH_MAX: Final = 8
FRESH_BYTES_MAX: Final = 256 * 1024
"""Of more, a way to a thread is a small part of what they cost, and many are a page of a log."""


class News(NamedTuple):
    """What is to be told, and up to which ingest number all is then told.

    `wanted`: what is wanted now, if that may have been changed. `fresh`: what is new, if it is
    little.
    """

    changes: list[LogChanged]
    position: int
    wanted: Wanted | None = None
    fresh: Fresh | None = None


class ChangeFeed:
    """A place in the store's change feed, which moves on with every `take`.

    That a version is stale is taken note of once, by whichever transaction comes next. So whoever
    takes the news takes all of them: were what is wanted read by somebody else, when *he* finds the
    version stale, a commit of this process beside one of another would hide that one for good.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._version: int | None = store.data_version()
        self._wishes = store.wishes_version()
        self.forgotten = store.forgotten()
        """How often logs had been forgotten when it was looked last."""
        self.position = store.position()
        """The newest ingest number that was looked at."""

    def is_stale(self) -> bool:
        """Whether anything was committed since the last `take`. Cheap, blocks for no disk."""
        return self._store.data_version() != self._version

    def take(self, also: Iterable[LogKey] = ()) -> News:
        """News of the logs that changed, and of others. Failing to read them delays them."""
        try:
            # In this order: what is committed in between makes the version a stale one.
            version, wishes = self._store.data_version(), self._store.wishes_version()
            with self._store.snapshot():
                position, infos = self._store.changed_infos(self.position, also)
                wanted = Wanted.load(self._store) if wishes != self._wishes else None
                fresh = self._fresh(position)
        except StoreError as error:
            # Once it was said, nothing has been read since. And that the store was closed is told
            # by `is_stale`, which ends the node with it: whoever comes first in a thread is silent.
            if self._version is not None and not isinstance(error, StoreClosed):
                log.warning("cannot read what changed: %s", error)
            self._version = None
            return News([], self.position)
        self._version, self._wishes, self.position = version, wishes, position
        if wanted is not None:
            self.forgotten = wanted.forgotten
        return News([log_changed(info) for info in infos], position, wanted, fresh)

    def _fresh(self, position: int) -> Fresh | None:
        if not 0 < position - self.position <= FRESH_MAX:
            return None
        found = self._store.read_changes(
            self.position, entries_max=FRESH_MAX, bytes_max=FRESH_BYTES_MAX
        )
        # What was deleted has a place too, and of what is large only a part was read.
        if not found or found[-1].ingest != position:
            return None
        return Fresh(self.position, position, tuple(found))
