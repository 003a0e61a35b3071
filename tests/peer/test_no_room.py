"""What there is no room for by a limit of ours is refused at once, and not asked for again soon."""

import random
from collections.abc import Callable

import pytest
from nacl.signing import SigningKey

from logstore import Subscription
from peer.protocol.commands import Ingest, IngestItem, OpenPayload
from peer.protocol.config import SessionConfig
from peer.protocol.events import (
    Event,
    IngestFailed,
    Interests,
    InterestsChanged,
    PayloadFinished,
    Refusal,
    Verdict,
)
from peer.protocol.notices import RequestGivenUp
from tests.records import replace
from wire import LogKey

from .rig import Author, Pair, Store

AUTHOR = Author(SigningKey(b"q" * 32))
LOG = LogKey(AUTHOR.id, 0)
LARGE = 3_000_000
CONFIG = SessionConfig(room_first_s=60.0, room_max_s=600.0)


def pair_with(payloads: list[bytes]) -> Pair:
    """The first side has the log, the second one follows it."""
    giver, taker = Store(), Store()
    for payload in payloads:
        giver.append(AUTHOR, 0, payload)
    return Pair(CONFIG, stores=(giver, taker))


def connect(pair: Pair, policy: str = "follow") -> None:
    follows = Interests(logs=frozenset((LOG,)))
    pair.connect((follows, follows), policy=policy)


def watch_opens(pair: Pair) -> list[OpenPayload]:
    """Has no payload taken in pieces; what is asked for is in the list."""
    here, opened = pair.hosts[1], list[OpenPayload]()
    usual: Callable[..., list[Event]] = here._replies

    def replies(item: object) -> list[Event]:
        answers = usual(item)
        if isinstance(item, OpenPayload):
            opened.append(item)
            answers = [*answers, PayloadFinished(item.sink, Verdict.NO_ROOM, "full")]
        return answers

    here._replies = replies  # type: ignore[method-assign]
    return opened


def given_up(pair: Pair) -> int:
    pair.hosts[1].collect()
    return sum(isinstance(each, RequestGivenUp) for each in pair.hosts[1].notices)


def test_a_payload_that_there_is_no_room_for_is_stopped_and_left_alone_for_a_minute() -> None:
    pair = pair_with([random.Random(1).randbytes(LARGE), b"two"])
    opened = watch_opens(pair)
    connect(pair)
    for _ in range(50):
        pair.run(advance_s=1.0)
    assert len(opened) == 1
    assert given_up(pair) == 1
    assert not pair.hosts[1].sinks
    for _ in range(30):
        pair.run(advance_s=1.0)
    assert len(opened) == 2
    # And then for two.
    for _ in range(90):
        pair.run(advance_s=1.0)
    assert len(opened) == 2


def test_a_log_goes_on_when_there_is_room_again() -> None:
    pair = pair_with([random.Random(1).randbytes(LARGE), b"two"])
    opened = watch_opens(pair)
    connect(pair)
    for _ in range(5):
        pair.run(advance_s=1.0)
    assert len(opened) == 1
    del pair.hosts[1]._replies
    for _ in range(70):
        pair.run(advance_s=1.0)
    assert [held.payload is not None for held in pair.hosts[1].store.logs[LOG].values()] == [
        True,
        True,
    ]


def test_what_is_asked_for_by_name_has_room_at_once() -> None:
    pair = pair_with([random.Random(1).randbytes(LARGE)])
    opened = watch_opens(pair)
    everything = Interests(everything=True)
    pair.connect((everything, everything))
    for _ in range(5):
        pair.run(advance_s=1.0)
    assert len(opened) == 1
    del pair.hosts[1]._replies
    # What else is wanted makes no room for this log.
    pair.hosts[1].todo.append(InterestsChanged(replace(everything, authors=frozenset((b"x",))), ()))
    pair.run(advance_s=1.0)
    assert pair.hosts[1].store.logs[LOG][1].payload is None
    named = replace(everything, authors=frozenset((LOG.author,)))
    pair.hosts[1].todo.append(InterestsChanged(named, ()))
    pair.run(advance_s=1.0)
    assert pair.hosts[1].store.logs[LOG][1].payload is not None


@pytest.mark.parametrize(("eager_bytes", "due"), [(None, LARGE), (LARGE, LARGE), (LARGE - 1, 0)])
def test_the_host_is_told_of_a_payload_that_is_to_come(eager_bytes: int | None, due: int) -> None:
    """And of none that is only notified of, or that comes with its entry."""
    pair = pair_with([random.Random(1).randbytes(LARGE), b"two"])
    here, items = pair.hosts[1], list[IngestItem]()
    usual: Callable[..., list[Event]] = here._replies

    def replies(item: object) -> list[Event]:
        if isinstance(item, Ingest):
            items.extend(item.items)
        return usual(item)

    here._replies = replies  # type: ignore[method-assign]
    wish = Subscription(eager_bytes=eager_bytes)
    follows = Interests(logs=frozenset((LOG,)), subscriptions={LOG: wish})
    pair.connect((follows, follows))
    pair.run(advance_s=1.0)
    found = [(seq, each.due_bytes) for each in items for seq, *_ in each.entries]
    assert found == [(1, due), (2, 0)]


def test_a_one_time_sync_does_not_wait_for_room() -> None:
    pair = pair_with([random.Random(1).randbytes(LARGE)])
    opened = watch_opens(pair)
    connect(pair, "sync")
    for _ in range(20):
        pair.run(advance_s=1.0)
    assert len(opened) == 1


@pytest.mark.parametrize("seq", [1, 3])
def test_entries_that_there_is_no_room_for_are_refused_and_left_alone(seq: int) -> None:
    pair = pair_with([b"one", b"two", b"three", b"four"])
    here, asked = pair.hosts[1], 0
    usual: Callable[..., list[Event]] = here._replies

    def replies(item: object) -> list[Event]:
        nonlocal asked
        if not isinstance(item, Ingest):
            return usual(item)
        [part] = item.items
        fits = [each for each in part.entries if each[0] < seq]
        rest = part.entries[len(fits) :]
        answers = usual(Ingest([replace(part, entries=fits)])) if fits else []
        if rest:
            asked += 1
            first = rest[0][0]
            failed = IngestFailed(part.request, first, Refusal.NO_ROOM, "full", len(rest))
            answers.append(failed)
        return answers

    here._replies = replies  # type: ignore[method-assign]
    connect(pair)
    for _ in range(50):
        pair.run(advance_s=1.0)
    assert asked == 1
    assert list(here.store.logs[LOG]) == list(range(1, seq))
    # An offer of the other side is refused before any of it comes.
    pair.hosts[0].store.append(AUTHOR, 0, b"five")
    pair.run(advance_s=1.0)
    assert asked == 1
