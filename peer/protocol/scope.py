"""What one peer may read, and what may be written here by it (doors.md 3).

A scope names logs, whoever wrote them: what is relayed counts like what a peer wrote itself.
"""

from dataclasses import dataclass

from logstore import WriteScope
from wire import LogKey

PEER_BYTES = 32


@dataclass(frozen=True, slots=True)
class Scope:
    """What one peer may read and write (doors.md 3).

    `reads`: None for all logs, else the authors (32 bytes each: all of their logs) and the single
    logs that it may read; empty: none. `writes`: what may be taken in from it. `peer`: its id, the
    author key of its node.

    Raises ValueError if an id does not have 32 bytes, TypeError for a target of another type: what
    is no target by mistake must not be one that nothing matches.
    """

    reads: frozenset[bytes | LogKey] | None
    writes: WriteScope
    peer: bytes

    def __post_init__(self) -> None:
        for target in () if self.reads is None else self.reads:
            if not isinstance(target, bytes | LogKey):
                raise TypeError(f"a target of a scope is an author or a log, not {target!r}")
            if len(target if isinstance(target, bytes) else target.author) != PEER_BYTES:
                raise ValueError(f"an author has {PEER_BYTES} bytes")
        if not isinstance(self.writes, WriteScope):
            raise TypeError(f"{self.writes!r} is nothing that a peer may write")
        if len(self.peer) != PEER_BYTES:
            raise ValueError(f"the id of a peer has {PEER_BYTES} bytes")

    def may_read(self, log: LogKey) -> bool:
        """Whether anything of a log may be sent to this peer."""
        reads = self.reads
        return reads is None or log.author in reads or log in reads

    def may_write(self, log: LogKey) -> bool:
        """Whether a log may be taken in from this peer, if it is followed."""
        if self.writes is WriteScope.OWN:
            return log.author == self.peer
        return self.writes is WriteScope.FOLLOWED
