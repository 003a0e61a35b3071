"""Payloads that were asked for and did not come are asked for again, with patience."""

import pytest
from nacl.signing import SigningKey

from peer.planner.sourcing import Claim, claim_all
from peer.protocol.events import ArrivalChanged, Interests, SourceChanged
from wire import Adjust, CancelReason, Eagerness, Grant, LogKey, Propose, encode_switch

from .impolite import REFERENCE, Impolite, cancel, log_of, metadata_packet, propose
from .rig import Author, Held, Pair, Store, claim_none

AUTHOR = Author(SigningKey(b"l" * 32))
LOG = LogKey(AUTHOR.id, 0)
FOLLOWS = Interests(logs=frozenset((LOG,)))
ENTRIES = 9


def store_without(*seqs: int) -> Store:
    store = Store()
    for seq in range(1, ENTRIES + 1):
        store.append(AUTHOR, 0, b"%d" % seq * 30)
    for seq in seqs:
        held = store.logs[LOG][seq]
        store.logs[LOG][seq] = Held(held.encoded, held.hash, None)
    return store


def connect(left: Store, right: Store, *, claim: Claim = claim_all) -> Pair:
    pair = Pair(stores=(left, right))
    pair.connect((FOLLOWS, FOLLOWS), claims=(claim, claim_all))
    pair.run()
    return pair


def pass_time(pair: Pair, seconds: int) -> None:
    for _ in range(seconds):
        pair.run(advance_s=1.0)
    pair.run()


def has(store: Store, seq: int) -> bool:
    return store.logs[LOG][seq].payload is not None


def proposals(pair: Pair) -> int:
    """How many numbers side 0 has used; each takes two."""
    return pair.engine(0)._table._next_number // 2


@pytest.mark.parametrize("seq", [5, ENTRIES])
def test_what_another_session_is_receiving_is_left_to_it_as_long_as_it_does(seq: int) -> None:
    left, right = store_without(seq), store_without()
    left.arriving.add((LOG, seq))
    pair = connect(left, right)
    pass_time(pair, 3)
    assert not has(left, seq)
    left.arriving.clear()
    pair.hosts[0].todo.append(ArrivalChanged(LOG, seq))
    pass_time(pair, 3)
    assert has(left, seq)


def test_what_the_other_side_comes_to_hold_is_asked_for_again() -> None:
    """It had to skip it, and has nothing to tell of it later."""
    left, right = store_without(5), store_without(5)
    pair = connect(left, right)
    pass_time(pair, 30)
    right.logs[LOG] = dict(store_without().logs[LOG])
    pass_time(pair, 61)
    assert has(left, 5)


def test_what_was_skipped_behind_what_we_held_is_asked_for_again() -> None:
    """Nothing else makes the log be looked at: an open request brings all that is new."""
    left, right = store_without(), store_without()
    pair = connect(left, right)
    watchers, right.watchers = right.watchers, []
    for seq in (ENTRIES + 1, ENTRIES + 2):
        right.append(AUTHOR, 0, b"%d" % seq * 30)
    whole = dict(right.logs[LOG])
    held = whole[ENTRIES + 1]
    right.logs[LOG][ENTRIES + 1] = Held(held.encoded, held.hash, None)
    right.watchers = watchers
    right.changed(LOG)
    pair.run()
    assert set(left.logs[LOG]) == set(whole)
    right.logs[LOG] = dict(whole)
    pass_time(pair, 12)
    assert left.logs[LOG] == whole


@pytest.mark.parametrize("seq", [5, ENTRIES])
@pytest.mark.parametrize("partial", [b"", b"9" * 12])
def test_what_the_source_does_not_bring_is_asked_for_elsewhere(seq: int, partial: bytes) -> None:
    """Another session fetches the log; it has its time first."""
    left = store_without(seq)
    left.partial[LOG, seq] = b"%d" % seq * len(partial)
    pair = connect(left, store_without(), claim=claim_none)
    pass_time(pair, 4)
    assert not has(left, seq)
    pass_time(pair, 12)
    assert has(left, seq)


def test_what_the_source_brings_slowly_is_left_to_it() -> None:
    left = store_without(5)
    pair = connect(left, store_without(), claim=claim_none)
    for size in range(25):
        left.partial[LOG, 5] = b"5" * size
        pass_time(pair, 1)
    assert not has(left, 5)


def test_who_becomes_the_source_again_asks_at_once() -> None:
    left, right = store_without(5), store_without(5)
    pair = connect(left, right)
    for _ in range(2):
        for fetch in (False, True):
            pair.hosts[0].todo.append(SourceChanged(LOG, fetch=fetch))
            pair.run()
    right.logs[LOG] = dict(store_without().logs[LOG])
    for fetch in (False, True):
        pair.hosts[0].todo.append(SourceChanged(LOG, fetch=fetch))
        pair.run()
    assert has(left, 5)


def test_what_nobody_has_is_asked_for_once_a_minute_at_most() -> None:
    pair = connect(store_without(5), store_without(5))
    pass_time(pair, 120)
    before = proposals(pair)
    pass_time(pair, 600)
    assert 5 <= proposals(pair) - before <= 11


def test_what_is_whole_is_never_tried_again() -> None:
    pair = connect(store_without(), store_without())
    before = proposals(pair)
    pass_time(pair, 120)
    assert proposals(pair) == before


def proposed(peer: Impolite) -> list[Propose]:
    return [each for each in peer.messages() if isinstance(each, Propose)]


def test_the_payload_of_what_comes_as_part_of_a_pool_is_asked_for_when_that_comes() -> None:
    """However long after the confirmation: a slow link may take more than a look again waits."""
    peer = Impolite(log_of(3))
    beyond = {"starting_hash": REFERENCE[4].hash}
    peer.control(propose(0, 5, **beyond), Grant(64))
    [asked] = proposed(peer)
    assert (asked.start, asked.lower_info) == (4, 4)
    peer.control(cancel(asked.request, CancelReason.NOT_WANTED), propose(2, 5, **beyond))
    [asked] = proposed(peer)
    assert (asked.start, asked.lower_info) == (5, 4)
    peer.control(Adjust(asked.request, eagerness=Eagerness.ALL, allow_skip=True))
    for _ in range(30):
        peer.wait(1.0)
        assert not proposed(peer)
    peer.data(encode_switch(asked.request), metadata_packet(REFERENCE, 4, is_first=True))
    assert sorted(peer.store.logs[asked.log]) == [1, 2, 3, 4]
    peer.wait(1.0)
    [asked] = proposed(peer)
    assert (asked.start, asked.end) == (4, 4)
