"""Quotas of the stores of a world (doors.md 4): limits that come and go, and sums added up anew.

The store's own books are not looked at. What was held, or begun, when a limit came stays, however
much it is; beyond that no sum may pass its limit.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from logstore import NewEntry, OverQuota, QuotaLimits, Store
from logstore.schema import FILE_PARTIAL, FILE_WHOLE
from wire import LogKey

from .truth import Broken

if TYPE_CHECKING:
    from .node import SimNode

TROUBLE = "quotas"
NONE = QuotaLimits(None, None, None, 0)


def draw_limits(rng: random.Random) -> QuotaLimits:
    """Small ones, and now and then none."""
    return QuotaLimits(
        author_bytes=rng.choice((None, 500, 3_000, 100_000)),
        peer_bytes=rng.choice((None, 1_000, 20_000, 200_000)),
        store_bytes=rng.choice((None, None, 4_000, 60_000, 300_000)),
        free_bytes=0,
    )


class Room:
    """The limits of one node's store, and what may be there because it was there before."""

    def __init__(self, node: "SimNode") -> None:
        self._node = node
        self.limits = NONE
        self.refusals = 0
        """How often there was no room for something."""
        self._stays: Counter[bytes | None] = Counter()
        """What may be held, or under way, of an author or of all others (None) in any case."""
        self._brought: Counter[bytes] = Counter()
        self._excused: Counter[bytes] = Counter()
        """What peers had brought when their limit came, or ended that others had begun."""
        self._named: frozenset[bytes] = frozenset()
        self._begins_anew = True
        self._fault: Broken | None = None

    @property
    def is_limited(self) -> bool:
        return self.limits != NONE

    # What happens

    def opened(self) -> None:
        """A process begins to work with the store."""
        store = self._node.store
        store.set_quotas(self.limits)
        self._brought.clear()
        self._excused.clear()
        self._begins_anew = True
        store.put_many = partial(self._put_many, store.put_many)  # type: ignore[method-assign]
        complete = partial(self._complete_payload, store.complete_payload)
        store.complete_payload = complete  # type: ignore[method-assign]

    def limit(self, limits: QuotaLimits) -> None:
        """The operator says something else."""
        self._node.world.note(f"{self._node.name} has {limits}")
        self.limits = limits
        self._excused = self._brought.copy()
        self._begins_anew = True
        if self._node.alive:
            self._node.store.set_quotas(limits)

    def refused(self, over: OverQuota) -> None:
        """There is no room for something."""
        self.refusals += 1
        self._node.world.note(f"{self._node.name} has no room: {over.key}")

    def grows_otherwise(self) -> None:
        """Something is stored that has no quota, or what is asked for by name has changed."""
        self._begins_anew = True

    # What a peer has brought

    def _put_many(
        self,
        put: Callable[..., Any],
        batches: Sequence[tuple[LogKey, Sequence[NewEntry]]],
        *,
        source: str,
        giver: bytes | None = None,
    ) -> Any:  # noqa: ANN401
        batches = list(batches)
        with self._counted([log for log, _ in batches], giver, excused=False):
            return put(batches, source=source, giver=giver)

    def _complete_payload(
        self,
        complete: Callable[..., Any],
        log: LogKey,
        seq: int,
        payload: object,
        *,
        giver: bytes | None = None,
    ) -> Any:  # noqa: ANN401
        # What goes to a file was judged when that was made, whoever ends it.
        with self._counted([log], giver, excused=not isinstance(payload, bytes)):
            return complete(log, seq, payload, giver=giver)

    @contextmanager
    def _counted(
        self, logs: Sequence[LogKey], giver: bytes | None, *, excused: bool
    ) -> Iterator[None]:
        if giver is None:
            self.grows_otherwise()
            yield
            return
        named = {log for log in logs if self._is_named(log)}
        before = {log: self._held(log) for log in logs}
        yield
        grown = sum(self._held(log) - before[log] for log in before.keys() - named)
        self._brought[giver] += grown
        if excused:
            self._excused[giver] += grown
        limit, brought = self.limits.peer_bytes, self._brought[giver]
        if limit is not None and grown > 0 and brought > limit + self._excused[giver]:
            # The host takes whatever is raised here for a fault of its own.
            self._fault = Broken(f"took {brought} bytes of one peer, not {limit}")

    def _held(self, log: LogKey) -> int:
        # That of the class: reads of this one store may be made to fail.
        found = Store.log(self._node.store, log)
        return 0 if found is None else found.bytes

    def _is_named(self, log: LogKey) -> bool:
        store = self._node.store
        follows = store.subscriptions()
        named = log in follows or log.author in follows or log in store.wants()
        return named or log.author == store.author

    # The sums

    def check(self) -> None:
        """Adds everything up. Raises Broken, and StoreError while the disk fails."""
        if self._fault is not None:
            raise self._fault
        if not self.is_limited:
            return
        store = self._node.store
        held: Counter[bytes | None] = Counter()
        for info in store.logs():
            held[info.key.author] += info.bytes
        for author, size in self._under_way():
            held[author] += size
        own = held.pop(store.author, 0)
        held[None] = held.total()
        follows = (*store.subscriptions(), *store.wants())
        named = frozenset(
            target.author if isinstance(target, LogKey) else target
            for target in follows
            if isinstance(target, LogKey | bytes)
        )
        if self._begins_anew or named != self._named:
            self._begins_anew, self._named = False, named
            self._stays = held
            return
        limits = {author: self.limits.author_bytes for author in held if author not in named}
        for of, limit in {**limits, None: self.limits.store_bytes}.items():
            if limit is not None and held[of] > max(limit, self._stays[of]):
                whose = "all others" if of is None else of.hex()[:6]
                raise Broken(
                    f"holds {held[of]} bytes of {whose}, and {own} own ones,"
                    f" not {limit} or what was there: {self._stays[of]}"
                )

    def _under_way(self) -> list[tuple[bytes, int]]:
        """The declared sizes of payloads that are no entry's yet, and their authors."""
        with self._node.store._database.read() as db:
            rows = db.execute(
                "SELECT author, payload_bytes FROM files WHERE state IN (?, ?)",
                (FILE_PARTIAL, FILE_WHOLE),
            ).fetchall()
        return [
            (author, int.from_bytes(size, "big"))
            for author, size in rows
            if isinstance(author, bytes) and isinstance(size, bytes)
        ]
