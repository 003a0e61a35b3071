"""What a planner can do in a session.

It is all that a planner sees of one: no table, channel or clock. So what follows from an act, and
what may not leave with it, is seen to behind it (acting.py), whoever has decided.
"""

from collections.abc import Callable
from typing import Protocol

from peer.protocol.commands import LookUp
from peer.protocol.events import LogView
from peer.protocol.notices import Limit
from peer.protocol.request import Request
from wire import Adjust, Cancel, LogKey, Propose

from .answer import Answer


class Actions(Protocol):
    """What a planner can do in its session."""

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

    def uncovered(self) -> list[Request]:
        """The requests that the scope of the other side does not cover, and that may bring more.

        Also those that are cancelled: what is complete may still be under way.
        """

    def end(self, request: Request) -> None:
        """Cancel a request with 128, and take in nothing more of it."""

    def send_again(self, log: LogKey) -> None:
        """What was held back of a log may leave."""

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

    def met(self, limit: Limit) -> None:
        """Tell the node that something was refused for a limit of this session."""

    def finished_sync(self, logs: int) -> None:
        """A one-time sync is done."""
