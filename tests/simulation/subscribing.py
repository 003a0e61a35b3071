"""What nodes of a world want of a log: any policy, with limits on the sizes of payloads."""

import random

from logstore import FULL, PolicyKind, Subscription
from wire import U64_MAX

SIZES = ((0, U64_MAX), (0, U64_MAX), (0, U64_MAX), (20, 100), (0, 64), (60, 40_000))


def draw_subscription(rng: random.Random) -> Subscription:
    """Any of them, those that want everything somewhat more often."""
    kind = rng.choice([*PolicyKind, PolicyKind.FULL])
    count, first, last = 0, 1, None
    if kind is PolicyKind.LATEST:
        count = rng.choice((1, 3, 10, 40))
    if kind is PolicyKind.RANGE:
        first = rng.randint(1, 40)
        last = rng.choice((None, first + rng.choice((0, 3, 20))))
    low, high = rng.choice(SIZES)
    eager = rng.choice((None, None, None, 0, 60, 1_000, 65_536))
    return Subscription(kind, count, first, last, low, high, eager)


def narrowed(rng: random.Random, before: Subscription) -> Subscription:
    """One that wants less than another one does."""
    choices = [
        Subscription(PolicyKind.RANGE, first=1, last=rng.randint(1, 30)),
        Subscription(PolicyKind.METADATA),
        Subscription(PolicyKind.FULL, max_bytes=rng.choice((0, 64, 1_000))),
        Subscription(PolicyKind.FULL, eager_bytes=rng.choice((0, 64, 1_000))),
    ]
    return rng.choice([each for each in choices if each != before])


def wants_from_the_start(subscription: Subscription) -> bool:
    """Whether it names every entry there is and will be."""
    return subscription.kind in (FULL.kind, PolicyKind.METADATA)
