"""How it stands with a store, its node and its logs: the object of `status --json`
(docs/cli.md, status).

Made from what the store holds and what the node says of itself, which is read from its file by
other processes and asked of it in its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from logstore import (
    FULL,
    Follow,
    LogInfo,
    LogState,
    Shortfall,
    Store,
    is_in_force,
    subscription_of,
    wall_clock_us,
)
from peer import counted, json_number, log_fields
from peer.node import part_of_payload, parts_of
from wire import NATIVE_STATE, LogKey, NativeState

from .alarms import alarms_of
from .names import target_fields
from .peer_lines import connected_peers
from .progress import LogProgress, NodeProgress
from .values import rfc3339

State = Mapping[str, Any]

PARTS_SHOWN = 5
"""Of the payloads of a log of which a part is on disk, and of those that arrive for a fetch."""

_NOTHING = Shortfall(0, 0)


@dataclass(frozen=True, slots=True)
class LogStanding:
    """What is held of a log, and what connected peers have said of it."""

    key: LogKey
    info: LogInfo | None
    told: State | None
    lacks: Shortfall
    """What is wanted of it and not held, up to the newest entry held."""
    progress: LogProgress
    arriving: tuple[str, ...] = ()
    """The payloads of which a part has come, in words."""

    @property
    def height(self) -> int:
        return 0 if self.info is None else self.info.height

    @property
    def held(self) -> int:
        return 0 if self.info is None else self.info.newest

    @property
    def state(self) -> LogState:
        return LogState.LIVE if self.info is None else self.info.state

    @property
    def peers(self) -> list[State]:
        return [] if self.told is None else list(self.told["peers"])

    @property
    def known(self) -> int:
        """The newest entry that anybody is known to hold."""
        return max((int(each["newest"]) for each in self.peers), default=0)

    @property
    def behind(self) -> int:
        return 0 if self.told is None else int(self.told["behind"])

    @property
    def holders(self) -> list[str]:
        """Who holds more than we, the one that it is fetched from first."""
        ahead = [each for each in self.peers if int(each["newest"]) > self.held]
        ahead.sort(key=lambda each: (not each.get("fetching"), -int(each["newest"])))
        return [each["address"] for each in ahead]

    @property
    def is_incomplete(self) -> bool:
        return bool(self.behind or self.lacks.payloads or self.lacks.entries)

    @property
    def rank(self) -> tuple[object, ...]:
        """Sorts the biggest problems to the front."""
        sound = self.state in {LogState.LIVE, LogState.ENDED}
        return (sound, -self.behind, not self.lacks.entries, -self.lacks.payloads, self.key)

    def fields(self) -> dict[str, object]:
        return log_fields(self.key) | {
            "height": json_number(self.height),
            "newest": json_number(self.held),
            "known": json_number(max(self.known, self.held)),
            "behind": json_number(self.behind),
            "entries": json_number(0 if self.info is None else self.info.entries),
            "missing_payloads": json_number(self.lacks.payloads),
            "state": str(self.state),
            **self.progress.fields(),
            "peers": self.peers,
        }


def log_standings(store: Store, node: State | None, only: LogKey | None) -> list[LogStanding]:
    """Every log that is held, or that a peer holds and we want; the biggest problems first."""
    told = {_key(each): each for each in (node or {}).get("logs", ())}
    parts = store.partial_payloads()
    arriving = {
        key: tuple(_arriving(store, node, key, parts.get(key, []))) for key in (*told, *parts)
    }
    found = []
    subscriptions, progress = store.subscriptions(), NodeProgress(node)

    def not_held(key: LogKey) -> LogStanding:
        wanted = FULL if key.author == store.author else subscription_of(subscriptions, key)
        how_far = progress.of(store, key, None, wanted, told[key], _NOTHING)
        return LogStanding(key, None, told[key], _NOTHING, how_far, arriving[key])

    if only is not None:
        info = store.log(only)
        held = [info] if info is not None else []
        if info is None and only in told:
            found.append(not_held(only))
    else:
        held = list(store.logs())
    for info in held:
        own = info.key.author == store.author
        wanted = FULL if own else subscription_of(subscriptions, info.key)
        # Of what nobody here follows, nothing is missing.
        lacks = _NOTHING if wanted is None else store.shortfall(info.key, wanted)
        inside, said = arriving.get(info.key, ()), told.pop(info.key, None)
        how_far = progress.of(store, info.key, info, wanted, said, lacks)
        found.append(LogStanding(info.key, info, said, lacks, how_far, inside))
    if only is None:
        found += [not_held(key) for key, each in told.items() if int(each["behind"])]
    return sorted(found, key=lambda log: log.rank)


def _arriving(store: Store, node: State | None, key: LogKey, parts: list[int]) -> Iterator[str]:
    """The payloads of which a part is on disk, and those that are coming."""
    for seq in sorted({*parts_of(node, key), *parts[:PARTS_SHOWN]}):
        yield part_of_payload(store, node, key, seq)


def _key(told: State) -> LogKey:
    return LogKey(bytes.fromhex(told["author"]), int(told["log_id"]))


def is_held(store: Store, target: Follow) -> bool:
    """Whether anything is held of what is followed."""
    if isinstance(target, LogKey):
        return store.log(target) is not None
    return not isinstance(target, bytes) or any(True for _ in store.logs(target))


def in_step(node: State | None, logs: list[LogStanding]) -> bool | None:
    """Whether all that is wanted is here, as far as is known; None if no node asks for it."""
    if node is None:
        return None
    return bool(connected_peers(node)) and not any(log.is_incomplete for log in logs)


@dataclass(frozen=True, slots=True)
class Pause:
    """Whether no connection is wanted for now, and until when; None: until `resume`."""

    is_on: bool
    until_us: int | None = None

    @classmethod
    def of(cls, store: Store) -> "Pause":
        """As the store has it now."""
        pauses = store.pauses()
        is_on = is_in_force(pauses, None, wall_clock_us())
        return cls(is_on, pauses.get(None) if is_on else None)

    def __str__(self) -> str:
        if self.until_us is None:
            return "paused, until `resume`"
        return f"paused until {rfc3339(self.until_us)}"


def verdict(node: State | None, logs: list[LogStanding], pause: Pause) -> str:
    """How it stands in a line, for people who read no other."""
    if node is None:
        return f"no node serves this store{f', and it is {pause}' if pause.is_on else ''}"
    if pause.is_on:
        return str(pause)
    peers, behind = connected_peers(node), sum(log.is_incomplete for log in logs)
    if behind:
        return f"not in step: {counted(behind, 'log')} behind"
    return (
        f"in step with {counted(peers, 'peer')}" if peers else "not in step: no peer is connected"
    )


def standing_record(
    store: Store, node: State | None, logs: list[LogStanding], waiting: list[Follow]
) -> Mapping[str, object]:
    shown = None if node is None else {name: node[name] for name in node if name != "logs"}
    pause = Pause.of(store)
    reason, verified_at = store.own_logs_read_only, store.alarms.verified_at()
    return {
        "author": store.author.hex(),
        "own_logs_read_only": None if reason is None else str(reason),
        "serving": node is not None,
        "in_step": in_step(node, logs),
        "verdict": verdict(node, logs, pause),
        "paused": pause.is_on,
        "paused_until": None if pause.until_us is None else rfc3339(pause.until_us),
        "alarms": alarms_of(store, node),
        "verified_at": None if verified_at is None else rfc3339(verified_at),
        "native_core": native_core(node).fields(),
        "node": shown,
        "logs": [log.fields() for log in logs],
        "nothing_held_yet": [target_fields(target) for target in waiting],
        "fetching": [
            _fetch_fields(store, log, first, last) for log, first, last in fetches_of(store)
        ],
    }


def fetches_of(store: Store) -> list[tuple[LogKey, int, int]]:
    """What `fetch` waits for; after one that was killed, until another one takes it back."""
    return [(log, *range_) for log, ranges in store.wants().items() for range_ in ranges]


def _fetch_fields(store: Store, log: LogKey, first: int, last: int) -> dict[str, object]:
    held = store.holding(log, first, last)
    return log_fields(log) | {
        "first": json_number(first),
        "last": json_number(last),
        "held_entries": json_number(held.entries),
        "held_payloads": json_number(held.payloads),
    }


def native_core(node: State | None) -> NativeState:
    """Which one the node runs, or else this program."""
    told = None if node is None else node.get("native_core")
    return NATIVE_STATE if told is None else NativeState(told["version"], told["reason"] or "")
