"""Where to look for the earliest fork of a log. Pure.

That two histories differ at an entry says nothing of where they part. To ask for all before it
would bring the whole log once more; to ask for one entry at a time takes a round trip for each. So
ranges are asked for, metadata only, each four times as long as the one before, until one begins
with an entry that both have: a few times as many entries as there have to be, in a few round trips.
"""

from typing import Final

from msgspec import Struct

from peer.protocol.events import LogView
from peer.protocol.request import NEVER
from wire import decode_entry, lipmaa

RANGES_MAX: Final = 48
"""More ranges than it takes to get from any seqnum back to 1, each four times as long: 32 do. A
peer that contradicts itself each time would else be asked for ever."""


def differs_at(proof: tuple[bytes, bytes]) -> int | None:
    """The last entry of which the two in a proof name different versions; None if they name none.

    Then the log forked there or before, and what is in the proof is not the earliest fork. With the
    other side's version of that entry this is proved, without it nobody else believes it.
    """
    first, second = map(decode_entry, proof)
    if first.backlink != second.backlink:
        return first.seq - 1
    return lipmaa(first.seq) if first.lipmaalink != second.lipmaalink else None


class ForkSearch(Struct):
    """How far the forks of one log were told of and searched for in a session."""

    entries: tuple[int, int] | None = None
    """The entries to ask for next, metadata only, instead of what is missing."""
    ranges: int = 0
    """How often that was done."""
    told: int = NEVER
    """The earliest fork that this side or the other has told the other of."""
    searched: int = NEVER
    """The earliest fork before which the other side was asked for its version."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is asked for any more: that was done too often."""
        return self.ranges >= RANGES_MAX

    def ask(self, entries: tuple[int, int]) -> bool:
        """Ask for these entries next; False if that was done too often."""
        if self.is_over:
            return False
        self.ranges += 1
        self.entries = entries
        return True

    def told_none(self) -> None:
        """What was told has not reached the other side."""
        self.told = NEVER

    def before(self, view: LogView) -> int | None:
        """The entry before which to look for an earlier fork than that of the view, each once."""
        if view.fork is None or view.fork_proof is None or view.fork >= self.searched:
            return None
        self.searched = view.fork
        differs = differs_at(view.fork_proof)
        return None if differs is None else differs + 1
