"""A store with the bins of a serving node, as tests look at it and spoil it."""

import random
from dataclasses import dataclass
from pathlib import Path

from gateways.swarm import Bins, Chunks, Side, make_node, node_of
from gateways.swarm.bmt import Chunk, content_chunk
from gateways.swarm.declared import SYNC
from gateways.swarm.files import FileSplitter
from gateways.swarm.proximity import proximity
from gateways.swarm.side import FILE_NAME
from gateways.swarm.states import State
from logstore import Store
from wire import LogKey

Placed = dict[bytes, tuple[int, int]]


@dataclass
class Serving:
    """A store, and what a serving node has of it."""

    path: Path

    def __post_init__(self) -> None:
        is_new = not self.path.exists()
        self.store = Store.create(self.path) if is_new else Store.open(self.path)
        self.open()

    def open(self) -> None:
        self.side = Side(self.store)
        make_node(self.store, self.side, self.store.append_many)
        self.begin()

    def begin(self) -> None:
        self.node = node_of(self.store, self.side)
        self.bins = Bins(self.store, self.side, self.node, self.store.append_many)
        self.bins.begin()

    def reopen(self) -> None:
        self.side.close()
        self.open()

    def close(self) -> None:
        self.side.close()
        self.store.close()

    @property
    def table(self) -> Path:
        return self.path / FILE_NAME

    def lose_table(self) -> None:
        self.side.close()
        self.table.unlink(missing_ok=True)
        self.open()

    def bin_log(self, bin_: int) -> LogKey:
        return LogKey(self.store.author, self.node.first_log + SYNC + bin_)

    def put(self, data: bytes, log_id: int | None = None) -> list[Chunk]:
        """As another process does."""
        side = Side(self.store)
        side.refresh()
        Chunks(self.store, side).put(self.store.append_many, log_id or self.node.chunk_log, [data])
        side.close()
        splitter = FileSplitter()
        made = splitter.feed(data)
        return [*made, *splitter.finish()[0]]

    def placed(self) -> Placed:
        """Each address with its place; none has two."""
        found: Placed = {}
        for bin_ in range(17):
            newest = self.bins.newest(bin_)
            addresses = self.bins.addresses(bin_, 1, newest, newest)
            assert len(addresses) == newest
            for number, address in enumerate(addresses, 1):
                assert address not in found
                assert self.side.item(address) == (bin_, number)
                found[address] = bin_, number
        return found


def chunks_of(count: int, seed: int = 1) -> list[Chunk]:
    source = random.Random(seed)
    return [content_chunk(40, source.randbytes(40)) for _ in range(count)]


def check_in_log(serving: Serving, placed: Placed) -> None:
    """The logs of the bins say the same, and the states are those of what they say."""
    found, _ = serving.side.bins()
    assert {*found} == {*range(17)}
    for bin_, each in found.items():
        entries = serving.store.read(
            each.log, 2, entries_max=10_000, bytes_max=1 << 30, with_payload=False
        )
        assert each.log == serving.bin_log(bin_)
        assert all(1 <= len(entry.payload or b"") // 32 <= 128 for entry in entries)
        said = b"".join(entry.payload or b"" for entry in entries)
        addresses = [said[at : at + 32] for at in range(0, len(said), 32)]
        assert {address: (bin_, at) for at, address in enumerate(addresses, 1)} == {
            address: place for address, place in placed.items() if place[0] == bin_
        }
        assert all(proximity(serving.node.overlay, address) == bin_ for address in addresses)
        state = State()
        state.append(said)
        assert (each.newest, each.state.root()) == (len(addresses), state.root())


def spoil_middle(path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb+") as file:
        file.seek(size // 3)
        file.write(random.Random(9).randbytes(size // 3))
