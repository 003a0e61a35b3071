"""How far a log has come (docs/cli.md, status): what is held of what is wanted, and how fast.

Made from the log's row and a few words of the node (peer/node/status/progress.py has the theory):
of ten thousand logs that are well none costs a question to the store.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import ceil
from typing import Any, Final, NamedTuple

from logstore import LogInfo, PolicyKind, Shortfall, Store, Subscription
from peer import json_number
from wire import LogKey, lower_pool

from .values import rfc3339

State = Mapping[str, Any]

_STILL: Final = (0.0, 0)
_moment = lru_cache(256)(rfc3339)
"""Entries of many logs come in one transaction, and so at one moment."""


class LogProgress(NamedTuple):
    """What is held of what is wanted of a log, in entries, and what its payloads take."""

    held: int
    total: int
    is_final: bool
    """Whether every connected peer has said how far the log goes; else there may be more."""
    payload_bytes_held: int
    payload_bytes_total: int
    rate_entries: float
    """A second, as the next."""
    rate_bytes: int
    lacks_payloads: bool
    in_step_at: str | None
    in_step_with: tuple[str, ...]

    @property
    def percent(self) -> int | None:
        """100 only of what is whole; None where nothing is known to be wanted."""
        return None if not self.total else 100 * self.held // self.total

    @property
    def eta_s(self) -> int | None:
        """When all will be here at this rate, in seconds; None if nothing comes."""
        left, rate = float(self.total - self.held), self.rate_entries
        if not left and self.lacks_payloads:
            left = float(self.payload_bytes_total - self.payload_bytes_held)
            rate = self.rate_bytes
        elif not left:
            rate = max(self.rate_entries, self.rate_bytes)
        return None if not rate else ceil(left / rate)

    def fields(self) -> dict[str, object]:
        eta_s = self.eta_s
        return {
            "held": json_number(self.held),
            "total": json_number(self.total),
            "total_is_final": self.is_final,
            "percent": self.percent,
            "payload_bytes_held": json_number(self.payload_bytes_held),
            "payload_bytes_total": json_number(self.payload_bytes_total),
            "rate_entries": self.rate_entries,
            "rate_bytes": self.rate_bytes,
            "eta_s": None if eta_s is None else json_number(eta_s),
            "in_step_at": self.in_step_at,
            "in_step_with": list(self.in_step_with),
        }


class NodeProgress:
    """What a node says of its logs as a whole, and of those that move."""

    def __init__(self, node: State | None) -> None:
        """`node`: None if none serves the store."""
        said = node or {}
        self._company: State | None = said.get("company")
        self._totals_final: bool = said.get("totals_final", False)
        self._moving = {
            LogKey(bytes.fromhex(each["author"]), int(each["log_id"])): (
                each["rate_entries"],
                each["rate_bytes"],
            )
            for each in said.get("moving", ())
        }

    def of(
        self,
        store: Store,
        key: LogKey,
        info: LogInfo | None,
        wanted: Subscription | None,
        told: State | None,
        lacks: Shortfall,
    ) -> LogProgress:
        """Of one log. `wanted`: None if nobody here follows it; `told`: where it is in trouble."""
        held, total = _counted(store, key, info, wanted, told, lacks)
        rates = self._moving.get(key, _STILL)
        at, peers = self._in_step(info, told, is_whole=held == total and not lacks.payloads)
        final = self._totals_final if told is None else told.get("answered", False)
        return LogProgress(
            held=held,
            total=total,
            is_final=wanted is None or final,
            payload_bytes_held=0 if info is None else info.payload_bytes_held,
            payload_bytes_total=0 if info is None else info.payload_bytes_total,
            rate_entries=rates[0],
            rate_bytes=rates[1],
            lacks_payloads=lacks.payloads > 0,
            in_step_at=at,
            in_step_with=peers,
        )

    def _in_step(
        self, info: LogInfo | None, told: State | None, *, is_whole: bool
    ) -> tuple[str | None, tuple[str, ...]]:
        if not is_whole or info is None:
            said = told or {}
            return said.get("in_step_at"), tuple(said.get("in_step_with", ()))
        company = self._company
        if company is None:
            return None, ()
        at: str = company["until"] or company["since"]
        if company["until"] is None and info.newest_at is not None:
            at = max(at, _moment(info.newest_at))
        return at, tuple(company["peers"])


def _counted(
    store: Store,
    key: LogKey,
    info: LogInfo | None,
    wanted: Subscription | None,
    told: State | None,
    lacks: Shortfall,
) -> tuple[int, int]:
    """How many of the wanted entries are held, and how many there are up to the newest known."""
    if wanted is None:
        entries = 0 if info is None else info.entries
        return entries, entries
    here = 0 if info is None else info.newest
    if told is None and wanted.kind is PolicyKind.FULL:
        # Nearly all of them.
        return here - lacks.entries, here
    peers = [] if told is None else told["peers"]
    newest = max([here, *(int(each["newest"]) for each in peers)])
    if info is not None:
        newest = min(newest, max(info.servable, here))
    total = _wanted_up_to(wanted, newest)
    if newest == here or wanted.kind not in (PolicyKind.LATEST, PolicyKind.SPARSE):
        return max(0, _wanted_up_to(wanted, here) - lacks.entries), total
    # What is wanted is other entries by now. Only of logs that are behind.
    if wanted.kind is PolicyKind.SPARSE:
        path = lower_pool(newest) if info is not None else []
        return sum(store.holding(key, seq, seq).entries for seq in path), total
    first, last = wanted.bounds(newest)
    return (0 if info is None else store.holding(key, first, last).entries), total


def _wanted_up_to(wanted: Subscription, newest: int) -> int:
    if wanted.kind is PolicyKind.SPARSE:
        return len(lower_pool(newest)) if newest else 0
    first, last = wanted.bounds(newest)
    return max(0, last - first + 1)
