"""What a node wants of a log follows from what it follows: peer/protocol/events.py."""

from logstore import ALL, FULL, Follow, PolicyKind, Subscription
from peer import Interests
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
