"""What one side still wants once the other has ended a request, withdrawn it or told of less."""

import pytest

from logstore import PolicyKind, Subscription
from peer import claim_all
from peer.planner.answer import answer, is_offer
from peer.planner.asks import Ask, AskKind, offers, plan
from peer.planner.peer_log import PeerLog, Planned
from peer.planner.rests import Kind, Outcome, Rests, up_to
from peer.planner.sourcing import Claim
from peer.planner.wanting import Settings, Wants
from peer.protocol.config import SessionConfig
from peer.protocol.events import Interests, InterestsChanged, LogView
from peer.protocol.request import OPEN_END
from tests.records import replace
from wire import Cancel, CancelReason, Eagerness, Propose

from .partial import AUTHOR, LOG, history, interests_of, pair_of, replica, settle
from .rig import Store, claim_none

EVERYTHING = Subscription()
COUNT = 13


def only(first: int, last: int | None) -> Subscription:
    return Subscription(PolicyKind.RANGE, first=first, last=last)


def gets(store: Store, *seqs: int) -> None:
    """A store comes to hold these from somewhere else."""
    for seq in seqs:
        store.logs[LOG][seq] = history(COUNT)[seq]
    store.changed(LOG)


@pytest.mark.parametrize("held", [(1, 2), (1,)])
@pytest.mark.parametrize("side", [0, 1])
def test_what_is_got_later_is_offered_to_who_wanted_it_before_the_wishes_changed(
    side: int, held: tuple[int, ...]
) -> None:
    """Ending the request in which it would have come ends nothing of what the other side wants."""
    pair = pair_of(replica(COUNT, held), replica(COUNT, held))
    wishes: list[Interests] = [interests_of(EVERYTHING)] * 2
    claims: list[Claim] = [claim_all] * 2
    wishes[side] = interests_of(only(9, None))
    claims[side] = claim_none
    pair.connect((wishes[0], wishes[1]), claims=(claims[0], claims[1]))
    settle(pair)
    pair.hosts[side].todo.append(InterestsChanged(interests_of(only(4, 4)), (LOG,)))
    settle(pair)
    gets(pair.hosts[side].store, 1, 4)
    settle(pair)
    brought = pair.hosts[1 - side].store.logs[LOG]
    assert brought.keys() == {*held, 4}
    assert brought[4].payload is not None


def log_with(wants: Wants) -> PeerLog:
    return PeerLog(LOG, Rests(SessionConfig()), Planned(wants))


def withdraw(state: PeerLog, first: int, last: int, now: float) -> None:
    state.rests.note(LOG, Kind.RANGE, Outcome.WITHDRAWN, now, ((first, last),))


def _proposal(first: int, last: int | None, eagerness: Eagerness) -> Propose:
    return Propose(
        request=0,
        log=LOG,
        start=first,
        lower_info=first,
        min_bytes=0,
        max_bytes=1 << 60,
        starting_hash=b"",
        eagerness=eagerness,
        end=last,
        upper_info=last,
    )


def test_what_was_offered_is_asked_for_although_what_surrounds_it_was_withdrawn() -> None:
    assert is_offer(_proposal(4, 4, Eagerness.NOTIFY))
    state = log_with(Wants(EVERYTHING))
    state.heard(_proposal(4, 4, Eagerness.NOTIFY), (), 0.0)
    withdraw(state, 3, OPEN_END, 1.0)
    everything = Ask(AskKind.RANGE, 3, None, Settings())
    assert [(ask.start, ask.end) for ask in state.not_twice([everything], (), 1.0)] == [(4, 4)]
    withdraw(state, 4, 4, 2.0)
    assert state.not_twice([everything], (), 2.0) == []


def test_what_was_withdrawn_is_asked_for_after_a_later_proposal() -> None:
    """point2point.md 6: of either side; and not at once, or two sides would never end."""
    state = log_with(Wants(EVERYTHING))
    ask = Ask(AskKind.RANGE, 3, 5, Settings(), 5)
    withdraw(state, 3, 5, 1.0)
    state.rests.lift_by_our_proposal(LOG, 0.5, 1.5)
    assert state.not_twice([ask], (), 1000.0) == []
    state.rests.lift_by_our_proposal(LOG, 2.0, 2.0)
    assert state.not_twice([ask], (), 2.5) == []
    assert state.rests.due(7.0) == [LOG]
    assert state.not_twice([ask], (), 7.0) == [ask]


def test_a_path_that_is_refused_now_is_offered_once_it_is_held() -> None:
    """point2point.md 6: who was refused does not ask again by itself."""
    wants = Wants(Subscription(PolicyKind.SPARSE))
    path = replace(_proposal(1, 4, Eagerness.ALL), sparse=True)
    refused = answer(path, LogView(LOG), wants, serve=True)
    assert (refused.cancel, refused.unserved) == (Cancel(0, CancelReason.NOT_WANTED), ((4, 4),))
    state = log_with(wants)
    state.asks_in_vain(refused.unserved)
    view = LogView(LOG, height=1, newest=4, runs=((1, 1), (4, 4)))
    [offer] = offers(view, state.unserved, state.reachable((), 0.0))
    assert (offer.kind, offer.start, offer.end) == (AskKind.OFFER, 4, 4)


def test_who_lacks_the_newest_entry_may_have_the_payload_of_an_earlier_one() -> None:
    """It cannot tell of what follows inside a payload whose entry it does not hold."""
    pair = pair_of(replica(COUNT, range(1, 12), bare=(3, 11)), replica(COUNT, range(1, 5)))
    wishes = (interests_of(EVERYTHING), interests_of(None))
    pair.connect(wishes, claims=(claim_none, claim_all))
    settle(pair, 40)
    assert pair.hosts[0].store.logs[LOG][3].payload is not None


def test_a_sparse_replica_of_a_forked_log_gets_the_payload_before_the_fork() -> None:
    """Nothing follows it that could begin inside it, and it is asked for by itself."""
    whole = history(COUNT)
    _, other = AUTHOR.entry({1: whole[1], 2: whole[2]}, 0, b"another third entry")
    proof = (whole[3].encoded, other.encoded)
    stores = (replica(COUNT, (1, 2), bare=(1, 2)), replica(COUNT, (1, 2)))
    for store in stores:
        store.record_fork(LOG, 3, proof)
    pair = pair_of(*stores)
    pair.connect((interests_of(Subscription(PolicyKind.SPARSE)), interests_of(EVERYTHING)))
    settle(pair, 20)
    assert stores[0].logs[LOG][2].payload is not None


def test_an_ended_log_is_introduced_until_that_was_proposed() -> None:
    """The look-up that it was planned from may lack a hash, and then it is planned once more."""
    state = log_with(Wants(EVERYTHING))
    view = LogView(LOG, height=1, newest=11, runs=((1, 1), (4, 11)), end=11)
    assert [ask.kind for ask in state.introduction(view, ())] == [AskKind.OFFER]
    assert [ask.kind for ask in state.introduction(view, ())] == [AskKind.OFFER]
    state.both_have = 11
    assert state.introduction(view, ()) == []


def test_a_path_to_what_is_behind_a_fork_was_refused_and_not_the_one_before_it() -> None:
    wants = Wants(Subscription(PolicyKind.SPARSE))
    state = log_with(wants)
    state.told_newest(4)
    state.planned.stop, state.planned.height = 2, 1
    state.rests.note(LOG, Kind.PATH, Outcome.REFUSED, 0.0, up_to(3))
    view = LogView(LOG, height=1, newest=1, runs=((1, 1),), fork=3)
    [path] = plan(wants, view, state.peer((), 0.0))
    assert (path.kind, path.end) == (AskKind.PATH, 2)
    before = log_with(wants)
    before.told_newest(4)
    before.planned.stop, before.planned.height = 2, 1
    before.rests.note(LOG, Kind.PATH, Outcome.REFUSED, 0.0, up_to(2))
    assert AskKind.PATH not in {ask.kind for ask in plan(wants, view, before.peer((), 0.0))}


def test_who_listened_is_told_by_whoever_ended_that_to_ask_itself() -> None:
    """It may not ask again for what was ended with 128, and takes the proposal that follows."""
    said = answer(_proposal(1, None, Eagerness.ALL), LogView(LOG), Wants(listens=True), serve=True)
    assert said.confirm is not None
    assert (said.confirm.eagerness, said.confirm.end) == (Eagerness.NOTIFY, None)
    behind = _proposal(3, None, Eagerness.ALL)
    assert answer(behind, LogView(LOG), Wants(listens=True), serve=True).cancel is not None
