"""How far each log has come: of how many entries, how fast, and since when with whom.

Theory. Ten thousand logs that are well are not told of one by one, neither in the status file nor
here. Of such a log all follows from its row in the store and from a few words about the node:
`company`, with whom it is connected, since when, or until when it was; and `totals_final`, whether
all of these have answered for every log that is held and wanted. It is in step with all of them,
since the later of two moments: its newest entry came, and the first of them did. One by one are
told those that are behind or in trouble (overview.py), and how fast those are that move (`moving`).

*Totals.* A peer has answered for a log once it has said which entry is its newest there, or has
refused it; or once a request about it is in force and nothing has come for a while, as whoever has
more brings it. Of what takes longer than a look or two, or is known to be behind, the peers are
asked (`Overview.look`, peer/planner/newest.py). Until all have answered people read "at least". A
connection of its own for that, as `wait` makes one, was not taken: where a peer lets in one of a
kind, it would end the one that the log comes over.

*Rates.* Sessions count what comes of a log beside what else is known of it (knowledge.py, `moved`);
whoever looks takes these counts away, into a bucket of that second. Ten buckets are kept, and in
each `MOVING_MAX` logs at most: what is remembered does not grow with how many logs there are. Bytes
are those that came over connections, so that a payload of gigabytes has a rate long before it is
whole.

*In step, last.* A log that falls behind is noted with the moment at which it was last seen well and
who was connected then; it is forgotten when it has caught up.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct

from peer import log_fields
from peer.node.links.knowledge import Knowledge, Moved
from peer.node.links.roster import Member
from wire import LogKey

WINDOW_S: Final = 10.0
"""Rates are those of the last so many seconds."""
QUIET_S: Final = 2.0
"""For so long nothing has come of a log of which a peer has brought all that it holds."""
MOVING_MAX: Final = 500
"""Logs whose rates are told, and remembered of each second."""


class InStep(Struct, frozen=True):
    """When nothing was missing of a log, as far as connected peers had said, and who they were."""

    at_s: float
    peers: tuple[str, ...]


class Company(Struct, frozen=True):
    """Who is connected, or was last. On Trio's clock; `until_s`: None while they are."""

    since_s: float
    until_s: float | None
    peers: tuple[str, ...]


class Progress:
    """What is remembered of logs that move, and of those that are behind."""

    def __init__(self) -> None:
        self._buckets: deque[tuple[float, dict[LogKey, Moved]]] = deque()
        self._behind: dict[LogKey, InStep | None] = {}
        self._well: InStep | None = None
        """When it was looked last, with whom."""
        self.company: Company | None = None

    def look(self, members: Collection[Member], now: float) -> None:
        """Takes what has come since the last time, and sees who is there."""
        self._meet(members, now)
        if not self._buckets or now - self._buckets[-1][0] >= 1:
            self._buckets.append((now, {}))
        bucket = self._buckets[-1][1]
        for member in members:
            for log, moved in member.knowledge.take_moved().items():
                if log in bucket:
                    bucket[log] = bucket[log].plus(moved)
                elif len(bucket) < MOVING_MAX:
                    bucket[log] = moved
        while self._buckets and now - self._buckets[0][0] >= WINDOW_S:
            self._buckets.popleft()

    def _meet(self, members: Collection[Member], now: float) -> None:
        here = tuple(sorted({name_of(member) for member in members}))
        before = self.company
        if here:
            since_s = min(member.since_s for member in members)
            self.company = Company(since_s, None, here)
        elif before is not None and before.until_s is None:
            self.company = Company(before.since_s, now, before.peers)

    def note_behind(self, behind: Collection[LogKey], held: Callable[[LogKey], bool]) -> None:
        """These are behind what is held elsewhere; `held`: whether anything of a log is here."""
        well = self._well
        self._behind = {
            log: self._behind[log] if log in self._behind else (well if held(log) else None)
            for log in behind
        }

    def looked(self, now: float) -> None:
        """What is not among those that are behind is well now."""
        company = self.company
        if company is not None and company.until_s is None:
            self._well = InStep(now, company.peers)

    def in_step(self, log: LogKey) -> InStep | None:
        """When a log that is behind was last seen to be well."""
        return self._behind.get(log)

    def rates(self) -> dict[LogKey, tuple[float, float]]:
        """Entries and bytes a second of each log of which anything has come lately."""
        if not self._buckets:
            return {}
        sums: dict[LogKey, tuple[float, Moved]] = {}
        for began_s, bucket in self._buckets:
            for log, moved in bucket.items():
                first_s, sum_ = sums.get(log, (began_s, Moved()))
                sums[log] = (first_s, sum_.plus(moved))
        # A bucket has what came in the second before it was begun, and until the next one is.
        now = self._buckets[-1][0]
        return {
            log: (sum_.entries / (now - first_s + 1), sum_.data_bytes / (now - first_s + 1))
            for log, (first_s, sum_) in sums.items()
        }

    def moving(self) -> list[dict[str, object]]:
        """The rates for JSON, the fastest first."""
        rates = sorted(self.rates().items(), key=lambda each: (-each[1][1], each[0]))
        return [
            log_fields(log) | {"rate_entries": round(entries, 1), "rate_bytes": round(size)}
            for log, (entries, size) in rates[:MOVING_MAX]
        ]

    def now_moving(self) -> set[LogKey]:
        """Of which something has come within `QUIET_S`."""
        if not self._buckets:
            return set()
        since_s = self._buckets[-1][0] - QUIET_S
        recent = (bucket for began_s, bucket in self._buckets if began_s >= since_s)
        return set[LogKey]().union(*recent)

    def lasting(self) -> set[LogKey]:
        """Of which something comes now, and came in the look before."""
        if len(self._buckets) < 2:
            return set()
        return self._buckets[-1][1].keys() & self._buckets[-2][1].keys()

    def has_answered(self, knowledge: Knowledge, log: LogKey) -> bool:
        """Whether a peer has said how far a log goes there, as far as it will."""
        if log in knowledge.told or log in knowledge.refused:
            return True
        return log in knowledge.active and log not in self.now_moving()


def all_answered(members: Iterable[Member], logs: Collection[LogKey]) -> bool:
    """Whether each of these peers has answered for each of these logs, which are well."""
    for member in members:
        active, known = member.knowledge.active, member.knowledge
        if not all(log in active or log in known.refused or log in known.told for log in logs):
            return False
    return True


def name_of(member: Member) -> str:
    """Its id, or where it is where it has shown none."""
    return member.address if member.peer_id is None else member.peer_id.hex()


def in_step_fields(found: InStep | None, text: Callable[[float], str]) -> Mapping[str, object]:
    """For JSON."""
    return {
        "in_step_at": None if found is None else text(found.at_s),
        "in_step_with": [] if found is None else list(found.peers),
    }
