"""Messages of Cardinal streams: keys, and values in Avro (spec sections 2.1 to 2.4).

A message is a key and a value. Whatever breaks a rule is a CodecError, whose text says what, where
and why; nothing is allocated by a claimed count or length. Avro's maps and arrays come in runs,
plain or with their size: both are read, one plain run is written, in byte order of the keys. So
equal facts have different bytes, and what is compared are facts.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from gateways import reading
from gateways.reading import CodecError

BATCH: Final = 0x00
SUB_BATCH_HEADER: Final = 0x01
SUB_BATCH_MSG: Final = 0x02
BATCH_MSG: Final = 0x03
BATCH_DELETE_MSG: Final = 0x04
REORG: Final = 0x05
REORG_COMPLETE: Final = 0x06
PING: Final = 0xFF

HASH_BYTES: Final = 32
PREFIX_BYTES: Final = 1 + HASH_BYTES
"""Type and hash, with which every key begins."""
_ID_END: Final = PREFIX_BYTES + HASH_BYTES
APPLICATION_KEY_BYTES_MAX: Final = 64 << 10
KEY_BYTES_MAX: Final = PREFIX_BYTES + APPLICATION_KEY_BYTES_MAX
VALUE_BYTES_MAX: Final = 16 << 20
PRODUCED_BYTES_MAX: Final = 10_000_000
WEIGHT_BYTES_MAX: Final = 32
WEIGHT_MAX: Final = (1 << 256) - 1
INT_MAX: Final = (1 << 31) - 1
NUMBER_MAX: Final = (1 << 63) - 1
ZEROS: Final = bytes(HASH_BYTES)
_INT_BYTES_MAX: Final = 5
_LONG_BYTES_MAX: Final = 10
_LONG_BITS: Final = 64


class Item(NamedTuple):
    """What a block says of a key, a prefix or a sub-batch; what it does not say is empty."""

    value: bytes = b""
    owed: int = 0
    """How many messages there are under a prefix."""
    delete: bool = False
    batch: bytes = ZEROS


class Batch(NamedTuple):
    """A block's header, what stands in it, and what is owed to it."""

    hash: bytes
    number: int
    weight: int
    parent: bytes
    items: Mapping[bytes, Item]
    """By key, prefix or name, in UTF-8."""


class SubBatchHeader(NamedTuple):
    """How many parts a sub-batch has."""

    hash: bytes
    batch: bytes
    parts: int


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a sub-batch (SubBatchMsg)."""

    hash: bytes
    batch: bytes
    index: int
    deletes: Sequence[bytes]
    updates: Mapping[bytes, bytes]


class Update(NamedTuple):
    """A value under a prefix that the block counts (BatchMsg)."""

    hash: bytes
    key: bytes
    value: bytes


class Delete(NamedTuple):
    """A deletion under a prefix that the block counts (BatchDeleteMsg)."""

    hash: bytes
    key: bytes


class Reorg(NamedTuple):
    """From this common ancestor on the chain is another one."""

    hash: bytes
    number: int


class ReorgComplete(NamedTuple):
    """All of it has been said."""

    hash: bytes
    number: int


class Ping(NamedTuple):
    """A producer lives."""

    producer: bytes
    value: bytes


Message = Batch | SubBatchHeader | Part | Update | Delete | Reorg | ReorgComplete | Ping
T = TypeVar("T")


# --- Avro ---------------------------------------------------------------------------------------


class Reader(reading.Reader):
    """Takes Avro's values off the front of some bytes. Every method raises CodecError."""

    __slots__ = ()

    def _zigzag(self, what: str, bytes_max: int) -> int:
        data, start = self._data, self._at
        raw = shift = 0
        for at in range(start, start + bytes_max):
            if at >= len(data):
                raise self.refused(what, start, "it is cut off")
            byte = data[at]
            raw |= (byte & 127) << shift
            if byte < 128:
                if raw >> _LONG_BITS:
                    raise self.refused(what, start, "it has more than 64 bits")
                self._at = at + 1
                return raw >> 1 ^ -(raw & 1)
            shift += 7
        raise self.refused(what, start, f"it goes on behind its byte {bytes_max}")

    def integer(self, what: str) -> int:
        """An int, 0 to 2^31 - 1."""
        start = self._at
        number = self._zigzag(what, _INT_BYTES_MAX)
        if not 0 <= number <= INT_MAX:
            raise self.refused(what, start, f"{number} is not from 0 to 2^31 - 1")
        return number

    def number(self, what: str) -> int:
        """A long that is none below 0, as all but those that count a run are."""
        start = self._at
        number = self._zigzag(what, _LONG_BYTES_MAX)
        if number < 0:
            raise self.refused(what, start, f"{number} is below 0")
        return number

    def data(self) -> bytes:
        """A length and as many bytes."""
        return self.take(self.number("a length"))

    def text(self, what: str) -> bytes:
        """A length and UTF-8, of one byte at least: a key, a prefix or a name."""
        start = self._at
        data = self.data()
        if not data:
            raise self.refused(what, start, "it is empty")
        if not is_text(data):
            raise self.refused(what, start, "it is no UTF-8")
        return data

    def flag(self) -> bool:
        """A boolean."""
        start = self._at
        byte = self.take(1)[0]
        if byte > 1:
            raise self.refused("a boolean", start, f"{byte} is neither 0 nor 1")
        return byte == 1

    def runs(self, item: Callable[[], T]) -> list[T]:
        """The items of a map or an array, plain runs or such that tell their size.

        Each item has a byte at least, so that a claim costs nothing: the end comes first.
        """
        found: list[T] = []
        while count := self._zigzag("a count of items", _LONG_BYTES_MAX):
            if count < 0:
                count = -count
                self.number("a size of items")
            found.extend(item() for _ in itertools.repeat(None, min(count, self.left + 1)))
        return found


def is_text(data: bytes) -> bool:
    """Whether it is UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def encode_long(number: int) -> bytes:
    """An int or a long, from 0 on."""
    raw = number << 1
    encoded = bytearray()
    while raw > 127:
        encoded.append(raw & 127 | 128)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


def encode_data(data: bytes) -> bytes:
    """Bytes or a string, with the length before them."""
    return encode_long(len(data)) + data


def _encode_run(items: Sequence[bytes]) -> bytes:
    """A map or an array: one plain run, and the end."""
    return b"".join((encode_long(len(items)), *items, b"\0")) if items else b"\0"


# --- messages -----------------------------------------------------------------------------------


def encode_message(message: Message) -> tuple[bytes, bytes]:
    """Key and value. Raises ValueError for an integer or a weight that has no encoding."""
    match message:
        case Batch():
            return b"\x00" + message.hash, _encode_batch(message)
        case SubBatchHeader(hash_, batch, parts):
            return b"\x01" + hash_ + batch, encode_long(_checked_int(parts))
        case Part(hash_, batch, index, deletes, updates):
            key = b"\x02" + hash_ + batch + encode_long(_checked_int(index))
            found = [encode_data(each) + encode_data(updates[each]) for each in sorted(updates)]
            return key, _encode_run([*map(encode_data, deletes)]) + _encode_run(found)
        case Update(hash_, key, value):
            return b"\x03" + hash_ + key, value
        case Delete(hash_, key):
            return b"\x04" + hash_ + key, b""
        case Reorg(hash_, number):
            return b"\x05" + hash_, encode_long(_checked_int(number))
        case ReorgComplete(hash_, number):
            return b"\x06" + hash_, encode_long(_checked_int(number))
        case Ping(producer, value):
            return b"\xff" + producer, value


def _checked_int(number: int) -> int:
    if not 0 <= number <= INT_MAX:
        raise ValueError(f"{number} is not from 0 to 2^31 - 1")
    return number


def _encode_batch(batch: Batch) -> bytes:
    if not 0 <= batch.number <= NUMBER_MAX:
        raise ValueError(f"number {batch.number} is not from 0 to 2^63 - 1")
    items = [encode_data(key) + _encode_item(batch.items[key]) for key in sorted(batch.items)]
    weight = encode_data(encode_weight(batch.weight))
    return encode_long(batch.number) + weight + batch.parent + _encode_run(items)


def _encode_item(item: Item) -> bytes:
    owed = encode_long(_checked_int(item.owed))
    return encode_data(item.value) + owed + (b"\1" if item.delete else b"\0") + item.batch


def encode_weight(weight: int) -> bytes:
    """Unsigned, big-endian, without leading zeros. Raises ValueError from 2^256 on."""
    if not 0 <= weight <= WEIGHT_MAX:
        raise ValueError(f"weight {weight} is not from 0 to 2^256 - 1")
    return weight.to_bytes((weight.bit_length() + 7) >> 3, "big")


def decode_message(key: bytes, value: bytes) -> Message:
    """Raises CodecError."""
    kind = kind_of(key, value)
    hash_, rest = key[1:PREFIX_BYTES], key[PREFIX_BYTES:]
    match kind:
        case 0x00:
            return _decode_batch(hash_, value)
        case 0x01:
            return SubBatchHeader(hash_, rest, only_integer(value, "the number of parts"))
        case 0x02:
            index = only_integer(rest[HASH_BYTES:], "the index of a part")
            return decode_part(hash_, rest[:HASH_BYTES], index, value)
        case 0x03:
            return Update(hash_, rest, value)
        case 0x04:
            return Delete(hash_, rest)
        case 0x05:
            return Reorg(hash_, only_integer(value, "the ancestor's number"))
        case 0x06:
            return ReorgComplete(hash_, only_integer(value, "the ancestor's number"))
        case _:
            return Ping(hash_, value)


def kind_of(key: bytes, value: bytes) -> int:
    """The type of a message whose key keeps the rules, and whose value is not looked into.

    Raises CodecError. What a message costs most of the time is this: of those under a prefix, which
    are nearly all there are, nothing else has to be known but whether they come again.
    """
    size = len(key)
    if size < PREFIX_BYTES:
        raise CodecError(f"a key of {size} bytes: type and hash are {PREFIX_BYTES}")
    if size > KEY_BYTES_MAX:
        raise CodecError(f"a key of {size} bytes: {KEY_BYTES_MAX} are the limit")
    if len(value) > VALUE_BYTES_MAX:
        raise CodecError(f"a value of {len(value)} bytes: {VALUE_BYTES_MAX} are the limit")
    kind = key[0]
    if kind in (BATCH_MSG, BATCH_DELETE_MSG):
        if size == PREFIX_BYTES:
            raise CodecError("an empty application key")
        if not is_text(key[PREFIX_BYTES:]):
            raise CodecError("an application key that is no UTF-8")
        if kind == BATCH_DELETE_MSG and value:
            raise CodecError(f"a deletion with a value of {len(value)} bytes")
        return kind
    expected = _KEY_BYTES.get(kind)
    if expected is None:
        raise CodecError(f"a message of the unknown type {kind:02x}")
    if size not in expected:
        raise CodecError(f"a key of {size} bytes: one of type {kind:02x} has {_said(expected)}")
    return kind


_KEY_BYTES: Final = {
    BATCH: range(PREFIX_BYTES, PREFIX_BYTES + 1),
    SUB_BATCH_HEADER: range(_ID_END, _ID_END + 1),
    SUB_BATCH_MSG: range(_ID_END + 1, _ID_END + _INT_BYTES_MAX + 1),
    REORG: range(PREFIX_BYTES, PREFIX_BYTES + 1),
    REORG_COMPLETE: range(PREFIX_BYTES, PREFIX_BYTES + 1),
    PING: range(PREFIX_BYTES, PREFIX_BYTES + 1),
}


def _said(sizes: range) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


def only_integer(data: bytes, what: str) -> int:
    """An int with nothing behind it. Raises CodecError."""
    reader = Reader(data)
    number = reader.integer(what)
    reader.end()
    return number


def _decode_batch(hash_: bytes, value: bytes) -> Batch:
    reader = Reader(value)
    number = reader.number("the number")
    at = reader.at
    weight = reader.data().lstrip(b"\0")
    if len(weight) > WEIGHT_BYTES_MAX:
        raise reader.refused("the weight", at, f"it has {len(weight)} bytes, 32 are the limit")
    parent = reader.take(HASH_BYTES)

    def item() -> tuple[bytes, Item]:
        key = reader.text("the key of an item")
        found = Item(
            reader.data(), reader.integer("a count"), reader.flag(), reader.take(HASH_BYTES)
        )
        return key, found

    items = dict(reader.runs(item))
    reader.end()
    return Batch(hash_, number, int.from_bytes(weight, "big"), parent, items)


def decode_part(hash_: bytes, batch: bytes, index: int, value: bytes) -> Part:
    """The value of a part whose key has been read. Raises CodecError."""
    reader = Reader(value)
    deletes = reader.runs(lambda: reader.text("a key to delete"))
    updates = dict(reader.runs(lambda: (reader.text("a key"), reader.data())))
    reader.end()
    return Part(hash_, batch, index, deletes, updates)
