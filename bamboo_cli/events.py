"""What `serve` prints while it runs: events and warnings, at levels, progress now and then.

A node that is well and has nothing to do prints nothing. How far a log has come is told once a
minute, and of all logs together in one line a second, however many they are: a few are told by
name, one after the other, and where more wait than that the line counts them.
"""

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import trio

from peer import counted

from .errors import Problem
from .levels import Level, level_of
from .online import describe
from .terminal import OutputClosed

if TYPE_CHECKING:
    from argparse import Namespace

    from .terminal import Terminal

PROGRESS_S: Final = 1.0
"""How often people are told how far logs have come, all of them together..."""
LOG_PROGRESS_S: Final = 60.0
"""... and how often of the same log."""
NAMED_MAX: Final = 5
"""That many logs wait for a line of their own. People ask "has *my* log come?", and two nodes that
follow each other have two logs; beyond these few a queue of names would only fall behind."""


_Log = tuple[object, object]


class Progress:
    """How far logs have come since that was told. Time is an argument, in seconds."""

    def __init__(self) -> None:
        self._waiting: dict[_Log, Mapping[str, object]] = {}
        """The newest event of each log that something is to be told of, the oldest log first."""
        self._told: dict[_Log, tuple[object, float]] = {}
        """The height that was told of a log, and when."""

    def note(self, event: Mapping[str, object]) -> bool:
        """Takes a `log_advanced`; whether there is something to tell."""
        log = (event["author"], event["log_id"])
        told = self._told.get(log)
        # A payload that came later is no news.
        if told is None or told[0] != event["height"]:
            self._waiting[log] = event
        return bool(self._waiting)

    def due_s(self) -> float | None:
        """When something may be told next; None if nothing waits."""
        return min(map(self._due_of, self._waiting), default=None)

    def take(self, now: float) -> dict[str, object] | None:
        """One event of what may be told now; `more_logs` is of how many besides its own it tells.

        The others wait for the next one, unless they are too many.
        """
        due = [log for log in self._waiting if self._due_of(log) <= now]
        if not due:
            return None
        if len(due) <= NAMED_MAX:
            due = due[:1]
        events = [self._waiting.pop(log) for log in due]
        for log, event in zip(due, events, strict=True):
            self._told[log] = (event["height"], now)
        return {**events[0], "more_logs": len(events) - 1}

    def _due_of(self, log: _Log) -> float:
        told = self._told.get(log)
        return -math.inf if told is None else told[1] + LOG_PROGRESS_S


class Events:
    """Prints the node's events by level; for scripts that have named none, all of them."""

    def __init__(
        self, terminal: "Terminal", ending: trio.Event, allowed: int, level: Level | None = None
    ) -> None:
        """`allowed`: how many peers are, as people are told where strangers may knock."""
        self._terminal = terminal
        self._allowed = allowed
        self._ending = ending
        self.failure: OutputClosed | Problem | None = None
        """Why nothing can be printed any more, which ends the node in good order."""
        self._level = level
        self._progress = Progress()
        self._has_progress = trio.Event()

    @property
    def _everything(self) -> bool:
        return self._terminal.as_json and self._level is None

    def take(self, event: Mapping[str, object]) -> None:
        """Prints an event if it matters enough; how far a log has come waits for its time."""
        if self._everything:
            self._terminal.record(event)
        elif level_of(event) < self._least:
            return
        elif event["event"] == "log_advanced":
            if self._progress.note(event):
                self._has_progress.set()
            return
        else:
            self._print(event)
        self._flush()

    @property
    def _least(self) -> Level:
        return Level.INFO if self._level is None else self._level

    def _print(self, event: Mapping[str, object]) -> None:
        if self._terminal.as_json:
            self._terminal.record({**event, "level": str(level_of(event))})
        elif event["event"] == "log":
            self._note(str(event["reason"]))
        else:
            self._terminal.line(describe(event) + self._more(event))

    def _note(self, text: str) -> None:
        # Standard output comes first, and may turn out to be closed.
        self._flush()
        if self.failure is None:
            # A traceback has lines; what a peer may have written into one is escaped all the same.
            for line in text.splitlines():
                self._terminal.note(line)

    def _more(self, event: Mapping[str, object]) -> str:
        if event["event"] == "listening" and event["tls"]:
            are = "is" if self._allowed == 1 else "are"
            return f"; {counted(self._allowed, 'peer')} {are} allowed"
        more = event.get("more_logs")
        if isinstance(more, int) and more:
            return f"; {counted(more, 'log')} more advanced"
        return ""

    def _flush(self) -> None:
        if self.failure is None:
            try:
                self._terminal.flush()
            except (OutputClosed, Problem) as failure:
                self.failure = failure
                self._ending.set()

    async def run(self) -> None:
        """Tells now and then how far logs have come; sleeps while nothing has."""
        due_s: float | None = None
        while True:
            # Logs that were told a moment ago have to wait, and others that come now have not.
            with trio.move_on_at(math.inf if due_s is None else due_s):
                await self._has_progress.wait()
            self._has_progress = trio.Event()
            # A first one alone would be told alone, and all that comes with it a second later.
            await trio.sleep(PROGRESS_S)
            event = self._progress.take(trio.current_time())
            if event is not None and level_of(event) >= self._least:
                self._print(event)
                self._flush()
            due_s = self._progress.due_s()

    async def apply_level(self, args: "Namespace") -> None:
        """Prints by another level from now on."""
        self._level = args.log_level
        self._set_logging()

    def _set_logging(self) -> None:
        logging.getLogger().setLevel(logging.WARNING if self._everything else self._least)

    @contextmanager
    def logging(self) -> Iterator[None]:
        """What the layers below have to say is printed too, by level, inside the block.

        For scripts that have named no level it stays text on standard error.
        """
        root, handler = logging.getLogger(), _Handler(self)
        before = root.level
        root.addHandler(handler)
        self._set_logging()
        try:
            yield
        finally:
            root.removeHandler(handler)
            root.setLevel(before)

    def take_log(self, level: int, reason: str) -> None:
        """A line of the layers below."""
        if self._everything:
            self._note(reason)
        else:
            name = max(each for each in Level if each <= max(level, Level.DEBUG))
            self.take({"event": "log", "level": str(name), "reason": reason})


class _Handler(logging.Handler):
    """Hands lines to the event loop, which alone prints: they come from threads, too."""

    def __init__(self, events: Events) -> None:
        super().__init__()
        self._events = events
        self._loop = trio.lowlevel.current_trio_token()

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(trio.RunFinishedError):
            self._loop.run_sync_soon(self._events.take_log, record.levelno, self.format(record))
