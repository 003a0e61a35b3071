"""A block while it is put together, and where it goes when it leaves memory (spec 3.2). Sans-io."""

from dataclasses import dataclass, field
from typing import Final, Protocol

from gateways.cardinal.counting import Copy


class State:
    """What is known of a block beside its messages: bits of a number, cheaper than an `IntFlag`."""

    MET: Final = 0
    COMPLETE: Final = 1
    SPLIT: Final = 2
    """Each producer counts for himself."""
    TOLD: Final = 4
    """That somebody disagrees."""
    LARGE: Final = 8
    """It was told that it has too many keys."""
    CLOSED: Final = 16
    """Nothing that comes of it is looked at."""


@dataclass(slots=True)
class Counted:
    """What was counted of a block that is being put together, or that was a moment ago."""

    hash: bytes
    state: int = State.MET
    copies: dict[int | None, Copy] = field(default_factory=dict)
    """Everybody's, or each producer's own."""
    producers: set[int] = field(default_factory=set)
    keys: int = 0
    """Seen of it, and owed, when that was counted last."""
    is_dear: bool = False
    """It was counted anew: once is enough."""
    on_shelf: int = 0
    """Under which number some of it lies there."""

    def count_keys(self) -> int:
        """By how many there are more."""
        before, self.keys = self.keys, sum(copy.size for copy in self.copies.values())
        return self.keys - before

    @property
    def number(self) -> int | None:
        """That of its first Batch; None: no Batch is here."""
        headers = (copy.header for copy in self.copies.values())
        return next((each.number for each in headers if each is not None), None)


class Shelf(Protocol):
    """Where blocks go that leave memory."""

    def put(self, block: Counted) -> None:
        """One leaves it."""

    def take(self, hash_: bytes) -> Counted | None:
        """It is in memory again; None if it was not there."""

    def forget(self, block: Counted) -> None:
        """What of it lies there is needed no more."""


class Nowhere:
    """No shelf: whatever leaves memory is counted anew."""

    def put(self, _: Counted) -> None:
        pass

    def take(self, _: bytes) -> None:
        return None

    def forget(self, _: Counted) -> None:
        pass
