"""News of logs on their way to the sessions, in the turns of who made them (fairness.py).

Theory. A change of a log is told to every session, and where the log is new to it each looks it up,
offers it and hears that it is not wanted: about a millisecond for each session. So entries of a
thousand new authors, which cost their sender nothing, are most of what a flood costs here. They are
told in turns that whoever brought them pays for, and the look-ups that follow stand in his line.

News of one log replace each other: a session wants to know how a log is, not how it came to be so.
So no more waits here than there are logs, while a flood rests; and whoever brings the next entry of
a log has its news told in his own turn, however greedy the one before him was.

What is told in one turn where others wait is a few changes to one session, and not one change to
all of them: what a session does behind news, whatever they are, is most of what it costs to tell
one. With one change to each of twenty sessions, a thousand new logs took a fifth longer.

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
        self._changes: dict[LogKey, LogChanged] = {}
        self._round: dict[LogKey, LogChanged] = {}
        """What is being told,"""
        self._left: list[Port] = []
        """and who is still to be told of it."""

    def __len__(self) -> int:
        """Of how many logs somebody is still to be told."""
        return len(self._changes) + len(self._round)

    def put(self, change: LogChanged) -> None:
        self._changes[change.log] = change

    def discard(self, log: "LogKey") -> None:
        """There is something newer, in another pile or in this: nobody else hears of the older."""
        self._changes.pop(log, None)
        self._round.pop(log, None)

    def next_round(self, most: int | None, ports: "Collection[Port]") -> None:
        """Goes on to what has waited longest, if all have been told of what went before."""
        if not self._round:
            logs = list(self._changes)[:most]
            self._round = {log: self._changes.pop(log) for log in logs}
            self._left = list(ports)

    def take(self, most: int | None) -> "tuple[list[LogChanged], list[Port]]":
        """What to tell now, and whom."""
        changes = list(self._round.values())
        count = len(self._left) if most is None else max(1, most // max(1, len(changes)))
        ports, self._left = self._left[:count], self._left[count:]
        return changes, ports

    def told(self) -> "list[LogKey]":
        """The logs of a round that has ended."""
        if self._left:
            return []
        logs, self._round = list(self._round), {}
        return logs


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
                older.discard(log)
            if log in makers:
                pile = self._pile_of[log] = self._pile(makers[log].payer)
                pile.put(change)
            else:
                own.append(change)
        if own:
            _deliver(own, list(self._ports), None)
        self._begin()

    def _begin(self) -> None:
        """Tells of new piles at once if it is their turn; a task tells what is left of them."""
        for pile in self._begun:
            if pile.seat.turn_if_free():
                self._tell(pile)
        for pile in self._begun:
            # Most are told at once, and a task for each commit would have nothing to do.
            if not pile:
                del self._piles[pile.seat.account.payer]
        self._begun = list(filter(None, self._begun))
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
        """Tells of all that waits, or of some of it to some where others wait for their turns."""
        most = pile.seat.events_max
        with pile.seat.paid(trio.current_time()):
            # Not always anything: another pile may have taken it over before the turn came.
            while pile:
                self._step(pile, most)
                if most is not None:
                    break

    def _step(self, pile: Pile, most: int | None) -> None:
        """Tells up to `most` changes in all, and one at least."""
        pile.next_round(most, self._ports)
        changes, ports = pile.take(most)
        _deliver(changes, [port for port in ports if port in self._ports], pile.seat.account)
        for log in pile.told():
            del self._pile_of[log]

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
        while pile:
            await pile.seat.turn()
            self._tell(pile)
            await trio.lowlevel.checkpoint()
        del self._piles[pile.seat.account.payer]


def _deliver(changes: list[LogChanged], ports: "Iterable[Port]", payer: Account | None) -> None:
    for port in ports:
        port.deliver(*changes, payer=payer)
