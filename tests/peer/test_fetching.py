"""`fetch`: what was skipped, dropped or never wanted is brought once, and nothing else."""

import pytest

from logstore import PolicyKind, Subscription
from peer.protocol.events import Interests, InterestsChanged
from peer.protocol.notices import SyncFinished
from wire import Eagerness

from .partial import LOG, Counting, closed, interests_of, pair_of, replica, settle
from .rig import Pair, Store

COUNT = 40
SIDES = pytest.mark.parametrize("side", [0, 1])
POLICIES = pytest.mark.parametrize("policy", ["follow", "sync"])
METADATA = Subscription(PolicyKind.METADATA)
SMALL = Subscription(max_bytes=40)
FETCH = {LOG: ((5, 9), (20, 21))}
FETCHED = {5, 6, 7, 8, 9, 20, 21}


def link(
    server: Store, fetcher: Store, interests: Interests, *, side: int = 0, policy: str = "follow"
) -> Pair:
    """`side` is that of the store that fetches; the other side follows nothing."""
    stores = (server, fetcher) if side else (fetcher, server)
    pair = pair_of(*stores)
    wishes = (Interests(), interests) if side else (interests, Interests())
    policies = ("follow", policy) if side else (policy, "follow")
    pair.connect(wishes, policy=policies[0], second=policies[1])
    settle(pair, 20)
    return pair


def counted(pair: Pair, side: int) -> Counting:
    host = pair.hosts[side]
    assert isinstance(host, Counting)
    return host


def with_payload(store: Store) -> set[int]:
    return {seq for seq, held in store.logs[LOG].items() if held.payload is not None}


@SIDES
@POLICIES
def test_payloads_of_entries_that_are_held(side: int, policy: str) -> None:
    fetcher = replica(COUNT, range(1, COUNT + 1), bare=range(1, COUNT + 1))
    interests = interests_of(METADATA, fetches=FETCH)
    pair = link(replica(COUNT, range(1, COUNT + 1)), fetcher, interests, side=side, policy=policy)
    assert with_payload(fetcher) == FETCHED
    assert set(counted(pair, side).payloads.elements()) >= FETCHED
    assert max(counted(pair, side).payloads.values()) == 1
    if policy == "sync":
        assert any(isinstance(notice, SyncFinished) for notice in pair.hosts[side].notices)


@SIDES
@POLICIES
def test_entries_of_a_log_that_is_not_followed(side: int, policy: str) -> None:
    """They come with the pools that they need, and no more."""
    fetcher = Store()
    interests = Interests(fetches=FETCH)
    link(replica(COUNT, range(1, COUNT + 1)), fetcher, interests, side=side, policy=policy)
    assert with_payload(fetcher) == FETCHED
    assert set(fetcher.logs[LOG]) == FETCHED | closed(FETCHED)


@SIDES
def test_what_was_too_large_for_the_subscription(side: int) -> None:
    fetcher, server = Store(), replica(COUNT, range(1, COUNT + 1))
    pair = link(server, fetcher, interests_of(SMALL), side=side)
    small = {n for n, held in server.logs[LOG].items() if held.entry.payload_bytes <= 40}
    assert with_payload(fetcher) == small
    changed = InterestsChanged(interests_of(SMALL, fetches=FETCH), (LOG,))
    pair.hosts[side].todo.append(changed)
    settle(pair)
    assert with_payload(fetcher) == small | FETCHED
    assert max(counted(pair, side).payloads.values()) == 1


@SIDES
def test_a_dropped_payload_comes_back_when_it_is_fetched(side: int) -> None:
    fetcher = replica(COUNT, range(1, COUNT + 1), bare=[7])
    fetcher.dropped.add((LOG, 7))
    pair = link(
        replica(COUNT, range(1, COUNT + 1)), fetcher, interests_of(Subscription()), side=side
    )
    assert fetcher.logs[LOG][7].payload is None
    fetcher.dropped.clear()
    wish = interests_of(Subscription(), fetches={LOG: ((7, 7),)})
    pair.hosts[side].todo.append(InterestsChanged(wish, (LOG,)))
    settle(pair)
    assert fetcher.logs[LOG][7].payload is not None


def test_a_peer_without_it_is_asked_once() -> None:
    everything = range(1, COUNT + 1)
    fetcher, server = (replica(COUNT, everything, bare=everything) for _ in range(2))
    pair = link(server, fetcher, interests_of(METADATA, fetches=FETCH))
    asked = pair.engine(0).requests
    wish = interests_of(METADATA, fetches={LOG: (*FETCH[LOG], (30, 30))})
    pair.hosts[0].todo.append(InterestsChanged(wish, (LOG,)))
    numbers = []
    for _ in range(10):
        pair.run(advance_s=1.0)
        numbers += [request.proposal.start for request in pair.engine(0).actor.requests_of(LOG)]
    assert set(numbers) <= {30, COUNT + 1}
    assert pair.engine(0).requests == asked
    assert with_payload(fetcher) == set()


def test_a_fetch_is_no_reason_to_go_on() -> None:
    """What comes later of a log that is not followed is left alone."""
    server, fetcher = replica(COUNT, range(1, 30)), Store()
    pair = link(server, fetcher, Interests(fetches=FETCH))
    whole = replica(COUNT, range(1, COUNT + 1))
    server.logs[LOG].update(whole.logs[LOG])
    server.changed(LOG)
    settle(pair)
    assert set(fetcher.logs[LOG]) == FETCHED | closed(FETCHED)
    wants = [request.our_interest.eagerness for request in pair.engine(0).actor.requests_of(LOG)]
    assert set(wants) <= {Eagerness.NOTIFY}
