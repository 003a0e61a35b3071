"""When to look whether another process has committed something to the store.

Where the operating system tells that the log of the database was written (inotify), the store is
asked after that, and else once a second only: an idle node is to sleep. Where it does not tell, or
has no watches left, the store is asked as often as that takes.
"""

import logging
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import trio

if TYPE_CHECKING:
    from inotify_simple import INotify

log = logging.getLogger(__name__)

SELDOM_S: Final = 1.0
"""How often it is asked when nothing was written: some file systems tell nothing."""


class Commits:
    """Waits for writes to the log of a database, in whichever process.

    What was written counts only once SQLite has synced it and said so in memory that is shared,
    which nobody is told of. So after a write the store is asked several times, each time after
    twice as long.
    """

    def __init__(self, wal: Path | None, first_s: float) -> None:
        """`wal`: where the log of the database is or will be, None if it has none. `first_s`: how
        soon after a write the store is asked, and the least time between two questions.
        """
        self._wal = wal
        self._first_s = first_s
        self._pause_s = first_s
        self._notify: INotify | None = None

    def __enter__(self) -> Self:
        if self._wal is not None and sys.platform == "linux":
            self._notify = _watch(self._wal.parent)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._notify is not None:
            trio.lowlevel.notify_closing(self._notify)
            self._notify.close()
            self._notify = None

    @property
    def is_told(self) -> bool:
        """Whether the operating system tells of writes; else `wait` takes `first_s` each time."""
        return self._notify is not None

    async def wait(self, seldom_s: float = SELDOM_S) -> bool:
        """Returns when it is time to ask, no sooner than `first_s` after the last time.

        `seldom_s`: no later than so many seconds after it. True if the log was written.
        """
        await trio.sleep(self._first_s)
        if self._notify is None:
            return False
        if self._was_written():
            self._pause_s = self._first_s
            return True
        left_s = min(2 * self._pause_s, max(seldom_s, self._first_s)) - self._first_s
        self._pause_s = left_s + self._first_s
        deadline = trio.current_time() + left_s
        while (rest_s := deadline - trio.current_time()) > 0:
            with trio.move_on_after(rest_s):
                await trio.lowlevel.wait_readable(self._notify)
            if self._was_written():
                self._pause_s = self._first_s
                return True
        return False

    def _was_written(self) -> bool:
        """Whether the log was written since the last call; other files do not count."""
        if self._notify is None or self._wal is None:
            return False
        events = list(self._notify.read(timeout=0))
        return any(event.name in {self._wal.name, ""} for event in events)


def _watch(folder: Path) -> "INotify | None":
    """The folder, not the file: that may be made anew, and opening it would drop SQLite's locks."""
    from inotify_simple import INotify, flags

    try:
        notify = INotify(nonblocking=True)
    except OSError as error:
        log.debug("no inotify: %s", error)
        return None
    try:
        notify.add_watch(folder, flags.MODIFY | flags.CREATE | flags.MOVED_TO)
    except OSError as error:
        notify.close()
        log.debug("no inotify for %s: %s", folder, error)
        return None
    return notify
