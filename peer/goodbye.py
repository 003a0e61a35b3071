"""How long the other side is waited for when a session ends in good order (point2point.md 1).

A goodbye is for what was said and done last. What we have queued is to arrive; what was under way
to us is to be kept here; what we sent is to be kept there, which the other side's own goodbye
confirms. All of that goes on in steps that show on this side:

- the transport takes some of what was queued, or passes on some of what it took;
- data comes for which there was credit;
- the ping that leaves behind our goodbye is answered: it has been read;
- the other side closes a channel.

There is only so much of each, whatever the other side does. Pings, grants and credits are no steps,
and so a flood of them keeps nobody.

Whoever has made a step has a moment for the next one: two round trips of the fastest that its pings
have shown, and no less than `close_step_s`, in which a lost packet is sent again and a busy machine
comes round to us. Where no step follows nothing is on its way any more, or somebody does not want
to; nothing that is kept is lost by leaving. One thing makes no steps: a disk. Who has read our
goodbye, and was sent data that it has not given back, may be about to store it, and has all the
time there is, `close_timeout_s`. So has a slow link, for as long as bytes move.
"""

from peer.protocol.config import SessionConfig

PIECE_BYTES = 16 * 1024
"""So much at most is given to the transport at once: it shows when a slow one has taken that."""
_ROUND_TRIPS = 2


class Goodbye:
    """The end of a session that was begun on this side. Times are in seconds, sizes in bytes.

    `round_trip_s`: the fastest answer to a ping, 0 if none is known. `queued`: what was to be sent
    and has not been taken by the transport. `stores`: whether the other side may have to store
    something before it answers.
    """

    def __init__(
        self, config: SessionConfig, now: float, *, round_trip_s: float, queued: int, stores: bool
    ) -> None:
        self._patience_s = max(config.close_step_s, _ROUND_TRIPS * round_trip_s)
        self._most_s = now + config.close_timeout_s
        self._step_at = now
        self._queued = queued
        self._stores = stores
        self._in_transport: int | None = None
        self._is_read = False
        self.is_asked = False
        """Whether the ping behind it has been made."""

    @property
    def until_s(self) -> float:
        """When the other side is waited for no longer, unless it makes a step before."""
        if self._is_read and self._stores:
            return self._most_s
        return min(self._most_s, self._step_at + self._patience_s)

    def step(self, now: float) -> None:
        """Data has come, or the other side has closed a channel."""
        self._step_at = max(self._step_at, now)

    def queue_is(self, queued: int, now: float) -> None:
        """So much is still to be given to the transport, which has taken all that it was given."""
        if queued < self._queued:
            self._queued = queued
            self._in_transport = None
            self.step(now)

    def transport_holds(self, count: int, now: float) -> None:
        """So much has the transport taken that has not arrived at the other side."""
        if self._in_transport is not None and count < self._in_transport:
            self.step(now)
        if self._in_transport is None or count < self._in_transport:
            self._in_transport = count

    def was_read(self, now: float) -> None:
        """The ping behind our goodbye was answered."""
        self._is_read = True
        self.step(now)
