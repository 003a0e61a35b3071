"""Blocks without what is in them, and steps from one to another (spec 3.4). Sans-io."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

THRESHOLD: Final = 128


class Header(NamedTuple):
    """A block without what is in it."""

    hash: bytes
    number: int
    weight: int
    parent: bytes
    at: int = 0
    """When it was complete: a number that grows. 0 of all: in the order in which they are told."""


class Head(NamedTuple):
    """The newest block given out, or what is begun behind."""

    number: int
    hash: bytes
    weight: int


class Step(NamedTuple):
    """Undo `removed` from its end, then apply `added`: both are oldest first."""

    added: tuple[bytes, ...]
    removed: tuple[bytes, ...]
    head: Head


class TooDeep(NamedTuple):
    """A branch is heavier, and is not followed: more than T blocks would be taken back."""

    number: int
    hash: bytes


Outcome = Step | TooDeep


class Index(Protocol):
    """Complete blocks that have left memory."""

    def header(self, hash_: bytes) -> Header | None:
        """Of a block."""

    def children(self, hash_: bytes) -> Iterable[Header]:
        """Of the blocks with this parent."""

    def below(self, hash_: bytes, limit: int) -> Iterable[Header]:
        """Of blocks that hang on this one, each behind what it hangs on, so many at most."""


class NoIndex:
    """Where nothing is found again."""

    def header(self, _: bytes) -> Header | None:
        """None."""
        return None

    def children(self, _: bytes) -> Iterable[Header]:
        """None."""
        return ()

    def below(self, _: bytes, __: int) -> Iterable[Header]:
        """None."""
        return ()


def falling(find: Callable[[bytes], Header | None], hash_: bytes) -> Iterator[Header]:
    """A block, its parent, and so on, as long as their numbers fall: who lies may make a circle."""
    block = find(hash_)
    while block is not None:
        yield block
        parent = find(block.parent)
        block = parent if parent is not None and parent.number < block.number else None
