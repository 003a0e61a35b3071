"""When a one-time sync is over (point2point.md 10).

Nobody says so: the other side may be about to ask for more, and cannot know that we are through.
The whole sentence is this. A sync is over when

1. it is known what is wanted (`started`);
2. nothing is left to plan or to ask: no log waits for its turn, is looked up, or has a request of
   ours (`Turns.any_open`);
3. no log has a moment at which it is to be looked at (rests.py): nothing is to be tried again;
4. nothing came in a request that is over and is not stored yet (progress.py);
5. nothing is left to serve: no proposal of the other side waits for our look-up, or is confirmed
   and not over (`answers_due`, `serving`);
6. all that came is stored, all that we had to say has left, and no question about an own log is
   open (withholding.py);
7. the other side has answered a ping that left behind all of that, and nothing has happened since;
8. and for a while after that (`at`): a moment, longer for a side that is slow, and longer still for
   one that could not keep what it got, or that is about to prove a fork.

1 to 5 are `Planner._is_quiet`, 6 is `Engine.wants_pong`, the rest is here. Whatever happens begins
7 anew (`happened`), but for what is about logs that are neither wanted nor held: a peer goes on
offering all that it has. Those count too where logs are wanted that nobody here can name yet
(`Shared.happened`).

Each side ends for itself. Nothing here makes a sync ask for anything: the planner is the same as
that of a node which stays. When wants change meanwhile, requests end for that, but none is adjusted
(fitting.py).
"""

from msgspec import Struct, field

from peer.protocol.config import SessionConfig
from peer.protocol.request import Request
from wire import CancelReason, LogKey, Propose

from .ranges import Ranges, range_with, union

_FAILURES_MAX = 3
"""How often the other side is given time to try again what it could not keep: 1, 2 and 4 s. A disk
that is full stays full, and somebody waits for the end."""
_LOOKS = 6
"""So many times its slowest answer a side is given to say something, once all else is done. Each
look of its own takes as long as an answer, and it may need several: a fixed time ended syncs with
busy machines before they had spoken."""
_PATIENCE = 10
"""That is at most so many times `sync_settle_s`: else who answers slowly would decide when we
end."""


class Done(Struct):
    """What a one-time sync waits for beside what is planned. Times in seconds."""

    config: SessionConfig
    started: bool = False
    """Whether it is known what is wanted."""
    finished: bool = False
    early: dict[Request, None] = field(default_factory=dict)
    """Proposals of the other side that came before that."""
    answers_due: set[Request] = field(default_factory=set)
    """Proposals of the other side whose logs are being looked up."""
    serving: set[Request] = field(default_factory=set)
    """Those that were confirmed."""
    logs: int = 0
    """How many logs were looked at."""
    _ping_sent: bool = False
    """Whether a ping was sent after all that happened."""
    _pong_at: float | None = None
    """When the other side answered that ping; None: it has not."""
    _failures: int = 0
    _not_before: float = 0.0
    """Until then the other side may ask again for what it could not keep."""
    _sent: dict[tuple[LogKey, bool], Ranges] = field(default_factory=dict)
    """The entries that were sent, of each log; and those of which only the payload was."""
    _proofs_due: dict[LogKey, float] = field(default_factory=dict)
    """Logs that were shown to the other side to be forked, and until when it may tell us. It does
    so with the reason of a cancel."""
    _asked_at: dict[Request, float] = field(default_factory=dict)
    """When each proposal was made that is not answered."""
    _slowest_answer_s: float = 0.0

    def happened(self) -> None:
        """Something that may lead to more."""
        self._ping_sent = False
        self._pong_at = None

    def asked(self, request: Request, now: float) -> None:
        """A proposal of ours."""
        self._asked_at[request] = now

    def answered(self, request: Request, now: float) -> None:
        """The other side has answered a proposal, or it never existed."""
        asked_at = self._asked_at.pop(request, None)
        if asked_at is not None:
            self._slowest_answer_s = max(self._slowest_answer_s, now - asked_at)

    def cancelled(self, request: Request, reason: CancelReason, now: float) -> None:
        """The other side has cancelled a request."""
        self.answered(request, now)
        if reason is CancelReason.NO_RESOURCES and request.confirmed:
            self.expect_another_try(now)
        if reason is CancelReason.FORKED:
            self._proofs_due.pop(request.log, None)

    def released(self, request: Request) -> None:
        """A request is over."""
        self._note_sent(request)
        self.serving.discard(request)
        self.early.pop(request, None)
        self.answers_due.discard(request)
        self._asked_at.pop(request, None)

    def _note_sent(self, request: Request) -> None:
        base, outgoing = request.base, request.outgoing
        only_payloads = request.proposal.payloads_only
        # Not how far our cursor is: what was only passed was never sent.
        at = outgoing.position - 1 if only_payloads else outgoing.metadata_at
        if base is None or base.path is not None or at < len(base.lower):
            return
        what, sent = (request.log, only_payloads), ((base.start, base.piece(at).seq),)
        self._sent[what] = union(self._sent.get(what, ()), sent)

    def has_failed(self, proposal: Propose, *, is_forked: bool) -> bool:
        """Whether the other side asks for what it could not keep: it was sent that before.

        A store that works is faster than a request. Who asks for what it was only told of may have
        other reasons, and keeps it for all we know; and of a forked log things are asked for again
        to find where the histories part.
        """
        if is_forked:
            return False
        sent = self._sent.get((proposal.log, proposal.payloads_only), ())
        return range_with(sent, proposal.start) is not None

    def proof_sent(self, log: LogKey, now: float) -> None:
        """The other side can prove a fork by what we sent. It looks at that, and may tell us."""
        self._proofs_due[log] = now + self.config.retry_first_s + self.config.sync_settle_s

    def expect_another_try(self, now: float) -> None:
        """The other side could not keep what we sent. It backs off as we do, and asks again.

        When it does is up to its clock, and that it has kept something it says nowhere.
        """
        if self._failures < _FAILURES_MAX:
            delay = self.config.retry_first_s * 2.0**self._failures
            self._failures += 1
            self._not_before = now + delay + self.config.sync_settle_s

    def ping_sent(self) -> None:
        """The other side was asked for an answer."""
        self._ping_sent = True

    def pong_arrived(self, now: float) -> None:
        """It answered; that counts unless something happened after the ping."""
        if self._ping_sent and self._pong_at is None:
            self._pong_at = now

    @property
    def waits_for_pong(self) -> bool:
        """Whether an answer of the other side is still to come."""
        return self._pong_at is None

    @property
    def at(self) -> float | None:
        """When it is over if nothing happens until then; None before the other side's answer.

        What the other side was sent last has reached it once it answers a later ping; how long it
        then takes to say something is not a matter of how far away it is. It may have to look at
        some logs before it has something to say, each of which takes as long as an answer.
        """
        if self._pong_at is None:
            return None
        settle_s = self.config.sync_settle_s
        patience_s = min(_LOOKS * self._slowest_answer_s, _PATIENCE * settle_s)
        due_s = max(self._proofs_due.values(), default=0.0)
        return max(self._pong_at + max(settle_s, patience_s), self._not_before, due_s)
