"""What came to nothing with the other side, and until when it is left alone: the one ledger.

A plan follows from what is wanted and held. Without a memory of what came of it, the same plan is
made at the next look, and two sides that keep answering each other never come to rest. So whatever
is refused, skipped, ended early, told already or left to somebody else is a row here, but for what
belongs to one mechanism alone and is noted there: offers of what came late (late.py), the book of
sources, forks, turns. A row says for which entries of a log, since when, until when, and how often
that has been so. Who plans takes away what rests, and is told when a rest ends.

`_rules` says for each outcome how long it rests, and the `lift_...` what ends that before its time:

- by itself: a pause that doubles each time. The other side may lack what it lacks for years, and
  thousands of logs may be in that state.
- by a later proposal, of what was refused (section 6, 128): theirs lifts what they refused. At once
  if they have come further, else after a pause, a short one if it tells of anything new (`hurry`),
  and not before some of it exists, there or here: two sides that answer each proposal by one of
  their own would never end. That a later proposal was made is kept (`Row.allowed`), since it may be
  the last one, and that something exists be learned after it. Of what they proposed and took back,
  `WITHDRAWN`, theirs lifts all at once, and ours after a pause.
- by something that comes, from anybody: it ends no rest, but the next pause is the second again.

A row with an end wakes its log up by itself (`due`). One without has to be lifted by an event, and
`lift` and `lift_part` only change the row: whoever calls them marks the log.

`tries` belong to the row, whatever its entries: a growing log is refused at another start each
time, so that a count for each range would always be the first.

It is not for what is under way (a request), nor for what was said once and is true (peer_log.py).
"""

import math
from collections.abc import Container, Iterable
from enum import Enum, auto
from typing import Final

from msgspec import Struct

from peer.protocol.config import SessionConfig
from peer.protocol.request import OPEN_END
from wire import LogKey

from .ranges import EVERYTHING, Ranges, meet, minus, union
from .retries import Retries

RANGES_MAX: Final = 256
"""Ranges of one row, since a peer chooses how many there are: it may refuse every second entry. Of
more, refused ones are taken together, and others are forgotten."""


class Kind(Enum):
    """What was tried."""

    RANGE = auto()
    """Entries, or to be told of them."""
    PATH = auto()
    """The path to an entry."""
    WATCH = auto()
    """To be told what is new."""
    PAYLOAD = auto()
    """Payloads of entries that are held."""
    POOL = auto()
    """What lies in the pool of entries that are asked for."""
    LOG = auto()
    """Entries of the log, whichever. Payloads of what is held, offers of what was asked for in vain
    and the search for a fork go on beside that (turns.py, `Decider.at_rest`)."""
    OFFER = auto()
    """To tell what is held here."""


class Outcome(Enum):
    """What came of it."""

    REFUSED = auto()
    """The other side does not want to be asked (cancel 128 or 132), or there is nothing to be had:
    another history, an end, a fork (133 to 135), or what came contradicts what is held here."""
    LIFTED = auto()
    """It was refused, and the other side has made a proposal since: it is asked for after a pause.
    A row of its own, since what is refused meanwhile rests for ever, and would keep this with it.
    """
    WITHDRAWN = auto()
    """It proposed that, and did not want it any more."""
    STOOD = auto()
    """Nothing of it came for a while, so that we ended it."""
    ENDED = auto()
    """It has told all that it will, as where a fork or a gap of its own stops it: a request in
    which it only tells is complete."""
    FINISHED = auto()
    """Such a request was ended from here, as complete, before it had told all of it: nobody had the
    rest yet."""
    SKIPPED = auto()
    """It was asked for, or passed, and is missing all the same."""
    EXHAUSTED = auto()
    """The other side has no resources (cancel 129), or nothing moved."""
    NOT_KEPT = auto()
    """What came could not be stored here, which the other side does not know."""
    NO_ROOM = auto()
    """A limit of ours had no room for what came. It is no matter of seconds until there is some."""
    LEFT = auto()
    """Another session of this node, or another request, may bring it."""
    TOLD = auto()
    """It was said."""


class Rule(Struct, frozen=True):
    """How long a row of an outcome is in force. Times in seconds.

    The first rest takes `first_s`, each further one twice as long as the one before, up to
    `longest_s`. `later`: it has no end before a later proposal for the log is made (section 6), for
    `REFUSED` one of the other side, for `WITHDRAWN` one of either (`lift_by_...`). `tries_max`:
    after so many in a one-time sync it is not tried again.
    """

    first_s: float
    longest_s: float
    later: bool = False
    tries_max: int = 0


def _rules(config: SessionConfig) -> dict[Outcome, Rule]:
    # What may change over there by itself is given as long as a gap is (`stalled_after_s`); what is
    # a matter of moments, `retry_first_s`. Where our own store failed, the other side does not know
    # of it: a sync has to ask once more before that has left. In a sync, whose end somebody waits
    # for, all that has no `tries_max` is tried once.
    stalled, most = config.stalled_after_s, config.retry_max_s
    return {
        Outcome.REFUSED: Rule(stalled, most, later=True),
        Outcome.LIFTED: Rule(stalled, most),
        Outcome.WITHDRAWN: Rule(stalled, most, later=True),
        Outcome.STOOD: Rule(stalled, most),
        Outcome.ENDED: Rule(math.inf, math.inf),
        Outcome.FINISHED: Rule(config.retry_first_s, most),
        Outcome.SKIPPED: Rule(stalled, most),
        Outcome.EXHAUSTED: Rule(config.retry_first_s, most, tries_max=8),
        Outcome.NOT_KEPT: Rule(config.keep_again_s, most, tries_max=5),
        Outcome.NO_ROOM: Rule(config.room_first_s, config.room_max_s),
        Outcome.LEFT: Rule(stalled, stalled),
        Outcome.TOLD: Rule(math.inf, math.inf),
    }


class Row(Struct):
    """What came of one kind of attempt at a log. Times in seconds, on the host's clock."""

    ranges: Ranges
    since: float
    until: float = math.inf
    tries: int = 0
    again: Ranges = ()
    """What was told twice."""
    declined: Ranges = ()
    """What was told, and refused."""
    allowed: Ranges = ()
    """What was refused, and of which the other side has made a later proposal."""
    seen: object = None
    """How it was then, of what was left to others."""
    asked_up_to: int = 0
    """The entry that was asked for last, of what is asked for in turns."""


_Key = tuple[Kind, Outcome]


class Rests:
    """The rows of all logs of a session. A log of which nothing is noted has none."""

    def __init__(self, config: SessionConfig, *, once: bool = False) -> None:
        """`once`: each thing is tried only so often, since somebody waits for the end."""
        self._rules = _rules(config)
        self._once = once
        self._again_s = config.look_again_s
        self._rows: dict[LogKey, dict[_Key, Row]] = {}
        self._retries = Retries()
        self._came_at: dict[LogKey, float] = {}

    # What rests

    def left_alone(
        self, log: LogKey, kind: Kind, now: float, outcome: Outcome | None = None
    ) -> Ranges:
        """The entries for which nothing of a kind is to be tried now, for one reason or any."""
        rows = self._rows.get(log)
        if not rows:
            # As of nearly all logs, and this is asked several times for each plan.
            return ()
        # What was withdrawn is left alone exactly as it was proposed (`withdrawn`), and no part of
        # it is: the other side may have offered one.
        found = [
            row.ranges
            for (of, why), row in rows.items()
            if of is kind
            and row.until > now
            and (why is not Outcome.WITHDRAWN if outcome is None else why is outcome)
        ]
        return found[0] if len(found) == 1 else union(*found)

    def is_left_alone(
        self, log: LogKey, kind: Kind, now: float, outcome: Outcome | None = None
    ) -> bool:
        """Whether anything of a kind is left alone now, for one reason or any."""
        return bool(self.left_alone(log, kind, now, outcome))

    def has_no_room(self, log: LogKey, now: float) -> bool:
        """Whether there was no room for a log a while ago."""
        return self.is_left_alone(log, Kind.LOG, now, Outcome.NO_ROOM)

    def withdrawn(self, log: LogKey, now: float) -> Ranges:
        """What the other side proposed and took back: exactly that is not asked for."""
        row = self._row(log, Kind.RANGE, Outcome.WITHDRAWN)
        return () if row is None or row.until <= now else row.ranges

    def skipped_up_to(self, log: LogKey) -> int:
        """Behind which entry payloads are to be asked for first, of those that were skipped.

        With the lowest ones first the others would never have their turn.
        """
        row = self._row(log, Kind.PAYLOAD, Outcome.SKIPPED)
        return 0 if row is None else row.asked_up_to

    def refused(self, log: LogKey, kind: Kind) -> Ranges:
        """What was refused of late, whether it rests still or may be tried again."""
        if not self._rows.get(log):
            # As of nearly all logs, and this is asked for each plan.
            return ()
        return union(*(self._ranges(log, kind, each) for each in (Outcome.REFUSED, Outcome.LIFTED)))

    def _ranges(self, log: LogKey, kind: Kind, outcome: Outcome) -> Ranges:
        row = self._row(log, kind, outcome)
        return () if row is None else row.ranges

    def any_noted(self, log: LogKey) -> bool:
        """Whether anything of a log has come to nothing, or was told: of nearly all nothing has."""
        return bool(self._rows.get(log))

    def __contains__(self, log: LogKey) -> bool:
        """Whether a rest of this log ends at some time."""
        return log in self._retries

    def only_refused(self, log: LogKey) -> Ranges | None:
        """What was refused, if that is all there is to know; None if it is not."""
        rows = self._rows.get(log)
        if rows is None or len(rows) != 1 or log in self._retries:
            return None
        row = rows.get((Kind.RANGE, Outcome.REFUSED))
        if row is None or row.until < math.inf or row.allowed:
            return None
        return row.ranges or None

    def _row(self, log: LogKey, kind: Kind, outcome: Outcome) -> Row | None:
        rows = self._rows.get(log)
        return None if rows is None else rows.get((kind, outcome))

    # What is noted

    def note(
        self,
        log: LogKey,
        kind: Kind,
        outcome: Outcome,
        now: float,
        ranges: Ranges = EVERYTHING,
    ) -> None:
        """It has come to nothing for these entries: not again before its time."""
        rows = self._rows.setdefault(log, {})
        row = rows.get((kind, outcome))
        if row is None:
            row = rows[kind, outcome] = Row((), now)
        if outcome is Outcome.SKIPPED:
            # Of many payloads that were skipped not all are asked for at a time, and the others
            # rest along: who gives little credit is not asked for all of them without a pause.
            row.asked_up_to = ranges[-1][1]
        elif row.until <= now:
            # That rest was over: what it was for may be tried, and only this has come to nothing
            # again.
            row.ranges = row.allowed = ()
        if outcome is Outcome.REFUSED:
            self._drop_ended(rows, kind, now)
            row.allowed = minus(row.allowed, ranges)
        exact = outcome is Outcome.WITHDRAWN
        joined = tuple({*row.ranges, *ranges}) if exact else union(row.ranges, ranges)
        row.ranges = _bounded(joined, merge=outcome is Outcome.REFUSED)
        row.since = now
        rule = self._rules[outcome]
        row.until = math.inf if rule.later else now + self._delay(rule, row.tries)
        row.tries += 1
        # Somebody waits for the end of a sync: what goes on failing may not keep it from that.
        if self._once and not exact and row.tries > rule.tries_max:
            row.until = math.inf
        self._schedule(log, row.until)

    def note_told(self, log: LogKey, ranges: Ranges, now: float) -> None:
        """The other side is told that this is held here."""
        rows = self._rows.setdefault(log, {})
        row = rows.setdefault((Kind.OFFER, Outcome.TOLD), Row((), now))
        row.ranges = union(row.ranges, ranges)[-RANGES_MAX:]
        row.since = now

    def lift_told(self, log: LogKey, ranges: Ranges) -> None:
        """That did not reach it, or was of no use."""
        row = self._row(log, Kind.OFFER, Outcome.TOLD)
        if row is not None:
            row.ranges = minus(row.ranges, ranges)

    def note_declined(self, log: LogKey, ranges: Ranges) -> None:
        """It was told this, and did not want it."""
        row = self._row(log, Kind.OFFER, Outcome.TOLD)
        if row is not None:
            row.declined = union(row.declined, ranges)[-RANGES_MAX:]

    def lift_declined(self, log: LogKey, ranges: Ranges) -> None:
        """It asks for these: what of them it has declined it does want by now.

        At once, since it had heard of them before it asked. What it declines and asks for again and
        again goes round no faster than it asks, which rests over there.
        """
        row = self._row(log, Kind.OFFER, Outcome.TOLD)
        if row is not None:
            wanted = meet(row.declined, ranges)
            row.ranges, row.declined = minus(row.ranges, wanted), minus(row.declined, wanted)

    def lift_told_again(self, log: LogKey, ranges: Ranges, now: float) -> None:
        """The other side asks for these, told or not: it may not have kept what it got.

        What it was told is told again after a while; in a one-time sync at once, and once.
        """
        row = self._row(log, Kind.OFFER, Outcome.TOLD)
        if row is None:
            return
        if self._once:
            # Once: two sides that ask in vain and tell again would never be done.
            again = minus(meet(row.ranges, ranges), row.again)
            row.ranges, row.again = minus(row.ranges, again), union(row.again, again)
        elif now >= row.since + self._again_s:
            # Before that it may have asked without having heard what it was told.
            row.ranges = minus(row.ranges, ranges)

    def told(self, log: LogKey) -> Ranges:
        """What the other side was told of, or knows otherwise."""
        return self._ranges(log, Kind.OFFER, Outcome.TOLD)

    def left_long_enough(self, log: LogKey, kind: Kind, seen: object, now: float) -> bool:
        """Whether something was left to others for long enough, as it is now and was then.

        `seen`: how it is; None: as it was. Whatever of the log comes makes the wait begin anew.
        """
        rule = self._rules[Outcome.LEFT]
        rows = self._rows.setdefault(log, {})
        row = rows.get((kind, Outcome.LEFT))
        if row is None or seen not in (None, row.seen):
            # What is missing is not what it was: somebody brings it, and is given his time again.
            row = rows[kind, Outcome.LEFT] = Row((), now, seen=seen)
        until = max(row.since, self._came_at.get(log, 0.0)) + rule.first_s
        # It is no rest of any entries, and leaves nothing alone: who plans asks this each time.
        row.until = 0.0
        if now >= until:
            return True
        self._schedule(log, until)
        return False

    def is_left(self, log: LogKey, kind: Kind) -> bool:
        """Whether something is left to others."""
        return self._row(log, kind, Outcome.LEFT) is not None

    def lift_left(self, log: LogKey, kind: Kind) -> None:
        """Nothing is left to others any more."""
        self._drop(log, kind, Outcome.LEFT)

    def look_at(self, log: LogKey, at: float) -> None:
        """Have the log looked at then, if not before."""
        # If before, this one is forgotten: whoever plans then asks for it anew if it is needed.
        self._schedule(log, at)

    # What lifts

    def lift_by_their_proposal(
        self, log: LogKey, now: float, exists: int, *, is_further: bool
    ) -> None:
        """The other side made a later proposal: some of what it refused may be tried again.

        At once if it has come further than it was (`is_further`), since it may want now what it
        refused. Else what exists, up to `exists`, as `lift_existing` does.
        """
        rows = self._rows.get(log)
        if rows is None:
            return
        self._drop(log, Kind.RANGE, Outcome.WITHDRAWN)
        for (_, outcome), row in rows.items():
            if outcome is not Outcome.REFUSED or row.until < math.inf or not row.ranges:
                # It was lifted already: each further proposal would put the end off.
                continue
            if is_further:
                row.until = now
                self._schedule(log, now)
            elif not self._once:
                # A sync does not wait for that, and the next one begins with nothing refused. Kept
                # all the same, it would keep each such log from being forgotten (`only_refused`).
                row.allowed = row.ranges
        self.lift_existing(log, exists, now)

    def lift_existing(self, log: LogKey, exists: int, now: float) -> None:
        """Of what was refused before a later proposal of the other side, something may exist.

        If some of a row is known to, there or here (up to `exists`), all of it that may be proposed
        again is tried after a while.
        """
        rows = self._rows.get(log)
        if rows is None:
            return
        lifted = [
            (kind, row)
            for (kind, outcome), row in rows.items()
            if outcome is Outcome.REFUSED and row.until == math.inf
            if meet(row.allowed, up_to(exists))
        ]
        for kind, row in lifted:
            pause = rows.setdefault((kind, Outcome.LIFTED), Row((), now, until=now))
            before = pause.ranges if pause.until > now else ()
            pause.ranges = union(before, row.allowed)
            row.ranges, row.allowed = minus(row.ranges, row.allowed), ()
            pause.until = now + self._delay(self._rules[Outcome.LIFTED], row.tries - 1)
            self._schedule(log, pause.until)

    def lift_by_our_proposal(self, log: LogKey, made_at: float, now: float) -> None:
        """This side made a proposal: what the other one took back before may be asked for again."""
        # `made_at`: a proposal that was made before the other one was withdrawn is no later one.
        row = self._row(log, Kind.RANGE, Outcome.WITHDRAWN)
        if row is not None and row.since < made_at and row.until == math.inf:
            row.until = now + self._delay(self._rules[Outcome.WITHDRAWN], row.tries - 1)
            self._schedule(log, row.until)

    def lift_by_arrival(self, log: LogKey, now: float) -> None:
        """Something of the log has come, from anybody: it ends no rest, but the next pause is the
        second one again, and what is left to others is given its time anew."""
        rows = self._rows.get(log)
        if rows is None:
            return
        self._came_at[log] = now
        for row in rows.values():
            # It has come to nothing once all the same: the next pause is the second one.
            row.tries = min(row.tries, 1)

    def lift(
        self,
        log: LogKey,
        kind: Kind,
        outcome: Outcome | None = None,
        *,
        before: float = math.inf,
    ) -> None:
        """Anything of a kind, or of one outcome of it, may be tried again at once.

        `before`: unless it came to nothing after that moment.
        """
        for (of, found), row in self._rows.get(log, {}).items():
            if of is kind and outcome in (None, found) and row.since < before:
                row.until = 0.0

    def lift_refused(self, log: LogKey, kind: Kind) -> None:
        """What was refused may be tried again at once."""
        for outcome in (Outcome.REFUSED, Outcome.LIFTED):
            self.lift(log, kind, outcome)

    def lift_part(self, log: LogKey, kind: Kind, ranges: Ranges) -> None:
        """These entries may be tried again at once."""
        for (of, _), row in self._rows.get(log, {}).items():
            if of is kind:
                row.ranges, row.allowed = minus(row.ranges, ranges), minus(row.allowed, ranges)

    def hurry(self, log: LogKey, kinds: Container[Kind], at: float) -> None:
        """Rests of these kinds that end by themselves do so then, if not before."""
        for (of, _), row in self._rows.get(log, {}).items():
            if of in kinds and at < row.until < math.inf:
                row.until = at
                self._schedule(log, at)

    @staticmethod
    def _drop_ended(rows: dict[_Key, Row], kind: Kind, now: float) -> None:
        """What was lifted and may be tried again is refused anew where it is named anew."""
        lifted = rows.get((kind, Outcome.LIFTED))
        if lifted is not None and lifted.until <= now:
            del rows[kind, Outcome.LIFTED]

    def _drop(self, log: LogKey, kind: Kind, outcome: Outcome) -> None:
        rows = self._rows.get(log)
        if rows is not None:
            rows.pop((kind, outcome), None)

    def forget(self, log: LogKey) -> None:
        """Nothing is known of the log any more."""
        self._rows.pop(log, None)
        self._came_at.pop(log, None)
        self._retries.drop(log)

    # What time brings

    def due(self, now: float) -> list[LogKey]:
        """The logs of which a rest has ended; told once."""
        found = self._retries.due(now)
        for log in found:
            # A log has one moment in the line, its first: the rests that end later are put in now.
            rows = self._rows.get(log, {})
            ends = [row.until for row in rows.values() if now < row.until < math.inf]
            if ends:
                self._retries.add(log, min(ends))
        return found

    def next_at(self) -> float | None:
        """When the next rest ends."""
        return self._retries.next_at()

    def _schedule(self, log: LogKey, at: float) -> None:
        before = self._retries.at(log)
        if at < math.inf and (before is None or at < before):
            self._retries.add(log, at)

    @staticmethod
    def _delay(rule: Rule, tries: int) -> float:
        if rule.first_s == math.inf:
            return math.inf
        return min(rule.first_s * 2.0 ** min(max(tries, 0), 16), rule.longest_s)


def up_to(seq: int) -> Ranges:
    """The entries up to one."""
    return ((1, seq),) if seq else ()


def finite(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Those that have an end."""
    return tuple(each for each in ranges if each[1] < OPEN_END)


def _bounded(ranges: Ranges, *, merge: bool) -> Ranges:
    more = len(ranges) - RANGES_MAX
    if more <= 0:
        return ranges
    if merge:
        # What lies between them is not asked for before all of it is.
        return ((ranges[0][0], ranges[more][1]), *ranges[more + 1 :])
    return ranges[more:]
