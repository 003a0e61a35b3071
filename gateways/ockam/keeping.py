"""Retention: which messages are kept, and what is dropped (section 4.4). Blocks."""

import logging
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import Final, NamedTuple

from gateways import sound_entries
from gateways.ockam.declared import INDEX_OF_SEQ
from logstore import Dropped, PayloadState, StoreDamaged, StoreError, StoreFull

from .book import Book
from .logs import Catalog
from .side import Held, Stream

log = logging.getLogger(__name__)

_UNITS: Final = {
    "age": {"s": 1, "m": 60, "h": 3600, "d": 86400},
    "count": {"k": 1000, "M": 1000**2, "G": 1000**3},
    "bytes": {"k": 1 << 10, "M": 1 << 20, "G": 1 << 30},
}
_AMOUNT: Final = re.compile(r"([0-9]{1,18})([a-zA-Z]?)", re.ASCII)
_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Rule:
    """What is kept of the streams whose name matches; None is no limit."""

    pattern: str
    age_s: int | None = None
    count: int | None = None
    bytes: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """`GLOB:age=30d,count=1000000,bytes=10G`, any of the three. Raises ValueError."""
        pattern, colon, rest = text.rpartition(":")
        if not colon or not pattern:
            raise ValueError(f"{text[:60]!r} is no rule: write GLOB:age=30d,count=1000,bytes=10G")
        limits: dict[str, int] = {}
        for part in rest.split(","):
            name, _, amount = part.partition("=")
            found = _AMOUNT.fullmatch(amount)
            units = _UNITS.get(name)
            is_known = units is not None and found is not None
            if units is None or found is None or (found[2] and found[2] not in units):
                kinds = ", ".join(_UNITS[name]) if units is not None else "age, count or bytes"
                raise ValueError(
                    f"{part[:40]!r} is no limit: " + ("a unit is one of " * (not is_known)) + kinds
                )
            if name in limits:
                raise ValueError(f"{name!r} is limited twice in {text[:60]!r}")
            limits[name] = int(found[1]) * units.get(found[2], 1)
        if limits.get("age") == 0:
            raise ValueError("an age of 0 keeps nothing: use count=0")
        return cls(pattern, limits.get("age"), limits.get("count"), limits.get("bytes"))

    def matches(self, name: str) -> bool:
        """Whether the rule is for a stream of this name; `*` and `?` stand for any text."""
        return _compiled(self.pattern)(name) is not None


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> Callable[[str], re.Match[str] | None]:
    # Brackets mean themselves: only * and ? are special.
    return re.compile(translate(pattern.replace("[", "[[]"))).match


class Trimmed(NamedTuple):
    """What was dropped of a stream."""

    stream: Stream
    earliest: int
    dropped: Dropped


class Keeper:
    """Drops what the rules do not keep; the first one that matches counts."""

    def __init__(
        self,
        catalog: Catalog,
        book: Book,
        rules: Sequence[Rule] = (),
        *,
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._catalog = catalog
        self._book = book
        self._rules = tuple(rules)
        self._clock_us = clock_us

    def rule(self, name: str) -> Rule | None:
        """The rule for a stream."""
        return next((rule for rule in self._rules if rule.matches(name)), None)

    @property
    def has_rules(self) -> bool:
        """Whether anything is ever dropped."""
        return bool(self._rules)

    def finish_trims(self) -> list[Trimmed]:
        """Drops again what trims say, for a gateway may have been killed before it had dropped."""
        return self._of_each(self._catalog.side.streams(self._catalog.own), self._finish)

    def _finish(self, stream: Stream) -> Trimmed | None:
        earliest = self._catalog.side.earliest(stream.key)
        dropped = self._drop(stream, earliest)
        return Trimmed(stream, earliest, dropped) if dropped.count else None

    def keep_all(self) -> list[Trimmed]:
        """Applies the rules to all streams."""
        return self._of_each(self._catalog.all(), self.keep)

    def _of_each(
        self, streams: Iterable[Stream], work: Callable[[Stream], Trimmed | None]
    ) -> list[Trimmed]:
        """A stream that fails is said, and the others go on."""
        done = []
        for stream in streams:
            try:
                trimmed = work(stream)
            except StoreError as error:
                self._catalog.seldom.warn(
                    log, f"keep {stream.key}", f"{stream.name}/{stream.partition}: {error}"
                )
                continue
            if trimmed is not None:
                done.append(trimmed)
        return done

    def keep(self, stream: Stream) -> Trimmed | None:
        """Applies the rules to a stream; None if nothing is dropped."""
        rule = self.rule(stream.name)
        if rule is None:
            return None
        known = self._catalog.side.earliest(stream.key)
        earliest = self._lowest_kept(stream, rule, known)
        if earliest <= known and stream.key.author == self._catalog.own:
            return None
        trimmed = self.trim(stream, earliest)
        return trimmed if trimmed.dropped.count else None

    def trim(self, stream: Stream, before: int) -> Trimmed:
        """Drops what is below an index, at most all there is. Works on a full disk."""
        side = self._catalog.side
        earliest = min(before, self._catalog.next_index(stream))
        if stream.key.author != self._catalog.own:
            return Trimmed(stream, earliest, self._drop(stream, earliest))
        earliest = max(earliest, side.earliest(stream.key))
        dropped = Dropped(0, 0)
        try:
            self._book.trim(stream, earliest)
        except StoreFull:
            # What is dropped makes the room that the trim needs.
            dropped = self._drop(stream, earliest)
            self._book.trim(stream, earliest)
        rest = self._drop(stream, earliest)
        return Trimmed(
            stream,
            earliest,
            Dropped(dropped.count + rest.count, dropped.bytes + rest.bytes),
        )

    def _drop(self, stream: Stream, earliest: int) -> Dropped:
        if earliest <= 0:
            return Dropped(0, 0)
        store = self._catalog.store
        first = store.next_payload(stream.key, INDEX_OF_SEQ)
        last = earliest + INDEX_OF_SEQ - 1
        if first is None or first > last:
            return Dropped(0, 0)
        dropped = store.drop(stream.key, first, last)
        held = self._catalog.side.held(stream)
        if last < held.seq:
            held = Held(held.seq, held.bytes - dropped.bytes, held.payloads - dropped.count)
        else:
            held = Held(last, 0, min(1, held.payloads))
        self._catalog.side.set_held(stream, held)
        return dropped

    def _lowest_kept(self, stream: Stream, rule: Rule, known: int) -> int:
        """The lowest index that no limit excludes."""
        next_ = self._catalog.next_index(stream)
        lowest = known
        if rule.count is not None:
            lowest = max(lowest, next_ - rule.count)
        excess = 0
        if rule.bytes is not None:
            excess = self._count(stream).bytes - rule.bytes
        oldest = None if rule.age_s is None else self._clock_us() - rule.age_s * _MICROSECONDS
        if excess <= 0 and oldest is None:
            return lowest
        return self._walk(stream, lowest, excess, oldest)

    def _walk(self, stream: Stream, lowest: int, excess: int, oldest: int | None) -> int:
        """Goes up from the first message held past those that are too old or too much."""
        store = self._catalog.store
        first = store.next_payload(stream.key, INDEX_OF_SEQ)
        # What is damaged is passed by, for it goes with those before and behind it: ended by one
        # entry, retention would let the stream grow for ever.
        entries = sound_entries(store, stream.key, first, self._say) if first is not None else ()
        for entry in entries:
            index = entry.seq - INDEX_OF_SEQ
            is_excluded = excess > 0 or (oldest is not None and entry.received_at < oldest)
            if is_excluded:
                lowest = max(lowest, index + 1)
            elif index >= lowest:
                return lowest
            if entry.payload_state is PayloadState.PRESENT:
                excess -= entry.payload_bytes
        return lowest

    def _say(self, error: StoreDamaged) -> None:
        self._catalog.seldom.warn(log, error.where, f"it is passed by: {error}")

    def _count(self, stream: Stream) -> Held:
        """The messages held: those that are new are added to what was counted before.

        Where something else has dropped or brought payloads too, all are counted again: by too
        large a number messages would go that are to be kept.
        """
        info = self._catalog.store.log(stream.key)
        if info is None:
            return Held(0, 0, 0)
        held = self._count_from(stream, self._catalog.side.held(stream), info.newest)
        if held.payloads != info.payloads:
            held = self._count_from(stream, Held(0, 0, 0), info.newest)
        self._catalog.side.set_held(stream, held)
        return held

    def _count_from(self, stream: Stream, held: Held, newest: int) -> Held:
        seq, size, payloads = held
        damaged: list[StoreDamaged] = []
        for entry in sound_entries(self._catalog.store, stream.key, seq + 1, damaged.append):
            if entry.seq > newest:
                break
            seq = entry.seq
            if entry.payload_state is PayloadState.PRESENT:
                payloads += 1
                size += entry.payload_bytes if entry.seq >= INDEX_OF_SEQ else 0
        # The store counts them among its payloads; of what size they are nobody can say.
        return Held(seq, size, payloads + len(damaged))
