"""The newest entry of a log that the other side holds: what it said, and what follows from what it
asks for.

Who asks for all that follows an entry mostly holds that one, but not if it follows a range that
begins there. So that is a guess. It counts beside what was said, is made once for each entry, and
is taken back when what was asked for because of it is refused: then the other side is asked.

What was said is no guess, even where both are the same entry. As one number they were taken back
together, and nothing was asked for above the next thing that was said.
"""

from msgspec import Struct


class TheirNewest(Struct):
    """Seqnums; 0 is that of no entry."""

    told: int | None = None
    """The newest entry that it told of; None: of none, or it is to be asked once more."""
    behind: int = 0
    """The highest entry behind which it asked for all that follows."""
    guessed: bool = False
    """Whether that counts as held."""

    @property
    def seq(self) -> int | None:
        """The newest entry that it is taken to hold; None: that is to be asked."""
        if self.told is None:
            return None
        return max(self.told, self.behind) if self.guessed else self.told

    def holds(self, seq: int) -> None:
        """It has told that it holds an entry; 0: that there may be none."""
        self.told = max(self.told or 0, seq)

    def goes_on(self, behind: int) -> None:
        """It asks for all that follows an entry."""
        if behind > self.behind:
            self.behind = behind
            # It had nothing when it was asked, or less. Before that there is nothing to guess.
            self.guessed = self.told is not None

    def led_to(self, seq: int) -> bool:
        """Whether an entry was asked for because of a guess."""
        return self.guessed and seq <= self.behind and self.behind > (self.told or 0)

    def ask_again(self) -> None:
        """It is to say once more what its newest entry is."""
        self.told, self.guessed = None, False
