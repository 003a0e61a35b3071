"""Peers that take fewer requests than there are logs: the logs take turns (point2point.md 2)."""

import pytest

from peer.protocol.config import SessionConfig
from peer.protocol.events import Interests
from tests.records import replace
from wire import Adjust, Cancel, CancelReason, Eagerness, Grant, LogKey, Propose

from .impolite import AUTHOR, Impolite
from .rig import INLINE_BYTES_MAX, Pair, Store

LOGS = frozenset(LogKey(AUTHOR.id, number) for number in range(12))
FEW = SessionConfig(
    small_payload_bytes_max=INLINE_BYTES_MAX, quantum_bytes=256, request_credit=3, requests_max=0
)


def store_of(entries: int) -> Store:
    store = Store()
    for number in range(len(LOGS)):
        for _ in range(entries):
            store.append(AUTHOR, number, b"p%d" % number)
    return store


def until_alike(pair: Pair, *, seconds: float) -> None:
    """Let time pass until both sides hold the same, but not for longer."""
    end = pair.now + seconds
    while pair.hosts[0].store.logs != pair.hosts[1].store.logs:
        assert pair.now < end
        pair.run(advance_s=0.25)


@pytest.mark.parametrize("both", [False, True], ids=["one", "both"])
def test_logs_take_turns_where_few_requests_are_taken(*, both: bool) -> None:
    """The one that gives takes few requests, or both do; entries that are new come as well."""
    giver, taker = store_of(2), Store()
    pair = Pair(FEW, stores=(giver, taker))
    wants = Interests(logs=LOGS)
    many = replace(FEW, requests_max=100)
    pair.connect((wants, wants), configs=(FEW, FEW if both else many))
    pair.run()
    # The proactive side has asked for as many of its logs as it may, the other side as well.
    assert 0 < sum(taker.height(log) == 2 for log in LOGS) < len(LOGS)
    until_alike(pair, seconds=60)
    for log in LOGS:
        giver.append(AUTHOR, log.log_id, b"new")
    until_alike(pair, seconds=60)


def test_single_payloads_are_asked_for_although_logs_wait() -> None:
    giver, taker = store_of(3), store_of(3)
    for log in LOGS:
        taker.logs[log][2].payload = None
    pair = Pair(FEW, stores=(giver, taker))
    wants = Interests(logs=LOGS)
    pair.connect((wants, wants))
    until_alike(pair, seconds=120)


TWO_NEEDS = {
    "payloads and what is new": ((11, 12), (), (2, 5, 7)),
    "payloads and what to offer": ((), (11, 12), (2, 5, 7)),
    "a gap, a payload and what to offer": ((5, 6), (8, 11, 12), (2,)),
}
"""Entries that the taker lacks, that the giver lacks, and of which the taker lacks the payloads."""


@pytest.mark.parametrize("needs", TWO_NEEDS)
@pytest.mark.parametrize("both", [False, True], ids=["one", "both"])
@pytest.mark.parametrize("credit", [1, 2, 3])
def test_logs_that_need_two_requests_take_turns_too(credit: int, needs: str, *, both: bool) -> None:
    """Half of the logs lack all, the others lack several things, and most of these had only the one
    of them granted that goes on, at each of their turns."""
    taker_lacks, giver_lacks, payloads = TWO_NEEDS[needs]
    giver, taker = store_of(12), store_of(12)
    for log in LOGS:
        if log.log_id >= len(LOGS) // 2:
            taker.logs[log].clear()
        else:
            for seq in payloads:
                taker.logs[log][seq].payload = None
            for store, lacks in ((giver, giver_lacks), (taker, taker_lacks)):
                for seq in lacks:
                    del store.logs[log][seq]
        for store in (giver, taker):
            store.changed(log)
    few = replace(FEW, request_credit=credit)
    many = replace(few, requests_max=100)
    pair = Pair(few, stores=(giver, taker))
    wants = Interests(logs=LOGS)
    pair.connect((wants, wants), configs=(few, few if both else many))
    until_alike(pair, seconds=200)


def test_logs_that_grow_all_the_time_keep_no_others_out() -> None:
    giver, taker = store_of(2), Store()
    pair = Pair(FEW, stores=(giver, taker))
    wants = Interests(logs=LOGS)
    pair.connect((wants, wants), configs=(FEW, replace(FEW, requests_max=100)))
    pair.run()
    # As many as there is credit for.
    busy = [log for log in LOGS if taker.height(log) == 2]
    assert len(busy) == FEW.request_credit
    while any(taker.height(log) < 2 for log in LOGS):
        assert pair.now < 900
        for log in busy:
            giver.append(AUTHOR, log.log_id, b"new")
        pair.run(advance_s=1.0)


def confirmed(side: Impolite) -> list[Propose]:
    """Confirm what the engine has proposed; returns that."""
    proposals = [each for each in side.messages() if isinstance(each, Propose)]
    for each in proposals:
        side.control(Adjust(each.request, eagerness=Eagerness.NOTIFY, allow_skip=True))
        side.sent()
    return proposals


def test_room_is_made_once_for_a_peer_that_gives_no_credit_back() -> None:
    """Else every log would lose its request in the end, and nothing would be won."""
    side = Impolite(proactive=True, logs=LOGS)
    side.control(Grant(3))
    asked = confirmed(side)
    assert len(asked) == 3
    ended = []
    for _ in range(60):
        side.wait(1.0)
        for message in side.messages():
            assert isinstance(message, Cancel)
            ended.append(message)
            side.control(Cancel(message.request, CancelReason.YOU_CANCELLED))
    assert [each.reason for each in ended] == [CancelReason.NO_RESOURCES]
    assert ended[0].request in {each.request for each in asked}
    side.control(Grant(1))
    assert len(confirmed(side)) == 1


def test_no_room_is_made_while_every_log_has_its_request() -> None:
    side = Impolite(proactive=True, logs=LOGS)
    side.control(Grant(len(LOGS)))
    assert len(confirmed(side)) == len(LOGS)
    for _ in range(60):
        side.wait(1.0)
        assert side.messages() == []
