"""From blocks to messages, by topic (spec 2.5). Sans-io.

Everything about a block is checked before its first message is made: a producer that finds out
later would have to take back what it has signed.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from operator import itemgetter
from typing import Final, TypeVar

from gateways.cardinal.codec import (
    APPLICATION_KEY_BYTES_MAX,
    BATCH_DELETE_MSG,
    BATCH_MSG,
    HASH_BYTES,
    KEY_BYTES_MAX,
    NUMBER_MAX,
    PREFIX_BYTES,
    PRODUCED_BYTES_MAX,
    WEIGHT_MAX,
    ZEROS,
    Batch,
    Item,
    Message,
    Part,
    SubBatchHeader,
    encode_message,
)
from gateways.cardinal.declared import Router

T = TypeVar("T")
Make = Callable[[bytes, Sequence[bytes], Sequence[bytes]], list[T]]
"""Makes messages what the caller wants of them: how their keys begin, how each goes on, the values.
Of many at once, since a call for each costs as much as all else that is done about it.
"""
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


def messages_of(block: Block, router: Router) -> dict[str, list[tuple[bytes, bytes]]]:
    """The messages of a block by their topics, each a key and a value, in their order.

    Those of other topics first, the Batch last. Raises BlockRefused.
    """
    return made_of(block, router, _pairs)


def _pairs(
    head: bytes, keys: Sequence[bytes], values: Sequence[bytes]
) -> list[tuple[bytes, bytes]]:
    return [(head + key, value) for key, value in zip(keys, values, strict=True)]


def made_of(block: Block, router: Router, make: Make[T]) -> dict[str, list[T]]:
    """The same, as `make` has them."""
    _check_header(block)
    _check_keys(block.values)
    _check_keys(block.deletes)
    _check_values(block)
    made: dict[str, list[T]] = {}
    items: dict[bytes, Item] = {}
    matched = _add_matched(block, router, make, made, items)
    # Under one prefix alone no key can be counted elsewhere.
    counts = {prefix.encode(): len(keys) for prefix, keys in matched.items()}
    lengths = lengths_of(counts) if len(counts) > 1 else ()
    for prefix, keys in matched.items() if lengths else ():
        for each in keys:
            if next(prefixes_of(each.encode(), counts, lengths)) != prefix.encode():
                raise BlockRefused("prefix", f"{each[:60]!r} would be counted under another one")
    for counted, count in counts.items():
        if counted in items:
            raise BlockRefused("conflict", f"{_shown(counted)} is a prefix and a key of the block")
        items[counted] = Item(owed=count)
    _add_batches(block, items)
    key, value = _encoded(Batch(block.hash, block.number, block.weight, block.parent, items))
    made.setdefault(router.default, []).extend(make(b"", [key], [value]))
    return made


def _add_matched(
    block: Block,
    router: Router,
    make: Make[T],
    made: dict[str, list[T]],
    items: dict[bytes, Item],
) -> dict[str, list[str]]:
    """The messages of all keys that a pattern matches, and those keys by their prefixes.

    The others' items.
    """
    values, deletes = block.values, frozenset(block.deletes)
    matched: dict[str, list[str]] = {}
    # Text sorts as its UTF-8 does.
    for found, keys in router.runs(sorted(values.keys() | deletes if deletes else values)):
        if found is None:
            for key in keys:
                items[key.encode()] = _inline(key, values, deletes)
            continue
        prefix, topic = found
        if prefix[-1] != "/" and (wrong := next((key for key in keys if key != prefix), None)):
            raise BlockRefused("prefix", f"{prefix[:60]!r} of {wrong[:60]!r} does not end in /")
        made.setdefault(topic, []).extend(_changes(block, keys, deletes, make))
        counted = matched.setdefault(prefix, [])
        counted += keys
        if deletes:
            # A key that is both has two messages.
            counted += (key for key in keys if key in deletes and key in values)
    for counted in matched.values():
        _check_matched(counted)
    return matched


def _changes(block: Block, keys: Sequence[str], deletes: Collection[str], make: Make[T]) -> list[T]:
    """The messages of keys that a pattern matches."""
    update, delete = bytes((BATCH_MSG,)) + block.hash, bytes((BATCH_DELETE_MSG,)) + block.hash
    values = block.values
    gone: list[bytes] = []
    if deletes:
        gone = [key.encode() for key in keys if key in deletes]
        keys = [key for key in keys if key in values]
    encoded = [*map(str.encode, keys)]
    made = make(update, encoded, [*map(values.__getitem__, keys)])
    if not gone:
        return made
    # A key that is both is updated first.
    both = merge(
        zip(encoded, made, strict=True),
        zip(gone, make(delete, gone, [b""] * len(gone)), strict=True),
        key=itemgetter(0),
    )
    return [each for _, each in both]


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
        raise _too_large(len(key) + len(value))
    return key, value


def _too_large(size: int) -> BlockRefused:
    return BlockRefused("value", f"a message of {size} bytes, {PRODUCED_BYTES_MAX} are the limit")


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


def _check_keys(keys: Collection[str]) -> None:
    """What every key has to keep. Raises BlockRefused."""
    # To ask each of them is slow. All together they tell whether there is anything to ask.
    text = "\n".join(keys)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        size = APPLICATION_KEY_BYTES_MAX + 1
    if size > APPLICATION_KEY_BYTES_MAX or text[:1] == "/" or "\n/" in text or "" in keys:
        for key in keys:
            _checked_key(key)


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
    if encoded[0] == SLASH:
        raise BlockRefused("key", f"{key[:60]!r} begins with /")
    return encoded


def _check_values(block: Block) -> None:
    """That no message under a prefix is too large. Raises BlockRefused."""
    room = PRODUCED_BYTES_MAX - KEY_BYTES_MAX
    if max(map(len, block.values.values()), default=0) > room:
        for key, value in block.values.items():
            size = PREFIX_BYTES + len(key.encode()) + len(value)
            if size > PRODUCED_BYTES_MAX:
                raise _too_large(size)


def _check_matched(keys: Sequence[str]) -> None:
    """Of keys that a pattern matches: others clean paths before they count. Raises BlockRefused."""
    # Few keys have any of these, and to split each costs more than all the rest.
    text = "\n".join(keys)
    has_dots = "." in text and ("/." in text or "\n." in text or text[0] == ".")
    if has_dots or "//" in text or "/\n" in text or text[-1] == "/":
        for key in keys:
            if any(each in _NO_SEGMENTS for each in key.split("/")):
                raise BlockRefused("key", f"{key[:60]!r} is no path in its normal form")


def _inline(key: str, values: Mapping[str, bytes], deletes: Collection[str]) -> Item:
    if key in values and key in deletes:
        raise BlockRefused("conflict", f"{key[:60]!r} is updated and deleted, and no pattern's")
    if key in deletes:
        return Item(delete=True)
    if not values[key]:
        raise BlockRefused(
            "value", f"{key[:60]!r} gets an empty value, which only a key of a pattern can"
        )
    return Item(value=values[key])


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
