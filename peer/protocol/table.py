"""The requests of a session and the rules of the control channel (point2point.md 2, 5, 6, 7).

Everything that a message on the control channel may do is decided here; what a node *wants* is the
planner's business, and data is moved by the inbound and the outbound half. The table tells its
`Listener` what happened, in the order in which it happened.

Two sides that speak at the same time have to come to the same end without asking each other. Two
proposals may cross, and one of them never was (section 7); so may two cancels; and data and control
are two channels, so that an end may come before the cancel that it belongs to. The rules for that
were found by a search through all orders of events for two sides that disagree, and each clause is
needed: tests/peer/test_crossings.py goes through these orders.
"""

from collections import deque
from typing import Protocol

from msgspec import Struct

from wire import (
    U64_MAX,
    Adjust,
    Cancel,
    CancelReason,
    ControlMessage,
    Grant,
    LogKey,
    Propose,
    encode_control,
    in_lower_pool,
    in_upper_pool,
)

from .config import SessionConfig
from .earned import Earned
from .errors import LocalMisuse, Violation
from .idle import Bucket
from .interest import Interest
from .request import Request
from .tracing import Tracer


class Listener(Protocol):
    """Who is told what the control channel brought."""

    def request_proposed(self, request: Request) -> None:
        """The other side proposed it; it wants an answer."""

    def request_confirmed(self, request: Request) -> None:
        """The other side confirmed a proposal of ours."""

    def request_adjusted(self, request: Request) -> None:
        """The other side changed its interest or cut the range."""

    def request_cancelled(self, request: Request, cancel: Cancel) -> None:
        """The other side cancelled; our answer is under way already."""

    def request_lost(self, request: Request) -> None:
        """A proposal of ours gave way to one of the other side (section 7): it never existed."""

    def request_released(self, request: Request) -> None:
        """All four messages have passed."""

    def end_due(self, request: Request) -> None:
        """Our packet 32 may be sent now."""

    def granted(self, units: int, *, proposals: int) -> None:
        """The other side gives credit; so many proposals were made here so far."""

    def idle_work(self) -> None:
        """The other side sent something that costs us work and moves nothing."""


def opening(config: SessionConfig, tracer: Tracer | None) -> bytes:
    """What a side says on control whatever the other one's setup says: the credit that it starts
    with. So who is called may propose, or offer, with the first that it says."""
    grant = Grant(config.request_credit)
    if tracer is not None:
        tracer.control_sent(grant, None)
    return encode_control(grant)


class _Giving(Struct):
    """Credit of the other side that it has not been told of."""

    due: int = 0
    """What it is told of with the next bytes: one message for a turn, where each answer had one of
    its own."""
    kept: int | None = None
    """What it gets once it reads on, if it leaves so much of what we say unread that it may not ask
    for more."""


class RequestTable:
    """All requests of a session, its request credit, and the control bytes to send."""

    def __init__(
        self,
        *,
        proactive: bool,
        config: SessionConfig,
        listener: Listener,
        tracer: Tracer | None = None,
    ) -> None:
        self._config = config
        self._tracer = tracer
        self._listener = listener
        self._next_number = 0 if proactive else 1
        self._next_ident = 0
        self._proactive = proactive
        self._by_number: dict[int, Request] = {}
        self._by_log: dict[LogKey, list[Request]] = {}
        self._held: dict[int, Request] = {}
        self._ignored: dict[int, int] = {}
        self._earned = Earned(config)
        self._unpaced = Bucket(config.refused_credit_per_s)
        self._out: deque[bytes] = deque()
        self.now = 0.0
        self.their_active = 0
        self.credit = 0
        """Proposals that we may still send."""
        self.their_credit = 0
        """Proposals that the other side may still send."""
        self.credit_owed = 0
        """Credit for refused proposals that goes back slowly."""
        self._giving = _Giving()
        self._withheld: dict[Request, None] = {}
        """Active requests whose credit is not given back: the other side has enough of them."""

    # What is there

    def get(self, number: int) -> Request | None:
        return self._by_number.get(number)

    def of_log(self, log: LogKey) -> list[Request]:
        """All requests about a log, those that wait for their number included."""
        return self._by_log.get(log, [])

    def all(self) -> list[Request]:
        return list(self._by_number.values())

    def __len__(self) -> int:
        return len(self._by_number) + len(self._held)

    def take_bytes(self) -> bytes:
        """The control bytes to send, in order; they are not kept."""
        if self._giving.due:
            self._send(Grant(self._giving.due))
            self._giving.due = 0
        data = b"".join(self._out)
        self._out.clear()
        return data

    # What we do

    def open_credit(self, *, is_said: bool = False) -> None:
        """Grant the credit that the other side starts with. `is_said`: it was told before."""
        if is_said:
            self.their_credit = self._config.request_credit
        else:
            self._grant(self._config.request_credit)

    def may_propose(self, log: LogKey, start: int, end: int | None) -> bool:
        """Whether section 7 lets us propose this range now (credit is another matter)."""
        return not any(
            not request.ours and not request.answered and request.overlaps(start, end)
            for request in self.of_log(log)
        )

    def next_number(self) -> int:
        """The number of our next proposal; numbers are never used twice (section 6)."""
        return self._next_number

    def propose(self, proposal: Propose) -> Request:
        """Send a proposal. Raises LocalMisuse without credit or against section 7."""
        if self.credit == 0:
            raise LocalMisuse("a proposal without credit")
        if proposal.request != self._next_number:
            raise LocalMisuse(f"request {proposal.request} is not the next number")
        if not self.may_propose(proposal.log, proposal.start, proposal.end):
            raise LocalMisuse(f"an unanswered proposal overlaps request {proposal.request}")
        self.credit -= 1
        self._next_number += 2
        request = self._new_request(proposal, ours=True)
        self._by_number[proposal.request] = request
        self._by_log.setdefault(proposal.log, []).append(request)
        self._send(proposal)
        return request

    def confirm(self, request: Request, adjust: Adjust) -> None:
        """Answer a proposal of the other side with our first adjust."""
        if request.ours or request.answered or request.cancel_received is not None:
            raise LocalMisuse(f"request {request.number} wants no confirmation")
        request.confirm(adjust.end, adjust.upper_info)
        request.our_interest.apply(adjust)
        request.progress_at = self.now
        self.their_active += 1
        self._send(adjust)
        self._came_to_something()
        self._withheld[request] = None
        self._return_withheld()

    def adjust(self, request: Request, adjust: Adjust) -> None:
        """Change our interest in a confirmed request, or cut its range."""
        if not request.active:
            raise LocalMisuse(f"request {request.number} is not active")
        request.our_interest.apply(adjust)
        request.cut(adjust.end, adjust.upper_info, by_us=True)
        self._send(adjust)

    def cancel(self, request: Request, cancel: Cancel, *, paced: bool = True) -> None:
        """Cancel a request; our packet 32 follows as soon as it may.

        `paced`: a refused proposal's credit goes back slowly. Not so when we refuse because we
        propose what we need ourselves, if that does not happen all the time.
        """
        if request.cancel_sent is not None:
            return
        request.cancel_sent = cancel.reason
        self._send(cancel)
        if not request.ours and not request.confirmed:
            # Two sides that hold other parts of many logs refuse each other to agree on who
            # proposes: paced, a new replica of many logs would start a few of them each second.
            often = not paced and self._unpaced.add(self.now) > self._config.unpaced_refusals_max
            request.credit_paced = paced or often
            if not request.credit_paced:
                self._came_to_something()
        self._end_if_due(request)

    def forgive(self) -> None:
        """Something useful came."""
        self._unpaced.level = 0.0

    def _end_if_due(self, request: Request) -> None:
        if request.may_send_end:
            request.end_due = True
            self._listener.end_due(request)

    def end_sent(self, request: Request) -> None:
        """Our packet 32 has been written."""
        request.end_sent = True
        self._release_if_done(request)

    def return_credit(self, units: int) -> None:
        """Give back credit of refused proposals, at most what is owed."""
        units = min(units, self.credit_owed)
        if units > 0:
            self.credit_owed -= units
            self._grant(units)

    # What the other side does

    def receive(self, message: ControlMessage) -> None:
        """Judge and apply one control message. Raises Violation."""
        if self._tracer is not None:
            self._tracer.control_received(message, self._log_of(message))
        match message:
            case Grant():
                self._receive_grant(message)
            case Propose():
                self._receive_propose(message)
            case Adjust():
                self._receive_adjust(message)
            case Cancel():
                self._receive_cancel(message)

    def receive_end(self, number: int) -> Request:
        """Judge and apply a packet 32. Raises Violation."""
        request = self._by_number.get(number)
        if request is None or request.end_received:
            raise Violation("point2point.md 9", "end of a request that is not active", number)
        # It might turn out never to have existed, and then there is nothing that ends (section 6).
        if not request.ours and not request.answered:
            raise Violation(
                "point2point.md 6", "end of an own proposal that has no answer yet", number
            )
        request.end_received = True
        self._release_if_done(request)
        return request

    def _receive_grant(self, grant: Grant) -> None:
        if self.credit + grant.units > U64_MAX:
            raise Violation(
                "point2point.md 2", f"credit of {self.credit} + {grant.units} is above 2^64 - 1"
            )
        self.credit += grant.units
        self._listener.granted(grant.units, proposals=self._next_number // 2)

    def _receive_propose(self, proposal: Propose) -> None:
        number = proposal.request
        if self.their_credit == 0:
            raise Violation("point2point.md 2", "a proposal without credit", number)
        if (number % 2 == 0) is self._proactive:
            raise Violation("point2point.md 2", "a number of the wrong parity", number)
        # Its two channels are independent: what it proposes may overtake its own packet 32.
        old = self._by_number.get(number)
        waits_for_end = (
            old is not None
            and old.cancel_sent is not None
            and old.cancel_received is not None
            and old.end_sent
        )
        if number in self._held or (old is not None and not waits_for_end):
            raise Violation("point2point.md 2", "a number in use", number)
        _judge_proposal(proposal)
        self.their_credit -= 1
        # From here on what comes for that number is about this proposal.
        self._ignored.pop(number, None)
        request = self._new_request(proposal, ours=False)
        if not self._survives(request):
            self.their_credit += 1
            return
        self._by_log.setdefault(proposal.log, []).append(request)
        if old is None:
            self._by_number[number] = request
            self._listener.request_proposed(request)
        else:
            self._held[number] = request

    def _survives(self, received: Request) -> bool:
        """Section 7: compare a received proposal with our unanswered ones, oldest first."""
        proposal = received.proposal
        for own in [r for r in self.of_log(proposal.log) if r.ours and not r.answered]:
            if not own.overlaps(proposal.start, proposal.end):
                continue
            ours_wins = own.proposal.start < proposal.start or (
                own.proposal.start == proposal.start and self._proactive
            )
            if ours_wins:
                # What it says of it until it has seen ours was under way: to be told from a fault.
                self._ignored[received.number] = own.number
                if len(self._ignored) > self._config.dropped_max:
                    raise Violation("too much idle work", "too many dropped proposals")
                return False
            self._forget(own)
            self.credit += 1
            self._listener.request_lost(own)
        return True

    def _find(self, number: int, what: str) -> Request | None:
        """The request that an adjust or cancel is about; None if it is to be ignored."""
        # The later one of two with a number: of the former nothing but its packet 32 is to come.
        held = self._held.get(number)
        if held is None and number in self._ignored:
            return None
        request = self._by_number.get(number) if held is None else held
        if request is None or request.cancel_received is not None:
            raise Violation("point2point.md 9", f"{what} a request that is not active", number)
        return request

    def _answered(self, request: Request) -> None:
        """An own proposal has its answer: numbers dropped before it mean nothing any more."""
        for number, winner in list(self._ignored.items()):
            if request.number >= winner:
                del self._ignored[number]

    def _receive_adjust(self, adjust: Adjust) -> None:
        request = self._find(adjust.request, "adjusting")
        if request is None:
            return
        confirms = request.ours and not request.confirmed
        if confirms and adjust.eagerness is None:
            raise Violation("point2point.md 2", "a confirmation without eagerness", request.number)
        # All is judged before anything is changed: what raises leaves the request as it was.
        request.their_interest.judge_adjust(adjust)
        request.judge_range(adjust, confirming=confirms)
        if confirms:
            request.confirm(adjust.end, adjust.upper_info)
            request.their_interest.apply(adjust)
            request.progress_at = self.now
            self._answered(request)
            self._listener.request_confirmed(request)
            self._end_if_due(request)
            return
        changed = request.their_interest.apply(adjust)
        changed = request.cut(adjust.end, adjust.upper_info, by_us=False) or changed
        if not changed:
            self._listener.idle_work()
        elif request.confirmed:
            self._listener.request_adjusted(request)

    def _receive_cancel(self, cancel: Cancel) -> None:
        request = self._find(cancel.request, "cancelling")
        if request is None:
            return
        unanswered = request.ours and not request.answered
        request.cancel_received = cancel.reason
        if unanswered:
            self._answered(request)
        elif not request.ours and request.cancel_sent is None and self._moved_nothing(request):
            # An answer to a cancel of ours is owed to us.
            self._listener.idle_work()
        if request.number in self._held and self._held[request.number] is request:
            # Our answer to one that is held waits until its number is free (section 6).
            return
        self._answer_cancel(request)
        self._listener.request_cancelled(request, cancel)
        self._release_if_done(request)

    def _moved_nothing(self, request: Request) -> bool:
        """Whether a request of theirs that they cancel was of no use to anybody."""
        if not request.confirmed:
            return True
        moved = request.incoming.position + request.outgoing.position
        return not moved and self.now - request.created_at < self._config.hasty_cancel_s

    def _answer_cancel(self, request: Request) -> None:
        if request.cancel_sent is None:
            self.cancel(request, Cancel(request.number, CancelReason.YOU_CANCELLED))
        else:
            self._end_if_due(request)

    # Housekeeping

    def _release_if_done(self, request: Request) -> None:
        if not request.released:
            return
        self._forget(request)
        if not request.ours:
            if request.confirmed:
                self.their_active -= 1
            self._withheld.pop(request, None)
            if not request.credit_returned:
                # Only now, when all that it cost us is over: who proposes and cancels in one breath
                # gets no more than the credit that it has (Rapid Reset).
                request.credit_returned = True
                if request.confirmed or not request.credit_paced:
                    self._grant(1)
                else:
                    self.credit_owed += 1
            self._return_withheld()
        self._listener.request_released(request)
        held = self._held.pop(request.number, None)
        if held is not None:
            self._by_number[held.number] = held
            if held.cancel_received is None:
                self._listener.request_proposed(held)
            else:
                self._answer_cancel(held)

    def _return_withheld(self) -> None:
        """Give back credit of confirmed requests as far as the other side may have more of them."""
        # What is open costs memory for as long as the other side likes; what is over is worth
        # credit.
        room = self._config.requests_max - (self.their_active - len(self._withheld))
        while self._withheld and room > 0:
            request = next(iter(self._withheld))
            del self._withheld[request]
            request.credit_returned = True
            self._grant(1)
            room -= 1

    def _came_to_something(self) -> None:
        """A proposal of theirs is confirmed, or we ask for what it offers ourselves."""
        more = 0 if self._withheld else self._earned.add(self.their_credit)
        if more:
            self._grant(more)

    def _forget(self, request: Request) -> None:
        del self._by_number[request.number]
        requests = self._by_log[request.log]
        requests.remove(request)
        if not requests:
            del self._by_log[request.log]

    def _new_request(self, proposal: Propose, *, ours: bool) -> Request:
        proposer = Interest(
            min_bytes=proposal.min_bytes,
            max_bytes=proposal.max_bytes,
            mandatory=proposal.mandatory,
        )
        proposer.set_eagerness(proposal.eagerness, proposal.eager_bytes)
        other = Interest()
        self._next_ident += 1
        return Request(
            ident=self._next_ident,
            ours=ours,
            proposal=proposal,
            our_interest=proposer if ours else other,
            their_interest=other if ours else proposer,
            created_at=self.now,
        )

    def unread(self, unread_bytes: int) -> bool:
        """So much of what was said is not sent yet; True if from now on that is too much.

        Answers can be a hundred times as large as what asks for them, and whoever never reads them
        could have us pile them up without end: each cancel makes room for another proposal. Our
        only lever that is legal and takes nothing from others is the credit. To stop reading is
        none: two honest sides that do so wait for each other for good.
        """
        kept = self._giving.kept
        if unread_bytes > self._config.answer_bytes_max:
            self._giving.kept = kept or 0
            return kept is None
        self._giving.kept = None
        if kept:
            self._grant(kept)
        return False

    def _grant(self, units: int) -> None:
        if self._giving.kept is not None:
            self._giving.kept += units
            return
        self.their_credit += units
        self._giving.due += units

    def _log_of(self, message: ControlMessage) -> LogKey | None:
        if isinstance(message, Grant | Propose):
            return None
        request = self._held.get(message.request) or self._by_number.get(message.request)
        return None if request is None else request.log

    def _send(self, message: ControlMessage) -> None:
        if self._tracer is not None:
            self._tracer.control_sent(message, self._log_of(message))
        self._out.append(encode_control(message))


def _judge_proposal(proposal: Propose) -> None:
    """The limits of section 5 on a proposal's own numbers. Raises Violation."""
    number, start, end = proposal.request, proposal.start, proposal.end

    def refuse(detail: str) -> Violation:
        return Violation("point2point.md 5", detail, number)

    if start == 0 or end == 0 or proposal.lower_info == 0 or proposal.upper_info == 0:
        raise refuse("seqnum 0")
    if proposal.lower_info is not None:
        if proposal.lower_info > start:
            raise refuse(f"lower info {proposal.lower_info} above start {start}")
        if not in_lower_pool(proposal.lower_info, start):
            raise refuse(f"lower info {proposal.lower_info} is not in the lower pool of {start}")
    if end is not None and proposal.upper_info is not None:
        if end < start:
            raise refuse(f"end {end} below start {start}")
        if proposal.upper_info < end:
            raise refuse(f"upper info {proposal.upper_info} below end {end}")
        if not in_upper_pool(proposal.upper_info, end):
            raise refuse(f"upper info {proposal.upper_info} is not in the upper pool of {end}")
