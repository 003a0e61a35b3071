"""`append` asks peers first, where there are some: see docs/cli.md, append.

So does whatever else signs entries of own logs: a gateway asks about all that it writes, at once.
"""

import json
import time
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from logstore import Store, System
from peer import counted, json_number
from wire import LogKey

from .errors import NO_ANSWER, Problem

if TYPE_CHECKING:
    from peer.node import Asked, PeerAddress

    from .terminal import Terminal

HOLDS_S: Final = 60.0
"""For how long it is not asked again, whatever came of it."""
HEARD_AFTER_S: Final = 2.0
"""A node that is connected for so long has been told what the other side holds."""
_ASKED: Final = "asked/"


class Asker:
    """Asks, before each batch that is appended to own logs, unless that was done a moment ago.

    `always`: True asks whatever was asked before, and does not let pass that nobody answers; False
    asks nobody. `following`: logs of which nothing is held here, and that may have been made before
    this store was put back; it is asked about them as well, and they are named only if they were.
    """

    def __init__(
        self,
        store: Store,
        log_ids: Iterable[int],
        terminal: "Terminal",
        *,
        always: bool | None,
        following: Iterable[int] = (),
    ) -> None:
        self._store = store
        self._logs = frozenset(LogKey(store.author, log_id) for log_id in log_ids)
        self._asked = self._logs | {LogKey(store.author, log_id) for log_id in following}
        self._terminal = terminal
        self._always = always
        self._asked_at = -HOLDS_S

    def ask(self) -> None:
        """Returns if the logs may be appended to as far as peers know. Raises Problem, StoreError.

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
                " `sync HOST:PORT` asks one, and without --ask-first nobody is asked",
                NO_ANSWER,
            )

    def _ask(self, addresses: "list[PeerAddress]") -> "Asked":
        from peer.node import ask_peers

        from .online import run_trio

        return run_trio(partial(ask_peers, self._store, self._asked, addresses))

    def _take(self, asked: "Asked") -> None:
        """What came of it, in words."""
        who = " and ".join(asked.newest)
        if asked.brought:
            log, count = min(asked.brought.items())
            self._terminal.note(
                f"{log}: this store was behind: {counted(count, 'entry')} signed before, up to"
                f" {asked.held[log]}, came from {who}{_others(asked.brought)}"
            )
        if asked.behind and not self._store.contested():
            log, newest = min(asked.behind.items())
            raise Problem(
                f"{log}: {who} hold it up to entry {newest}, this store up to {asked.held[log]}"
                f"{_others(asked.behind)}; nothing was signed: `sync` with them, then try again"
            )
        if not asked.newest:
            reasons = ", ".join(f"{name}: {reason}" for name, reason in asked.failed.items())
            if self._always:
                raise Problem(
                    f"{self._named}: nobody says whether this store has the newest entry"
                    f" ({reasons}); nothing was signed: without --ask-first it is signed all the"
                    " same",
                    NO_ANSWER,
                )
            self._terminal.note(
                f"nobody says whether this store has the newest entry of {self._named} ({reasons});"
                " signed all the same: fine unless this machine was restored or the key is on"
                " another one as well"
            )
        self._remember()

    # A node of the same store

    def _has_heard(self, state: Mapping[str, Any]) -> bool:
        """Whether the node that serves the store was told what its peers hold, and holds it too."""
        own = {(log.author.hex(), json_number(log.log_id)) for log in self._logs}
        for each in state.get("logs", ()):
            if (each.get("author"), each.get("log_id")) in own and int(each["behind"]):
                return False
        now = datetime.now(UTC)
        return any(
            each["state"] == "established"
            and (now - datetime.fromisoformat(each["since"])).total_seconds() > HEARD_AFTER_S
            for each in state.get("connections", ())
        )

    @property
    def _named(self) -> str:
        return f"{min(self._logs)}{_others(self._logs)}"

    # What was asked a moment ago

    @property
    def _memory(self) -> str:
        """Under which name it stands in the store: of these logs together, however many."""
        numbers = ",".join(str(log.log_id) for log in sorted(self._asked))
        if len(self._asked) > 1:
            numbers = blake2b(numbers.encode(), digest_size=16).hexdigest()
        return f"{_ASKED}{numbers}"

    def _was_asked(self) -> bool:
        """Whether that was in this run of this machine, and both of its clocks agree when.

        What restores the machine restores this too. Then either the machine has been started
        again, or, restored with its memory, its two clocks have not gone on alike.
        """
        value = self._store.recall(self._memory)
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
            self._store.remember(self._memory, value)


def _others(logs: Collection[LogKey]) -> str:
    """Of one of several logs: that there are more."""
    return f" (and {counted(len(logs) - 1, 'other log')} likewise)" if len(logs) > 1 else ""


def _clocks() -> tuple[float, float]:
    """Seconds since the machine was started, asleep or awake, and the time of day."""
    boot = time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    return boot, time.time()


def _called(state: Mapping[str, Any] | None) -> "list[PeerAddress]":
    """Whom the node that serves the store calls, and how."""
    from peer.node import PeerAddress

    connections = [] if state is None else state.get("connections", ())
    return [PeerAddress.parse(each["called"]) for each in connections if each["called"] is not None]
