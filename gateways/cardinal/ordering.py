"""The order of blocks: which of them are the chain, and every change of that (spec 3.4, 3.5).

Complete blocks come in any order; what comes out are steps, each from one head to another: blocks
to take back, blocks to add. Only headers are held here, of the last 2T numbers. Sans-io.

The blocks known make trees. Each tree hangs on a hash that is not here, the parent of its first
block: once that comes, all that hangs on it is *below* it, and its tree becomes part of another
one. A tree has its leaves in a heap, and of two trees that become one the smaller heap goes into
the larger. So neither what is heaviest below a block nor whether two blocks have a way to each
other is ever walked for: 100,000 blocks that come backwards cost 100,000 look-ups.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from gateways.cardinal.gone import Gone
from gateways.cardinal.headers import (
    THRESHOLD,
    Head,
    Header,
    Index,
    NoIndex,
    Outcome,
    Step,
    TooDeep,
    falling,
)

WAITING_MAX: Final = 65_536
"""Complete blocks that wait for a parent; above it the lowest leave memory."""
_CLEAN_MIN: Final = 10_000
_BARRED_MAX: Final = 1_000_000
_BARS_MAX: Final = 1_000
"""Reorganisations of which it is known what they have taken back: each later one looks at them."""


class _Hole(Exception):  # noqa: N818 - what it is
    """A block on the way is missing."""


@dataclass(slots=True)
class _Bar:
    """What a Reorg has taken back, and what is below it: no candidates."""

    ancestor: bytes
    root: bytes
    """The oldest of what was taken back: all others are below it."""
    hashes: set[bytes] = field(default_factory=set)


_Leaves = list[tuple[int, int, bytes]]
"""A heap of the leaves of a tree, and of some that are none any more: the weight, negative, which
was complete first, and the block.
"""


class Ordering:
    """The order of the blocks of one chain.

    `start`: behind which block it begins; without one the first that is complete is given out.
    `threshold`: how many blocks are taken back at most. `allowed`: the only hash that a number may
    have. `index`: where blocks are found again that have left memory, of which `waiting_max` that
    are no part of the chain stay.
    """

    def __init__(
        self,
        start: Head | None = None,
        *,
        threshold: int = THRESHOLD,
        allowed: Mapping[int, bytes] | None = None,
        index: Index | None = None,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        self.head = start
        self._threshold = threshold
        self._allowed = dict(allowed or {})
        self._index = index or NoIndex()
        self._waiting_max = waiting_max
        self._known: dict[bytes, Header] = {}
        self._children: dict[bytes, dict[bytes, None]] = {}
        """In the order in which they were complete."""
        self._refused: dict[bytes, int] = {}
        """Blocks that can be no part of the chain, and their numbers."""
        self._barred: dict[bytes, _Bar] = {}
        """Blocks, in memory or not, that are no candidates."""
        self._bars: list[_Bar] = []
        """The oldest first."""
        self._passed: dict[bytes, Header] = {}
        """Blocks that became too old by what is said now, of which it tells."""
        self._completed: dict[bytes, int] = {}
        self._count = 0
        self._trees: dict[bytes, _Leaves] = {}
        """By the hash that they hang on."""
        self._above: dict[bytes, bytes] = {}
        """Of each hash in a tree one that is nearer to its root: union and find."""
        self._too_deep: set[bytes] = set()
        """On the branches that were found to be too deep, as long as the head only goes on."""
        self._numbers: list[tuple[int, bytes]] = []
        """Of the blocks known, lowest first; some may be gone."""
        self._gone = Gone()
        self._clean_at = _CLEAN_MIN

    # What happens -------------------------------------------------------------------------------

    def complete(self, block: Header) -> list[Outcome]:
        """A block is complete, for the first time or again."""
        self._passed = {}
        outcomes = self._arrive(block)
        while self._gone and (more := self._go_on()):
            outcomes += more
        return outcomes

    def _go_on(self) -> list[Outcome]:
        """What hangs on the head may have left memory while it waited, and is here by parts."""
        head = self.head
        assert head is not None
        outcomes = []
        if head.hash in self._gone.parents:
            for child in self._index.children(head.hash):
                outcomes += self._arrive(child)
        if self.head is head:
            below = [
                each
                for each in self._subtree(head.hash)
                if each.hash != head.hash and self._is_leaf(each.hash, self._completed[each.hash])
            ]
            if below:
                best = min(below, key=lambda each: (-each.weight, self._completed[each.hash]))
                outcomes += self._follow([best], head)
        return outcomes if self.head is not head else []

    def _arrive(self, block: Header) -> list[Outcome]:
        if block.hash in self._known or block.hash in self._refused:
            return []
        if self._gone:
            self._recall_above(block)
        if not self._admit(block):
            return []
        if block.hash in self._gone.parents and self._is_connected(block.parent):
            self._recall_below(block.hash)
            if block.hash in self._refused:
                # Its parent hangs on it: they lie.
                return []
        best = self._heaviest_below(block)
        self._unite(block)
        if self.head is None:
            self.head = Head(block.number, block.hash, block.weight)
            return [Step((block.hash,), (), self.head)]
        outcomes = self._choose(block, best, self.head)
        self._forget(self.head.number - 2 * self._threshold)
        return outcomes

    def recall(self, blocks: Iterable[Header]) -> None:
        """Blocks that were complete before: they are known again, and nothing comes of it."""
        for block in blocks:
            is_new = block.hash not in self._known and block.hash not in self._refused
            if is_new and self._admit(block):
                self._unite(block)

    def _admit(self, block: Header) -> bool:
        """Rule 1: whether a block that is not known is one from now on."""
        too_low = [
            each
            for each in self._children.get(block.hash, ())
            if self._known[each].number <= block.number
        ]
        if not self._fits_head(block, too_low):
            return False
        if not self._is_possible(block):
            self._refuse(block.hash, block.number)
            return False
        # Whoever came before its parent was known could not be compared with it.
        for child in too_low:
            self._refuse(child, self._known[child].number)
        self._keep(block)
        return True

    def _is_connected(self, hash_: bytes) -> bool:
        """Whether there is a way from a hash to the head."""
        return self.head is not None and self._find(hash_) == self._find(self.head.hash)

    def _recall_below(self, hash_: bytes) -> None:
        """What hangs on a block and has left memory, as much as there is room for."""
        room = self._known_max - len(self._known)
        if room > 0:
            self.recall(self._index.below(hash_, room))

    def _recall_above(self, block: Header) -> None:
        """What a block hangs on and has left memory."""
        number, hash_ = block.number, block.parent
        while hash_ not in self._known and hash_ in self._gone.hashes:
            above = self._index.header(hash_)
            if above is None or above.number >= number or not self._is_recent(above.number):
                return
            self.recall((above,))
            number, hash_ = above.number, above.parent

    def _is_recent(self, number: int) -> bool:
        return self.head is not None and number >= self.head.number - 2 * self._threshold

    @property
    def _known_max(self) -> int:
        return self._waiting_max + 2 * self._threshold

    def _is_possible(self, block: Header) -> bool:
        """Whether a block may be part of the chain at all."""
        parent = self._known.get(block.parent)
        return (
            self._allowed.get(block.number, block.hash) == block.hash
            and block.hash not in self._refused
            and block.parent not in self._refused
            and block.parent != block.hash
            and (parent is None or parent.number < block.number)
            and not (
                self.head is not None
                and block.parent == self.head.hash
                and block.number <= self.head.number
            )
        )

    def _fits_head(self, block: Header, too_low: Collection[bytes]) -> bool:
        """Whether what was given out stays possible. `too_low`: what hangs on it and cannot.

        Who says later that it cannot be lies about its head, or an ancestor of that. He is passed
        over, and not refused: his block has the hash of a true one, on which the chain hangs.
        """
        head = self.head
        if head is None:
            return True
        if block.hash == head.hash:
            return block.number == head.number and block.parent != block.hash
        blamed = {*too_low}
        return not (blamed and any(each.hash in blamed for each in self._path(head.hash)))

    def _path(self, hash_: bytes) -> Iterator[Header]:
        """A block and what it hangs on, as far as that is in memory."""
        return falling(self._known.get, hash_)

    def _way(self, hash_: bytes) -> Iterator[Header]:
        """The same, as far as that is known at all."""
        return falling(self._found, hash_)

    def reorg(self, number: int, hash_: bytes) -> Step | None:
        """The head becomes this ancestor; what is above it is taken back, as far as it is known.

        Those blocks and all below them are not chosen any more, until a later one goes below them,
        or among them. A block that is beside the chain, or above it, becomes part of it. One of
        which nothing is known will, once it is here: until then the head is what it may hang on.
        None: there is no head yet.
        """
        if self.head is None:
            return None
        added, removed, head = self._way_to(number, hash_, self.head)
        if removed:
            self._lift(hash_, head.number)
            bar = self._begin_bar(hash_, removed[-1])
            for each in removed:
                bar.hashes.add(each)
                self._bar(bar, each)
        self.head = head
        self._too_deep.clear()
        return Step(tuple(reversed(added)), tuple(reversed(removed)), head)

    def _way_to(
        self, number: int, hash_: bytes, head: Head
    ) -> tuple[list[bytes], list[bytes], Head]:
        """What is added and removed on the way to an ancestor, the newest first, and what is head
        then.
        """
        added: list[bytes] = []
        removed: list[bytes] = []
        with suppress(_Hole):
            for is_ours, each in self._walk(head.hash, hash_):
                (removed if is_ours else added).append(each)
            known = self._found(hash_) or Header(hash_, number, 0, b"")
            return added, removed, Head(known.number, hash_, known.weight)
        removed.clear()
        for block in self._way(head.hash):
            if block.number < number:
                return [], removed, Head(block.number, block.hash, block.weight)
            removed.append(block.hash)
        is_below = not removed and head.number < number
        return [], removed, head if is_below else Head(number, hash_, 0)

    def bars(self) -> list[tuple[bytes, bytes]]:
        """What is barred, for who goes on later: each ancestor, and the first block above it."""
        return [(each.ancestor, each.root) for each in self._bars]

    def _begin_bar(self, ancestor: bytes, root: bytes) -> _Bar:
        if len(self._bars) >= _BARS_MAX:
            self._end_bar(self._bars[0])
        bar = _Bar(ancestor, root)
        self._bars.append(bar)
        return bar

    def _end_bar(self, bar: _Bar) -> None:
        self._bars.remove(bar)
        for hash_ in bar.hashes:
            if self._barred.get(hash_) is bar:
                del self._barred[hash_]

    def bar(self, ancestor: bytes, root: bytes) -> None:
        """Bars again what `bars` has said, once the blocks that were complete are known again."""
        bar = self._begin_bar(ancestor, root)
        for hash_ in (root, *(each.hash for each in self._index.below(root, _BARRED_MAX))):
            if hash_ not in self._barred:
                bar.hashes.add(hash_)
                self._bar(bar, hash_)

    def _lift(self, ancestor: bytes, number: int) -> None:
        """What hangs on an ancestor, near or far, may be chosen again, as may that it is among."""
        for bar in [*self._bars]:
            if ancestor in bar.hashes or self._is_below(bar.ancestor, ancestor, number):
                self._end_bar(bar)
                for hash_ in bar.hashes:
                    self._offer(hash_)

    def _is_below(self, hash_: bytes, ancestor: bytes, number: int) -> bool:
        """Whether a block hangs on another one with a number, or is it."""
        way = itertools.takewhile(lambda each: each.number > number, self._way(hash_))
        return hash_ == ancestor or any(each.parent == ancestor for each in way)

    def _bar(self, bar: _Bar, hash_: bytes) -> None:
        """A block, and all below it that is in memory, is no candidate."""
        self._barred[hash_] = bar
        pending = [hash_]
        while pending:
            for child in self._children.get(pending.pop(), ()):
                if child not in self._barred:
                    self._barred[child] = bar
                    bar.hashes.add(child)
                    pending.append(child)

    # What is known ------------------------------------------------------------------------------

    def knows(self, hash_: bytes) -> bool:
        """Whether the block is complete, and not too old to be remembered."""
        return hash_ in self._known

    def header(self, hash_: bytes) -> Header | None:
        """Of a block that is known, or was until the last one was complete."""
        return self._known.get(hash_) or self._passed.get(hash_)

    def is_refused(self, hash_: bytes) -> bool:
        """Whether the block can be no part of the chain."""
        return hash_ in self._refused

    def __len__(self) -> int:
        return len(self._known)

    def _keep(self, block: Header) -> None:
        self._known[block.hash] = block
        self._count += 1
        self._completed[block.hash] = block.at or self._count
        self._children.setdefault(block.parent, {})[block.hash] = None
        heappush(self._numbers, (block.number, block.hash))
        bar = self._barred.get(block.parent)
        if bar is not None:
            bar.hashes.add(block.hash)
            self._bar(bar, block.hash)

    def _refuse(self, hash_: bytes, number: int) -> None:
        """A block, and what waits below it, is no part of the chain."""
        self._refused[hash_] = number
        if len(self._refused) > self._waiting_max:
            # The oldest: what it keeps out would come again as a block that waits for its parent.
            del self._refused[next(iter(self._refused))]
        for below in [*self._subtree(hash_)]:
            self._refused[below.hash] = below.number
            self._drop(below.hash)

    def _drop(self, hash_: bytes) -> None:
        block = self._known.pop(hash_, None)
        if block is None:
            return
        self._completed.pop(hash_, None)
        siblings = self._children.get(block.parent)
        if siblings is not None and hash_ in siblings:
            del siblings[hash_]
            if not siblings:
                del self._children[block.parent]
                self._offer(block.parent)

    def _subtree(self, hash_: bytes) -> Iterator[Header]:
        """A block, if it is known, and all below it."""
        pending, seen = [hash_], {hash_}
        while pending:
            at = pending.pop()
            block = self._known.get(at)
            if block is not None:
                yield block
            for child in self._children.get(at, ()):
                if child not in seen:
                    seen.add(child)
                    pending.append(child)

    # Trees --------------------------------------------------------------------------------------

    def _find(self, hash_: bytes) -> bytes:
        """The hash that a tree hangs on."""
        above = self._above
        root = hash_
        while (nearer := above.get(root)) is not None:
            root = nearer
        while (nearer := above.get(hash_)) is not None:
            above[hash_] = root
            hash_ = nearer
        return root

    def _heaviest_below(self, block: Header) -> Header | None:
        """The heaviest leaf of what hangs on a block that is not part of another tree yet."""
        leaves = self._trees.get(block.hash)
        if leaves is None or not self._children.get(block.hash):
            return block if block.hash not in self._barred else None
        return self._top(leaves)

    def _unite(self, block: Header) -> None:
        """A block's tree becomes part of its parent's."""
        root = self._find(block.parent)
        if root == block.hash:
            # Its parents lead back to it: somebody lies. The tree hangs on a block that is here.
            return
        leaves = self._trees.pop(block.hash, [])
        if not self._children.get(block.hash):
            self._push(leaves, block.hash)
        other = self._trees.get(root, [])
        few, many = (leaves, other) if len(leaves) <= len(other) else (other, leaves)
        for each in few:
            heappush(many, each)
        self._trees[root] = many
        self._above[block.hash] = root

    def _push(self, leaves: _Leaves, hash_: bytes) -> None:
        block = self._known[hash_]
        heappush(leaves, (-block.weight, self._completed[hash_], hash_))

    def _offer(self, hash_: bytes) -> None:
        """A block may be a leaf again that was thrown out of its heap."""
        if hash_ in self._known and not self._children.get(hash_):
            self._push(self._trees.setdefault(self._find(hash_), []), hash_)

    def _is_leaf(self, hash_: bytes, completed: int) -> bool:
        is_same = self._completed.get(hash_) == completed
        return is_same and not self._children.get(hash_) and hash_ not in self._barred

    def _top(self, leaves: _Leaves) -> Header | None:
        """The heaviest leaf; of equal ones that which was complete first."""
        while leaves:
            _, completed, hash_ = leaves[0]
            if self._is_leaf(hash_, completed):
                return self._known[hash_]
            heappop(leaves)
        return None

    # The choice ---------------------------------------------------------------------------------

    def _choose(self, block: Header, best: Header | None, head: Head) -> list[Outcome]:
        """Rules 2 to 5."""
        is_ancestor = block.hash == head.hash or self._is_ancestor(block, head)
        if block.number < head.number - self._threshold and not is_ancestor:
            return []
        if block.parent == head.hash:
            candidates = [best] if best is not None else []
        elif is_ancestor:
            candidates = self._heavier(head)
        else:
            candidates = [best] if best is not None and best.weight > head.weight else []
        return self._follow(candidates, head)

    def _follow(self, candidates: Iterable[Header], head: Head) -> list[Outcome]:
        """The step to the first candidate to which there is one."""
        found: list[Outcome] = []
        for candidate in candidates:
            outcome = self._plan(candidate, head)
            if outcome is not None:
                found.append(outcome)
            if isinstance(outcome, Step):
                self._go(outcome)
                break
        return found

    def _heavier(self, head: Head) -> list[Header]:
        """All leaves that are heavier than the head and have a way to it, heaviest first."""
        leaves = sorted(set(self._trees.get(self._find(head.hash), ())))
        return [
            self._known[hash_]
            for weight, completed, hash_ in leaves
            if -weight > head.weight and hash_ != head.hash and self._is_leaf(hash_, completed)
        ]

    def _is_ancestor(self, block: Header, head: Head) -> bool:
        return block.number < head.number and any(
            each.parent == block.hash
            for each in itertools.takewhile(
                lambda each: each.number > block.number, self._path(head.hash)
            )
        )

    def _plan(self, candidate: Header, head: Head) -> Outcome | None:
        """The step to a candidate; None where a block is missing on the way."""
        if self._find(candidate.hash) != self._find(head.hash):
            return None
        added: list[bytes] = []
        removed: list[bytes] = []
        with suppress(_Hole):
            for is_ours, each in self._walk(head.hash, candidate.hash):
                if not is_ours and each in self._too_deep:
                    # So is whatever goes on behind it, which need not walk so far again.
                    self._too_deep.update(added)
                    return None
                (removed if is_ours else added).append(each)
                if len(removed) > self._threshold:
                    return self._note_too_deep(candidate, added)
            to = Head(candidate.number, candidate.hash, candidate.weight)
            return Step(tuple(reversed(added)), tuple(reversed(removed)), to)
        return None

    def _walk(self, ours: bytes, theirs: bytes) -> Iterator[tuple[bool, bytes]]:
        """From two blocks down to where both meet, the higher one first: each block on the way.

        Whether it is on our side, and its hash. Raises _Hole where a block is missing. The common
        ancestor itself need not be here.
        """
        # The index has what liars say too, who make circles: a way ends where numbers do not fall.
        my_way, other_way = self._way(ours), self._way(theirs)
        mine, other = next(my_way, None), next(other_way, None)
        while ours != theirs:
            if mine is not None and (other is None or mine.number > other.number):
                yield True, ours
                ours, mine = mine.parent, next(my_way, None)
            elif other is not None:
                yield False, theirs
                theirs, other = other.parent, next(other_way, None)
            else:
                raise _Hole

    def _found(self, hash_: bytes) -> Header | None:
        """A block on the way, in memory or not any more."""
        return self._known.get(hash_) or self._index.header(hash_)

    def _note_too_deep(self, candidate: Header, branch: list[bytes]) -> TooDeep:
        # Whoever goes on with this branch comes upon one of these, and is not told of again.
        self._too_deep.update(branch or [candidate.hash])
        return TooDeep(candidate.number, candidate.hash)

    def _go(self, step: Step) -> None:
        self.head = step.head
        if step.removed:
            self._too_deep.clear()

    # What is forgotten --------------------------------------------------------------------------

    def _forget(self, lowest: int) -> None:
        """What is too old, and the lowest of too many that are no part of the chain."""
        numbers = self._numbers
        while numbers and numbers[0][0] < lowest:
            hash_ = heappop(numbers)[1]
            if hash_ in self._known:
                self._passed[hash_] = self._known[hash_]
                self._drop(hash_)
        if len(self._known) > self._known_max:
            self._forget_many(self._waiting_max * 7 // 8, lowest)
        if len(self._above) - len(self._known) + len(self._refused) > self._clean_at:
            self._build_anew(lowest)
            self._clean_at = 2 * len(self._refused) + _CLEAN_MIN

    def _forget_many(self, left: int, lowest: int) -> None:
        """An eighth at a time: each look at all there is has many to come before the next."""
        chain = (
            {each.hash for each in self._path(self.head.hash)} if self.head is not None else set()
        )
        while self._numbers and len(self._known) > left + len(chain):
            hash_ = heappop(self._numbers)[1]
            if hash_ in self._known and hash_ not in chain:
                self._gone.add(self._known[hash_])
                self._drop(hash_)
        # What is gone hangs on nothing here: where it comes again, it is a block like any other.
        self._build_anew(lowest)

    def _build_anew(self, lowest: int) -> None:
        """Trees of what is known alone."""
        self._above.clear()
        self._trees.clear()
        # Sorted they are a heap, too; and each stands behind what it hangs on.
        self._numbers = sorted((block.number, hash_) for hash_, block in self._known.items())
        for _, hash_ in self._numbers:
            block = self._known[hash_]
            root = self._above[hash_] = self._above.get(block.parent, block.parent)
            leaves = self._trees.setdefault(root, [])
            if hash_ not in self._children:
                self._push(leaves, hash_)
        for hash_ in [each for each, number in self._refused.items() if number < lowest]:
            del self._refused[hash_]
        self._too_deep &= self._known.keys()
