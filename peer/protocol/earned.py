"""How many proposals of the other side may be unanswered: few at first, more for who needs more.

What is proposed waits for an answer for a round trip, and an offer that is refused because we ask
for the log ourselves is over after two. So over a long pipe as few as a side starts with are what
is waited for, where logs are short: 64 of 20 small entries in two round trips of 100 ms leave four
fifths of 100 Mbit/s empty. To give all sides more from the start would let strangers have us look
up, and remember, eight times as much.

Who has made as many proposals that came to something as may be unanswered may have twice as many
unanswered from then on, up to a maximum. How many are unanswered here at a time tells nothing of
what is needed: most of the credit is on its way.
"""

from .config import SessionConfig


class Earned:
    """Counts what came of the other side's proposals."""

    __slots__ = ("_most", "_useful", "unanswered_max")

    def __init__(self, config: SessionConfig) -> None:
        self._most = config.request_credit_max
        self._useful = 0
        self.unanswered_max = config.request_credit
        """How many may be unanswered now."""

    def add(self, credit: int) -> int:
        """A proposal is confirmed, or we ask for what it offers ourselves; returns how many more
        may be unanswered from now on.

        `credit`: for how many the other side has some left, as far as is known here. Who makes one
        at a time has no use for more.
        """
        if credit + 1 >= self.unanswered_max:
            return 0
        self._useful += 1
        more = min(self.unanswered_max, self._most - self.unanswered_max)
        if more <= 0 or self._useful < self.unanswered_max:
            return 0
        self._useful = 0
        self.unanswered_max += more
        return more
