"""Chunks that are offered, and read soon after: all of a batch are looked up with one question.

Whether a chunk is here is asked for each that is offered, and so often that it is not read for
that: a payload that is damaged shows when it is wanted. From then on it is not offered until it can
be read again, or a peer would wait for it, give up, come back and wait for it again.
"""

from collections.abc import Sequence
from typing import Final

from logstore import Store

from .logs import Chunks
from .side import Place, Side

_REMEMBERED_MAX: Final = 10_000
_PLACES_MAX: Final = 1_000


class Offering:
    """Finds and reads chunks for peers. Blocks; for any thread. Raises StoreError throughout."""

    def __init__(self, store: Store, side: Side, chunks: Chunks) -> None:
        self._store = store
        self._side = side
        self._chunks = chunks
        # Replaced, not emptied: another thread may be at it. A chunk never leaves its place, so
        # what is found here is true for ever, if not all.
        self._found: dict[bytes, list[Place]] = {}
        self._unreadable: set[bytes] = set()

    def find(self, addresses: Sequence[bytes]) -> None:
        """Finds those that are to be offered next, 500 at most."""
        if len(self._found) > _REMEMBERED_MAX:
            self._found = {}
        self._found.update(self._side.places_of(addresses, self._store.author, _PLACES_MAX))

    def holds(self, address: bytes) -> bool:
        """Whether a chunk was not deleted, and not found damaged."""
        if address in self._unreadable:
            return self._read(address) is not None
        found = self._found.get(address, ())
        return any(map(self._is_here, found)) or any(
            map(self._is_here, self._chunks.places(address))
        )

    def _is_here(self, place: Place) -> bool:
        info = self._store.log(place.log)
        if info is None:
            return False
        # Most logs have all of their payloads, which is known for half of what one entry costs.
        is_whole = info.payloads == info.entries and place.seq <= info.height
        return is_whole or self._store.next_payload(place.log, place.seq) == place.seq

    def read(self, addresses: Sequence[bytes]) -> list[bytes | None]:
        """Chunks as they are stored; None for one that is not held."""
        with self._store.snapshot():
            return [self._read(each) for each in addresses]

    def _read(self, address: bytes) -> bytes | None:
        found = self._found.get(address)
        chunk = self._chunks.get(address, found) if found else None
        if chunk is None:
            places = self._chunks.places(address)
            chunk = self._chunks.get(address, places)
            if chunk is None and places:
                if len(self._unreadable) >= _REMEMBERED_MAX:
                    self._unreadable = set()
                self._unreadable.add(address)
                return None
        self._unreadable.discard(address)
        return chunk
