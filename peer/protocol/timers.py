"""What becomes due although nothing comes: the engine's clocks, and no more than asking them.

An answer that does not come keeps more than itself: its log waits, whoever owes it may propose
nothing that overlaps it (section 7), and data for it holds up the whole data channel. So both end
the connection when they last. A finite request in which both only notify is over when nobody has
anything to say: nothing shows that but time, and its proposer ends it (section 6).
"""

from collections.abc import Callable
from heapq import heappop, heappush

from wire import Eagerness

from .config import SessionConfig
from .errors import SessionTimeout
from .refunds import RefundBucket, Refunds
from .request import Request
from .table import RequestTable


class Timers:
    """Unanswered proposals, data that is held, quiet finite requests, and credit that is paced."""

    def __init__(
        self,
        table: RequestTable,
        config: SessionConfig,
        bucket: RefundBucket,
        complete: Callable[[Request], None],
    ) -> None:
        """`complete` is called for a finite request of ours in which nobody sends."""
        self._table = table
        self._config = config
        self._complete = complete
        self._unanswered: dict[int, Request] = {}
        self._quiet: list[tuple[float, int]] = []
        self._finite: dict[int, Request] = {}
        self._held_since: float | None = None
        self._refunds = Refunds(bucket, table.now)

    # What the engine says

    def proposed(self, request: Request) -> None:
        """A proposal of ours waits for its answer."""
        self._unanswered[request.ident] = request

    def answered(self, request: Request) -> None:
        self._unanswered.pop(request.ident, None)

    def became_finite(self, request: Request) -> None:
        """A request of ours has an end."""
        if request.ours and request.ident not in self._finite:
            self._finite[request.ident] = request
            due = self._table.now + self._config.complete_timeout_s
            heappush(self._quiet, (due, request.ident))

    def over(self, request: Request) -> None:
        """A request was cancelled, or is forgotten."""
        self._finite.pop(request.ident, None)

    def data_held(self, held: bool) -> None:
        """Whether data for an unanswered proposal of ours blocks the data channel."""
        if not held:
            self._held_since = None
        elif self._held_since is None:
            self._held_since = self._table.now

    # What time brings

    def advance(self) -> None:
        """Raises SessionTimeout if the other side owes us something for too long."""
        now, config = self._table.now, self._config
        oldest = next(iter(self._unanswered.values()), None)
        if oldest is not None and now >= oldest.created_at + config.unanswered_timeout_s:
            raise SessionTimeout(
                f"request {oldest.number} has no answer after {config.unanswered_timeout_s:.0f} s"
            )
        if self._held_since is not None and now >= self._held_since + config.held_data_timeout_s:
            raise SessionTimeout(
                "data for a request without an answer waits for more than"
                f" {config.held_data_timeout_s:.0f} s"
            )
        while self._quiet and self._quiet[0][0] <= now:
            self._look_at(heappop(self._quiet)[1])
        self._table.return_credit(self._refunds.due(self._table.credit_owed, now))

    def ended(self) -> None:
        """The session is over."""
        self._refunds.over()

    def _look_at(self, ident: int) -> None:
        request = self._finite.get(ident)
        if request is None or not request.active:
            return
        due = request.progress_at + self._config.complete_timeout_s
        if due <= self._table.now:
            if _both_only_notify(request):
                self._complete(request)
                return
            # Whoever sends ends it when it is through, however long it has nothing to send.
            due = self._table.now + self._config.complete_timeout_s
        heappush(self._quiet, (due, ident))

    def next_deadline(self) -> float | None:
        """When `advance` has something to do, or None."""
        config = self._config
        times = []
        oldest = next(iter(self._unanswered.values()), None)
        if oldest is not None:
            times.append(oldest.created_at + config.unanswered_timeout_s)
        if self._held_since is not None:
            times.append(self._held_since + config.held_data_timeout_s)
        refund_at = self._refunds.next_at(self._table.credit_owed)
        if refund_at is not None:
            times.append(refund_at)
        if self._quiet:
            times.append(self._quiet[0][0])
        return min(times, default=None)


def _both_only_notify(request: Request) -> bool:
    return (
        request.our_interest.eagerness is Eagerness.NOTIFY
        and request.their_interest.eagerness is Eagerness.NOTIFY
    )
