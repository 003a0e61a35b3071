"""A producer's own streams: blocks, sub-batches and reorganisations into their logs (spec 2.5, 4.2,
4.3).

What was written before is looked up in the side table, whose view of the stream is brought on when
the writer begins; what this writer has written since it remembers. Whoever writes holds the
stream's lock, so that nobody else writes what neither of them knows of. Blocks.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gateways import Sign, free_ids
from gateways.cardinal.codec import (
    INT_MAX,
    ZEROS,
    Batch,
    Delete,
    Reorg,
    ReorgComplete,
    SubBatchHeader,
    Update,
    decode_message,
    encode_message,
)
from gateways.cardinal.declared import ReorgDeclared, Router, declare
from gateways.cardinal.frames import encode_frame, encode_frames, encode_note, payloads
from gateways.cardinal.producing import Block, BlockRefused, made_of, sub_batch
from gateways.cardinal.tracking import Tracking
from gateways.declaration import json_u64
from gateways.reading import CodecError
from logstore import LogMoved, LogState, Store
from wire import LogKey

from .logs import FIRST_LOG, Stream, streams_of
from .side import Side, View

_ATTEMPTS: Final = 100
_REMEMBERED_MAX: Final = 50_000
"""Blocks that were written and are not looked up; then the table is brought on."""
_OWING_KEYS_MAX: Final = 200_000
"""Keys of blocks of which it is remembered what they owe: more than can wait to be signed."""

Batches = list[tuple[int, list[bytes]]]
"""Log id, and payloads: of one call, in its order."""


class SubBatch(NamedTuple):
    """What a sub-batch contains."""

    values: Mapping[str, bytes] = {}
    deletes: Collection[str] = ()


class Call(NamedTuple):
    """What one call writes: a transaction, or a part of one."""

    batches: Batches
    messages: int
    already: bool = False
    """Nothing: it was written before."""

    @property
    def entries(self) -> int:
        return sum(len(each) for _, each in self.batches)

    @property
    def bytes(self) -> int:
        """Of its payloads."""
        return sum(len(payload) for _, each in self.batches for payload in each)


class _Owing(NamedTuple):
    """What a block owes yet."""

    batches: dict[bytes, bytes]
    """Ids, and under which name each."""
    own: frozenset[bytes]
    """Keys that the block itself updates or deletes."""


class Channel(NamedTuple):
    """A reorganisation that is not over."""

    log: LogKey
    number: int
    ancestor: bytes


class Writer:
    """Writes one stream, whose lock the caller holds.

    What a method returns counts as written: the caller has it signed, in the order of the calls,
    1 MiB or one call at a time, and says so by `signed`; or goes on with another Writer.
    `skips_seen`: blocks that another producer of the chain has
    written in full are left out, too. Raises StoreError.
    """

    def __init__(
        self, store: Store, side: Side, stream: Stream, *, skips_seen: bool = False
    ) -> None:
        self._store = store
        self._side = side
        self.stream: Final = stream
        declared = stream.declared
        self._router = Router(declared.patterns, declared.default)
        self._view = View((stream,), Tracking(self._router))
        self._others: View | None = None
        if skips_seen:
            others = tuple(each for each in streams_of(store, declared) if each.key != stream.key)
            self._others = View(others, Tracking(self._router)) if others else None
        self._topics = stream.topics()
        self._written: dict[bytes, tuple[int, bytes, int]] = {}
        self._owing: dict[bytes, _Owing] = {}
        self._owing_keys = 0
        self._bring_on()
        self.channel: Channel | None = self._open_channel()

    def _bring_on(self) -> None:
        self._side.bring_on(self._view)
        if self._others is not None:
            self._side.bring_on(self._others)
        self._written.clear()

    def _open_channel(self) -> Channel | None:
        said = self._side.last_reorg(self._view)
        if said is None or said.channel is None:
            return None
        info = self._store.log(said.channel)
        if info is None or info.state is not LogState.LIVE:
            return None
        return Channel(said.channel, said.number, said.hash)

    def newest(self) -> int | None:
        """The highest number in any Batch of the chain that is held here."""
        streams = tuple(streams_of(self._store, self.stream.declared))
        view = View(streams, Tracking(self._router))
        self._side.bring_on(view)
        return self._side.highest(view)

    # Blocks --------------------------------------------------------------------------------------

    def add_block(self, block: Block, batches: Mapping[bytes, SubBatch] | None = None) -> Call:
        """A block, and those of its sub-batches that are given, by id. Raises BlockRefused."""
        made = made_of(block, self._router, encode_frames)
        given = dict(batches or {})
        names = {id_: name for name, id_ in block.batches.items()}
        for id_ in given:
            if id_ not in names:
                raise BlockRefused("unknown batch", f"{id_.hex()[:64]}: the block does not name it")
        own = {each.encode() for each in (*block.values, *block.deletes)} if names else set()
        subs = {
            names[id_]: _framed(sub_batch(block.hash, id_, each.values, each.deletes, own))
            for id_, each in given.items()
        }
        says = block.number, block.parent, block.weight
        before = self._written.get(block.hash) or self._looked_up(block.hash)
        if before is not None:
            if before != says:
                raise BlockRefused(
                    "hash", f"{block.hash.hex()} was written as another block: number {before[0]}"
                )
            return Call([], 0, already=True)
        if self._was_seen(block.hash):
            return Call([], 0, already=True)
        calls: Batches = self._batches(made)
        for name, frames in subs.items():
            calls += self._batches({self._router.topic(name): frames})
        count = sum(map(len, made.values())) + sum(map(len, subs.values()))
        self._written[block.hash] = says
        left = {id_: name.encode() for id_, name in names.items() if id_ not in given}
        if left:
            self._owe(block.hash, _Owing(left, frozenset(own)))
        return Call(calls, count)

    def together(self, calls: Iterable[Call]) -> Batches:
        """What some calls write, as one transaction of one batch for each log, in their order.

        A batch costs the store about as much as a signature, and a call has one for each topic.
        """
        found: dict[int, list[bytes]] = {key.log_id: [] for key in self._topics.values()}
        for call in calls:
            for log_id, entries in call.batches:
                found.setdefault(log_id, []).extend(entries)
        return [(log_id, entries) for log_id, entries in found.items() if entries]

    def signed(self) -> None:
        """Everything that was returned is in the store."""
        if len(self._written) >= _REMEMBERED_MAX:
            self._bring_on()

    def _looked_up(self, hash_: bytes) -> tuple[int, bytes, int] | None:
        row = self._side.block(self._view, hash_)
        if row is None or row.header is None:
            return None
        return row.header.number, row.header.parent, row.header.weight

    def _was_seen(self, hash_: bytes) -> bool:
        """Whether another producer has written all of a block."""
        if self._others is None:
            return False
        row = self._side.block(self._others, hash_)
        return row is not None and row.header is not None and row.header.at > 0

    def send_batch(self, hash_: bytes, id_: bytes, batch: SubBatch) -> Call:
        """A sub-batch that was named by a block that is written. Raises BlockRefused."""
        owing = self._owed_by(hash_)
        if owing is None or id_ not in owing.batches:
            raise BlockRefused(
                "unknown batch", f"{id_.hex()[:64]} of block {hash_.hex()[:64]}: none is owed"
            )
        frames = _framed(sub_batch(hash_, id_, batch.values, batch.deletes, owing.own))
        name = owing.batches.pop(id_)
        return Call(self._batches({self._router.topic(name.decode()): frames}), len(frames))

    def _owed_by(self, hash_: bytes) -> _Owing | None:
        if hash_ in self._owing:
            return self._owing[hash_]
        self._bring_on()
        found = self._read_owing(hash_)
        if found is not None:
            self._owe(hash_, found)
        return found

    def _owe(self, hash_: bytes, owing: _Owing) -> None:
        self._owing[hash_] = owing
        self._owing_keys += len(owing.own)
        while self._owing_keys > _OWING_KEYS_MAX and len(self._owing) > 1:
            self._owing_keys -= len(self._owing.pop(next(iter(self._owing))).own)

    def _read_owing(self, hash_: bytes) -> _Owing | None:
        """What a block owes by its messages."""
        row = self._side.block(self._view, hash_)
        if row is None or row.header is None:
            return None
        batches: dict[bytes, bytes] = {}
        sent: set[bytes] = set()
        own: set[bytes] = set()
        for come in self._side.messages(self._side.places(row), hash_):
            try:
                message = decode_message(come.key, come.value)
            except CodecError:
                continue
            match message:
                case Batch(items=items):
                    for key, item in items.items():
                        if item.batch != ZEROS:
                            batches.setdefault(item.batch, key)
                        if item.value or item.delete:
                            own.add(key)
                case SubBatchHeader(batch=batch):
                    sent.add(batch)
                case Update(key=key) | Delete(key=key):
                    own.add(key)
                case _:
                    continue
        left = {id_: name for id_, name in batches.items() if id_ not in sent}
        return _Owing(left, frozenset(own))

    def say(self, key: bytes, value: bytes) -> Call:
        """A message that is of no block."""
        batches = self._batches({self.stream.declared.default: [encode_frame(key, value)]})
        return Call(batches, 1)

    def _batches(self, made: Mapping[str, Sequence[bytes]]) -> Batches:
        """The entries of a call by the frames of its topics, other ones first, the default last."""
        ordered = [
            (key.log_id, made[topic]) for topic, key in self._topics.items() if topic in made
        ]
        if self.channel is not None:
            frames = [frame for _, each in ordered for frame in each]
            ordered = [(self.channel.log.log_id, frames)]
        return [(log_id, payloads(frames)) for log_id, frames in ordered]

    # Reorganisations -----------------------------------------------------------------------------

    def begin_reorg(self, sign: Sign, number: int, ancestor: bytes) -> bool:
        """Sets the chain back to an ancestor; what is written from now on goes into a channel.

        False: that has begun before, and goes on. Signs it at once. Raises BlockRefused,
        StoreError.
        """
        if not 0 <= number <= INT_MAX:
            raise BlockRefused("number", f"{number} is not from 0 to 2^31 - 1")
        if len(ancestor) != len(ZEROS):
            raise BlockRefused("hash", f"it has {len(ancestor)} bytes, not {len(ZEROS)}")
        if self.channel is not None:
            if (number, ancestor) == self.channel[1:]:
                return False
            raise BlockRefused("reorg", f"that from block {self.channel.number} on is not over yet")
        reorg = encode_frame(*encode_message(Reorg(ancestor, number)))
        declaration = declare(ReorgDeclared(self.stream.declared.chain, number, ancestor))
        for attempt, log_id in enumerate(free_ids(self._store, FIRST_LOG)):
            note = encode_note({"channel": json_u64(log_id)})
            try:
                sign(
                    [(log_id, [declaration, reorg]), (self.stream.key.log_id, [note + reorg])],
                    expected_seqs=[1, None],
                )
            except LogMoved:
                if attempt == _ATTEMPTS:
                    raise
                continue
            self.channel = Channel(LogKey(self._store.author, log_id), number, ancestor)
            return True
        raise AssertionError("there are 2^64 ids")

    def end_reorg(self, sign: Sign) -> None:
        """All of it was said. Signs it at once.

        Raises BlockRefused if none was begun, StoreError.
        """
        if self.channel is None:
            raise BlockRefused("reorg", "none was begun")
        done = ReorgComplete(self.channel.ancestor, self.channel.number)
        log_id = self.channel.log.log_id
        sign([(log_id, [encode_frame(*encode_message(done)), b""])], ending=(log_id,))
        self.channel = None


def _framed(messages: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    return [encode_frame(*each) for each in messages]
