"""Very many logs on one connection: one proposal for each, and none is starved (section 10)."""

from nacl.signing import SigningKey

from peer.planner.planner import Planner
from peer.protocol.config import SessionConfig
from peer.protocol.events import Interests, InterestsChanged
from peer.protocol.notices import RequestConfirmed
from wire import LogKey

from .rig import Author, Pair, Store

AUTHOR = Author(SigningKey(b"m" * 32))


def logs(*numbers: int) -> frozenset[LogKey]:
    return frozenset(LogKey(AUTHOR.id, number) for number in numbers)


def test_logs_that_both_want_do_not_wait_for_those_that_only_one_wants() -> None:
    """Refused proposals come back at 20 a second; what is wanted goes ahead of them."""
    right = Store()
    for number in range(0, 600, 10):
        right.append(AUTHOR, number, b"common")
    pair = Pair(stores=(Store(), right))
    common = logs(*range(0, 600, 10))
    for side in (0, 1):
        wants = [Interests(logs=logs(*range(600))), Interests(logs=common)]
        pair = Pair(stores=(Store(), right) if side == 0 else (right, Store()))
        pair.connect((wants[side], wants[1 - side]))
        for _ in range(10):
            pair.run(advance_s=0.1)
        taker = pair.hosts[side].store
        assert {log for log in taker.logs if taker.height(log) == 1} == common


def test_logs_in_step_take_one_proposal_each() -> None:
    """Both sides walk the logs, from opposite ends."""
    stores = (Store(), Store())
    for store in stores:
        for number in range(300):
            store.append(AUTHOR, number, b"same")
    pair = Pair(stores=stores)
    wants = Interests(logs=logs(*range(300)))
    pair.connect((wants, wants))
    for _ in range(10):
        pair.run(advance_s=0.1)
    confirmed = [n for host in pair.hosts for n in host.notices if isinstance(n, RequestConfirmed)]
    assert [pair.engine(side).requests for side in (0, 1)] == [300, 300]
    assert len(confirmed) == 600


def test_small_logs_are_not_starved_by_a_huge_one() -> None:
    """Requests take turns, a quantum each, and a large payload shares with the small ones."""
    giver = Store()
    for _ in range(400):
        giver.append(AUTHOR, 0, b"h" * 300)
    giver.append(AUTHOR, 1, bytes(range(256)) * 400)
    for number in range(2, 302):
        giver.append(AUTHOR, number, b"small %d" % number)
    config = SessionConfig(small_payload_bytes_max=4096, quantum_bytes=1024, request_credit=400)
    pair = Pair(config, stores=(giver, Store()), credit=4096)
    wants = Interests(logs=logs(*range(302)))
    pair.connect((wants, wants))
    taker = pair.hosts[1].store
    sent = 0
    while any(taker.height(log) == 0 for log in logs(*range(2, 302))):
        for side in (0, 1):
            while pair.hosts[side].step():
                pass
            pair.data_credit[1 - side] += pair.engine(side).data_credit_to_release()
            pair.pump(side)
            pair.deliver_control(side, len(pair.control[side]))
            sent += len(pair.data[side]) * (side == 0)
            pair.deliver_data(side, len(pair.data[side]))
    small = 300 * 300
    assert sent < 2.5 * small
    assert taker.height(LogKey(AUTHOR.id, 0)) < 400
    pair.run()
    assert taker.logs == giver.logs


def test_little_is_kept_of_logs_that_the_other_side_does_not_want() -> None:
    """And they are offered again when what is wanted of them changes, not when they grow."""
    left, right = Store(), Store()
    for number in range(100):
        left.append(AUTHOR, number, b"unwanted")
    pair = Pair(stores=(left, right))
    pair.connect((Interests(logs=logs(*range(100))), Interests()))
    for _ in range(30):
        pair.run(advance_s=0.5)
    policy = pair.engine(0)._planner
    assert isinstance(policy, Planner)
    assert (len(policy._logs.closed()), policy._logs.items()) == (100, [])
    cancels = len(pair.hosts[1].notices)
    left.append(AUTHOR, 3, b"more")
    pair.run(advance_s=1.0)
    assert len(pair.hosts[1].notices) == cancels
    [other] = logs(200)
    wants = Interests(logs=logs(*range(100)), fetches={other: ((1, 1),)})
    pair.hosts[0].todo.append(InterestsChanged(wants, tuple(sorted(logs(*range(100))))))
    pair.run(advance_s=1.0)
    assert len(policy._logs.closed()) >= 100
