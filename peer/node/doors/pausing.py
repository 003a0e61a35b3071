"""With whom no connection is made or taken for now (`pause`), and waiting for that to end.

The store says so (logstore/pauses.py), and a node that serves it obeys here: `Roster` ends the
connections there are, in good order, so that what came of payloads is kept; whoever calls waits
until the pause is over, and who calls here is hung up on, without a word, as he would be by a node
that is not there. He calls again later, at his own pace.

One of a peer goes for what has proved to be that peer. Who is at the other end of a connection
without TLS nobody knows: that is only ended by a pause of all.

Ends are points of the wall clock, which is looked at once more each minute while somebody waits: it
may be set meanwhile.
"""

from collections.abc import Callable
from typing import Final

import trio

from logstore import Pauses, is_in_force, wall_clock_us

_LOOK_S: Final = 60.0


class Pausing:
    """The pauses of a node. `now_us`: the wall clock."""

    def __init__(self, pauses: Pauses, now_us: Callable[[], int] = wall_clock_us) -> None:
        self._pauses = pauses
        self._now_us = now_us
        self._changed = trio.lowlevel.ParkingLot()

    def take(self, pauses: Pauses) -> None:
        """Other pauses are in force from now on."""
        self._pauses = pauses
        self._changed.unpark_all()

    def holds(self, peer_id: bytes | None = None) -> bool:
        """Whether there is to be no connection with a peer; None: with one that proves no id."""
        return is_in_force(self._pauses, peer_id, self._now_us())

    async def until_over(self, peer_id: bytes | None = None) -> None:
        """Returns once there may be one."""
        while self.holds(peer_id):
            now_us = self._now_us()
            ends = [self._pauses.get(each) or 0 for each in (None, peer_id)]
            # One that has ended is remembered until the next change, and nobody waits for it.
            left_s = min([_LOOK_S, *((end - now_us) / 1e6 for end in ends if end > now_us)])
            with trio.move_on_after(left_s):
                await self._changed.park()
