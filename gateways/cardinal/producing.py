"""From blocks to messages, by topic (spec 2.5). Sans-io.

Everything about a block is checked before its first message is made: a producer that finds out
later would have to take back what it has signed.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

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
    _check_keys(block.values)
    _check_keys(block.deletes)
    _check_values(block)
    made: Made = {}
    items: dict[bytes, Item] = {}
    matched = _add_matched(block, router, made, items)
    # Under one prefix alone no key can be counted elsewhere.
    counts = {prefix.encode(): len(keys) for prefix, keys in matched.items()}
    lengths = lengths_of(counts) if len(counts) > 1 else ()
    for prefix, keys in matched.items() if lengths else ():
        for key in keys:
            if next(prefixes_of(key.encode(), counts, lengths)) != prefix.encode():
                raise BlockRefused("prefix", f"{key[:60]!r} would be counted under another one")
    for counted, count in counts.items():
        if counted in items:
            raise BlockRefused("conflict", f"{_shown(counted)} is a prefix and a key of the block")
        items[counted] = Item(owed=count)
    _add_batches(block, items)
    header = Batch(block.hash, block.number, block.weight, block.parent, items)
    made.setdefault(router.default, []).append(_encoded(header))
    return made


def _add_matched(
    block: Block, router: Router, made: Made, items: dict[bytes, Item]
) -> dict[str, list[str]]:
    """The messages of all keys that a pattern matches, and those keys by their prefixes.

    The others' items. This is done for each key there is, and so in as few calls as it takes.
    """
    update, delete = bytes((BATCH_MSG,)) + block.hash, bytes((BATCH_DELETE_MSG,)) + block.hash
    values, deletes = block.values, frozenset(block.deletes)
    matched: dict[str, list[str]] = {}
    route = router.route
    # Text sorts as its UTF-8 does. A key that is both has two messages, the update first.
    for key in sorted(values.keys() | deletes if deletes else values):
        found = route(key)
        if found is None:
            items[key.encode()] = _inline(key, values, deletes)
            continue
        prefix, topic = found
        if prefix[-1] != "/" and prefix != key:
            raise BlockRefused("prefix", f"{prefix[:60]!r} of {key[:60]!r} does not end in /")
        messages = made.get(topic)
        if messages is None:
            messages = made[topic] = []
        keys = matched.get(prefix)
        if keys is None:
            keys = matched[prefix] = []
        if key in values:
            messages.append((update + key.encode(), values[key]))
            keys.append(key)
        if deletes and key in deletes:
            messages.append((delete + key.encode(), b""))
            keys.append(key)
    for keys in matched.values():
        _check_matched(keys)
    return matched


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
    try:
        size = len("".join(keys).encode())
    except UnicodeEncodeError:
        size = APPLICATION_KEY_BYTES_MAX + 1
    # Of most blocks all keys together are smaller than one may be: no more is to be asked then.
    if size > APPLICATION_KEY_BYTES_MAX or "" in keys or any(key[0] == "/" for key in keys):
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
    if "//" in text or "/." in text or "/\n" in text or text[-1] == "/" or "\n." in f"\n{text}":
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
