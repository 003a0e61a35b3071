"""What waited for a Batch counts as what comes behind it."""

import random

import pytest

from gateways.cardinal.codec import Batch, Item
from gateways.cardinal.counting import Copy, PartKey, Surplus

HASH, BATCH_ID = bytes(32), b"\1" * 32
PREFIXES = (b"a/", b"b/", b"c", b"dd/")


def count_behind(copy: Copy, batch: Batch, whats: list[bytes | PartKey]) -> bool:
    """Whether something was too much."""
    copy.open(batch, is_tracked)
    is_surplus = False
    for each in whats:
        try:
            copy.count(each)
        except Surplus:
            is_surplus = True
    return is_surplus


def count_before(copy: Copy, batch: Batch, whats: list[bytes | PartKey]) -> bool:
    for each in whats:
        copy.count(each)
    try:
        copy.open(batch, is_tracked)
    except Surplus:
        return True
    return False


def is_tracked(key: bytes) -> bool:
    return key != b"b/"


@pytest.mark.parametrize("seed", range(300))
def test_it_does_not_matter_what_came_first(seed: int) -> None:
    rng = random.Random(seed)
    prefixes = rng.sample(PREFIXES, rng.randrange(1, 4))
    items = {each: Item(owed=rng.randrange(1, 5)) for each in prefixes}
    # Often just what is owed.
    whats: list[bytes | PartKey] = [
        prefix + b"%d" % number
        for prefix, item in items.items()
        for number in range(item.owed - rng.choice((0, 0, 0, 1, -1)))
    ]
    whats += rng.sample([b"", b"c", b"a", b"e/1", b"ddd"], rng.choice((0, 0, 1)))
    if rng.random() < 0.3:
        items[b"parts"] = Item(batch=BATCH_ID)
        whats += [PartKey(BATCH_ID, parts=1), PartKey(BATCH_ID, 0)][rng.randrange(2) :]
    rng.shuffle(whats)
    batch = Batch(HASH, 1, 1, HASH, items)
    before, behind = Copy(100), Copy(100)
    assert count_before(before, batch, whats) == count_behind(behind, batch, whats)
    assert before.counts == behind.counts
    assert (before.left, before.unfinished) == (behind.left, behind.unfinished)
    assert before.is_complete == behind.is_complete
