"""Payloads that come to be held here after the other side was told that they are not.

Packet 06 is final for its request, and no packet takes it back. The other side tries again, with
longer and longer pauses. So that it need not wait for the next one, what has come since is offered
to it: a finite range, notify only (point2point.md 10).
"""

from typing import TYPE_CHECKING

from wire import U64_MAX, Eagerness, LogKey, Propose, decode_entry

from .commands import LookUp
from .config import SessionConfig
from .events import HeldEntry, LogView
from .ranges import Ranges, minus, range_with, union
from .request import Request
from .retries import Retries

if TYPE_CHECKING:
    from .policy import Actions

RANGES_MAX = 16
"""Ranges that are remembered of a log; there may be thousands of logs."""

_ROWS_MAX = 64
"""Entries that one look-up tells of."""

_LOOKS_MAX = 16
"""Look-ups of a log in a row; what is behind has its turn later."""


class LateOffers:
    """Remembers what the other side could not get, and offers it once it is held."""

    def __init__(self, actions: "Actions", config: SessionConfig) -> None:
        self._actions = actions
        self._config = config
        self._skipped: dict[LogKey, Ranges] = {}
        """The logs of which something was skipped last are at the end."""
        self._looking: set[LogKey] = set()
        self._retries = Retries()
        self._own: set[Request] = set()

    def skipped(self, log: LogKey, seq: int) -> None:
        """The other side wants a payload and was told that it is not held here."""
        known = self._skipped.pop(log, ())
        if known and known[-1][1] == seq - 1:
            known = (*known[:-1], (known[-1][0], seq))
        else:
            known = union(known, ((seq, seq),))
        if len(known) > RANGES_MAX:
            # To offer what was never skipped is no fault; the newest are kept apart.
            known = ((known[0][0], known[1][1]), *known[2:])
        self._skipped[log] = known
        if len(self._skipped) > self._config.offered_logs_max:
            self._forget(next(iter(self._skipped)))

    def log_changed(self, log: LogKey) -> None:
        """Something of a log has come: see soon whether it was that."""
        if log in self._skipped and log not in self._retries:
            self._retries.add(log, self._actions.now + self._config.look_again_s)

    def owns(self, request: Request) -> bool:
        """Whether a request is one of these offers."""
        return request in self._own

    def released(self, request: Request) -> bool:
        """A request is over, or gave way to one of the other side. Whether it was such an offer."""
        if request not in self._own:
            return False
        self._own.discard(request)
        return True

    def advance(self) -> None:
        """Look at what has changed a moment ago."""
        for log in self._retries.due(self._actions.now):
            if log in self._looking:
                self.log_changed(log)
            elif log in self._skipped:
                self._look(log, self._skipped[log][0][0], _LOOKS_MAX)

    def next_deadline(self) -> float | None:
        """When `advance` has something to do although nothing came, or None."""
        return self._retries.next_at()

    def _forget(self, log: LogKey) -> None:
        del self._skipped[log]
        self._retries.drop(log)

    def _look(self, log: LogKey, first: int, left: int) -> None:
        self._looking.add(log)

        def take(view: LogView) -> None:
            self._looking.discard(log)
            if log in self._skipped:
                self._take(log, first, view, left - 1)

        wanted = LookUp(0, log, entry=first, behind=_ROWS_MAX - 1, max_bytes=-1)
        self._actions.look_up(wanted, take)

    def _take(self, log: LogKey, first: int, view: LogView, left: int) -> None:
        """Offer what has come of the entries that a view names, and go on behind them."""
        rows = () if view.entry is None else (view.entry, *view.behind)
        skipped = self._skipped[log]
        came = [row for row in rows if row.payload_held and range_with(skipped, row.seq)]
        runs = _runs(came)
        offered = [run for run in runs if self._offer(log, run)]
        # What is not held any more is not waited for.
        gone = () if rows else ((first, first),)
        skipped = minus(skipped, union(gone, ((run[0].seq, run[-1].seq) for run in offered)))
        behind = minus(skipped, ((1, rows[-1].seq if rows else first),))
        if not skipped:
            self._forget(log)
            return
        self._skipped[log] = skipped
        if behind and left > 0 and len(offered) == len(runs):
            self._look(log, behind[0][0], left)
        elif behind or len(offered) < len(runs):
            self.log_changed(log)

    def _offer(self, log: LogKey, run: list[HeldEntry]) -> bool:
        """Offer consecutive entries, if that can be done now."""
        first, last = decode_entry(run[0].encoded), run[-1].seq
        if not (self._actions.request_credit and self._actions.may_propose(log, first.seq, last)):
            return False
        proposal = Propose(
            request=self._actions.next_number(),
            log=log,
            start=first.seq,
            lower_info=first.seq,
            min_bytes=0,
            max_bytes=U64_MAX,
            starting_hash=first.lipmaalink or first.backlink,
            eagerness=Eagerness.NOTIFY,
            end=last,
            upper_info=last,
        )
        self._own.add(self._actions.propose(proposal, view=LogView(log, newest=last)))
        return True


def _runs(rows: list[HeldEntry]) -> list[list[HeldEntry]]:
    """Entries in order, those without a gap between them together."""
    runs: list[list[HeldEntry]] = []
    for row in rows:
        if runs and runs[-1][-1].seq == row.seq - 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs
