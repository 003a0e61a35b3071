"""The state of a node in values that JSON has: for `status`, `why` and `wait`, here and elsewhere.

Connections in full; of logs only those that are behind or in trouble, the worst first and so many
of them at most, so that ten thousand logs in order make no work and no file of megabytes.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import trio
from msgspec import Struct

from logstore import PolicyKind, Store, wall_clock_us
from peer import Interests, LogChanged, NewestAsked, json_number, log_fields
from peer.node.links.records import ConnectionInfo, ConnectionState
from peer.node.links.roster import Member
from peer.node.node import Node
from wire import NATIVE_STATE, U64_MAX, LogKey

from .arriving import arriving_fields
from .progress import QUIET_S, Progress, all_answered, in_step_fields, name_of
from .terms import terms_fields

LOGS_MAX: Final = 500
"""Logs in trouble that are told one by one."""

ASKED_MAX: Final = 64
"""Logs whose total a peer is asked for at each look."""

State = Mapping[str, object]


class _Held(Struct, frozen=True):
    """What is held of a log. `last`: no entry behind that can be taken, whoever holds it; `lacks`:
    whether the payload of a held entry is missing, wanted or not.
    """

    height: int = 0
    newest: int = 0
    last: int = U64_MAX
    lacks: bool = False


_NOTHING = _Held()


class _Lag(Struct, frozen=True):
    """Up to where a log was known to go at some time, and has not come here since."""

    newest: int
    since_s: float


class Behind(Struct, frozen=True):
    """What connected peers hold of what is followed, and this node lacks, of all logs together.

    `since_s`: since when something has been missing that was known to be there, on Trio's clock;
    None: nothing is. A log that grows all the time and is followed closely is not far behind.
    """

    logs: int
    entries: int
    since_s: float | None


class Overview:
    """Keeps up with what a node holds. `load` has to be awaited first, once."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._started = _now()
        self._held: dict[LogKey, _Held] = {}
        self._version = 0
        self._told: tuple[object, list[tuple[LogKey, int]]] = (None, [])
        self._lags: dict[LogKey, _Lag] = {}
        """Of the logs that are behind."""
        self.progress = Progress()
        self._wanted: tuple[object, list[LogKey]] = (None, [])
        self._final: tuple[object, bool] = (None, False)

    async def load(self) -> None:
        """Reads a row of every log, in a thread."""
        self._node.host.watchers.add(self._changed)
        held = await trio.to_thread.run_sync(_held_in, self._node.host.store)
        # News that came meanwhile are newer.
        self._held = held | self._held

    def close(self) -> None:
        """Keeps up no longer."""
        self._node.host.watchers.discard(self._changed)

    def _changed(self, changes: Sequence[LogChanged]) -> None:
        self._version += 1
        for change in changes:
            last = self._held.get(change.log, _NOTHING).last
            if change.fork is not None:
                last = min(last, change.fork - 1)
            self._held[change.log] = _Held(change.height, change.newest, last, change.lacks)

    def state(self) -> State:
        """How the node is now."""
        moments = _Moments()
        self.look()
        troubles = self._current_troubles()
        behind = self.behind()
        return {
            "pid": os.getpid(),
            "native_core": NATIVE_STATE.fields(),
            "since": moments.text(self._started),
            "max_rate": self._node.config.limits.bytes_per_s_max,
            "max_rate_per_peer": self._node.config.limits.peer_bytes_per_s_max,
            "listening": [str(address) for address in self._node.addresses],
            "connections": [
                _connection(info, moments) | {"called": self._node.called_as(info)}
                for info in self._node.connections()
            ],
            "ended": [
                {
                    "address": each.address,
                    "peer_id": None if each.peer_id is None else each.peer_id.hex(),
                    "direction": str(each.direction),
                    "kind": str(each.ending.kind),
                    "reason": each.ending.reason,
                    "at": moments.of(each.at_s),
                }
                for each in self._node.ended
            ],
            "neighbours": [
                {
                    "peer_id": each.peer_id.hex(),
                    "address": str(each.address),
                    "since": moments.of(each.seen_s),
                    "allowed": self._node.entrance.admission.knows(each.peer_id),
                }
                for each in self._node.entrance.neighbours
            ],
            "arriving": arriving_fields(self._node),
            "limits": [
                {**fields, "at": moments.of(at_s)} for fields, at_s in self._node.room.refusals
            ],
            "logs_behind": behind.logs,
            "entries_behind": json_number(behind.entries),
            "behind_since": None if behind.since_s is None else moments.of(behind.since_s),
            "logs_in_trouble": len(troubles),
            "company": self._company(moments),
            "totals_final": self._totals_are_final(),
            "moving": self.progress.moving(),
            "logs": [self._log(log, behind, moments) for log, behind in troubles[:LOGS_MAX]],
        }

    def behind(self) -> Behind:
        """How far the node is behind what its peers hold."""
        troubles = self._current_troubles()
        return Behind(
            logs=len(self._lags),
            entries=sum(lacking for _, lacking in troubles),
            since_s=min((lag.since_s for lag in self._lags.values()), default=None),
        )

    def look(self) -> tuple[str, ...]:
        """Sees what has come since the last look, and asks for totals; returns who is connected."""
        members, now = self._established(), trio.current_time()
        self.progress.look(members, now)
        behind = self._current_troubles()
        self.progress.looked(now)
        wants = self._node.interests.wants
        logs = {log for log in self.progress.lasting() if wants(log)}
        logs.update(log for log, lacking in behind[:ASKED_MAX] if lacking)
        for member in members:
            told, refused = member.knowledge.told, member.knowledge.refused
            asked = sorted(log for log in logs if log not in told and log not in refused)
            if asked:
                member.connection.tell(NewestAsked(tuple(asked[:ASKED_MAX])))
        return tuple(sorted({name_of(member) for member in members}))

    def lacks_something(self) -> bool:
        """Whether something is known to be missing."""
        members = self._established()
        arriving = any(member.knowledge.arriving for member in members)
        return bool(self._lags or self._node.interests.fetches or arriving)

    def may_lack_more(self) -> bool:
        """Whether a peer may yet say that it holds more, or bring payloads that are missing.

        Who has just come has not said all yet, nor has who owes an answer about a log that is held.
        Which payloads it holds no peer says. So what is followed in full waits for those that it
        lacks for as long as anything of it comes: what is still missing then nobody here has.
        """
        now = trio.current_time()
        if any(now - member.since_s < QUIET_S for member in self._established()):
            return True
        if not self._totals_are_final():
            return True
        wants = self._node.interests.wants
        return any(
            not self.has_answered(log) or self._awaits_payloads(log)
            for log in self.progress.now_moving()
            if wants(log)
        )

    def _awaits_payloads(self, log: LogKey) -> bool:
        interests = self._node.interests
        is_full = interests.follows(log) and interests.subscription(log).kind is PolicyKind.FULL
        return is_full and self._held.get(log, _NOTHING).lacks

    def _company(self, moments: "_Moments") -> dict[str, object] | None:
        company = self.progress.company
        if company is None:
            return None
        return {
            "since": moments.of(company.since_s),
            "until": None if company.until_s is None else moments.of(company.until_s),
            "peers": list(company.peers),
        }

    def _totals_are_final(self) -> bool:
        """Whether every connected peer has answered for all logs that are held and wanted."""
        members, interests = self._established(), self._node.interests
        known = [(member, member.knowledge.version) for member in members]
        based_on = (len(self._held), interests, known)
        if self._final[0] != based_on:
            if self._wanted[0] != (len(self._held), interests):
                wanted = [log for log in self._held if interests.wants(log)]
                self._wanted = ((len(self._held), interests), wanted)
            is_final = bool(members) and all_answered(members, self._wanted[1])
            self._final = (based_on, is_final)
        return self._final[1]

    def _established(self) -> list[Member]:
        ready = (ConnectionState.ESTABLISHED, ConnectionState.CLOSING)
        return [member for member in self._node.members if member.state in ready]

    def _current_troubles(self) -> list[tuple[LogKey, int]]:
        """`_troubles`, looked for only if something has changed."""
        members = self._established()
        known = [(member, member.knowledge.version) for member in members]
        based_on = (self._version, self._node.interests, known)
        if self._told[0] != based_on:
            self._told = (based_on, self._troubles(members))
        return self._told[1]

    def _troubles(self, members: list[Member]) -> list[tuple[LogKey, int]]:
        """The logs that are not as they should be and by how many entries, the worst first."""
        interests = self._node.interests
        found = dict.fromkeys(log for log in _asked_for_at_once(interests) if log not in self._held)
        found.update(dict.fromkeys(interests.fetches))
        behind: dict[LogKey, int] = {}
        for member in members:
            knowledge = member.knowledge
            for log, newest in list(knowledge.newest.items()):
                held = self._held.get(log, _NOTHING)
                subscription = interests.subscription(log)
                reached = _reached(held, subscription.kind)
                if min(newest, held.last) <= reached and not self._awaits_payloads(log):
                    # Where payloads are missing still, whoever ends a sync has to know of it.
                    del knowledge.newest[log]
                elif interests.follows(log):
                    # Nothing behind a closed range is wanted.
                    last = held.last if subscription.last is None else subscription.last
                    lacking = min(newest, held.last, last) - reached
                    behind[log] = max(behind.get(log, 0), lacking, 0)
            found.update(dict.fromkeys(knowledge.given_up))
            found.update(dict.fromkeys(knowledge.arriving))
        active = set[LogKey]().union(*(member.knowledge.active for member in members))
        for member in members:
            refused = (log for log in member.knowledge.refused if log not in interests.own)
            found.update(dict.fromkeys(log for log in refused if log not in active))
        found.update(dict.fromkeys(log for log, entries in behind.items() if entries > 0))
        logs = [(log, behind.get(log, 0)) for log in found if interests.wants(log)]
        behind = {log: lacking for log, lacking in logs if lacking > 0}
        self.progress.note_behind(behind, lambda log: log in self._held)
        self._note_lags(behind)
        return sorted(logs, key=lambda each: (-each[1], each[0]))

    def _note_lags(self, behind: Mapping[LogKey, int]) -> None:
        """Has the clock of a log begin anew once it has come to where it was known to go."""
        lags = {}
        for log, lacking in behind.items():
            kind = self._node.interests.subscription(log).kind
            reached = _reached(self._held.get(log, _NOTHING), kind)
            lag = self._lags.get(log)
            if lag is None or reached >= lag.newest:
                lag = _Lag(reached + lacking, trio.current_time())
            lags[log] = lag
        self._lags = lags

    def _log(self, log: LogKey, behind: int, moments: "_Moments") -> dict[str, object]:
        held = self._held.get(log, _NOTHING)
        return log_fields(log) | {
            "height": json_number(held.height),
            "newest": json_number(held.newest),
            "behind": json_number(behind),
            "answered": self.has_answered(log),
            **in_step_fields(self.progress.in_step(log), moments.of),
            "peers": [_of_peer(member, log, moments) for member in self._established()],
        }

    def has_answered(self, log: LogKey) -> bool:
        """Whether every connected peer has said how far a log goes there."""
        members = self._established()
        return bool(members) and all(
            self.progress.has_answered(member.knowledge, log) for member in members
        )


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _now() -> datetime:
    return _EPOCH + timedelta(microseconds=wall_clock_us())


class _Moments:
    """Turns Trio's clock into times of day."""

    def __init__(self) -> None:
        self._now = _now()
        self._clock = trio.current_time()

    def text(self, moment: datetime) -> str:
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def ago(self, seconds: float) -> str:
        return self.of(self._clock - seconds)

    def of(self, clock_s: float) -> str:
        # Rounded: the two clocks are not in step, and what has not changed is to look the same.
        moment = self._now + timedelta(seconds=clock_s - self._clock + 0.5)
        return self.text(moment)


def _held_in(store: Store) -> dict[LogKey, _Held]:
    return {
        info.key: _Held(info.height, info.newest, info.servable, info.missing_payloads > 0)
        for info in store.logs()
    }


def _reached(held: _Held, kind: PolicyKind) -> int:
    """Up to where nothing is missing; of a log that is not wanted in full, its newest entry."""
    return held.height if kind in {PolicyKind.FULL, PolicyKind.METADATA} else held.newest


def _asked_for_at_once(interests: Interests) -> Iterable[LogKey]:
    """What is followed by name, and log 0 of every author who is."""
    yield from interests.logs
    for author in interests.authors:
        yield LogKey(author, 0)


def _connection(info: ConnectionInfo, moments: _Moments) -> dict[str, object]:
    return {
        "address": info.address,
        "peer_id": info.peer_id,
        "direction": str(info.direction),
        "state": str(info.state),
        "since": moments.of(info.since_s),
        "last_error": info.last_error,
        "attempts": info.attempts,
        "retry_at": None if info.retry_at_s is None else moments.of(info.retry_at_s),
        "entries_received": info.entries_received,
        "entries_sent": info.entries_sent,
        "payload_bytes_received": info.payload_bytes_received,
        "payload_bytes_sent": info.payload_bytes_sent,
        "bytes_received": info.bytes_received,
        "bytes_sent": info.bytes_sent,
        "saved_bytes_received": info.saved_bytes_received,
        "saved_bytes_sent": info.saved_bytes_sent,
        "logs": info.logs,
        "not_kept": info.not_kept,
        "not_given": info.not_given,
        "terms": terms_fields(info.terms),
    }


def _of_peer(member: Member, log: LogKey, moments: _Moments) -> dict[str, object]:
    knowledge = member.knowledge
    refused, given_up = knowledge.refused.get(log), knowledge.given_up.get(log)
    place = member.place
    source = None if place is None else place.info(log, member.address, member.direction)
    fetching = source is not None and source.fetching
    ago_s = source.last_progress_s if source is not None and fetching else None
    return {
        "address": member.address,
        "newest": json_number(knowledge.newest.get(log, 0)),
        "active": knowledge.active.get(log, 0),
        "fetching": fetching,
        "arriving": json_number(knowledge.arriving.get(log, 0)),
        "last_progress": None if ago_s is None else moments.ago(ago_s),
        "refused": None
        if refused is None
        else {"reason": int(refused.reason), "at": moments.of(refused.at_s)},
        "given_up": None
        if given_up is None
        else {"detail": given_up.detail, "at": moments.of(given_up.at_s)},
    }
