"""Asking for totals: peer/planner/newest.py."""

import pytest

from peer.planner.newest import CREDIT_LEFT
from peer.protocol.events import NewestAsked
from peer.protocol.notices import NewestLearned
from wire import Grant, Propose, encode_control

from .impolite import LOG, REFERENCE, Impolite
from .test_policies import LOG as TOLD
from .test_policies import connect, settle, store_of


def test_it_is_answered_and_over() -> None:
    pair = connect(store_of(3), store_of(9))
    here = pair.hosts[0]
    assert NewestLearned(TOLD, 9) not in here.notices
    assert here.engine is not None
    before = len(here.engine.actor.requests_of(TOLD))
    here.engine.handle(NewestAsked((TOLD,)))
    settle(pair)
    assert here.notices.count(NewestLearned(TOLD, 9)) == 1
    assert len(here.engine.actor.requests_of(TOLD)) == before


@pytest.mark.parametrize(("credit", "asks"), [(CREDIT_LEFT, 0), (CREDIT_LEFT + 8, 1)])
def test_others_need_credit_more(credit: int, asks: int) -> None:
    peer = Impolite(REFERENCE)
    peer.control(encode_control(Grant(credit)))
    peer.messages()
    for _ in range(2):
        peer.engine.handle(NewestAsked((LOG,)))
    proposed = [each for each in peer.messages() if isinstance(each, Propose)]
    assert sum(each.sparse for each in proposed) == asks
