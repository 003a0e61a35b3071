"""Blocks from any messages in any order, of three producers: nothing crashes or grows for ever.

Every update fits the chain that was there before it.
"""

from collections.abc import Iterable

from fuzz.harness import main
from gateways.cardinal.assembly import Assembly, Changed, Come, Complete, Happened
from gateways.cardinal.codec import (
    Batch,
    Delete,
    Item,
    Message,
    Part,
    SubBatchHeader,
    Update,
    encode_message,
)
from gateways.cardinal.counted import State
from gateways.cardinal.frames import encode_frame, frames_of
from gateways.cardinal.headers import Step
from gateways.cardinal.ordering import Ordering
from gateways.reading import CodecError

INCOMPLETE_MAX = 4
KEYS_MAX = 12
COMPLETE_KEYS_MAX = 20
WAITING_MAX = 6
THRESHOLD = 2
_HASHES = [bytes([number]) * 32 for number in range(7)]
_ID = bytes([99]) * 32


def _messages(number: int) -> list[Message]:
    """A block, of which the next one's parent is it."""
    hash_, parent = _HASHES[number], _HASHES[number - 1]
    items = {b"a/": Item(owed=2), b"s": Item(batch=_ID), b"x": Item(b"value")}
    return [
        Update(hash_, b"a/1", b"one"),
        Delete(hash_, b"a/1"),
        SubBatchHeader(hash_, _ID, 1),
        Part(hash_, _ID, 0, [], {b"s/1": b"part"}),
        Batch(hash_, number, number, parent, items),
    ]


def _frames(messages: Iterable[Message]) -> bytes:
    return b"".join(encode_frame(*encode_message(each)) for each in messages)


CORPUS = [
    *(_frames(_messages(number)) for number in range(1, 7)),
    *(_frames([Batch(_HASHES[number], number, 9, _HASHES[number - 2], {})]) for number in (2, 4)),
    _frames([Update(_HASHES[1], b"a/1", b""), Update(_HASHES[1], b"a/2", b"other")]),
    _frames([SubBatchHeader(_HASHES[3], _ID, 0), Part(_HASHES[3], _ID, 7, [b"k"], {})]),
]


class _Kept:
    """What came, for blocks that have left memory."""

    def __init__(self) -> None:
        self.come: dict[bytes, list[Come]] = {}
        self._states: dict[bytes, int] = {}

    def note(self, hash_: bytes, happened: Happened) -> None:
        if isinstance(happened, Changed):
            self._states[hash_] = happened.state

    def state(self, hash_: bytes) -> int | None:
        return self._states.get(hash_, State.MET if hash_ in self.come else None)

    def messages(self, hash_: bytes) -> Iterable[Come]:
        return [*self.come.get(hash_, ())]


def check(data: bytes) -> None:
    """The invariant, for any bytes."""
    kept = _Kept()
    assembly = Assembly(
        kept,
        incomplete_max=INCOMPLETE_MAX,
        keys_max=KEYS_MAX,
        complete_keys_max=COMPLETE_KEYS_MAX,
    )
    ordering = Ordering(threshold=THRESHOLD, waiting_max=WAITING_MAX)
    chain: list[bytes] = []
    try:
        for number, (key, value) in enumerate(frames_of(data)):
            # Who says it, and in which entry, follows from what it is: the same bytes do the same.
            come = Come((len(value) + number) % 3, key, value)
            for happened in assembly.take(come):
                kept.note(key[1:33], happened)
                if isinstance(happened, Complete):
                    for outcome in ordering.complete(happened.header):
                        if isinstance(outcome, Step):
                            chain = _applied(chain, outcome)
            kept.come.setdefault(key[1:33], []).append(come)
            _check_memory(assembly, ordering)
    except CodecError:
        return


def _applied(chain: list[bytes], step: Step) -> list[bytes]:
    count = len(step.removed)
    here = min(len(chain), count)
    assert list(step.removed[count - here :]) == chain[len(chain) - here :]
    assert step.added
    return [*chain[: len(chain) - here], *step.added]


def _check_memory(assembly: Assembly, ordering: Ordering) -> None:
    assert len(assembly) <= INCOMPLETE_MAX
    assert len(ordering) <= WAITING_MAX + 2 * THRESHOLD + 1
    blocks = [*assembly._blocks.values(), *assembly._complete.values()]  # noqa: SLF001
    for block in blocks:
        for copy in block.copies.values():
            assert len(copy.seen) <= KEYS_MAX


if __name__ == "__main__":
    main(check, CORPUS)
