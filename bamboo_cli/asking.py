"""`append` asks peers first, where there are some: see docs/cli.md, append."""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from logstore import Store, System
from peer import counted, json_number
from wire import LogKey

from .errors import Problem

if TYPE_CHECKING:
    from peer.node import Asked, PeerAddress

    from .terminal import Terminal

HOLDS_S: Final = 60.0
"""For how long it is not asked again, whatever came of it."""
HEARD_AFTER_S: Final = 2.0
"""A node that is connected for so long has been told what the other side holds."""
_ASKED: Final = "asked/"


class Asker:
    """Asks, before each batch that is appended to a log, unless that was done a moment ago.

    `always`: True asks whatever was asked before, and does not let pass that nobody answers; False
    asks nobody.
    """

    def __init__(
        self, store: Store, log_id: int, terminal: "Terminal", *, always: bool | None
    ) -> None:
        self._store = store
        self._log = LogKey(store.author, log_id)
        self._terminal = terminal
        self._always = always
        self._asked_at = -HOLDS_S

    def ask(self) -> None:
        """Returns if the log may be appended to as far as peers know. Raises Problem, StoreError.

        A store that is read-only is left to `append`, which says why.
        """
        store = self._store
        if self._always is False or store.own_logs_read_only is not None:
            return
        if self._always is None and (not store.shared() or self._was_asked()):
            return
        if time.monotonic() < self._asked_at + HOLDS_S:
            return
        from peer.node import addresses_reached, serving_state

        state = serving_state(store)
        if self._always is None and state is not None and self._has_heard(state):
            return
        addresses = list(dict.fromkeys([*_called(state), *addresses_reached(store)]))
        if addresses:
            self._take(self._ask(addresses))
        elif self._always:
            raise Problem(
                f"{store.path}: there is nobody to ask, since no peer was ever reached from here;"
                " `sync HOST:PORT` asks one, and without --ask-first nobody is asked"
            )

    def _ask(self, addresses: "list[PeerAddress]") -> "Asked":
        from peer.node import ask_peers

        from .online import run_trio

        return run_trio(partial(ask_peers, self._store, self._log, addresses))

    def _take(self, asked: "Asked") -> None:
        """What came of it, in words."""
        held, before = asked.held, asked.held_before
        if held > before:
            self._terminal.note(
                f"{self._log}: this store was behind: {counted(held - before, 'entry')} signed"
                f" before, up to {held}, came from {' and '.join(asked.newest)}"
            )
        if asked.is_behind and not self._store.contested():
            newest = max(asked.newest.values())
            raise Problem(
                f"{self._log}: {' and '.join(asked.newest)} hold it up to entry {newest}, this"
                f" store up to {held}; nothing was signed: `sync` with them, then append again"
            )
        if not asked.newest:
            reasons = ", ".join(f"{name}: {reason}" for name, reason in asked.failed.items())
            if self._always:
                raise Problem(
                    f"{self._log}: nobody says whether this store has its newest entry ({reasons});"
                    " nothing was signed: without --ask-first it is signed all the same"
                )
            self._terminal.note(
                f"nobody says whether this store has the newest entry of {self._log} ({reasons});"
                " signed all the same: fine unless this machine was restored or the key is on"
                " another one as well"
            )
        self._remember()

    # A node of the same store

    def _has_heard(self, state: Mapping[str, Any]) -> bool:
        """Whether the node that serves the store was told what its peers hold, and holds it too."""
        own = {"author": self._log.author.hex(), "log_id": json_number(self._log.log_id)}
        for each in state.get("logs", ()):
            if all(each.get(name) == value for name, value in own.items()) and int(each["behind"]):
                return False
        now = datetime.now(UTC)
        return any(
            each["state"] == "established"
            and (now - datetime.fromisoformat(each["since"])).total_seconds() > HEARD_AFTER_S
            for each in state.get("connections", ())
        )

    # What was asked a moment ago

    def _was_asked(self) -> bool:
        """Whether that was in this run of this machine, and both of its clocks agree when.

        What restores the machine restores this too. Then either the machine has been started
        again, or, restored with its memory, its two clocks have not gone on alike.
        """
        value = self._store.recall(f"{_ASKED}{self._log.log_id}")
        boot, now = System().boot_id().hex(), _clocks()
        if value is None or not boot:
            return False
        then = json.loads(value)
        ages = [clock - at for clock, at in zip(now, then["at"], strict=True)]
        alike = abs(ages[0] - ages[1]) < 1
        return then["boot"] == boot and alike and all(0 <= age < HOLDS_S for age in ages)

    def _remember(self) -> None:
        self._asked_at = time.monotonic()
        # Where nothing names this run of the machine, it is always asked.
        boot = System().boot_id().hex()
        if boot:
            value = json.dumps({"boot": boot, "at": _clocks()}).encode()
            self._store.remember(f"{_ASKED}{self._log.log_id}", value)


def _clocks() -> tuple[float, float]:
    """Seconds since the machine was started, asleep or awake, and the time of day."""
    boot = time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    return boot, time.time()


def _called(state: Mapping[str, Any] | None) -> "list[PeerAddress]":
    """Whom the node that serves the store calls, and how."""
    from peer.node import PeerAddress

    connections = [] if state is None else state.get("connections", ())
    return [PeerAddress.parse(each["called"]) for each in connections if each["called"] is not None]
