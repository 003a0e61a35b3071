"""What a node wants from a session: the parts that every policy shares (point2point.md 10).

A policy decides what to propose and how to answer; the rules of the protocol are the table's. It
talks to the engine through `Actions` and is told through the methods of `Policy`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from logstore import Subscription
from peer.protocol.commands import LookUp
from peer.protocol.config import SessionConfig
from peer.protocol.events import Interests, InterestsChanged, LogChanged, LogView, SourceChanged
from peer.protocol.request import Request
from wire import Adjust, Cancel, CancelReason, LogKey, Propose

from .answering import Answer, answer, link_target
from .coverage import brought, coming
from .planning import Wants
from .ranges import Ranges, union
from .settling import Settling


class Actions(Protocol):
    """What a policy can do in its session."""

    @property
    def now(self) -> float:
        """Seconds, on the host's clock."""

    @property
    def request_credit(self) -> int:
        """Proposals that may still be sent."""

    def look_up(self, wanted: LookUp, then: Callable[[LogView], None]) -> None:
        """Ask the store, under a ticket of its own; `then` is called with the answer."""

    def requests_of(self, log: LogKey) -> list[Request]:
        """All requests about a log."""

    def may_propose(self, log: LogKey, start: int, end: int | None) -> bool:
        """Whether section 7 allows this proposal now."""

    def next_number(self) -> int:
        """The number that the next proposal has to carry."""

    def propose(self, proposal: Propose, view: LogView) -> Request:
        """Send a proposal that was made from this view."""

    def answer(self, request: Request, view: LogView, decision: Answer) -> None:
        """Confirm or cancel a proposal as was decided from this view."""

    def adjust(self, request: Request, adjust: Adjust) -> None:
        """Change what we want of an active request."""

    def cancel(self, request: Request, cancel: Cancel, *, paced: bool = True) -> None:
        """Cancel a request."""

    def claim(self, log: LogKey) -> bool:
        """Whether this session may fetch a log; if so, no other one of this node will."""

    def stop_fetching(self, request: Request) -> None:
        """Ask for notifications only in this request, or end it where that is no use."""

    def note_holds(self, log: LogKey, newest: int, held: int) -> None:
        """Tell the node that the other side holds up to `newest`, of which we have `held`."""

    def check_evidence(self, log: LogKey, entries: tuple[bytes, ...], *, wanted: bool) -> None:
        """Have entries that may prove a fork checked and recorded, if the log is wanted or held."""

    def finished_sync(self, logs: int) -> None:
        """A one-time sync is done."""


@lru_cache(maxsize=256)
def _wants_of(subscription: Subscription | None) -> Wants:
    """One for the thousands of logs that are wanted alike."""
    return Wants(subscription)


class Policy(ABC):
    """Decides what a session proposes and takes in."""

    def __init__(self, actions: Actions, config: SessionConfig, *, proactive: bool) -> None:
        self._actions = actions
        self._config = config
        self._proactive = proactive
        self._interests = Interests()
        self._settling = Settling()
        self._offered_to_us: set[LogKey] = set()
        self._declined: dict[LogKey, int] = {}
        """Logs that the other side proposed and that were not wanted, the latest ones last, and
        from which entry on it asked in vain for all that follows, 0: it did not."""

    def interests_changed(self, event: InterestsChanged) -> None:
        self._interests = event.interests

    def wants(self, log: LogKey) -> bool:
        """Whether new entries of a log are taken in."""
        return self._interests.wants(log)

    def takes_in(self, log: LogKey) -> bool:
        """Whether there is room for a log that this peer offers, among those it brought."""
        interests = self._interests
        if log in interests.logs or log in interests.own or log in self._offered_to_us:
            return True
        if len(self._offered_to_us) >= self._config.offered_logs_max:
            return False
        self._offered_to_us.add(log)
        return True

    def is_settling(self, log: LogKey) -> bool:
        """Whether something came in a request that is over, and is not stored."""
        return log in self._settling

    def wants_of(self, log: LogKey) -> Wants:
        """What of a log is wanted."""
        interests = self._interests
        subscription = interests.subscription(log) if interests.follows(log) else None
        fetches = interests.fetches.get(log)
        return Wants(subscription, union(fetches)) if fetches else _wants_of(subscription)

    def newest_of(self, log: LogKey) -> int:  # noqa: ARG002 - for policies that remember it
        """The newest entry that the other side has told of."""
        return 0

    def wanted_by_now(self) -> list[LogKey]:
        """Logs that were proposed when nobody wanted them, and are wanted.

        The other side keeps to our refusal and does not propose them again (section 6).
        """
        return [log for log in self._declined if self.wants(log)]

    def _decline(self, log: LogKey) -> None:
        self._declined.pop(log, None)
        self._declined[log] = 0
        if len(self._declined) > self._config.offered_logs_max:
            del self._declined[next(iter(self._declined))]

    def request_proposed(self, request: Request) -> None:
        """The other side proposed something: look at the log, then answer.

        What is neither wanted nor held is refused from memory. Nothing else bounds what a peer can
        make us read: it may name as many logs as there are numbers.
        """
        if not self.wants(request.log):
            self._decline(request.log)
        if not self._interests.concerns(request.log):
            self._answer(request, LogView(request.log), [])
            return
        target = link_target(request.proposal)
        smallest, largest = self.wants_of(request.log).payload_limits
        inside = request.proposal.offset is not None
        wanted = LookUp(
            0,
            request.log,
            () if target is None else (target,),
            target,
            missing_above=request.proposal.start - 1 if inside else 0,
            min_bytes=smallest,
            max_bytes=largest,
            runs_from=request.proposal.start,
        )
        under_way = self._under_way(request.log)
        self._actions.look_up(wanted, lambda view: self._answer(request, view, under_way))

    def _under_way(self, log: LogKey) -> list[Request]:
        """The requests in which something may come that is not stored."""
        return [*self._actions.requests_of(log), *self._settling.of(log)]

    def _coming(self, log: LogKey, before: list[Request]) -> Ranges:
        """What is coming now, and what has come in requests that a view may know nothing of."""
        requests = {*before, *self._settling.of(log)}
        return union(coming(self._actions.requests_of(log)), *map(brought, requests))

    def _answer(self, request: Request, view: LogView, before: list[Request]) -> None:
        """`before`: the requests that were under way when the log was looked up."""
        if request.answered or request.cancel_received is not None:
            return
        log = request.log
        if self.wants(log) and not (self.takes_in(log) or view.newest):
            self._actions.cancel(request, Cancel(request.number, CancelReason.NO_RESOURCES))
            self.not_taken_in(request)
            return
        decision = answer(
            request.proposal,
            view,
            self.wants_of(log),
            serve=self._interests.serve_held,
            newest=self.newest_of(log),
            coming=self._coming(log, before),
            bounded=self.answers_bounded,
        )
        self._actions.answer(request, view, decision)
        self.answered(request, view, decision)

    def not_taken_in(self, request: Request) -> None:  # noqa: B027 - most have nothing to do
        """A log was offered for which there is no room."""

    answers_bounded = False
    """Whether open ranges are confirmed only up to what is held now."""

    @abstractmethod
    def answered(self, request: Request, view: LogView, answer: Answer) -> None:
        """We answered a proposal of the other side."""

    @abstractmethod
    def request_confirmed(self, request: Request) -> None:
        """The other side confirmed a proposal of ours."""

    @abstractmethod
    def request_cancelled(self, request: Request, cancel: Cancel) -> None:
        """The other side cancelled a request."""

    @abstractmethod
    def request_released(self, request: Request) -> None:
        """A request is over."""

    @abstractmethod
    def request_lost(self, request: Request) -> None:
        """A proposal of ours gave way to one of the other side."""

    @abstractmethod
    def given_up(self, request: Request) -> None:
        """We cancelled a request because we could not take in what came."""

    @abstractmethod
    def contradicted(self, request: Request, seq: int) -> None:
        """An entry `seq` with a valid signature does not fit what is held of its log."""

    @abstractmethod
    def source_changed(self, event: SourceChanged) -> bool:
        """This session is to fetch a log now, or to leave it to another one; False: it will not."""

    @abstractmethod
    def peer_holds(self, request: Request, seq: int) -> None:
        """The other side notified of an entry that it holds and has not sent."""

    @abstractmethod
    def payload_skipped(self, request: Request) -> None:
        """The other side passed a payload that it does not have."""

    @abstractmethod
    def ran_dry(self, request: Request) -> None:
        """An entry that is next to be sent is not held, although later ones are."""

    @abstractmethod
    def log_changed(self, event: LogChanged) -> None:
        """Something new of a log is held."""

    @abstractmethod
    def arrival_changed(self, log: LogKey) -> None:
        """Some session of this host begins to receive a payload of a log, or does so no more."""

    @abstractmethod
    def advance(self) -> None:
        """Propose what can be proposed now; called after every input and when time has passed."""

    @abstractmethod
    def next_deadline(self) -> float | None:
        """When `advance` has something to do although nothing came."""
