"""One-time syncs: what they promise to have brought when they say that they are done."""

from collections import Counter
from typing import TYPE_CHECKING

from logstore import PayloadState, StoreError
from peer import Interests
from wire import LogKey

from .guarantee import PAYLOAD, Held, Wishes
from .truth import Broken, short

if TYPE_CHECKING:
    from .link import End, Link
    from .node import SimNode


CLOSED = "closed"
"""Why a connection has ended that ended in good order."""

LOOK_S = 0.1

FAULTS_MAX = 3
"""So often a sync is promised to try again what could not be kept."""


class _Due:
    """What one side wanted of a log of what the other one held, when the sync began."""

    def __init__(self, interests: Interests, log: LogKey, theirs: Held, held: Held) -> None:
        self.interests = interests
        self.log = log
        self.newest = max(theirs.newest, held.newest)
        self.wishes = wishes = Wishes.of(interests, log, theirs.newest)
        wanted = wishes.entries(self.newest) & theirs.entries.keys()
        self.entries = wanted
        self.payloads = {
            seq
            for seq in wanted
            if theirs.state(seq) is PayloadState.PRESENT
            and wishes.wants_payload(theirs.entries[seq], self.newest)
        }

    def lacks(self, held: Held, theirs: Held) -> str | None:
        """What is still wanted of it, may still be served, and has not come."""
        newest, servable = max(self.newest, held.newest), min(held.servable, theirs.servable)
        wanted = {seq for seq in self.wishes.entries(newest) if seq <= servable}
        missing = sorted((self.entries & wanted) - held.entries.keys())
        if missing:
            return f"entries {missing[0]} to {missing[-1]}"
        for seq in sorted(self.payloads & wanted):
            if self.wishes.lacks(seq, held.state(seq)):
                return f"{PAYLOAD} {seq}"
        return None


class OneTimeSync:
    """A connection that is for once, on one side or on both."""

    def __init__(self, link: "Link") -> None:
        first, second = link.nodes
        self._link = link
        self._began_at = first.world.clock.now
        self._faults = {node.name: node.faults for node in link.nodes}
        self._drops = {node.name: _deleted_by(node) for node in link.nodes}
        self._doors = self._what_goes()
        self._due: dict[str, list[_Due]] = {}
        try:
            self._due[first.name] = self._of(second, first)
            self._due[second.name] = self._of(first, second)
        except StoreError:
            link.nodes[0].world.note("nobody knows what this sync has to bring: a disk fails")

    def _of(self, giver: "SimNode", taker: "SimNode") -> list[_Due]:
        world = taker.world
        interests = taker.book.current.interests
        logs = {*taker.book.current.offers, *giver.book.current.offers, *interests.fetches}
        return [
            _Due(interests, log, world.holdings.of(giver, log), world.holdings.of(taker, log))
            for log in sorted(logs)
            if interests.wants(log) and log.author not in world.truth.forking
            if world.doorkeeper.passes(giver, taker, log)
        ]

    def _what_goes(self) -> list[int]:
        """How often either node has changed what the other one may do, or had no room."""
        return [node.rules_changed + node.room.refusals for node in self._link.nodes]

    def finished(self, end: "End") -> None:
        """One side says that nothing is left to do in either direction. Raises Broken.

        The other side has then received everything, and may still be storing it: that it is kept
        is known once the connection has ended in good order. A node with other connections may
        leave to them what this one could bring, and a slow one may not have asked yet when nothing
        has come from it for a while: nothing is promised to these; and of payloads that another
        one asks for by itself, nothing either.
        """
        if any(each.lie is not None for each in self._link.ends):
            return
        self._check(end, end.node)
        other = end.other.node
        if all(other not in link.nodes for link in other.world.links if link is not self._link):
            self._check_later(end, other, other.faults)

    def _check_later(self, end: "End", taker: "SimNode", faults: int) -> None:
        """`faults`: those until the first side was done; then nothing can be asked for again."""

        def look() -> None:
            open_still = None in (end.ending, end.other.ending)
            if open_still or not taker.host.at_rest or taker.host.open_sinks:
                self._check_later(end, taker, faults)
            elif end.ending == CLOSED and not taker.pace.was_slow and taker.faults == faults:
                self._check(end, taker, payloads=False)

        taker.world.clock.after(LOOK_S, look, taker.pace.life)

    def _check(self, end: "End", taker: "SimNode", *, payloads: bool = True) -> None:
        if taker.faults - self._faults[taker.name] > FAULTS_MAX:
            return
        if self._doors != self._what_goes():
            # What was allowed, or had room, when it began may not be any more.
            return
        first, second = self._link.nodes
        giver = second if taker is first else first
        for due in self._due.get(taker.name, ()):
            if taker.book.current.interests != due.interests:
                # Its user has changed his mind meanwhile.
                return
            try:
                held = taker.world.holdings.of(taker, due.log)
                if held.info is None and giver.pace.late_until > self._began_at:
                    # It may not have come to speak of a log that the other one does not know.
                    continue
                what = due.lacks(held, taker.world.holdings.of(giver, due.log))
            except StoreError:
                return
            # What was deleted when it was asked for, and fetched after that, is nobody's fault.
            kept = _deleted_by(giver)[due.log] == self._drops[giver.name][due.log]
            if what and ((payloads and kept) or not what.startswith(PAYLOAD)):
                raise Broken(
                    f"{end} has synced, and {taker.name} lacks of {short(due.log)}: {what}"
                )


def _deleted_by(node: "SimNode") -> Counter[LogKey]:
    """How often payloads of each log were, or were to be, deleted, by its user or by a rule."""
    return node.drops + node.keeps.deletions
