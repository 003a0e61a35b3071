"""From blocks to messages, by topic (spec 2.5). Sans-io.

Everything about a block is checked before its first message is made: a producer that finds out
later would have to take back what it has signed.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateways.cardinal.codec import (
    APPLICATION_KEY_BYTES_MAX,
    HASH_BYTES,
    NUMBER_MAX,
    PRODUCED_BYTES_MAX,
    WEIGHT_MAX,
    ZEROS,
    Batch,
    Delete,
    Item,
    Message,
    Part,
    SubBatchHeader,
    Update,
    encode_message,
)
from gateways.cardinal.declared import Router

Made = dict[str, list[tuple[bytes, bytes]]]
"""By topic: key and value of each message, in their order."""
_NO_SEGMENTS: Final = ("", ".", "..")
SLASH: Final = ord("/")


class BlockRefused(ValueError):  # noqa: N818 - what happened to it
    """Nothing of it is written. `what` is one of number, weight, hash, parent, id, key, prefix,
    conflict, value, unknown batch; the text says which and why.
    """

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")
        self.what = what


@dataclass(frozen=True, slots=True)
class Block:
    """A block as a producer has it. `batches`: ids by name, of what `sub_batch` gives later."""

    number: int
    hash: bytes
    parent: bytes
    weight: int
    values: Mapping[str, bytes] = field(default_factory=dict)
    deletes: Collection[str] = ()
    batches: Mapping[str, bytes] = field(default_factory=dict)


def messages_of(block: Block, router: Router) -> Made:
    """The messages of a block: those of other topics first, the Batch last. Raises BlockRefused."""
    _check_header(block)
    updates = {_checked_key(key): value for key, value in block.values.items()}
    deletes = {_checked_key(key) for key in block.deletes}
    counts: dict[bytes, int] = {}
    made: Made = {}
    items: dict[bytes, Item] = {}
    matched: dict[bytes, bytes] = {}
    # A key that is both updated and deleted has two messages, the update first.
    for key, is_delete in sorted(
        [*((each, False) for each in updates), *((each, True) for each in deletes)]
    ):
        found = router.route(key.decode())
        if found is None:
            items[key] = _inline(key, updates, deletes)
            continue
        prefix, topic = found
        _check_matched(key, prefix)
        matched[key] = prefix.encode()
        counts[matched[key]] = counts.get(matched[key], 0) + 1
        message = Delete(block.hash, key) if is_delete else Update(block.hash, key, updates[key])
        made.setdefault(topic, []).append(_encoded(message))
    lengths = lengths_of(counts)
    for key, counted in matched.items():
        if next(prefixes_of(key, counts, lengths)) != counted:
            raise BlockRefused("prefix", f"{_shown(key)} would be counted under another one")
    for counted, count in counts.items():
        if counted in items:
            raise BlockRefused("conflict", f"{_shown(counted)} is a prefix and a key of the block")
        items[counted] = Item(owed=count)
    _add_batches(block, items)
    header = Batch(block.hash, block.number, block.weight, block.parent, items)
    made.setdefault(router.default, []).append(_encoded(header))
    return made


def sub_batch(
    hash_: bytes,
    batch: bytes,
    updates: Mapping[str, bytes],
    deletes: Collection[str],
    own: Collection[bytes] = (),
) -> list[tuple[bytes, bytes]]:
    """The messages of a sub-batch: its header and its parts. Raises BlockRefused.

    All deletes are one part, each update is one, in byte order of the keys: parts are told apart by
    their index alone, so all producers have to cut alike. `own`: keys that the block itself updates
    or deletes.
    """
    values = {_checked_key(key): value for key, value in updates.items()}
    gone = sorted({_checked_key(key) for key in deletes})
    for key in (*values, *gone):
        if key in own:
            raise BlockRefused("conflict", f"{_shown(key)} stands in the block itself")
    cuts: list[tuple[Sequence[bytes], Mapping[bytes, bytes]]] = [(gone, {})] if gone else []
    cuts += [((), {key: values[key]}) for key in sorted(values)]
    parts: list[Message] = [Part(hash_, batch, index, *cut) for index, cut in enumerate(cuts)]
    return [_encoded(each) for each in (SubBatchHeader(hash_, batch, len(parts)), *parts)]


def lengths_of(prefixes: Iterable[bytes]) -> list[int]:
    """Which lengths some prefixes have, longest first."""
    return sorted({len(each) for each in prefixes}, reverse=True)


def prefixes_of(key: bytes, prefixes: Container[bytes], lengths: Iterable[int]) -> Iterator[bytes]:
    """Under which of some prefixes a key may be counted (3.2), the first first.

    Itself, then what it begins with up to a slash. By the `lengths` that there are, since a key of
    slashes has as many beginnings as bytes.
    """
    size = len(key)
    for length in lengths:
        if length == size or (length < size and key[length - 1] == SLASH):
            prefix = key[:length]
            if prefix in prefixes:
                yield prefix


def _encoded(message: Message) -> tuple[bytes, bytes]:
    key, value = encode_message(message)
    if len(key) + len(value) > PRODUCED_BYTES_MAX:
        raise BlockRefused(
            "value",
            f"a message of {len(key) + len(value)} bytes, {PRODUCED_BYTES_MAX} are the limit",
        )
    return key, value


def _check_header(block: Block) -> None:
    if not 0 <= block.number <= NUMBER_MAX:
        raise BlockRefused("number", f"{block.number} is not from 0 to 2^63 - 1")
    if not 0 <= block.weight <= WEIGHT_MAX:
        raise BlockRefused("weight", f"{block.weight} is not from 0 to 2^256 - 1")
    for what, value in (("hash", block.hash), ("parent", block.parent)):
        if len(value) != HASH_BYTES:
            raise BlockRefused(what, f"it has {len(value)} bytes, not {HASH_BYTES}")
    for name, batch in block.batches.items():
        if len(batch) != HASH_BYTES or batch == ZEROS:
            raise BlockRefused("id", f"that of {name[:60]!r} is not 32 bytes, or zeros alone")
    if len(set(block.batches.values())) != len(block.batches):
        raise BlockRefused("conflict", "one id under two names")


def _checked_key(key: str) -> bytes:
    try:
        encoded = key.encode()
    except UnicodeEncodeError:
        raise BlockRefused("key", f"{key[:60]!a} is no UTF-8") from None
    if not encoded:
        raise BlockRefused("key", "it is empty")
    if len(encoded) > APPLICATION_KEY_BYTES_MAX:
        raise BlockRefused(
            "key", f"one of {len(encoded)} bytes, {APPLICATION_KEY_BYTES_MAX} are the limit"
        )
    if key.startswith("/"):
        raise BlockRefused("key", f"{key[:60]!r} begins with /")
    return encoded


def _check_matched(key: bytes, prefix: str) -> None:
    """Of a key that a pattern matches: others clean paths before they count."""
    if any(each in _NO_SEGMENTS for each in key.decode().split("/")):
        raise BlockRefused("key", f"{_shown(key)} is no path in its normal form")
    if not prefix.endswith("/") and prefix.encode() != key:
        raise BlockRefused("prefix", f"{prefix[:60]!r} of {_shown(key)} does not end in /")


def _inline(key: bytes, updates: Mapping[bytes, bytes], deletes: Collection[bytes]) -> Item:
    if key in updates and key in deletes:
        raise BlockRefused("conflict", f"{_shown(key)} is updated and deleted, and no pattern's")
    if key in deletes:
        return Item(delete=True)
    if not updates[key]:
        raise BlockRefused(
            "value", f"{_shown(key)} gets an empty value, which only a key of a pattern can"
        )
    return Item(value=updates[key])


def _add_batches(block: Block, items: dict[bytes, Item]) -> None:
    for name, batch in block.batches.items():
        encoded = _checked_key(name)
        if encoded in items:
            raise BlockRefused(
                "conflict", f"{_shown(encoded)} is a sub-batch and a prefix or a key of the block"
            )
        items[encoded] = Item(batch=batch)


def _shown(key: bytes) -> str:
    return repr(key.decode()[:60])
