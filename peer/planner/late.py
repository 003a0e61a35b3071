"""Payloads that come to be held here after the other side was told that they are not.

Packet 06 is final for its request, and no packet takes it back; who got it tries again with longer
and longer pauses. So what has come since is offered: payloads only, a finite range, notify only
(point2point.md 2 and 3). Who lacks them confirms with its eagerness, and they come in that request.

What was asked for in vain may be a million entries, of which one comes. So the store is asked what
came behind a place in its change feed, and never what is held of all that was skipped. Each arrival
is offered once, one range of a log at a time: nothing that the other side does with an offer leads
to the next one, but for another packet 06 and another arrival.
"""

from msgspec import Struct

from peer.protocol.commands import LookUp
from peer.protocol.config import SessionConfig
from peer.protocol.events import LogView
from peer.protocol.request import Request
from wire import Cancel, CancelReason, LogKey

from .actions import Actions
from .asks import Ask, AskKind, has_hashes, named_for
from .ranges import Ranges, minus, union
from .retries import Retries
from .wanting import NOTIFY_ONLY

RANGES_MAX = 256
"""Ranges that are remembered of a log; of more, the lowest are taken for one. The other side
chooses how many there are: it may want every second payload by its size."""

CREDIT_LEFT_MIN = 16
"""Request credit that is left for what somebody waits for: a quarter of what a peer gives at first,
and more than single payloads leave (turns.py), which are asked for here and not only offered. But
for a single offer: a peer may give no more than this in all, and would never hear of what came."""


class _Late(Struct):
    """What the other side asked for of one log and did not get."""

    asked: Ranges = ()
    since: int | None = None
    """The place in the change feed behind which arrivals are news; None: that of a look-up."""
    changed: bool = False
    """Something of the log has come since then."""
    arrived: Ranges = ()
    """What is to be offered."""
    busy: bool = False
    """A look-up is under way, or an offer."""
    not_before: float = 0.0
    refused: bool = False
    """It does not want such offers of this log."""


class LateOffers:
    """Remembers what the other side could not get, and offers it when it is held."""

    def __init__(self, actions: Actions, config: SessionConfig) -> None:
        self._actions = actions
        self._config = config
        self._logs: dict[LogKey, _Late] = {}
        """Those of which something was skipped first are first."""
        self._retries = Retries()
        self._open: set[Request] = set()

    # What the data channel tells

    def skipped(self, request: Request, seq: int) -> None:
        """The other side wants a payload and is told that it is not held here."""
        log = request.log
        if self._config.policy != "follow":
            # A sync is over before anything can be late.
            return
        late = self._logs.get(log)
        if late is None:
            late = self._logs[log] = _Late()
            # The other side chooses of how many logs it asks for something that is not here.
            if len(self._logs) > self._config.offered_logs_max:
                self._forget(next(iter(self._logs)))
        if late.refused:
            return
        # From when the row was read that said so: the payload may have come since.
        read_at = request.outgoing.read_at
        late.asked = _with(late.asked, seq)
        late.since = read_at if late.since is None else min(late.since, read_at)
        if request.outgoing.overtaken:
            self._came(log, late)

    def both_have(self, log: LogKey, seq: int) -> None:
        """The other side got a payload after all, or sent it."""
        late = self._logs.get(log)
        if late is not None:
            late.asked = minus(late.asked, ((seq, seq),))
            late.arrived = minus(late.arrived, ((seq, seq),))

    # What the engine tells

    def log_changed(self, log: LogKey) -> None:
        """Something of a log has come."""
        late = self._logs.get(log)
        if late is not None and late.asked:
            self._came(log, late)

    def cancelled(self, request: Request, cancel: Cancel) -> None:
        """The other side ended an offer; who does not know such offers is not asked again."""
        if cancel.reason is CancelReason.NOT_WANTED and not request.confirmed:
            late = self._logs.get(request.log)
            if late is not None:
                late.refused, late.asked, late.arrived = True, (), ()

    def lost(self, request: Request) -> None:
        """An offer gave way to a proposal of the other side, and was never made."""
        late, first = self._logs.get(request.log), request.proposal.start
        if late is not None:
            late.arrived = union(late.arrived, ((first, request.proposal.end or first),))
        self.released(request)

    def released(self, request: Request) -> None:
        """An offer is over."""
        self._open.remove(request)
        late = self._logs.get(request.log)
        if late is not None:
            self._go_on(request.log, late)

    def advance(self) -> None:
        """Look at what has changed, and offer what has come."""
        for log in self._retries.due(self._actions.now):
            late = self._logs.get(log)
            if late is None or late.busy:
                continue
            if late.changed:
                self._look(log, late)
            elif late.arrived:
                self._name(log, late)

    def next_deadline(self) -> float | None:
        """When `advance` has something to do although nothing came, or None."""
        return self._retries.next_at()

    # Inside

    def _came(self, log: LogKey, late: _Late) -> None:
        late.changed = True
        if not late.busy:
            self._wait(log, late)

    def _go_on(self, log: LogKey, late: _Late) -> None:
        late.busy = False
        if late.changed or late.arrived:
            self._wait(log, late)

    def _wait(self, log: LogKey, late: _Late) -> None:
        if log not in self._retries:
            self._retries.add(log, max(self._actions.now, late.not_before))

    def _forget(self, log: LogKey) -> None:
        del self._logs[log]
        self._retries.drop(log)

    def _look(self, log: LogKey, late: _Late) -> None:
        since, late.since = late.since, None
        late.busy, late.changed = True, False

        def take(view: LogView) -> None:
            up_to = view.arrived.up_to
            late.since = up_to if late.since is None else min(late.since, up_to)
            late.changed = late.changed or not view.arrived.complete
            late.asked = minus(late.asked, view.arrived.runs)
            late.arrived = _bounded(union(late.arrived, view.arrived.runs))
            late.not_before = self._actions.now + self._config.look_again_s
            if late.arrived and log in self._logs:
                self._name(log, late)
            else:
                self._go_on(log, late)

        wanted = LookUp(0, log, max_bytes=-1, arrived_after=since or 0, arrived_among=late.asked)
        self._actions.look_up(wanted, take)

    def _name(self, log: LogKey, late: _Late) -> None:
        """Look up the hash that the first offer needs, and make it."""
        late.busy = True
        first, last = late.arrived[0]
        inside = 0 if first == last else None
        ask = Ask(AskKind.PAYLOADS, first, last, NOTIFY_ONLY, last, inside)

        def take(view: LogView) -> None:
            late.busy = False
            if late.arrived[:1] != ((first, last),) or log not in self._logs:
                # Some of it was sent meanwhile, or nothing more is wanted.
                self._go_on(log, late)
            elif not has_hashes(ask, view.hashes):
                late.arrived = late.arrived[1:]
                self._go_on(log, late)
            else:
                self._offer(log, late, ask, view)

        self._actions.look_up(LookUp(0, log, named_for(ask), max_bytes=-1), take)

    def _offer(self, log: LogKey, late: _Late, ask: Ask, view: LogView) -> None:
        actions = self._actions
        if not actions.may_tell(log):
            # It asks again for what is missing, should it be allowed to read the log once more.
            self._forget(log)
            return
        late.not_before = actions.now + self._config.look_again_s
        leave = CREDIT_LEFT_MIN if self._open else 0
        request = actions.ask(log, ask, view, self, leave=leave)
        if request is None:
            self._go_on(log, late)
            return
        late.arrived = late.arrived[1:]
        late.busy = True
        self._open.add(request)


def _with(ranges: Ranges, seq: int) -> Ranges:
    if ranges and ranges[-1][1] == seq - 1:
        return (*ranges[:-1], (ranges[-1][0], seq))
    return _bounded(union(ranges, ((seq, seq),)))


def _bounded(ranges: Ranges) -> Ranges:
    """To offer what was never asked for is no fault, and to look for it costs nothing more."""
    more = len(ranges) - RANGES_MAX
    return ranges if more <= 0 else ((ranges[0][0], ranges[more][1]), *ranges[more + 1 :])
