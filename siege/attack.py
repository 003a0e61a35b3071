"""What an attack is: how it is played, at what node, and what has to come of it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .hostile import Hostile

MEMORY_BASE_MB: Final = 64
"""What the node may grow by whatever happens: caches, and what the allocator keeps."""
MEMORY_EACH_MB: Final = 2
"""And for each hostile connection: data credit, two windows, states of requests."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What the hostile peer is allowed, at a node with TLS. None: it is a stranger."""

    read: str = "all"
    write: str = "followed"


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of an attack once it is over."""

    counts: Mapping[str, int]
    """What the hostile process has done and heard."""
    said: Mapping[str, int]
    """How its connections ended, in the node's words, and how often."""
    limits: tuple[str, ...]
    """Keys of limits that the node has told of."""
    node_read_bytes: int
    """What the node has taken in from connections, by its metrics."""
    disk_bytes: int
    """By how much the node's store has grown on disk, at its largest."""
    entries_stored: int
    """Entries of others than the node and the honest peers that it has taken in."""
    payloads_stored: int
    """And whole payloads of these."""


Judge = Callable[[Seen], list[str]]
"""Promises that an attack has broken, beside those that hold for each of them."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One row of the table."""

    name: str
    what: str
    play: Callable[["Hostile"], Awaitable[None]] | None = None
    """In the hostile process, until it is cancelled. None: there is no hostile process."""
    prepare: Callable[["Hostile"], Awaitable[None]] | None = None
    """Once, before it begins, so that it costs nothing while it lasts: signatures."""
    connections: int = 1
    serve: tuple[str, ...] = ()
    """Flags of the node, beside those that all have."""
    tls: bool = False
    scope: Scope | None = None
    follows_hostile: bool = False
    """Whether the node follows the hostile peer's key by name."""
    pushes: bool = False
    """Whether the honest peer brings entries to the node, and does not fetch them."""
    descriptors: int | None = None
    """RLIMIT_NOFILE of the node."""
    rounds: int | None = None
    """So many honest syncs are tried while it lasts, however long that takes."""
    share: float = 1.0
    """How much of the time of an attack it gets."""
    signals: bool = False
    """Whether the node gets SIGHUP, SIGUSR1 and SIGUSR2 all the time."""
    needs: Mapping[str, int] = field(default_factory=dict)
    """Counts without which it was no attack."""
    node_reads: int = 1000
    """Bytes without which it was none: that the node has read."""
    judge: Judge = lambda _: []
    within: bool = True
    """Whether the promise on rates goes for it: twenty connections within the protocol at most."""

    @property
    def memory_mb(self) -> int:
        """What the node may grow by."""
        return MEMORY_BASE_MB + MEMORY_EACH_MB * self.connections


def at_least(seen: Seen, needs: Mapping[str, int]) -> list[str]:
    """What was missing for this to have been an attack."""
    return [
        f"{name} {seen.counts.get(name, 0)}, {least} are needed"
        for name, least in needs.items()
        if seen.counts.get(name, 0) < least
    ]
