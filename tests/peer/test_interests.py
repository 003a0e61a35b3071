"""What a node wants of a log follows from what it follows: peer/protocol/events.py."""

import pytest

from logstore import ALL, FULL, Follow, PolicyKind, Subscription, WriteScope
from peer import Interests, Scope
from wire import LogKey

LOG = LogKey(b"a" * 32, 1)
OTHER = LogKey(b"b" * 32, 1)
RULES = [Subscription(PolicyKind.LATEST, count=n) for n in (1, 2, 3)]


def test_the_nearest_rule_counts() -> None:
    """An own log is wanted in full; then the log's own rule counts, its author's, that of all."""
    logs, authors = frozenset((LOG,)), frozenset((LOG.author,))
    some: dict[Follow, Subscription] = {LOG.author: RULES[1], ALL: RULES[2]}
    every = {LOG: RULES[0], **some}
    for interests, expected in (
        (Interests(logs, authors, True, logs, subscriptions=every), FULL),
        (Interests(logs, authors, True, subscriptions=every), RULES[0]),
        (Interests(frozenset(), authors, True, subscriptions=some), RULES[1]),
        (Interests(everything=True, subscriptions={ALL: RULES[2]}), RULES[2]),
        (Interests(logs, authors, True), FULL),
    ):
        assert interests.subscription(LOG) == expected


def test_what_is_fetched_is_wanted_and_not_followed() -> None:
    interests = Interests(fetches={LOG: ((3, 4),)})
    assert interests.wants(LOG)
    assert not interests.follows(LOG)
    assert not interests.wants(OTHER)


PEER, OWN = b"p" * 32, b"m" * 32
NOTHING: frozenset[bytes | LogKey] = frozenset()


def test_a_scope_names_authors_and_logs() -> None:
    """doors.md 3: all, none, or authors and single logs."""
    some = Scope(frozenset({LOG.author, LogKey(b"c" * 32, 7)}), WriteScope.NONE, PEER)
    for log, may_read in (
        (LOG, True),
        (LogKey(LOG.author, 99), True),
        (LogKey(b"c" * 32, 7), True),
        (LogKey(b"c" * 32, 8), False),
        (OTHER, False),
    ):
        assert some.may_read(log) is may_read
        assert Scope(None, WriteScope.NONE, PEER).may_read(log)
        assert not Scope(NOTHING, WriteScope.NONE, PEER).may_read(log)


def test_own_logs_of_a_peer_are_those_of_its_id() -> None:
    for writes, own, other in (
        (WriteScope.FOLLOWED, True, True),
        (WriteScope.OWN, True, False),
        (WriteScope.NONE, False, False),
    ):
        scope = Scope(None, writes, PEER)
        assert scope.may_write(LogKey(PEER, 3)) is own
        assert scope.may_write(LOG) is other


@pytest.mark.parametrize(
    ("reads", "writes", "peer", "error"),
    [
        ({b"a" * 31}, WriteScope.OWN, PEER, ValueError),
        ({LogKey(b"a" * 33, 0)}, WriteScope.OWN, PEER, ValueError),
        ({("a", 0)}, WriteScope.OWN, PEER, TypeError),
        ({"a" * 32}, WriteScope.OWN, PEER, TypeError),
        (set(), WriteScope.OWN, b"p", ValueError),
        (set(), "own", PEER, TypeError),
    ],
)
def test_a_scope_that_would_match_nothing_by_mistake_is_refused(
    reads: set[bytes | LogKey], writes: WriteScope, peer: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        Scope(frozenset(reads), writes, peer)


@pytest.mark.parametrize("writes", [*WriteScope, None])
@pytest.mark.parametrize("readable", [True, False])
def test_what_a_node_does_with_a_log_follows_from_both_parts_of_a_scope(
    *, readable: bool, writes: WriteScope | None
) -> None:
    """Taken and fetched where it may write; served where it may read; own ones where both."""
    reads = None if readable else NOTHING
    scope = None if writes is None else Scope(reads, writes, PEER)
    readable = readable or writes is None
    theirs, mine, held = LogKey(PEER, 0), LogKey(OWN, 0), LogKey(b"h" * 32, 0)
    fetched = LogKey(b"f" * 32, 0)
    interests = Interests(
        logs=frozenset({LOG, theirs}),
        own=frozenset({mine}),
        author=OWN,
        fetches={fetched: ((1, 2),)},
        scope=scope,
    )
    for log, followed, asked_for in (
        (LOG, True, True),
        (theirs, True, True),
        (mine, True, True),
        (LogKey(OWN, 5), True, True),
        (fetched, False, True),
        (held, False, False),
    ):
        writable = writes in (None, WriteScope.FOLLOWED) or (
            writes is WriteScope.OWN and log is theirs
        )
        if log.author == OWN:
            writable = writable and readable
        assert interests.wants(log) is (asked_for and writable)
        assert interests.follows(log) is (followed and writable)
        assert interests.listens(log) is (followed and readable and not writable)
        assert interests.serves(log) is readable
        assert interests.is_silent(log) is not (readable or (asked_for and writable))
        assert interests.concerns(log) is not interests.is_silent(log)


def test_what_is_served_apart_from_what_is_followed_is_the_nodes_own_choice() -> None:
    every = Scope(None, WriteScope.NONE, PEER)
    interests = Interests(logs=frozenset({LOG}), serve_held=False, scope=every)
    assert interests.serves(LOG)
    assert not interests.serves(OTHER)


def test_unknown_logs_are_awaited_only_from_who_may_write_them() -> None:
    for writes, everything, authors, awaited in (
        (WriteScope.FOLLOWED, True, set(), True),
        (WriteScope.FOLLOWED, False, {LOG.author}, True),
        (WriteScope.FOLLOWED, False, set(), False),
        (WriteScope.OWN, True, set(), True),
        (WriteScope.OWN, False, {PEER}, True),
        (WriteScope.OWN, False, {LOG.author}, False),
        (WriteScope.NONE, True, {PEER}, False),
    ):
        scope = Scope(None, writes, PEER)
        followed: frozenset[bytes] = frozenset(authors)
        assert Interests(frozenset(), followed, everything, scope=scope).awaits_unknown is awaited
