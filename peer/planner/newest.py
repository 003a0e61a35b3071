"""Asks for the other side's newest entry of a log, for people who want to know how much is left.

A session that fetches a log learns of its end when it gets there: whoever holds more sends it, and
need not say first how much that is. Most logs are here within a moment, and for each to be asked
first would be a round trip more. So the node names those that take long (NewestAsked), and of these
alone it is asked, by a request for a path that wants notifications only: it is confirmed with the
newest entry there, moves nothing, and is over.

What a question needs is credit, and others need it more: some is left to them, and what was not
asked is named again by the node a second later.
"""

from collections.abc import Sequence
from typing import Final

from peer.protocol.events import LogView
from peer.protocol.request import Request
from wire import Cancel, LogKey

from .actions import Actions
from .asks import PROBE

CREDIT_LEFT: Final = 16


class NewestQuestions:
    """Asks, and has no more to do: the engine tells the node what was answered."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions

    def ask(self, logs: Sequence[LogKey]) -> None:
        """Asks of those of which no such question is open, and the other side may be told."""
        for log in logs:
            if self._actions.request_credit <= CREDIT_LEFT:
                return
            requests = self._actions.requests_of(log)
            if self._actions.may_tell(log) and not any(
                each.ours and each.proposal.sparse for each in requests
            ):
                self._actions.ask(log, PROBE, LogView(log), self, leave=CREDIT_LEFT)

    def cancelled(self, request: Request, cancel: Cancel) -> None:
        """It has nothing to say, which the node hears as well."""

    def lost(self, request: Request) -> None:
        """The node asks again."""

    def released(self, request: Request) -> None:
        """Nothing hangs on it."""
