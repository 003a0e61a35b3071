"""A session's place at the store host: where its commands go in and its events come out."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from peer import Event, Refusal
from peer.node.fairness import Account
from wire import LogKey

Deliver = Callable[[Sequence[Event], Account | None], None]
"""Hands events to a session. With an account: they are told in its turn, and what the session asks
for because of them is to be done at its expense."""
Fail = Callable[[Exception], None]
Replies = dict["Port", list[Event]]


class Handed(Struct, eq=False):
    """The entries of one request that were handed in and not answered yet: how many.

    Once one of them is refused the rest of them is as well; what the session hands in later is
    booked anew. `doomed`: why the next one is refused, if something it may link to was.
    """

    port: "Port"
    request: int
    log: LogKey
    entries: int = 0
    refused: bool = False
    doomed: tuple[Refusal, str] | None = None


class Port:
    """One session at the host. Events are delivered in the event loop, at once.

    `number` spreads sessions over threads: what one asks of the same kind is done in order. `fail`
    ends the session, for a fault of ours that is no answer to any of its commands. `forgotten`: how
    often logs were when the session began: after another time what it knows of them may be wrong.
    `giver`: whom quotas go for, the id of the other side or b"" if it has proved none. `account`:
    who pays for what is done here; one of its own unless given.
    """

    def __init__(
        self,
        number: int,
        source: str,
        deliver: Deliver,
        fail: Fail,
        giver: bytes = b"",
        account: Account | None = None,
        *,
        forgotten: int = 0,
    ) -> None:
        self.number = number
        self.source = source
        self.giver = giver
        self.account = account or Account()
        self.forgotten = forgotten
        self.handed_in: dict[int, Handed] = {}
        self._deliver: Deliver | None = deliver
        self._fail = fail

    @property
    def is_open(self) -> bool:
        """Whether the session still takes events."""
        return self._deliver is not None

    def deliver(self, *events: Event, payer: Account | None = None) -> None:
        """Hands events to the session, unless it has ended. `payer`: see `Deliver`."""
        if self._deliver is not None:
            self._deliver(events, payer)

    def fail(self, error: Exception) -> None:
        """Ends the session, unless it has ended."""
        if self._deliver is not None:
            self._fail(error)

    def close(self) -> None:
        """The session has ended: what it asked for is still carried out, and not answered."""
        self._deliver = None

    def handed(self, request: int, log: LogKey) -> Handed:
        """What was handed in of a request."""
        found = self.handed_in.get(request)
        if found is None:
            found = self.handed_in[request] = Handed(self, request, log)
        return found
