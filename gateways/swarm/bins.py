"""What a serving node offers: the bins' logs, and who writes them (spec section 4).

Each chunk that is held has a place: an index in the bin of its address, which is an entry of that
bin's log, signed, before anybody is offered it. There is one writer. It signs only behind the entry
that it took last, so whatever else is in a log, of another process or one that cannot be read, is
never signed past: such a bin stays as it is, and its chunks have no place, until that entry is
back. An index goes to one chunk, and a chunk has one index.

What was signed and did not get as far as the side table, because the process ended in between, is
taken up by the refresh that comes before anything is placed again. So nothing gets two places.
"""

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import Final

from gateways import Sign
from gateways.swarm.bmt import Chunk
from gateways.swarm.declared import BINS, SYNC
from gateways.swarm.proximity import proximity
from gateways.swarm.sources import Source
from logstore import LogClosed, LogMoved, Store, StoreDamaged

from .logs import Chunks, Node
from .offering import Offering
from .side import Interval, Side
from .side_bins import ENTRY_ITEMS_MAX, Bin

_log = logging.getLogger(__name__)

_PEERS_MAX: Final = 1_000
"""Whose records are kept: twice as many at most, until they are looked at again."""
TOGETHER_ITEMS: Final = 10_000
"""Places that are given in one transaction."""
_FOUND_TOGETHER_MAX: Final = 500


class Bins:
    """The bins of the node in a store. Blocks; for any thread. Raises StoreError throughout.

    `sign` appends to the own logs; nobody else does so to those of the bins.
    """

    def __init__(self, store: Store, side: Side, node: Node, sign: Sign) -> None:
        self._store = store
        self._side = side
        self._node = node
        self._sign = sign
        self._chunks = Chunks(store, side)
        self._offering = Offering(store, side, self._chunks)
        self._writing = threading.Lock()
        self._asked = 0
        self._bins: dict[int, Bin] = {}
        self._newest = [0] * BINS
        self._count = 0

    def begin(self) -> None:
        """Takes up what is in the store."""
        with self._writing:
            self._refresh()
            self._side.forget_intervals(_PEERS_MAX)

    def _refresh(self) -> None:
        self._side.refresh()
        self._bins, chunks = self._side.bins()
        self._count = self._side.held(chunks)
        self._newest = [
            self._bins[bin_].newest if bin_ in self._bins else 0 for bin_ in range(BINS)
        ]

    # What is in them -----------------------------------------------------------------------------

    def newest(self, bin_: int) -> int:
        """The highest index of a bin, as of the last call that has written or looked."""
        return self._newest[bin_]

    def count(self) -> int:
        """How many chunks are in logs of chunks, each address once; as fresh as `newest`."""
        return self._count

    def addresses(self, bin_: int, first: int, last: int, count: int) -> list[bytes]:
        """As of every `Source`."""
        last = min(last, first + count - 1, self._newest[bin_])
        if first > last:
            return []
        found = self._side.items(bin_, first, last)
        if len(found) <= _FOUND_TOGETHER_MAX:
            self._offering.find(found)
        return found

    def holds(self, address: bytes) -> bool:
        """Whether the chunk of an address is here, and was not found damaged."""
        return self._offering.holds(address)

    def read(self, addresses: Sequence[bytes]) -> list[bytes | None]:
        """Chunks as they are stored; None for one that is not held."""
        return self._offering.read(addresses)

    def source(self, bin_: int) -> Source:
        """What the server of a bin's stream asks."""
        return _BinSource(self, bin_)

    # Writing -------------------------------------------------------------------------------------

    def keep(self, chunks: Iterable[Chunk]) -> None:
        """Stores those that are not held, with their places, in one transaction.

        They are valid, and their addresses their own.
        """
        with self._writing:
            self._refresh()
            # Of one address the first: zeros behind it, or cut off, make another of the same.
            new: dict[bytes, Chunk] = {}
            for chunk in chunks:
                new.setdefault(chunk.address, chunk)
            known, placed = self._side.known([*new])
            for address in known:
                if self._chunks.holds(new[address]):
                    del new[address]
            self._write([*new.values()], [each for each in new if each not in placed])

    def place(self) -> bool:
        """Gives every chunk that has none a place; whether any bin has grown."""
        with self._writing:
            # What has grown by `keep` is known to who has called that.
            before = self._newest
            self._refresh()
        behind: int | None = 0
        while behind is not None:
            # Between two bites others may keep what they have.
            with self._writing:
                behind = self._place_some(behind)
        return self._newest != before

    def _place_some(self, behind: int) -> int | None:
        """Of those behind a number of `Unplaced`; the number of the last, None if that was all."""
        some = self._side.unplaced(behind, TOGETHER_ITEMS)
        self._write([], [each.address for each in some])
        return some[-1].id if some else None

    def _write(self, chunks: Sequence[Chunk], addresses: Sequence[bytes]) -> None:
        entries = self._entries(addresses)
        while chunks or entries:
            first_bin = self._node.first_log + SYNC
            batches = [(first_bin + bin_, payloads) for bin_, payloads in entries.items()]
            expected: list[int | None] = [self._bins[bin_].seq + 1 for bin_ in entries]
            if chunks:
                batches.append((self._node.chunk_log, [each.encoded for each in chunks]))
                expected.append(None)
            try:
                appended = self._sign(batches, expected_seqs=expected)
            except (LogClosed, LogMoved, StoreDamaged) as error:
                bin_ = -1 if error.log is None else error.log.log_id - first_bin
                if bin_ not in entries:
                    raise
                # What is wrong with one bin keeps no chunk out, nor another bin.
                self._side.seldom.warn(_log, f"bin {bin_}", f"bin {bin_} does not grow: {error}")
                del entries[bin_]
                continue
            if chunks:
                for entry, chunk in zip(appended[-1], chunks, strict=True):
                    self._side.expect(entry.key, entry.seq, chunk.address, chunk.kind)
            # It asks the store a few things of each log, and all of it is here.
            with self._store.snapshot():
                self._refresh()
            return

    def _entries(self, addresses: Sequence[bytes]) -> dict[int, list[bytes]]:
        """What is to be appended to the log of each bin."""
        found: dict[int, list[bytes]] = {}
        for address in addresses:
            found.setdefault(proximity(self._node.overlay, address), []).append(address)
        return {
            bin_: [
                b"".join(some[at : at + ENTRY_ITEMS_MAX])
                for at in range(0, len(some), ENTRY_ITEMS_MAX)
            ]
            for bin_, some in found.items()
            if bin_ in self._bins
        }

    # Peers ---------------------------------------------------------------------------------------

    def intervals(self, overlay: bytes) -> dict[tuple[str, str], str]:
        """What was had of a peer's streams: text by name and key."""
        # Keys cost nothing, and each that comes once leaves its records here.
        self._asked += 1
        if self._asked % _PEERS_MAX == 0:
            self._side.forget_intervals(_PEERS_MAX)
        return {(each.name, each.key): each.text for each in self._side.intervals(overlay)}

    def save(self, overlay: bytes, intervals: Iterable[tuple[str, str, str]]) -> None:
        """Records what was had of a peer's streams: name, key, text."""
        self._side.save_intervals(Interval(overlay, *each) for each in intervals)


class _BinSource:
    """One bin, as a server asks for it."""

    def __init__(self, bins: Bins, bin_: int) -> None:
        self._bins = bins
        self._bin = bin_
        self.holds = bins.holds

    @property
    def newest(self) -> int:
        return self._bins.newest(self._bin)

    def addresses(self, first: int, last: int, count: int) -> list[bytes]:
        return self._bins.addresses(self._bin, first, last, count)
