"""How far a range of entries has come that somebody asked for, and whether it still moves."""

import math
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from local_api import size
from peer import counted

if TYPE_CHECKING:
    from logstore import Holding, Store
    from peer.node import Part
    from wire import LogKey

    from .terminal import Terminal

LINE_S: Final = 5.0
"""How often people who see no terminal, and asked for it with -v, are told."""
TELLING_S: Final = 1.0
"""The node that serves a store says once a second how far it is..."""
LATE_S: Final = 2.0
"""... and is not given up while it may only be late to say so."""

State = Mapping[str, Any]


def held_words(held: "Holding", range_: tuple[int, int]) -> str:
    """How much of a range is held, for people."""
    count = range_[1] - range_[0] + 1
    return f"{held.entries} of {counted(count, 'entry')} held, {held.payloads} with payloads"


class Coming:
    """Looks at a range again and again. `look` may run in a thread."""

    def __init__(
        self, store: "Store", log: "LogKey", range_: tuple[int, int], terminal: "Terminal"
    ) -> None:
        self._store = store
        self._log = log
        self._range = range_
        self._terminal = terminal
        self._parts: Mapping[int, Part] = {}
        self._told: State | None = None
        self._told_at = -math.inf
        self._seen: object = None
        self._moved_at = 0.0
        self._began: tuple[frozenset[int], float, int] = (frozenset(), 0.0, 0)
        """Which payloads are coming, since when, and how much of them there was then."""
        self._line_at = time.monotonic()

    def look(self, own: State | None = None) -> float:
        """For how many seconds nothing has come; says how far it is to whoever looks.

        `own`: what a node of this process says is arriving; what the node that serves the store
        says is looked up.
        """
        now = time.monotonic()
        parts = self._parts = self._arriving(own, now)
        if self._began[0] != frozenset(parts):
            self._began = (frozenset(parts), now, self._sums()[0])
        held = self._store.holding(self._log, *self._range)
        seen = (held, {seq: part.bytes for seq, part in parts.items()})
        if seen != self._seen:
            self._seen, self._moved_at = seen, now
            self._show(held, now)
        return max(0.0, now - self._moved_at - (LATE_S if parts else 0.0))

    def words(self) -> str:
        """How much of it there was at the last look."""
        return self._words(self._store.holding(self._log, *self._range))

    def clear(self) -> None:
        """Takes the line off the terminal."""
        if _is_watched():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _arriving(self, own: State | None, now: float) -> "Mapping[int, Part]":
        from peer.node import parts_of, read_status  # loads Trio, which `--help` can do without

        if self._store.path is not None and now - self._told_at >= TELLING_S:
            self._told, self._told_at = read_status(self._store.path), now
        first, last = self._range
        both = (*parts_of(self._told, self._log).items(), *parts_of(own, self._log).items())
        return {seq: part for seq, part in both if first <= seq <= last}

    def _show(self, held: "Holding", now: float) -> None:
        if _is_watched():
            sys.stderr.write(f"\r\x1b[K{self._words(held)}{self._pace(now)}")
            sys.stderr.flush()
        elif now - self._line_at >= LINE_S:
            self._line_at = now
            self._terminal.detail(f"{self._words(held)}{self._pace(now)}")

    def _words(self, held: "Holding") -> str:
        text = held_words(held, self._range)
        if self._parts:
            here, whole = self._sums()
            return f"{text}, {size(here)} of {size(whole)} on the way ({here * 100 // whole} %)"
        return f"{text}, {size(held.partial_bytes)} of others" if held.partial_bytes else text

    def _sums(self) -> tuple[int, int]:
        parts = self._parts.values()
        return sum(part.bytes for part in parts), max(1, sum(part.payload_bytes for part in parts))

    def _pace(self, now: float) -> str:
        here, whole = self._sums()
        came, passed = here - self._began[2], now - self._began[1]
        if came <= 0 or passed < TELLING_S:
            return ""
        rate = came / passed
        return f", {size(round(rate))}/s, {(whole - here) / rate:.0f} s left"


def _is_watched() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
