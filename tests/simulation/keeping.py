"""Rules of what is kept (everyday.md 4): who deletes what, when, and what may never be gone.

Each node deletes as the product's `Keeping` does, step by step, so that anything may happen between
what was found and what is deleted. What must hold is said here once more, apart from that code:

- a payload that is deleted was dropped by somebody, or some rule that was in force named it;
- what was deleted does not come back from anybody, unless it is fetched;
- at rest nothing is left that a rule on numbers or on bytes deletes.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from logstore import (
    ALL,
    PAUSE_S,
    Follow,
    KeepRule,
    PayloadState,
    PolicyKind,
    StoredEntry,
    Subscription,
    Tidied,
    nearest_rule,
)
from peer.node.interests import Wanted
from peer.node.keeping import AGAIN_S, AGES_S, GATHER_S
from wire import LogKey

from .truth import Broken, short

if TYPE_CHECKING:
    from .node import SimNode

Deletes = tuple[Follow, KeepRule]


def draw_rule(rng: random.Random) -> KeepRule:
    """Some payloads of a log or of many, by one limit or by several."""
    while True:
        rule = KeepRule(
            last=rng.choice((None, None, 0, 1, 3, 10, 40)),
            age_s=rng.choice((None, None, None, 0.0, 0.5, 20.0, 600.0)),
            bytes=rng.choice((None, None, None, 0, 100, 3_000, 100_000)),
        )
        if rule != KeepRule():
            return rule


def may_hold(rule: KeepRule, entry: StoredEntry, newest: int) -> bool:
    """Whether a payload that is missing is due under a rule.

    One that would go by age is not asked for; when it came to be too old is left to the product.
    """
    by_number = rule.last is None or entry.seq > newest - rule.last
    by_size = rule.bytes is None or entry.payload_bytes <= rule.bytes
    return by_number and by_size and rule.age_s is None


class Keeps:
    """What one node deletes, and what it ever had a reason to."""

    def __init__(self, node: "SimNode") -> None:
        self._node = node
        self._ever: set[Deletes] = set()
        """All rules that were ever in force, or were to be."""
        self._deleted: dict[LogKey, set[int]] = defaultdict(set)
        self._fetched: dict[LogKey, set[tuple[int, int]]] = defaultdict(set)
        """What was ever asked for once, or put there, and may come though it was deleted."""
        self.deletions = Counter[LogKey]()
        """How often a payload of a log was seen to be deleted, for whatever reason."""
        self._is_due = self._is_busy = False

    # What happens

    def opened(self) -> None:
        """A process begins to work with the store."""
        node = self._node
        self._keeper = node.store.keeper()
        self._is_due = self._is_busy = False
        self.took(node.book.wanted)
        self._look_for_ages()

    def changed(self, target: Follow, rule: KeepRule) -> None:
        """A rule may be in force soon."""
        self._ever.add((target, rule))

    def follows(self, target: Follow, wanted: Subscription | None) -> None:
        """What is followed may imply a rule."""
        if wanted is not None and wanted.kind is PolicyKind.LATEST:
            self._ever.add((target, KeepRule(last=wanted.count)))

    def fetches(self, log: LogKey, first: int, last: int) -> None:
        """Somebody here asks for what may have been deleted, or puts it there himself."""
        self._fetched[log].add((first, last))

    def restored(self) -> None:
        """The store is put back to what it was."""
        self._deleted.clear()

    def forgot(self, log: LogKey) -> None:
        """Nothing is known of a log any more."""
        self._deleted.pop(log, None)

    # Deleting, as the product's `Keeping` goes about it

    def took(self, wanted: Wanted) -> None:
        """Another rule may be in force."""
        if wanted.deletes:
            self._wake()

    @property
    def at_rest(self) -> bool:
        """Whether nothing is being deleted."""
        return not (self._is_due or self._is_busy)

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            if not self._is_busy:
                self._later(GATHER_S, self._begin)

    def _look_for_ages(self) -> None:
        if self._node.book.wanted.deletes_by_age:
            self._wake()
        self._later(AGES_S, self._look_for_ages)

    def _begin(self) -> None:
        self._is_due, self._is_busy = False, True
        self._look()

    def _look(self) -> None:
        self._node.host.write(self._keeper.look, self._looked, failed=self._failed)

    def _looked(self, found: bool) -> None:
        if found:
            self._node.host.write(self._keeper.act, self._deleted_some, failed=self._failed)
            return
        self._node.host.write(self._end, self._ended, failed=self._failed)

    def _end(self) -> None:
        self._keeper.end()

    def _deleted_some(self, done: list[Tidied]) -> None:
        for each in done:
            self._node.world.note(f"{self._node.name} keeps no {each.count} of {short(each.key)}")
        self._later(PAUSE_S, self._look)

    def _ended(self, _: object) -> None:
        self._is_busy = False
        if self._is_due:
            self._later(GATHER_S, self._begin)

    def _failed(self, _: Exception) -> None:
        self._is_due, self._is_busy = True, False
        self._later(AGAIN_S, self._begin)

    def _later(self, delay_s: float, do: Callable[[], None]) -> None:
        self._node.world.clock.after(delay_s, do, self._node.pace.life)

    # What must hold

    def check(self, entry: StoredEntry) -> None:
        """An entry that has changed. Raises Broken."""
        log, seq = entry.key, entry.seq
        if entry.payload_state is PayloadState.DELETED:
            if not self._may_be_deleted(entry):
                raise Broken(f"no rule says that payload {seq} of {short(log)} goes")
            self._deleted[log].add(seq)
            self.deletions[log] += 1
        elif entry.payload_state is PayloadState.PRESENT and seq in self._deleted[log]:
            if not any(first <= seq <= last for first, last in self._fetched[log]):
                raise Broken(f"payload {seq} of {short(log)} was deleted, and has come back")
            self._deleted[log].discard(seq)

    def _may_be_deleted(self, entry: StoredEntry) -> bool:
        if self._node.drops[entry.key]:
            return True
        newest = max(self._node.world.truth.entries[entry.key])
        is_own = entry.key.author == self._node.store.author
        targets: set[Follow] = {entry.key, entry.key.author}
        if not is_own:
            targets.add(ALL)
        return any(
            target in targets
            and (rule.counts_all or (rule.last is not None and entry.seq <= newest - rule.last))
            for target, rule in self._ever
        )

    def check_end(self) -> None:
        """Nothing is left to delete, but by age. Raises Broken."""
        store = self._node.store
        for each in store.plan_tidying():
            found = nearest_rule(store.keeps(), each.key, store.author)
            if found is None or found[1].age_s is None:
                raise Broken(f"{self._node.name} has not deleted {each}")
