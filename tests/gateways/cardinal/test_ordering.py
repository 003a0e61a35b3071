"""The order of blocks: upstream's tests, vectors, and a model that walks for everything."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.cardinal.headers import Head, Header, Outcome, Step, TooDeep
from gateways.cardinal.ordering import Ordering

from .vectors import VECTORS

FAR = 1 << 40
LETTERS = VECTORS["letters"]


def hash_of(number: int) -> bytes:
    return number.to_bytes(32, "big", signed=True)


def steps(outcomes: Iterable[Outcome]) -> list[Step]:
    return [each for each in outcomes if isinstance(each, Step)]


@pytest.mark.parametrize("letters", LETTERS["cases"])
def test_the_cases_of_upstream(letters: str) -> None:
    parents = LETTERS["parents"]

    def number(letter: str) -> int:
        return 0 if letter == "a" else number(parents[letter]) + 1

    ordering, said = Ordering(Head(0, b"a", 0)), []
    for each in letters:
        at = number(each)
        parent = parents.get(each, "?").encode()
        for step in steps(ordering.complete(Header(each.encode(), at, at, parent))):
            removed = b"".join(step.removed).decode()
            said.append(f"+{b''.join(step.added).decode()}" + (f" -{removed}" if removed else ""))
    assert said == LETTERS["cases"][letters]


@pytest.mark.parametrize("case", VECTORS["ordering"])
def test_the_vectors(case: dict[str, Any]) -> None:
    blocks = {
        each["id"]: Header(
            hash_of(each["id"]), each["number"], each["weight"], hash_of(each["parent"])
        )
        for each in case["blocks"]
    }
    start = blocks[case["start"]]
    ordering = Ordering(Head(start.number, start.hash, start.weight))
    found = [
        [
            [int.from_bytes(each) for each in step.added],
            [int.from_bytes(each) for each in step.removed],
        ]
        for arrival in case["arrivals"]
        for step in steps(ordering.complete(blocks[arrival]))
    ]
    assert found == case["updates"]


class Model:
    """Section 3.4 by the letter: nothing is remembered but blocks, and everything is walked for."""

    def __init__(self, start: Head | None, threshold: int) -> None:
        self.head = start
        self.threshold = threshold
        self.blocks: dict[bytes, Header] = {}
        self.blacklist: set[bytes] = set()

    def below(self, hash_: bytes) -> set[bytes]:
        found = {hash_}
        while more := {
            each.hash
            for each in self.blocks.values()
            if each.parent in found and each.hash not in found
        }:
            found |= more
        return found

    def leaves(self, among: Iterable[bytes]) -> list[Header]:
        """Heaviest first, of equal ones that which was complete first."""
        parents = {each.parent for each in self.blocks.values()}
        found = [each for each in self.blocks.values() if each.hash in set(among) - parents]
        return sorted(found, key=lambda each: -each.weight)

    def refuse(self, hash_: bytes) -> None:
        for each in self.below(hash_):
            self.blacklist.add(each)
            self.blocks.pop(each, None)

    def complete(self, block: Header) -> Step | None:
        if block.hash in self.blocks or block.hash in self.blacklist:
            return None
        parent = self.blocks.get(block.parent)
        if self.contradicts_head(block):
            return None
        head = self.head
        is_low = head is not None and block.parent == head.hash and block.number <= head.number
        if block.parent in self.blacklist or is_low or (parent and parent.number >= block.number):
            self.refuse(block.hash)
            return None
        for child in [each for each in self.blocks.values() if each.parent == block.hash]:
            if child.number <= block.number:
                self.refuse(child.hash)
        self.blocks[block.hash] = block
        if self.head is None:
            self.head = Head(block.number, block.hash, block.weight)
            return Step((block.hash,), (), self.head)
        is_ancestor = block.hash in self.path(self.head.hash)
        if block.number < self.head.number - self.threshold and not is_ancestor:
            return None
        heaviest = self.leaves(self.below(block.hash))[:1]
        weight = self.head.weight
        if block.parent == self.head.hash:
            candidates = heaviest
        elif is_ancestor:
            candidates = [each for each in self.leaves(self.blocks) if each.weight > weight]
        else:
            candidates = [each for each in heaviest if each.weight > weight]
        for each in candidates:
            step = self.plan(each)
            if step is not None:
                self.head = step.head
                return step
        return None

    def contradicts_head(self, block: Header) -> bool:
        """What was given out stays possible."""
        if self.head is None:
            return False
        *path, missing = self.path(self.head.hash)
        lowest = self.blocks[path[-1]] if path else None
        return missing == block.hash and lowest is not None and lowest.number <= block.number

    def path(self, hash_: bytes) -> list[bytes]:
        """From a hash down to the first that is missing, included."""
        found = [hash_]
        while (block := self.blocks.get(found[-1])) is not None:
            found.append(block.parent)
        return found

    def plan(self, candidate: Header) -> Step | None:
        assert self.head is not None
        ours, theirs = self.path(self.head.hash), self.path(candidate.hash)
        common = next((each for each in ours if each in theirs), None)
        if common is None or ours.index(common) > self.threshold:
            return None
        added, removed = theirs[: theirs.index(common)], ours[: ours.index(common)]
        head = Head(candidate.number, candidate.hash, candidate.weight)
        return Step(tuple(reversed(added)), tuple(reversed(removed)), head)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Head | None, int, list[Header]]:
    """A start or none, a threshold, and blocks in the order they come; some come twice."""
    count = draw(st.integers(1, 24))
    blocks = [Header(hash_of(0), 0, 0, hash_of(-1))]
    for number in range(1, count):
        parent = blocks[
            draw(st.integers(max(0, number - draw(st.sampled_from((1, 3, 24)))), number - 1))
        ]
        jump = draw(st.sampled_from((1, 1, 1, 2, 0)))
        weight = parent.weight + draw(st.integers(0, 3))
        blocks.append(Header(hash_of(number), parent.number + jump, weight, parent.hash))
    arrivals = [*blocks, *draw(st.lists(st.sampled_from(blocks), max_size=4))]
    arrivals = draw(st.permutations(arrivals))
    first = blocks[draw(st.integers(0, min(3, count - 1)))]
    start = draw(st.sampled_from((None, Head(first.number, first.hash, first.weight))))
    return start, draw(st.sampled_from((0, 1, 2, 3, FAR))), arrivals


@given(histories())
def test_it_does_what_the_model_does(history: tuple[Head | None, int, list[Header]]) -> None:
    start, threshold, arrivals = history
    # What is forgotten is asked for by nobody here: numbers stay below twice any threshold but 0.
    ordering, model = Ordering(start, threshold=threshold), Model(start, threshold)
    ordering._forget = lambda _: None  # type: ignore[method-assign, assignment]
    chain: list[bytes] = []
    for block in arrivals:
        found = steps(ordering.complete(block))
        expected = model.complete(block)
        assert found == ([] if expected is None else [expected])
        for step in found:
            chain = applied(chain, step)
        assert ordering.head == model.head


def applied(chain: Sequence[bytes], step: Step) -> list[bytes]:
    """A chain behind a step, which has to fit: what is taken back is its end, or more."""
    here = min(len(chain), len(step.removed))
    assert list(chain[len(chain) - here :]) == list(step.removed[len(step.removed) - here :])
    return [*chain[: len(chain) - here], *step.added]


def chain_of(count: int, first: int = 1, *, parent: int = 0, heavier: int = 0) -> list[Header]:
    """Blocks one behind the other; `first` is the hash of the first."""
    blocks = []
    number = parent + 1
    for at in range(first, first + count):
        blocks.append(Header(hash_of(at), number, number + heavier, hash_of(parent)))
        parent, number = at, number + 1
    return blocks


@pytest.mark.parametrize("order", ["backwards", "shuffled", "forwards"])
def test_many_blocks_are_ordered_in_one_step_or_many(order: str) -> None:
    blocks = chain_of(30_000)
    if order == "backwards":
        blocks.reverse()
    elif order == "shuffled":
        random.Random(1).shuffle(blocks)
    ordering = Ordering(Head(0, hash_of(0), 0))
    added = [
        each for block in blocks for step in steps(ordering.complete(block)) for each in step.added
    ]
    assert added == [hash_of(number) for number in range(1, 30_001)]
    # The headers of the last 256 numbers are left.
    assert len(ordering) <= 257


def test_a_branch_that_is_too_deep_is_told_once_and_costs_no_walk_each_time() -> None:
    ordering = Ordering(Head(0, hash_of(0), 0), threshold=8)
    for each in chain_of(12):
        ordering.complete(each)
    told = [
        outcome
        for each in chain_of(20_000, 1_000, parent=0, heavier=1)
        for outcome in ordering.complete(each)
    ]
    # Its beginning is below what is followed, and not heavier for long.
    assert [type(each) for each in told] == [TooDeep]
    assert ordering.head == Head(12, hash_of(12), 12)


class Held:
    """Everything that was ever complete. `looks_max`: nobody needs more of them."""

    def __init__(self, looks_max: int | None = None) -> None:
        self.headers: dict[bytes, Header] = {}
        self.looks_left = looks_max

    def header(self, hash_: bytes) -> Header | None:
        if self.looks_left is not None:
            self.looks_left -= 1
            assert self.looks_left
        return self.headers.get(hash_)

    def children(self, hash_: bytes) -> list[Header]:
        return [each for each in self.headers.values() if each.parent == hash_]

    def below(self, hash_: bytes, limit: int) -> list[Header]:
        found: dict[bytes, Header] = {}
        pending = [hash_]
        while pending and len(found) < limit:
            for each in self.children(pending.pop(0)):
                if each.hash not in found:
                    found[each.hash] = each
                    pending.append(each.hash)
        return [*found.values()][:limit]


def fed(ordering: Ordering, held: Held, blocks: Iterable[Header]) -> list[Step]:
    """What comes of blocks that are put into the index, each before it is ordered."""
    found = []
    for block in blocks:
        held.headers[block.hash] = block
        found += steps(ordering.complete(block))
    return found


def block(own: int, number: int, weight: int, parent: int) -> Header:
    return Header(hash_of(own), number, weight, hash_of(parent))


@pytest.mark.parametrize("weights", ["growing", "equal"])
@pytest.mark.parametrize("order", ["backwards", *range(8)])
def test_too_many_that_wait_are_found_again_in_the_index(order: str | int, weights: str) -> None:
    blocks = [each if weights == "growing" else each._replace(weight=0) for each in chain_of(200)]
    expected = [each.hash for each in blocks]
    if order == "backwards":
        blocks.reverse()
    else:
        random.Random(order).shuffle(blocks)
    held = Held()
    ordering = Ordering(Head(0, hash_of(0), 0), threshold=8, index=held, waiting_max=20)
    added = []
    for each in blocks:
        added += [hash_ for step in fed(ordering, held, [each]) for hash_ in step.added]
        assert len(ordering) <= 37
    assert added == expected


def test_a_block_that_is_its_own_parent_and_a_circle_of_them_stop_nothing() -> None:
    ordering = Ordering(Head(10, hash_of(10), 10))
    for each in (block(10, 10, 10, 10), block(9, 9, 9, 8), block(5, 5, 1, 5)):
        assert ordering.complete(each) == []
    assert steps(ordering.complete(block(11, 11, 11, 10))) != []
    held = Held()
    ordering = Ordering(Head(5, hash_of(5), 5), threshold=2, index=held, waiting_max=50)
    fed(ordering, held, [block(6, 6, 6, 5), block(5, 5, 5, 4), *chain_of(20, 7, parent=6)])
    fed(ordering, held, [block(1_000 + n, 9_000, 1, 5_000 + n) for n in range(80)])
    fed(ordering, held, [block(4, 3, 3, 5)])
    assert ordering.head == Head(26, hash_of(26), 26)


@pytest.mark.parametrize("start", [None, Head(10, hash_of(10), 10)])
def test_a_late_lie_about_what_was_given_out_is_refused_itself(start: Head | None) -> None:
    ordering = Ordering(start)
    for number in range(10 if start is None else 11, 21):
        ordering.complete(block(number, number, number, number - 1))
    for lie in (block(9, 10, 1, 8), block(10, 15, 1, 8)):
        assert ordering.complete(lie) == []
    assert not ordering.is_refused(hash_of(20))
    [step] = steps(ordering.complete(block(21, 21, 21, 20)))
    assert step.added == (hash_of(21),)
    # A child of the head with a lower number.
    assert ordering.complete(block(22, 3, 0, 21)) == []


def test_a_reorg_bars_what_it_takes_back_and_what_is_below_it() -> None:
    ordering = Ordering(Head(0, hash_of(0), 0))
    for each in chain_of(6):
        ordering.complete(each)
    assert ordering.reorg(2, hash_of(2)) == Step(
        (), tuple(map(hash_of, (3, 4, 5, 6))), Head(2, hash_of(2), 2)
    )
    # What goes on with a branch that was taken back is no candidate, however heavy.
    assert ordering.complete(block(7, 7, 100, 6)) == []
    # The same once more takes nothing back, and so lifts nothing.
    assert reorg(ordering, 2, hash_of(2)).removed == ()
    assert ordering.complete(block(8, 8, 200, 7)) == []
    [step] = steps(ordering.complete(block(13, 3, 3, 2)))
    assert step == Step((hash_of(13),), (), Head(3, hash_of(13), 3))


def test_a_start_that_comes_with_more_weight_than_was_given_is_no_step() -> None:
    ordering = Ordering(Head(1, hash_of(1), 0))
    assert ordering.complete(block(1, 1, 9, 0)) == []
    [step] = steps(ordering.complete(block(2, 2, 3, 1)))
    assert step.added == (hash_of(2),)


def reorg(ordering: Ordering, number: int, hash_: bytes) -> Step:
    """Of an order that has a head."""
    step = ordering.reorg(number, hash_)
    assert step is not None
    return step


def test_a_reorg_to_a_block_that_is_beside_the_chain_or_above_it_gives_it_out() -> None:
    ordering = Ordering(Head(0, hash_of(0), 0))
    for each in (*chain_of(4), block(12, 2, 1, 1), block(13, 3, 1, 12)):
        ordering.complete(each)
    step = reorg(ordering, 13, hash_of(13))
    assert step.added == (hash_of(12), hash_of(13))
    assert step.removed == tuple(map(hash_of, (2, 3, 4)))
    # What the Reorg says of its number does not count against the block.
    assert step.head == Head(3, hash_of(13), 1)
    ordering.complete(block(15, 5, 1, 14))
    assert ordering.complete(block(14, 4, 1, 13)) != []
    assert reorg(ordering, 3, hash_of(13)).removed == (hash_of(14), hash_of(15))
    above = reorg(ordering, 5, hash_of(15))
    assert (above.added, above.removed) == ((hash_of(14), hash_of(15)), ())


def test_a_reorg_to_a_block_of_which_nothing_is_known_waits_for_it() -> None:
    assert Ordering().reorg(3, hash_of(3)) is None
    ordering = Ordering(Head(0, hash_of(0), 0))
    for each in chain_of(4):
        ordering.complete(each)
    step = reorg(ordering, 3, hash_of(13))
    assert (step.removed, step.head) == ((hash_of(3), hash_of(4)), Head(2, hash_of(2), 2))
    # What hangs on it is no part of the chain before it is.
    assert ordering.complete(block(14, 4, 1, 13)) == []
    [found] = steps(ordering.complete(block(13, 3, 1, 2)))
    assert found.added == (hash_of(13), hash_of(14))
    # Nothing is left where all there is stands above: then it is believed.
    step = reorg(ordering, 0, hash_of(99))
    assert step.head == Head(0, hash_of(99), 0)


def test_a_later_reorg_below_or_among_them_lifts_the_bar_and_no_other_does() -> None:
    def begun() -> Ordering:
        """1 and 2, and 3 to 6 that were taken back; then 13 to 15 on 2."""
        ordering = Ordering(Head(0, hash_of(0), 0))
        for each in chain_of(6):
            ordering.complete(each)
        ordering.reorg(2, hash_of(2))
        for number in (3, 4, 5):
            ordering.complete(block(10 + number, number, number, 2 if number == 3 else 9 + number))
        return ordering

    # Among the new ones: those that were taken back before hang elsewhere.
    ordering = begun()
    assert reorg(ordering, 4, hash_of(14)).removed == (hash_of(15),)
    assert ordering.complete(block(7, 7, 100, 6)) == []
    # At the same ancestor again, with blocks to take back: it goes below the first ones, too.
    ordering = begun()
    assert reorg(ordering, 2, hash_of(2)).removed == tuple(map(hash_of, (13, 14, 15)))
    [step] = steps(ordering.complete(block(7, 7, 100, 6)))
    assert step.added == tuple(map(hash_of, (3, 4, 5, 6, 7)))
    # To one of them.
    ordering = begun()
    ordering.reorg(4, hash_of(4))
    [step] = steps(ordering.complete(block(25, 5, 5, 4)))
    assert step.added == (hash_of(25),)


def test_what_is_barred_stays_so_when_it_has_left_memory() -> None:
    held = Held()
    ordering = Ordering(Head(0, hash_of(0), 0), threshold=4, index=held, waiting_max=20)
    fed(ordering, held, chain_of(10))
    ordering.reorg(7, hash_of(7))
    flood = [block(1_000 + number, 9_000, 1, 5_000 + number) for number in range(60)]
    assert fed(ordering, held, flood) == []
    assert fed(ordering, held, [block(11, 11, 11, 10)]) == []
    # Deeper than what is in memory: as far as the index has it.
    ordering = Ordering(Head(0, hash_of(0), 0), threshold=4, index=held, waiting_max=20)
    held.headers.clear()
    fed(ordering, held, chain_of(40))
    fed(ordering, held, flood)
    step = reorg(ordering, 20, hash_of(20))
    assert step.removed == tuple(map(hash_of, range(21, 41)))
    assert step.head == Head(20, hash_of(20), 20)
    more = [block(2_000 + number, 9_000, 1, 7_000 + number) for number in range(60)]
    assert fed(ordering, held, more) == []


def test_a_producer_that_lies_about_parents_makes_no_circle() -> None:
    ordering = Ordering(Head(0, hash_of(0), 0), threshold=2)
    for number, parent, own in ((5, 2, 1), (3, 1, 2), (9, 2, 3), (8, 3, 2), (1, 0, 4), (2, 2, 2)):
        ordering.complete(Header(hash_of(own), number, number, hash_of(parent)))
    for block in chain_of(40, 100):
        ordering.complete(block)
    assert ordering.head is not None
    assert ordering.head.number == 40


@pytest.mark.parametrize("seed", range(60))
def test_any_lies_about_parents_and_numbers_come_to_an_end(seed: int) -> None:
    """Of blocks that leave memory and are found in the index, which has what liars say as well."""
    rng = random.Random(seed)
    count = rng.randrange(5, 60)
    held = Held(looks_max=50_000)
    ordering = Ordering(
        threshold=rng.choice((1, 2, 4)), index=held, waiting_max=rng.choice((2, 4, 8))
    )
    blocks = []
    for own in range(count):
        is_lie = rng.random() < 0.2
        parent = rng.randrange(count) if is_lie else max(0, own - rng.choice((1, 1, 1, 2, 3)))
        number = rng.randrange(count + 5) if rng.random() < 0.2 else own + 1
        blocks.append(block(own, number, rng.randrange(40), parent))
    rng.shuffle(blocks)
    if rng.random() < 0.5:
        blocks.sort(key=lambda each: -each.number)
    chain: list[bytes] = []
    for at, each in enumerate(blocks, 1):
        found = fed(ordering, held, [each._replace(at=at)])
        if rng.random() < 0.1:
            step = ordering.reorg(rng.randrange(count), hash_of(rng.randrange(count)))
            found += [step] if step is not None else []
        for step in found:
            here = min(len(chain), len(step.removed))
            assert chain[len(chain) - here :] == [*step.removed[len(step.removed) - here :]]
            chain = [*chain[: len(chain) - here], *step.added]


def test_a_number_that_may_have_one_hash_only() -> None:
    ordering = Ordering(Head(0, hash_of(0), 0), allowed={1: hash_of(7)})
    assert ordering.complete(Header(hash_of(1), 1, 1, hash_of(0))) == []
    assert ordering.is_refused(hash_of(1))
    assert ordering.complete(Header(hash_of(2), 2, 2, hash_of(1))) == []
    assert steps(ordering.complete(Header(hash_of(7), 1, 1, hash_of(0)))) != []
