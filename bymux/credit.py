"""Flow control of one direction of one stream (bymux.md Credit).

These objects count and judge; they send nothing. Sums are checked before anything is added. The
side that grants never makes credit infinite through a sum: the sum that counts is the writer's,
who may have spent some of it meanwhile, so that only a Credit of 0 means the same to both.
"""

from .config import INFINITE
from .errors import Violation

CREDIT = "bymux.md Credit"


class SendCredit:
    """What we may still write. The caller's bytes take their credit when they are queued."""

    __slots__ = ("credits_free", "left", "queued")

    def __init__(self, left: int, credits_free: int) -> None:
        self.credits_free = credits_free
        """How many Credits may come before each of them is idle work; one more for each Write."""
        self.left = left
        """What may be queued yet, or INFINITE."""
        self.queued = 0
        """Queued and not yet written: still credit as the peer sees it."""

    def add(self, amount: int, stream: int) -> bool:
        """Takes the peer's Credit. Returns whether anything changed; raises Violation."""
        if self.left == INFINITE:
            if amount:
                detail = f"stream {stream}: Credit of {amount}, but credit is infinite already"
                raise Violation(CREDIT, detail, stream=stream, value=amount)
            return False
        held = self.left + self.queued
        if held + amount > INFINITE:
            detail = f"stream {stream}: Credit of {amount} on top of {held} exceeds 2^64 - 1"
            raise Violation(CREDIT, detail, stream=stream, value=amount)
        if amount == 0 or held + amount == INFINITE:
            self.left = INFINITE
        else:
            self.left += amount
        return True

    def take(self, count: int) -> None:
        """Bytes are queued; the caller has checked that `left` allows them."""
        self.queued += count
        if self.left != INFINITE:
            self.left -= count


class ReceiveCredit:
    """What the peer may still write, and when to grant it more."""

    __slots__ = ("due", "left", "restorable", "unconsumed")

    def __init__(self, left: int) -> None:
        self.left = left
        """What the peer still has, or INFINITE. Our grants count from when they are sent."""
        self.due = 0
        """What the next Credit packet grants; INFINITE if that makes the credit infinite."""
        self.unconsumed = 0
        """Handed to the application, which is not done with it."""
        self.restorable = 0
        """What the application is done with and the peer was not granted anew."""

    @property
    def becomes_infinite(self) -> bool:
        """Whether the credit is infinite, or is with the next Credit packet."""
        return INFINITE in {self.left, self.due}

    def announce(self, amount: int, stream: int) -> None:
        """A Write header: takes the credit of a whole body. Raises Violation."""
        left = self.left
        if left != INFINITE:
            if amount > left:
                detail = f"stream {stream}: Write of {amount} bytes with a credit of {left}"
                raise Violation(CREDIT, detail, stream=stream, value=amount)
            self.left = left - amount

    def grant(self, amount: int, stream: int) -> bool:
        """Owes the peer a Credit. Returns whether there is one to send; raises Violation."""
        if self.becomes_infinite:
            if amount == INFINITE:
                return False
            detail = f"stream {stream}: grant of {amount}, but the credit is infinite already"
            raise Violation(CREDIT, detail, stream=stream, value=amount)
        if amount == INFINITE:
            self.due = INFINITE
            self.restorable = 0
            return True
        # All that the peer can come to have when everything is consumed and restored.
        held = self.left + self.due + self.restorable + self.unconsumed
        if not 1 <= amount < INFINITE - held:
            detail = f"stream {stream}: grant of {amount} on top of {held}: 1 to 2^64 - 2 in sum"
            raise Violation(CREDIT, detail, stream=stream, value=amount)
        self.due += amount
        return True

    def consume(self, count: int, stream: int) -> None:
        """The application is done with bytes. Raises Violation."""
        if not 0 <= count <= self.unconsumed:
            detail = f"stream {stream}: {count} bytes consumed, {self.unconsumed} were not yet"
            raise Violation(CREDIT, detail, stream=stream, value=count)
        self.unconsumed -= count
        if not self.becomes_infinite:
            self.restorable += count

    def restore(self) -> bool:
        """Turns what is restorable into a grant if its time has come; True if so.

        Its time is "once the amount that could be granted is at least as large as what the other
        side still has, and at least one". To be asked whenever either of them changes.
        """
        if not self.restorable or self.restorable < self.left + self.due:
            return False
        self.due += self.restorable
        self.restorable = 0
        return True

    def forfeit(self) -> None:
        """No more is granted: StopRead, or the peer writes no more."""
        self.due = self.restorable = 0

    def sent(self) -> int:
        """The amount of the Credit packet that is being sent now (0: infinite)."""
        due = self.due
        self.due = 0
        if due == INFINITE:
            self.left = INFINITE
            return 0
        self.left += due
        return due
