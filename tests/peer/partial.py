"""Partial replicas of one log for tests: which parts a store holds, and what it was sent."""

from collections import Counter
from collections.abc import Iterable
from functools import cache

from nacl.signing import SigningKey

from logstore import PolicyKind, Subscription
from peer.protocol.commands import Command, FinishPayload, Ingest
from peer.protocol.events import Event, Interests
from wire import LogKey, lower_pool

from .rig import Author, Held, Host, Pair, Store

AUTHOR = Author(SigningKey(b"q" * 32))
LOG = LogKey(AUTHOR.id, 0)


@cache
def history(count: int) -> dict[int, Held]:
    """A log whose payloads have sizes from 0 to 120: small ones, and some that come in pieces."""
    known: dict[int, Held] = {}
    for n in range(count):
        seq, held = AUTHOR.entry(known, 0, bytes([n % 251]) * (n * 37 % 121))
        known[seq] = held
    return known


def closed(seqs: Iterable[int]) -> set[int]:
    """These entries and their lower pools."""
    return {n for seq in seqs for n in lower_pool(seq)}


def replica(count: int, seqs: Iterable[int], bare: Iterable[int] = ()) -> Store:
    """A store that holds these entries of a log, the payloads of `bare` left out.

    What only belongs to a pool has no payload either.
    """
    store, whole = Store(), history(count)
    wanted = set(seqs)
    for seq in sorted(closed(wanted)):
        held = whole[seq]
        keeps = seq in wanted and seq not in set(bare)
        store.logs[LOG][seq] = Held(held.encoded, held.hash, held.payload if keeps else None)
    return store


class Counting(Host):
    """A host that counts what it is given to store: entries, and payloads."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.entries: Counter[int] = Counter()
        self.payloads: Counter[int] = Counter()

    def _replies(self, item: Command | Event) -> list[Event]:
        if isinstance(item, Ingest):
            for part in item.items:
                for seq, _, _, payload in part.entries:
                    self.entries[seq] += part.is_new
                    self.payloads[seq] += payload is not None
        elif isinstance(item, FinishPayload):
            self.payloads[self.sinks[item.sink].command.seq] += 1
        return super()._replies(item)


def pair_of(left: Store, right: Store, *, credit: int = 4096) -> Pair:
    pair = Pair(stores=(left, right), credit=credit)
    for store in (left, right):
        store.watchers.clear()
    pair.hosts = (Counting(left), Counting(right))
    return pair


def interests_of(subscription: Subscription | None, **fields: object) -> Interests:
    if subscription is None:
        return Interests(**fields)  # type: ignore[arg-type]
    return Interests(
        logs=frozenset((LOG,)),
        subscriptions={LOG: subscription},
        **fields,  # type: ignore[arg-type]
    )


def settle(pair: Pair, rounds: int = 14) -> None:
    for _ in range(rounds):
        pair.run(advance_s=1.0)


def wanted_of(subscription: Subscription, newest: int) -> set[int]:
    """The entries that a subscription names of a log whose newest known entry is `newest`."""
    if subscription.kind is PolicyKind.SPARSE:
        return set(lower_pool(newest)) if newest else set()
    first, last = subscription.bounds(newest)
    return set(range(first, last + 1))
