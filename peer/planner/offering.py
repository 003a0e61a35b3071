"""How fast a node offers what nobody has asked for.

Theory. A node offers each peer all logs that it has, and it may have thousands that this peer has
no use for. Each costs a look-up here, a proposal, and over there a look-up and a refusal: about a
millisecond in all. Somebody who comes for one log would have both look through all the others while
he waits for it, and whoever fills a node with logs of new authors would slow down everybody's syncs
long after he has gone.

So offers leave at a pace: eight at first, fifty a second, and two more for each log that turns out
to be wanted: a proposal of ours is confirmed, or the other side asks for what is held here. Who
wants nearly all of it is offered it as fast as ever, since those two bring four. Who wants little
has asked for it: logs that he follows by name he proposes himself, and of an author whom he follows
he proposes log 0, after which all of that author go ahead (`WaitingLine.asked_for`). What is new is
not held back, nor what this node wants by name, which it asks for by offering it.

A one-time sync keeps no pace: it is over when all has been offered, and nobody else waits for it.

That the pace hold only while something is sent was tried: what is sent is in the network's buffers
in a moment, and the other side is at work on it for much longer. So was a number of offers under
way, halved by each refusal: two at a time are hundreds a second where a round trip is short.
"""

from typing import Final

FIRST: Final = 8
PER_S: Final = 50.0
FOR_A_WANTED: Final = 2.0
MOST: Final = 64.0
"""As many as a peer takes at a time (`request_credit`), however long nothing was offered."""
ROUNDING: Final = 1e-6
"""At the time that `next_deadline` names, what is left may fall short of one by rounding, the more
the older the clock is; and what is missing then may be too little to be added to the time."""


class Offering:
    """The pace of offers in one session; times are those of the session's clock."""

    def __init__(self, *, once: bool) -> None:
        """`once`: in a one-time sync."""
        self._once = once
        self._left = float(FIRST)
        self._at: float | None = None

    def may_offer(self, now: float) -> bool:
        """Whether another log may be looked up for no other reason than to be offered."""
        if self._at is not None:
            self._left = min(self._left + (now - self._at) * PER_S, MOST)
        self._at = now
        return self._once or self._left >= 1.0 - ROUNDING

    def offered(self) -> None:
        """A log is looked up for that."""
        self._left = max(self._left - 1.0, 0.0)

    def wanted(self) -> None:
        """The other side confirmed a proposal of ours, or has asked for what is held here."""
        self._left = min(self._left + FOR_A_WANTED, MOST)

    def next_deadline(self) -> float | None:
        """When the next one may leave, after `may_offer` has said no."""
        return None if self._at is None else self._at + (1.0 - self._left) / PER_S
