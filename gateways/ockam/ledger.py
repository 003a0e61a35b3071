"""The ledger: positions of consumers and trims as log content, and how they merge (section 4.3).

Sans-io. Merging is commutative, associative and idempotent, so that ledgers of several authors
may be read in any order, and any number of times.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateways.ockam.bare import Reader, encode_text, encode_uint
from gateways.ockam.codec import PARTITIONS_MAX
from gateways.ockam.declared import is_name
from gateways.reading import CodecError

RECORDS_MAX: Final = 1_000
PAYLOAD_BYTES_MAX: Final = 60_000
AUTHOR_BYTES: Final = 32
EPOCH_MAX: Final = (1 << 63) - 1
"""The largest that Spark's rows can hold; one above it would count here and not there."""


class Subject(NamedTuple):
    """Whose position it is, and in what."""

    author: bytes
    name: str
    partition: int
    client: str


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position: the greater one of two counts."""

    epoch: int
    index: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where a consumer stands: `index` is the next one to be read."""

    author: bytes
    name: str
    partition: int
    client: str
    epoch: int
    index: int

    @property
    def subject(self) -> Subject:
        """What it is the position of."""
        return Subject(self.author, self.name, self.partition, self.client)

    @property
    def place(self) -> Place:
        """What is merged."""
        return Place(self.epoch, self.index)

    @property
    def counts(self) -> bool:
        """Whether it can be anybody's position: else it counts nowhere, whoever has written it."""
        is_named = is_name(self.name) and is_name(self.client)
        return is_named and self.partition < PARTITIONS_MAX and self.epoch <= EPOCH_MAX


class Trim(NamedTuple):
    """Of a log of the ledger's author: below index `earliest` nothing is kept."""

    log: int
    earliest: int


Record = Position | Trim


def encode_record(record: Record) -> bytes:
    """A tag, then the fields."""
    if isinstance(record, Trim):
        return b"\x01" + encode_uint(record.log) + encode_uint(record.earliest)
    assert len(record.author) == AUTHOR_BYTES
    return b"".join(
        (
            b"\x00",
            record.author,
            encode_text(record.name),
            encode_uint(record.partition),
            encode_text(record.client),
            encode_uint(record.epoch),
            encode_uint(record.index),
        )
    )


def encode_records(records: Sequence[Record]) -> bytes:
    """One payload. The caller keeps to its limits, which `payloads_of` does."""
    return encode_uint(len(records)) + b"".join(map(encode_record, records))


def payloads_of(records: Iterable[Record]) -> Iterator[bytes]:
    """Payloads of at most 1,000 records and 60,000 bytes each, in order."""
    parts: list[bytes] = []
    size = 0
    for record in records:
        encoded = encode_record(record)
        if parts and (len(parts) == RECORDS_MAX or size + len(encoded) > PAYLOAD_BYTES_MAX - 2):
            yield encode_uint(len(parts)) + b"".join(parts)
            parts, size = [], 0
        parts.append(encoded)
        size += len(encoded)
    if parts:
        yield encode_uint(len(parts)) + b"".join(parts)


def decode_records(payload: bytes) -> list[Record]:
    """The records of a payload, all of them or none. Raises CodecError."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise CodecError(f"{len(payload)} bytes of records, {PAYLOAD_BYTES_MAX} are the limit")
    reader = Reader(payload)
    count = reader.count(3)
    if not 1 <= count <= RECORDS_MAX:
        raise CodecError(f"{count} records, 1 to {RECORDS_MAX} are allowed")
    records = [_read_record(reader) for _ in range(count)]
    reader.end()
    return records


def _read_record(reader: Reader) -> Record:
    if reader.tag(2) == 1:
        return Trim(reader.uint(), reader.uint())
    author = reader.take(AUTHOR_BYTES)
    name, partition, client = reader.text(), reader.uint(), reader.text()
    return Position(author, name, partition, client, reader.uint(), reader.uint())


def merge_places(one: Place | None, other: Place) -> Place:
    """The greater of two positions."""
    return other if one is None else max(one, other)
