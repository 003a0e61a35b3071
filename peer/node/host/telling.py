"""News of logs on their way to the sessions, in the turns of who made them (fairness.py).

Theory. A change of a log is told to every session, and where the log is new to it each looks it up,
offers it and hears that it is not wanted: about a millisecond for each session. So entries of a
thousand new authors, which cost their sender nothing, are most of what a flood costs here. They are
told in turns that whoever brought them pays for, and the look-ups that follow stand in his line.

News of one log replace each other: a session wants to know how a log is, not how it came to be so.
So no more waits here than there are logs, while a flood rests; and whoever brings the next entry of
a log has its news told in his own turn, however greedy the one before him was.

What was made here, or by another process that has the store open, waits for nobody.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import trio

from peer import LogChanged
from peer.node.fairness import Account, Seat, Turns

if TYPE_CHECKING:
    from wire import LogKey

    from .port import Port


class Pile:
    """News that wait for the turn of one account."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.changes: dict[LogKey, LogChanged] = {}


class Telling:
    """Tells the sessions at `ports`, some of it in `run`, which has to be running."""

    def __init__(self, ports: "Collection[Port]", turns: Turns) -> None:
        self._ports = ports
        self._turns = turns
        self._piles: dict[Account, Pile] = {}
        self._pile_of: dict[LogKey, Pile] = {}
        self._begun: list[Pile] = []
        """Piles that no task tells yet."""
        self._begins = trio.lowlevel.ParkingLot()

    def take(self, changes: Iterable[LogChanged], makers: "Mapping[LogKey, Account]") -> None:
        """Tells of changes, at once or in the turns of those who made them."""
        own: list[LogChanged] = []
        for change in changes:
            log = change.log
            if (older := self._pile_of.pop(log, None)) is not None:
                del older.changes[log]
            if log in makers:
                pile = self._pile_of[log] = self._pile(makers[log].payer)
                pile.changes[log] = change
            else:
                own.append(change)
        if own:
            self._deliver(own, None)
        self._begin()

    def _begin(self) -> None:
        """Tells of new piles at once if it is their turn; a task tells what is left of them."""
        for pile in self._begun:
            if pile.seat.turn_if_free():
                self._tell(pile)
        for pile in self._begun:
            # Most are told at once, and a task for each commit would have nothing to do.
            if not pile.changes:
                del self._piles[pile.seat.account.payer]
        self._begun = [pile for pile in self._begun if pile.changes]
        if self._begun:
            self._begins.unpark_all()

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be told."""
        return not self._pile_of

    def _pile(self, payer: Account) -> Pile:
        pile = self._piles.get(payer)
        if pile is None:
            # Like one more connection of the payer: its news rest while what else it does is less.
            pile = self._piles[payer] = Pile(self._turns.seat(Account(payer)))
            self._begun.append(pile)
        return pile

    def _tell(self, pile: Pile) -> None:
        """Tells of what waits, or of some of it where others wait for their turns."""
        most = pile.seat.events_max
        if most is not None:
            most = max(1, most // max(1, len(self._ports)))
        changes = self._taken(pile, most)
        if changes:
            with pile.seat.paid():
                self._deliver(changes, pile.seat.account)

    def _taken(self, pile: Pile, most: int | None) -> list[LogChanged]:
        """The first of a pile, which wait no more."""
        logs = list(pile.changes)[:most]
        for log in logs:
            del self._pile_of[log]
        return [pile.changes.pop(log) for log in logs]

    def _deliver(self, changes: list[LogChanged], payer: Account | None) -> None:
        for port in list(self._ports):
            port.deliver(*changes, payer=payer)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Tells what has to wait, until cancelled."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                while not self._begun:
                    await self._begins.park()
                begun, self._begun = self._begun, []
                for pile in begun:
                    nursery.start_soon(self._tell_in_turns, pile)

    async def _tell_in_turns(self, pile: Pile) -> None:
        while pile.changes:
            await pile.seat.turn()
            self._tell(pile)
        del self._piles[pile.seat.account.payer]
