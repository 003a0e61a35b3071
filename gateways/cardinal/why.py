"""Why a block is, or is not, part of the chain (spec 5): in sentences. Blocks."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gateways.cardinal.content import missing_of
from logstore import Store

from .consuming import Consuming
from .side import BlockRow, Side
from .spilling import Spilling

_LOGS_MAX: Final = 10


class Reasons(NamedTuple):
    """How it stands with a block."""

    state: str
    """`chain`, `side` (complete, and not part of the chain), `incomplete` or `unknown`."""
    sentences: list[str]


def reasons(store: Store, side: Side, consuming: Consuming, hash_: bytes) -> Reasons:
    """What a consumer that has taken everything says of a block. Raises StoreError."""
    row = side.block(consuming.view, hash_)
    if row is None:
        return Reasons("unknown", ["no message of it is here", *_not_held(store, consuming)])
    header = row.header
    if header is None:
        return Reasons("incomplete", ["its Batch is not here", *_not_held(store, consuming)])
    if not header.at:
        messages = side.messages(side.places(row), hash_)
        missing = missing_of(messages, consuming.view.tracking, Spilling)
        said = [f"block {header.number} waits for {each}" for each in missing]
        if row.is_split:
            said.append("its producers disagree, and none has all of it")
        return Reasons("incomplete", [*said, *_not_held(store, consuming)])
    said = _disagreement(row)
    if any(each.hash == hash_ for each in consuming.chain()):
        return Reasons("chain", [f"block {header.number} is part of the chain", *said])
    head = consuming.head
    hole = consuming.hole_below(hash_)
    if hole is not None:
        number, parent = hole
        why = (
            f"block {header.number} is complete; the parent of block {number} is not:"
            f" {parent.hex()}"
        )
    elif head is not None and header.weight <= head.weight:
        why = (
            f"block {header.number} is complete; its weight is {header.weight}, and that of the"
            f" head {head.weight}"
        )
    else:
        why = f"block {header.number} is complete, and not part of the chain"
    return Reasons("side", [why, *said])


def _disagreement(row: BlockRow) -> list[str]:
    return ["its producers disagree: it is that of the first who had all of it"] * row.is_split


def _not_held(store: Store, consuming: Consuming) -> Iterator[str]:
    """Which payloads of its streams are missing or deleted."""
    if consuming.channel is not None:
        yield f"the reorganisation's log {consuming.channel} is taken first, and is not at its end"
    for key, _ in consuming.view.logs()[:_LOGS_MAX]:
        info = store.log(key)
        if info is None:
            yield f"nothing is held of {key}"
        elif info.missing_payloads:
            yield f"{info.missing_payloads} payloads of {key} are not here"
        elif info.newest > info.height:
            yield f"entry {info.height + 1} of {key} is not here"
