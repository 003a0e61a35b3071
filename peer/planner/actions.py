"""What a planner can do in a session.

It is all that a planner sees of one, and who asks beside it (withholding.py, late.py): no table,
channel or clock. So what follows from an act, and what may not leave with it, is seen to behind it
(acting.py), whoever has decided.
"""

from collections.abc import Callable
from typing import Protocol

from peer.protocol.commands import LookUp
from peer.protocol.events import LogView
from peer.protocol.notices import Limit
from peer.protocol.request import Owner, Request
from wire import Adjust, Cancel, LogKey

from .answer import Answer
from .asks import Ask


class Actions(Protocol):
    """What a planner can do in its session."""

    @property
    def now(self) -> float:
        """Seconds, on the host's clock."""

    @property
    def is_behind(self) -> bool:
        """Whether what came waits for this host."""

    @property
    def request_credit(self) -> int:
        """Proposals that may still be sent."""

    def look_up(self, wanted: LookUp, then: Callable[[LogView], None]) -> None:
        """Ask the store, under a ticket of its own; `then` is called with the answer."""

    def requests_of(self, log: LogKey) -> list[Request]:
        """All requests about a log."""

    def uncovered(self) -> list[Request]:
        """The requests that the scope of the other side does not cover, and that may bring more.

        Also those that are cancelled: what is complete may still be under way.
        """

    def end(self, request: Request) -> None:
        """Cancel a request with 128, and take in nothing more of it."""

    def send_again(self, log: LogKey) -> None:
        """What was held back of a log may leave."""

    def may_tell(self, log: LogKey) -> bool:
        """Whether the other side may be told of what is held of a log."""

    def may_propose(self, log: LogKey, start: int, end: int | None) -> bool:
        """Whether section 7 allows this proposal now."""

    def ask(
        self, log: LogKey, ask: Ask, view: LogView, owner: Owner | None = None, *, leave: int = 0
    ) -> Request | None:
        """Propose what this view has the hashes for; the only way to propose anything.

        None: there is no more request credit than what is to be left, or section 7 does not allow
        it now. What becomes of the request is told to its owner, or else to the planner.
        """

    def waive_answer(self, request: Request) -> None:
        """A proposal of ours may stay without one: the connection does not end over it."""

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
        """Tell the node that the other side holds up to `newest`, if we have only `held` of it."""

    def met(self, limit: Limit) -> None:
        """Tell the node that something was refused for a limit of this session."""

    def finished_sync(self, logs: int) -> None:
        """A one-time sync is done."""
