"""Who is let in over TLS, and with what: the table of peers, and what `Doors` says beside it.

Deny by default: of a peer that nobody has allowed nothing is taken in, and it is told nothing but
that. There are three ways in, and each gives a rule: a row that says `allowed`; having been called
by its id, which is a decision of whoever wrote that id down, for this connection; and `allow_any`.
A row that says `blocked` closes all of them; one that is removed those that were open to its peer,
until the node starts again. One's own id is always let in, with everything: who
has the key could read and sign whatever this node can.

What goes for a connection is not decided once. The table may change while it lasts, so that the
node asks again, of every connection, whenever it has.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import trio

from logstore import PeerRule, ReadScope, WriteScope, read_scope

from .pausing import Pausing

_ALL: Final = read_scope("all")


@dataclass(frozen=True, slots=True)
class Doors:
    """How a node is reached, and who is let in whom the table of peers does not name.

    `tls`: with both sides' keys on every address; otherwise on all but loopback. `insecure`: on
    none that is not called by an id. `allow_any`: lets in every peer that is not blocked, to read
    `any_read`, and to write `any_write`. Raises ValueError for `tls` and `insecure` at once.
    """

    tls: bool = False
    insecure: bool = False
    allow_any: bool = False
    any_read: ReadScope = _ALL
    any_write: WriteScope = WriteScope.NONE

    def __post_init__(self) -> None:
        if self.tls and self.insecure:
            raise ValueError("with TLS on every address nothing is left to be insecure")


class ProvedStream(trio.abc.HalfCloseableStream):
    """A stream at whose other end somebody has proved to have the key of a peer.

    Here, and not where TLS is, so that whoever asks for no TLS need not load it.
    """

    expects: bytes | None
    """Whom this node has called by its id, so that nobody else may answer."""

    @property
    @abstractmethod
    def peer_id(self) -> bytes:
        """Whose key it is. Only once the handshake is done."""


class Admission:
    """Decides who is let in. `take` brings it up to date, and so does that of `pausing`."""

    def __init__(self, own_id: bytes, doors: Doors, rules: Mapping[bytes, PeerRule]) -> None:
        self.own_id = own_id
        self._doors = doors
        self._rules = rules
        self.pausing = Pausing({})
        self._removed: set[bytes] = set()
        """Whom the table has allowed, and names no longer."""

    def take(self, rules: Mapping[bytes, PeerRule]) -> None:
        """What the table of peers says now."""
        self._removed |= {peer_id for peer_id, rule in self._rules.items() if rule.allowed}
        self._removed -= rules.keys()
        self._rules = rules

    @property
    def rules(self) -> Mapping[bytes, PeerRule]:
        """What it said last."""
        return self._rules

    def is_blocked(self, peer_id: bytes) -> bool:
        """Whether nothing lets a peer in."""
        rule = self._rules.get(peer_id)
        return rule is not None and not rule.allowed and peer_id != self.own_id

    def knows(self, peer_id: bytes) -> bool:
        """Whether somebody has decided that this peer is let in: not `allow_any` alone."""
        rule = self._rules.get(peer_id)
        return peer_id == self.own_id or (rule is not None and rule.allowed)

    def rule_for(self, peer_id: bytes, *, expected: bool) -> PeerRule | None:
        """What goes for a peer that has proved its id; None: it is not let in.

        `expected`: this node has called it by that id.
        """
        if peer_id == self.own_id:
            return PeerRule(allowed=True)
        rule = self._rules.get(peer_id)
        if rule is not None:
            return rule if rule.allowed else None
        # Whoever is removed is to be gone. A call by his id is a decision older than that, and the
        # defaults that it comes with may be more than his row has given him.
        if peer_id in self._removed:
            return None
        if expected:
            return PeerRule(allowed=True)
        if self._doors.allow_any:
            doors = self._doors
            return PeerRule(allowed=True, read=doors.any_read, write=doors.any_write)
        return None
