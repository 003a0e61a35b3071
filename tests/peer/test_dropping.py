"""A payload that is dropped while it comes is not brought any further, and what is behind it is."""

import random

import pytest
from nacl.signing import SigningKey

from peer.protocol.commands import FinishPayload
from peer.protocol.events import Event, Interests, PayloadFinished, Verdict
from peer.protocol.notices import RequestGivenUp
from wire import LogKey

from .rig import Author, Pair, Store

LARGE = 200_000


@pytest.mark.parametrize("policy", ["follow", "sync"])
def test_the_rest_of_a_payload_that_was_dropped_does_not_come(policy: str) -> None:
    author = Author(SigningKey(b"d" * 32))
    giver, taker = Store(), Store()
    for payload in (b"one", random.Random(1).randbytes(LARGE), b"three"):
        giver.append(author, 0, payload)
    log = LogKey(author.id, 0)
    pair = Pair(stores=(giver, taker), credit=4096)
    follows = Interests(logs=frozenset((log,)))
    pair.connect((follows, follows), policy=policy)
    here = pair.hosts[1]
    while not any(sink.data for sink in here.sinks.values()):
        pair.one_round()
    [ident] = here.sinks
    taker.dropped.add((log, 2))
    here.todo.append(PayloadFinished(ident, Verdict.DROPPED))
    for _ in range(6):
        pair.run(advance_s=0.5)
    assert not here.sinks
    assert 0 < len(taker.partial[log, 2]) < LARGE / 4
    assert taker.logs[log][2].payload is None
    assert taker.logs[log][3].payload == b"three"


def test_a_payload_that_had_come_when_it_was_dropped_ends_nothing() -> None:
    author = Author(SigningKey(b"d" * 32))
    giver, taker = Store(), Store()
    for payload in (random.Random(1).randbytes(LARGE), b"two"):
        giver.append(author, 0, payload)
    log = LogKey(author.id, 0)
    pair = Pair(stores=(giver, taker))
    here = pair.hosts[1]

    def drop(item: FinishPayload) -> list[Event]:
        del here.sinks[item.sink]
        taker.dropped.add((log, 1))
        return [PayloadFinished(item.sink, Verdict.DROPPED)]

    here._finish = drop  # type: ignore[method-assign]
    follows = Interests(logs=frozenset((log,)))
    pair.connect((follows, follows), policy="follow")
    for _ in range(4):
        pair.run(advance_s=0.5)
    assert taker.logs[log][1].payload is None
    assert taker.logs[log][2].payload == b"two"
    assert not [each for each in here.notices if isinstance(each, RequestGivenUp)]
