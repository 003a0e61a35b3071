"""Producers, replicas and consumers of small chains in stores in memory."""

from collections.abc import Callable
from hashlib import blake2b

from gateways.cardinal import (
    Consuming,
    Settings,
    Side,
    Stream,
    SubBatch,
    Updated,
    View,
    Writer,
    create_stream,
)
from gateways.cardinal.consuming import Said
from gateways.cardinal.declared import Router
from gateways.cardinal.producing import Block
from gateways.cardinal.tracking import Tracking
from logstore import NewEntry, Seldom, Store
from wire import LogKey

SETTINGS = Settings("demo", patterns=(("a/", "accounts"), ("s/", "storage")), threshold=4)


def hash_of(name: object) -> bytes:
    """A block's hash, or an id."""
    return blake2b(repr(name).encode(), digest_size=32).digest()


def no_clock() -> float:
    """Nothing is said twice in a test."""
    return 0.0


def block(number: int, name: object, parent: bytes, weight: int, **more: object) -> Block:
    """With two values under prefixes and an inline one."""
    values = {f"a/{name}": b"one", f"s/{name}": b"two", "inline": b"three"}
    return Block(number, hash_of(name), parent, weight, values, **more)  # type: ignore[arg-type]


class Producer:
    """A stream in a store of its own."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.store = Store.memory()
        self.stream = create_stream(self.store, self.store.append_many, settings)
        self.side = Side(self.store, Seldom(no_clock))
        self.begin()

    def begin(self) -> None:
        """Goes on as after a crash: with what is in the store alone."""
        self.writer = Writer(self.store, self.side, self.stream)

    def add(self, block: Block, batches: dict[bytes, SubBatch] | None = None) -> None:
        """Writes a block."""
        self._sign(self.writer.add_block(block, batches).batches)

    def send(self, hash_: bytes, id_: bytes, **values: bytes) -> None:
        """Writes a sub-batch."""
        self._sign(self.writer.send_batch(hash_, id_, SubBatch(values)).batches)

    def _sign(self, batches: list[tuple[int, list[bytes]]]) -> None:
        if batches:
            self.store.append_many(batches)
        self.writer.signed()

    def close(self) -> None:
        """Ends it."""
        self.side.close()
        self.store.close()


class Replica:
    """A store that has logs of others."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._has: dict[LogKey, int] = {}

    def take(self, source: Store, key: LogKey, count: int = 1_000) -> int:
        """The next entries of a log; how many there were."""
        first = self._has.get(key, 0) + 1
        entries = source.read(key, first, entries_max=count, bytes_max=1 << 24, with_payload=False)
        new = [NewEntry(each.seq, each.encoded, each.hash, each.payload) for each in entries]
        if new:
            self.store.put_entries(key, new, source="test")
            self._has[key] = entries[-1].seq
        return len(new)

    def take_all(self, source: Store) -> None:
        """All there is, one entry of each log after another."""
        keys = [info.key for info in source.logs()]
        while sum(self.take(source, key, 1) for key in keys):
            pass


def view_of(
    *streams: Stream, track: tuple[str, ...] = (), topics: tuple[str, ...] | None = None
) -> View:
    """What consumers of some streams see."""
    declared = streams[0].declared
    return View(streams, Tracking(Router(declared.patterns, declared.default), track, topics))


def taken(consuming: Consuming) -> list[Said]:
    """Everything there is to be said now."""
    consuming.bring_on()
    found: list[Said] = []
    while (said := consuming.take()) is not None:
        found += said
        consuming.bring_on()
    return found


Applied = tuple[tuple[bytes, ...], tuple[bytes, ...]]


def updates(said: list[Said]) -> list[Applied]:
    """What is added and removed."""
    return [
        (tuple(each.hash for each in update.added), tuple(hash_ for _, hash_ in update.removed))
        for update in said
        if isinstance(update, Updated)
    ]


def apply(chain: list[bytes], changes: list[Applied]) -> list[bytes]:
    """The chain behind some updates, each of which has to fit.

    Who begins with the first block that is complete has none of those below it, which may be taken
    back like others.
    """
    for added, removed in changes:
        here = min(len(chain), len(removed))
        assert chain[len(chain) - here :] == list(removed[len(removed) - here :])
        chain = [*chain[: len(chain) - here], *added]
    return chain


Make = Callable[[], Consuming]
