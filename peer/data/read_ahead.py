"""How much of what is to be sent is read from the store before it can be sent.

Theory. A request that has something to send asks for rows, up to 256 KiB of them, and what was read
waits in memory for the transport. The other side may open tens of thousands of requests, and take
nothing: what is read for all of them together has to be bounded, or 64 KB of proposals take half a
gigabyte of a node.

So a session has a budget. Whoever reads gets what is asked for, or an eighth of what is left: one
log is read as before, and among many each gets less, so that they go on side by side. What is
reserved before a read is what it may bring, afterwards what it brought. Where nothing is left, who
has no rows at all waits, in the order in which they came.

Nobody waits for ever. Rows go when they are sent, and those of a request that has nothing to send
now (it waits for the other side, or for what may leave) are given up when somebody needs the room:
they are read again. A request that is queued has its turn as soon as the transport takes anything.
"""

from typing import Final

from peer.protocol.config import SessionConfig
from peer.protocol.events import HeldEntry
from peer.protocol.request import Request

SHARE: Final = 8
"""An eighth of what is left: eight that read at once still leave a third of the budget."""
LEAST_BYTES: Final = 8 * 1024
"""Less is not worth a trip to the store; a larger entry comes alone all the same."""
ROW_BYTES: Final = 512
"""What a row takes besides its bytes, about: of small ones fewer are read than would fit."""


def _bytes_of(row: HeldEntry) -> int:
    return ROW_BYTES + len(row.encoded) + len(row.payload or b"")


class ReadAhead:
    """The budget of a session for rows that were read and not sent."""

    def __init__(self, config: SessionConfig) -> None:
        self._most = config.read_ahead_bytes_max
        self._read_bytes_max = config.read_bytes_max
        self._reserved: dict[int, tuple[Request, int]] = {}
        self._waiting: dict[int, Request] = {}
        self.bytes = 0
        """What is reserved or held."""

    def take(self, request: Request) -> int:
        """How many bytes may be read for a request now; 0: none, and `due` names it later.

        And as many rows at most as take as much besides.
        """
        if self._left < LEAST_BYTES:
            self._reclaim(but_of=request)
        if self._left < LEAST_BYTES:
            if not request.outgoing.rows:
                self._waiting[request.ident] = request
            return 0
        self._waiting.pop(request.ident, None)
        granted = min(self._read_bytes_max, max(LEAST_BYTES, self._left // SHARE) // 2)
        self._set(request, sum(map(_bytes_of, request.outgoing.rows)) + 2 * granted)
        return granted

    def note(self, request: Request) -> None:
        """Rows of a request were read, sent or given up: what it has now counts."""
        if request.ident in self._reserved and not request.outgoing.reading:
            self._set(request, sum(map(_bytes_of, request.outgoing.rows)))

    def sent(self, request: Request) -> None:
        """A request had its turn; cheap where rows are left."""
        if not request.outgoing.rows:
            self.note(request)

    @property
    def anybody_waits(self) -> bool:
        """Whether `due` may name somebody."""
        return bool(self._waiting)

    def due(self) -> list[Request]:
        """Those that may try again. They are forgotten here."""
        if not self._waiting:
            return []
        self._reclaim()
        found: list[Request] = []
        while self._waiting and self._left >= LEAST_BYTES * (len(found) + 1):
            found.append(self._waiting.pop(next(iter(self._waiting))))
        return found

    @property
    def _left(self) -> int:
        return self._most - self.bytes

    def _set(self, request: Request, count: int) -> None:
        _, before = self._reserved.pop(request.ident, (request, 0))
        self.bytes += count - before
        if count:
            self._reserved[request.ident] = (request, count)

    def _reclaim(self, but_of: Request | None = None) -> None:
        for request, _ in list(self._reserved.values()):
            outgoing = request.outgoing
            if not request.active:
                # What is still under way for it is dropped when it comes.
                self._set(request, 0)
            elif request is not but_of and not (outgoing.reading or outgoing.queued):
                outgoing.read_anew()
                self._set(request, 0)
