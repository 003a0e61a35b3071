"""Looking for the earliest fork of a log where it does not show by itself (bamboo.md, Verified)."""

import pytest
from nacl.signing import SigningKey

from logstore import WriteScope
from peer.planner.fork_search import differs_at
from peer.protocol.events import Interests, InterestsChanged
from peer.protocol.scope import Scope
from wire import (
    Cancel,
    CancelReason,
    Eagerness,
    Grant,
    LogKey,
    Propose,
    encode_request_cancelled,
    encode_switch,
)

from . import impolite
from .impolite import Impolite, log_of, propose
from .rig import Author, Pair, Store

AUTHOR = Author(SigningKey(b"f" * 32))
LOG = LogKey(AUTHOR.id, 0)
FOLLOWS = Interests(logs=frozenset((LOG,)))
HOLDS = Interests(serve_held=True)


def history(count: int, name: bytes, parts_at: int) -> Store:
    """A store with one of several histories, which are alike before `parts_at`."""
    store = Store()
    for seq in range(1, count + 1):
        store.append(AUTHOR, 0, name if seq >= parts_at else b"")
    return store


def proof(first: Store, second: Store, seq: int) -> tuple[bytes, bytes]:
    return first.logs[LOG][seq].encoded, second.logs[LOG][seq].encoded


def connect(stores: tuple[Store, Store], interests: tuple[Interests, Interests]) -> Pair:
    pair = Pair(stores=stores)
    pair.connect(interests)
    for _ in range(12):
        pair.run(advance_s=1.0)
    return pair


def test_a_proof_tells_where_its_histories_still_differ() -> None:
    left, right = history(20, b"l", 7), history(20, b"r", 7)
    assert differs_at(proof(left, right, 7)) is None
    assert differs_at(proof(left, right, 8)) == 7
    assert differs_at(proof(left, right, 20)) == 19


def test_a_proof_whose_entries_differ_in_the_lipmaalink_only() -> None:
    """lipmaa(8) is 4."""
    left, right = history(7, b"l", 4), history(7, b"r", 4)
    right.logs[LOG][7] = left.logs[LOG][7]
    left.append(AUTHOR, 0, b"")
    right.append(AUTHOR, 0, b"")
    assert differs_at(proof(left, right, 8)) == 4


@pytest.mark.parametrize("known", [8, 9, 14, 20])
@pytest.mark.parametrize("parts_at", [1, 5, 7])
def test_a_late_proof_makes_its_holder_look_further_back(known: int, parts_at: int) -> None:
    """The other side only serves what it has: it tells nothing by itself."""
    stores = history(20, b"l", parts_at), history(20, b"r", parts_at)
    stores[0].record_fork(LOG, known, proof(*stores, known))
    connect(stores, (FOLLOWS, HOLDS))
    assert stores[0].forks[LOG] == (parts_at, stores[0].forks[LOG][1])
    assert set(stores[0].forks[LOG][1]) == set(proof(*stores, parts_at))


def test_an_earlier_proof_is_got_from_who_does_not_tell() -> None:
    """Both hold the same history: only the proofs differ."""
    left, right = history(20, b"l", 3), history(20, b"r", 3)
    stores = history(20, b"l", 3), history(20, b"l", 3)
    stores[0].record_fork(LOG, 17, proof(left, right, 17))
    stores[1].record_fork(LOG, 3, proof(left, right, 3))
    connect(stores, (FOLLOWS, HOLDS))
    assert stores[0].forks[LOG][0] == 3


def test_a_log_is_searched_once_if_the_other_side_has_the_same_history() -> None:
    left, right = history(20, b"l", 3), history(20, b"r", 3)
    stores = history(20, b"l", 3), history(20, b"l", 3)
    for store in stores:
        store.record_fork(LOG, 17, proof(left, right, 17))
    pair = connect(stores, (FOLLOWS, FOLLOWS))
    assert [store.forks[LOG][0] for store in stores] == [17, 17]
    assert [pair.engine(side).requests for side in (0, 1)] == [0, 0]
    notices = [len(host.notices) for host in pair.hosts]
    for _ in range(12):
        pair.run(advance_s=1.0)
    assert [len(host.notices) for host in pair.hosts] == notices


def test_a_proof_whose_proposal_gave_way_is_told_again() -> None:
    """What ends a proposal that counts as never sent was never said either (point2point.md 7)."""
    held = impolite.log_of(20)
    other = impolite.log_of(6, lambda seq: b"other" if seq == 6 else b"p%d" % seq)
    encodings = held[6].encoded, other[6].encoded
    peer = Impolite(held, proactive=True)
    peer.store.record_fork(impolite.LOG, 6, encodings)
    peer.control(Grant(9))
    told = [each for each in peer.messages() if isinstance(each, Cancel)]
    assert [each.entries for each in told] == [encodings]
    peer.control(propose(peer.number, 4, end=7))
    told = [each for each in peer.messages() if isinstance(each, Cancel)]
    assert [each.entries for each in told] == [encodings]


@pytest.mark.parametrize("syncs", [("sync", "follow"), ("follow", "sync")])
def test_a_sync_finds_a_fork_where_neither_side_has_anything_new(syncs: tuple[str, str]) -> None:
    """Both hold as many entries, so that only the starting hash tells."""
    stores = history(8, b"l", 8), history(8, b"r", 8)
    pair = Pair(stores=stores)
    pair.connect((FOLLOWS, FOLLOWS), policy=syncs[0], second=syncs[1])
    for _ in range(40):
        pair.run(advance_s=0.1)
    assert [store.forks[LOG][0] for store in stores] == [8, 8]


def test_a_fork_that_was_told_while_nothing_was_taken_in_is_asked_for_later() -> None:
    """Whoever has told it does not tell it again, and a proof of what is not wanted is not kept."""
    logs = frozenset((impolite.LOG, LogKey(bytes(32), 0)))
    side, offers = Impolite(proactive=True, logs=logs), tuple(sorted(logs))
    closed = Interests(logs=logs, scope=Scope(None, WriteScope.NONE, bytes(32)))
    side.host.todo.append(InterestsChanged(closed, offers))
    side.control(Grant(8))

    def asked() -> list[Propose]:
        found = [each for each in side.messages() if isinstance(each, Propose)]
        return [each for each in found if each.log == impolite.LOG]

    [watch] = asked()
    assert watch.eagerness is Eagerness.NOTIFY
    proof = (log_of(1)[1].encoded, log_of(1, lambda _: b"another")[1].encoded)
    side.control(Cancel(watch.request, CancelReason.FORKED, entries=proof))
    side.sent()
    side.data(encode_switch(watch.request), encode_request_cancelled(watch.request))
    side.wait(30.0)
    assert asked() == []
    side.host.todo.append(InterestsChanged(Interests(logs=logs), offers))
    [wanted] = asked()
    assert (wanted.start, wanted.end, wanted.eagerness) == (1, None, Eagerness.ALL)


@pytest.mark.parametrize("way", ["answer", "open request"])
def test_a_proof_that_ended_a_request_is_not_told_once_more(way: str) -> None:
    """Whoever got it with the answer to a proposal, or in an open request, knows of the fork."""
    held = log_of(20)
    other = log_of(6, lambda seq: b"other" if seq == 6 else b"p%d" % seq)
    encodings = held[6].encoded, other[6].encoded
    side = Impolite(held)
    if way == "answer":
        side.store.record_fork(impolite.LOG, 6, encodings)
        side.control(propose(side.number, 21))
    else:
        side.open_request(21)
        side.store.record_fork(impolite.LOG, 6, encodings)
        side.host.note_change(impolite.LOG)
    side.control(Grant(9))
    side.wait(5.0)
    said = side.messages()
    side.control(Cancel(side.number, CancelReason.YOU_CANCELLED))
    side.sent()
    side.data(encode_switch(side.number), encode_request_cancelled(side.number))
    side.wait(30.0)
    said += side.messages()
    assert [each.entries for each in said if isinstance(each, Cancel)] == [encodings]
    assert not any(isinstance(each, Propose) for each in said)
