"""What a node wants from a session: the parts that every policy shares (point2point.md 10).

A policy decides what to propose and how to answer; the rules of the protocol are the table's. It
talks to the engine through `Actions` and is told through the methods of `Policy`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from wire import U64_MAX, Cancel, CancelReason, Eagerness, LogKey, Propose, lipmaa

from .answering import link_target
from .config import SessionConfig
from .events import Interests, InterestsChanged, LogChanged, LogView, SourceChanged
from .request import Request


class Actions(Protocol):
    """What a policy can do in its session."""

    @property
    def now(self) -> float:
        """Seconds, on the host's clock."""

    @property
    def request_credit(self) -> int:
        """Proposals that may still be sent."""

    def look_up(
        self,
        log: LogKey,
        hashes_of: tuple[int, ...],
        entry: int | None,
        then: Callable[[LogView], None],
        *,
        missing_above: int = 0,
    ) -> None:
        """Ask the store; `then` is called with the answer."""

    def requests_of(self, log: LogKey) -> list[Request]:
        """All requests about a log."""

    def may_propose(self, log: LogKey, start: int, end: int | None) -> bool:
        """Whether section 7 allows this proposal now."""

    def next_number(self) -> int:
        """The number that the next proposal has to carry."""

    def propose(self, proposal: Propose, view: LogView) -> Request:
        """Send a proposal that was made from this view."""

    def answer(
        self, request: Request, view: LogView, *, wanted: bool, serve: bool, bounded: bool = False
    ) -> bool:
        """Answer a proposal by the common rules; True if it was refused to be taken over.

        `bounded`: an open range ends with what is held now.
        """

    def cancel(self, request: Request, cancel: Cancel, *, paced: bool = True) -> None:
        """Cancel a request."""

    def claim(self, log: LogKey) -> bool:
        """Whether this session may fetch a log; if so, no other one of this node will."""

    def stop_fetching(self, request: Request) -> None:
        """Ask for notifications only in this request, or end it where that is no use."""

    def check_evidence(self, log: LogKey, entries: tuple[bytes, ...]) -> None:
        """Have entries that may prove a fork checked and recorded."""

    def finished_sync(self, logs: int) -> None:
        """A one-time sync is done."""


class Policy(ABC):
    """Decides what a session proposes and takes in."""

    def __init__(self, actions: Actions, config: SessionConfig, *, proactive: bool) -> None:
        self._actions = actions
        self._config = config
        self._proactive = proactive
        self._interests = Interests()
        self._offered_to_us: set[LogKey] = set()

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

    def request_proposed(self, request: Request) -> None:
        """The other side proposed something: look at the log, then answer."""
        target = link_target(request.proposal)
        hashes_of = () if target is None else (target,)
        self._actions.look_up(
            request.log, hashes_of, target, lambda view: self._answer(request, view)
        )

    def _answer(self, request: Request, view: LogView) -> None:
        if request.answered or request.cancel_received is not None:
            return
        wanted = self.wants(request.log)
        if wanted and not self.takes_in(request.log):
            self._actions.cancel(request, Cancel(request.number, CancelReason.NO_RESOURCES))
            return
        serve = self._interests.serve_held
        if self._actions.answer(
            request, view, wanted=wanted, serve=serve, bounded=self.answers_bounded
        ):
            self.took_over(request.log)
        elif request.active:
            self.confirmed(request, view)

    answers_bounded = False
    """Whether open ranges are confirmed only up to what is held now."""

    @abstractmethod
    def confirmed(self, request: Request, view: LogView) -> None:
        """We confirmed a proposal of the other side."""

    @abstractmethod
    def took_over(self, log: LogKey) -> None:
        """A proposal was refused because we propose what we need ourselves."""

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
    def log_changed(self, event: LogChanged) -> None:
        """Something new of a log is held."""

    @abstractmethod
    def advance(self) -> None:
        """Propose what can be proposed now; called after every input and when time has passed."""

    @abstractmethod
    def next_deadline(self) -> float | None:
        """When `advance` has something to do although nothing came."""


def full_proposal(
    number: int, view: LogView, *, end: int | None, eagerness: Eagerness = Eagerness.ALL
) -> Propose:
    """The proposal for a full log: from the first incomplete place on (section 10).

    Every view holds the hashes that this needs.
    """
    if view.tail_partial_bytes is not None:
        return Propose(
            request=number,
            log=view.log,
            start=view.height,
            lower_info=None,
            min_bytes=0,
            max_bytes=U64_MAX,
            starting_hash=view.hashes[view.height],
            eagerness=eagerness,
            end=end,
            upper_info=end,
            offset=view.tail_partial_bytes,
        )
    return range_proposal(number, view, view.height + 1, end=end, eagerness=eagerness)


def range_proposal(
    number: int,
    view: LogView,
    start: int,
    *,
    end: int | None,
    eagerness: Eagerness,
    sparse: bool = False,
) -> Propose:
    """A proposal from `start` on, metadata first; its lower pool is held."""
    return Propose(
        request=number,
        log=view.log,
        start=start,
        lower_info=start,
        min_bytes=0,
        max_bytes=U64_MAX,
        starting_hash=view.hashes[lipmaa(start)] if start > 1 else None,
        eagerness=eagerness,
        eager_bytes=0 if eagerness is Eagerness.LIMITED else None,
        end=end,
        upper_info=end,
        sparse=sparse,
    )
