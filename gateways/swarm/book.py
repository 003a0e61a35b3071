"""The book of request entries: which chunk is being fetched, and from whom (spec section 3.2).

Many peers offer the same chunks, and each is to come once. So all clients of a node write what they
ask for into one book. Whoever offers what is already on its way is a reserve: its batch waits for
the chunk like the one that asked, and if the chunk does not come, this peer is asked. No peer is
asked for a chunk twice, so that two that never deliver cannot pass it back and forth for ever.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateways.swarm.codec import Stream

ANSWER_S: Final = 20.0
"""After so long a chunk is asked of another peer that has offered it."""


class Asker(Protocol):
    """The client of one peer."""

    def ask(self, address: bytes) -> None:
        """Asks the peer for a chunk by its address."""

    def settle(self, batch: "Batch", now: float) -> None:
        """All chunks of a batch are on disk."""


@dataclass(slots=True, eq=False)
class Batch:
    """An offer that is answered, and what of it is not on disk yet."""

    asker: Asker
    stream: Stream
    first: int
    last: int
    since: float
    """When the peer was last asked for something of it."""
    missing: set[bytes] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class _Entry:
    """A chunk that is being fetched."""

    since: float
    asked: list[Asker]
    """All that were, the last of them for `ANSWER_S`."""
    waiting: list[Batch]
    is_taken: bool = False
    """It has come, and is on its way to the disk."""


class Book:
    """What all clients of a node are fetching. `holds`: whether a chunk is on disk here."""

    def __init__(self, holds: Callable[[bytes], bool]) -> None:
        self._holds = holds
        self._entries: dict[bytes, _Entry] = {}
        # In the order in which they were asked for, so that the first is due first.
        self._due: dict[bytes, float] = {}
        self.sought: set[bytes] = set()
        """Addresses that somebody waits for: who offers them is asked at once."""

    def want(self, batch: Batch, addresses: Iterable[bytes], now: float) -> list[bool]:
        """Whether each is to be asked for by the answer to its offer; the batch waits for all.

        Raises what `holds` does, and has changed nothing then: a batch of which half is known would
        be complete when that half is here.
        """
        lacking = [(each, not self._holds(each)) for each in addresses]
        return [is_lacking and self._want(batch, address, now) for address, is_lacking in lacking]

    def _want(self, batch: Batch, address: bytes, now: float) -> bool:
        if address in batch.missing:
            return False
        batch.missing.add(address)
        entry = self._entries.get(address)
        if entry is None:
            entry = self._entries[address] = _Entry(now, [], [])
        entry.waiting.append(batch)
        if entry.is_taken or batch.asker in entry.asked:
            return False
        if address in self.sought:
            # Not by its bit as well, or it would come twice.
            self._ask(address, entry, batch.asker, now)
            batch.asker.ask(address)
            return False
        is_overdue = not entry.asked or now >= entry.since + ANSWER_S
        if is_overdue:
            self._ask(address, entry, batch.asker, now)
        return is_overdue

    def _ask(self, address: bytes, entry: _Entry, asker: Asker, now: float) -> None:
        entry.asked.append(asker)
        entry.since = now
        self._due.pop(address, None)
        self._due[address] = now
        for batch in entry.waiting:
            if batch.asker is asker:
                batch.since = now

    def take(self, asker: Asker, address: bytes) -> bool:
        """Whether a chunk that has come is waited for by a batch, and did not come before.

        It has to be of whom it was asked; who is looked for at other peers too may have any.
        """
        entry = self._entries.get(address)
        if entry is None or entry.is_taken:
            return False
        if asker not in entry.asked and address not in self.sought:
            return False
        entry.is_taken = True
        self._due.pop(address, None)
        return True

    def recorded(self, addresses: Iterable[bytes], now: float) -> None:
        """These chunks, by whomever they came, are on disk: `holds` says so from now on."""
        complete = []
        for address in addresses:
            entry = self._entries.pop(address, None)
            self._due.pop(address, None)
            for batch in entry.waiting if entry is not None else ():
                batch.missing.discard(address)
                if not batch.missing:
                    complete.append(batch)
        for batch in complete:
            batch.asker.settle(batch, now)

    def lost(self, addresses: Iterable[bytes], now: float) -> None:
        """These chunks have come, and cannot be kept: whoever still waits asks again, when due."""
        for address in addresses:
            entry = self._entries.get(address)
            if entry is None:
                continue
            entry.is_taken = False
            if entry.waiting:
                entry.since = self._due[address] = now
            else:
                del self._entries[address]

    def look(self, batch: Batch, now: float) -> None:
        """Sees what of a batch has come by another way than from peers, such as another process."""
        missing = [each for each in batch.missing if not self._entries[each].is_taken]
        self.recorded([each for each in missing if self._holds(each)], now)

    def is_owed(self, batch: Batch) -> bool:
        """Whether its peer was asked for something of it that has not come.

        What another peer was asked for, or is on its way to the disk, is no fault of this one.
        """
        entries = (self._entries[each] for each in batch.missing)
        return any(not each.is_taken and batch.asker in each.asked for each in entries)

    # Who does not deliver ------------------------------------------------------------------------

    def forget(self, batch: Batch) -> None:
        """Nobody waits for this batch any more. What was asked for may come all the same."""
        for address in batch.missing:
            entry = self._entries[address]
            entry.waiting.remove(batch)
            if not (entry.waiting or entry.is_taken or address in self._due):
                del self._entries[address]

    def leave(self, asker: Asker, now: float) -> None:
        """A peer has left: what it was to deliver is asked of another that has offered it."""
        for address, entry in [*self._entries.items()]:
            entry.waiting = [each for each in entry.waiting if each.asker is not asker]
            was_last = entry.asked[-1:] == [asker]
            entry.asked = [each for each in entry.asked if each is not asker]
            if not entry.is_taken and (was_last or address not in self._due):
                self._pass_on(address, entry, now)

    @property
    def next_deadline(self) -> float | None:
        """When `advance` is to be called at the latest."""
        return next((each + ANSWER_S for each in self._due.values()), None)

    def advance(self, now: float) -> None:
        """Asks others for what has not come in time. `now`: seconds."""
        while (due := self.next_deadline) is not None and now >= due:
            address = next(iter(self._due))
            entry = self._entries[address]
            if entry.waiting and self._holds(address):
                # By another way than from peers.
                self.recorded([address], now)
            else:
                self._pass_on(address, entry, now)

    def _pass_on(self, address: bytes, entry: _Entry, now: float) -> None:
        """Asks the next peer, if there is one that was not asked yet."""
        self._due.pop(address, None)
        if not entry.waiting:
            del self._entries[address]
            return
        # Whose stream has ended since it was asked is no debtor, and may be asked when it is back.
        offering = [each.asker for each in entry.waiting]
        entry.asked = [each for each in entry.asked if each in offering]
        asker = next((each for each in offering if each not in entry.asked), None)
        if asker is not None:
            self._ask(address, entry, asker, now)
            asker.ask(address)
