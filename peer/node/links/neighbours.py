"""Whom the local network says to be there: who is called, who is only listed, who is neither.

Whoever is in the network can announce whatever he likes, and nothing of it is proved before TLS has
proved it. So it counts for little: an id that nobody has allowed is listed, `LISTED_MAX` of them.
One that is allowed is called by that id, so that nobody else can answer, `CALLED_MAX` of them, each
at one address at a time; a peer that is connected is left where it is, whatever is announced of it.
Whoever announces an allowed id at another address can so keep this node from calling the right one,
as he could by answering in its place; he gets nothing else.

Of two that have allowed each other the one with the larger id calls a moment later, and finds that
he is called: else both would, at the same time.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from .addresses import Address, PeerAddress

LISTED_MAX: Final = 64
CALLED_MAX: Final = 32
DEFER_S: Final = 3.0


class Neighbour(NamedTuple):
    """Who was announced, and where."""

    peer_id: bytes
    address: Address
    seen_s: float
    """On the clock of whoever asks."""


class Step(NamedTuple):
    """What is to be done, and when it is to be looked at again (None: when anything changes)."""

    call: list[PeerAddress]
    hang_up: list[str]
    again_s: float | None


class Neighbours:
    """Who is there by the announcements' names, of a node with an id."""

    def __init__(self, own_id: bytes) -> None:
        self._own_id = own_id
        self._found: dict[str, Neighbour] = {}
        self._called: dict[bytes, PeerAddress] = {}

    def announced(
        self, name: str, peer_id: bytes, address: Address, now: float, *, allowed: bool
    ) -> None:
        """Somebody was announced by a name, or something else was of the same name."""
        if peer_id == self._own_id:
            return
        before = self._found.pop(name, None)
        most = LISTED_MAX + CALLED_MAX if allowed else LISTED_MAX
        if len(self._found) >= most:
            # The one that has been here longest: so many at once are no home.
            del self._found[next(iter(self._found))]
        same = before is not None and before[:2] == (peer_id, address)
        since = before.seen_s if before is not None and same else now
        self._found[name] = Neighbour(peer_id, address, since)

    def withdrawn(self, name: str) -> None:
        """What was announced by a name is no more."""
        self._found.pop(name, None)

    @property
    def found(self) -> list[Neighbour]:
        """Who is there, in the order of the ids."""
        return sorted(self._found.values())

    def step(
        self,
        now: float,
        is_allowed: Callable[[bytes], bool],
        is_connected: Callable[[bytes], bool],
        is_called: Callable[[bytes], bool],
    ) -> Step:
        """Whom to call and to call no longer, by who is allowed, connected, or called otherwise."""
        there: dict[bytes, list[Address]] = {}
        for each in self._found.values():
            there.setdefault(each.peer_id, []).append(each.address)
        hang_up: list[str] = []
        for peer_id, target in list(self._called.items()):
            stays = target.address in there.get(peer_id, ()) or is_connected(peer_id)
            if not stays or not is_allowed(peer_id):
                del self._called[peer_id]
                hang_up.append(str(target))
        call: list[PeerAddress] = []
        again_s: float | None = None
        for each in self.found:
            peer_id = each.peer_id
            if peer_id in self._called or not is_allowed(peer_id):
                continue
            if is_connected(peer_id) or is_called(peer_id) or len(self._called) >= CALLED_MAX:
                continue
            begin_s = each.seen_s + (DEFER_S if peer_id < self._own_id else 0.0)
            if now < begin_s:
                again_s = begin_s if again_s is None else min(begin_s, again_s)
                continue
            self._called[peer_id] = PeerAddress(each.address, peer=peer_id.hex())
            call.append(self._called[peer_id])
        return Step(call, hang_up, again_s)

    def not_called(self, target: PeerAddress) -> None:
        """Somebody else is called at that address."""
        self._called = {each: at for each, at in self._called.items() if at != target}
