"""A log whose newest state counts: of each key one value, as of positions and of receipts.

What is saved is little beside what it costs to sign and to sync an entry. So it is gathered, a
newer value in the place of an older one, until somebody has it written (`saving.py`). What fails to
be written waits on: nobody has been told that it is on disk.

What such a log says would grow for ever, while its state does not. Once what is held of it takes
several times as much as the state, the state is written anew behind it, and only then is what was
before dropped: at each moment the log says all that was saved. The first of the new entries is
signed for the place behind the last one that the state is of, since what another process wrote
meanwhile would be dropped with the rest.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from logstore import Dropped, LogMoved, Store
from wire import LogKey

from .log_ids import Sign

log = logging.getLogger(__name__)

SUMMARY_FLOOR_BYTES: Final = 1 << 20
SUMMARY_FACTOR: Final = 4
_SUMMARY_BATCH: Final = 200
_ATTEMPTS: Final = 20
_FIRST: Final = 2
"""Entry 1 says what the log is."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Said(NamedTuple):
    """A log of this kind as the state knows it."""

    key: LogKey
    seq: int
    """The last entry that is in the state."""
    bytes: int
    """Of its payloads that are held."""


class NewestState(ABC, Generic[K, V]):
    """The state of one own log: gathered, written, and written anew. Raises StoreError.

    Blocks, but for `save`, which only remembers. For any thread, and nothing here waits for another
    one: who writes may have to wait for the event loop, and that for a thread. `waiting_max`: how
    many values wait to be written before there is no room.
    """

    def __init__(self, store: Store, sign: Sign, waiting_max: int) -> None:
        self._store = store
        self._sign = sign
        self._waiting_max = waiting_max
        self._waiting: dict[K, V] = {}
        self._taking = threading.Lock()
        self._summary_at = SUMMARY_FLOOR_BYTES

    @abstractmethod
    def _is_newer(self, value: V, known: V) -> bool:
        """Whether a value counts in the place of another one of the same key."""

    @abstractmethod
    def _write(self, values: Mapping[K, V]) -> None:
        """Signs what of some values changes anything, behind what others have written."""

    @abstractmethod
    def _said(self) -> Said | None:
        """The log as it is known, brought up to date; None if there is none."""

    @abstractmethod
    def _state(self) -> list[bytes]:
        """The payloads that say the whole state."""

    @abstractmethod
    def _dropped(self, key: LogKey, dropped: Dropped) -> None:
        """Payloads of the log are not held any more."""

    def save(self, key: K, value: V) -> bool:
        """Remembers a value until `flush`; False if there is no room. Does not block."""
        with self._taking:
            has_known = key in self._waiting
            if not has_known and len(self._waiting) >= self._waiting_max:
                return False
            if not has_known or self._is_newer(value, self._waiting[key]):
                self._waiting[key] = value
            return True

    @property
    def waiting(self) -> int:
        """How many values are not on disk."""
        return len(self._waiting)

    def is_waiting(self, key: K) -> bool:
        """Whether a value has been saved and is not on disk."""
        return key in self._waiting

    def flush(self) -> None:
        """Writes what was saved; by one caller at a time. What fails is to be written again."""
        with self._taking:
            taken = dict(self._waiting)
        if not taken:
            return
        self._write(taken)
        with self._taking:
            for key, value in taken.items():
                if key in self._waiting and self._waiting[key] == value:
                    del self._waiting[key]
        self._summarize_if_due()

    def _summarize_if_due(self) -> None:
        found = self._said()
        if found is None or found.bytes <= self._summary_at:
            return
        size = sum(map(len, self._state()))
        due = max(SUMMARY_FLOOR_BYTES, SUMMARY_FACTOR * size)
        if found.bytes > due:
            self._summarize()
        # Not looked at again before it may be due.
        self._summary_at = due

    def _summarize(self) -> None:
        for _ in range(_ATTEMPTS):
            found = self._said()
            assert found is not None
            payloads = self._state()
            first = found.seq + 1
            try:
                head = payloads[:_SUMMARY_BATCH]
                self._sign([(found.key.log_id, head)], expected_seqs=[first])
            except LogMoved:
                continue
            for start in range(_SUMMARY_BATCH, len(payloads), _SUMMARY_BATCH):
                self._sign([(found.key.log_id, payloads[start : start + _SUMMARY_BATCH])])
            # What was written is counted before what is dropped is not any more.
            self._said()
            self._dropped(found.key, self._store.drop(found.key, _FIRST, first - 1))
            log.info("the log %s was summarized in %d entries", found.key, len(payloads))
            return
