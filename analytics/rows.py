"""Entries as the store has them -> columns of an export.

The store checked the hashes when it read them. A row's fields are slices of the encoding: what
stands behind the links has a length that the payload's size gives away, so the links are found from
both ends.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from logstore import PayloadState, StoredEntry
from wire import LogKey

from .schema import DELETED, MISSING, PRESENT, SIGNED_MAX, TOO_LARGE, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

_DAY_US: Final = 86_400_000_000
_LINK: Final = 66
# Payload hash and signature, the fixed part behind the size.
_TAIL: Final = 66 + 64
_STATES: Final = {
    PayloadState.PRESENT: PRESENT,
    PayloadState.MISSING: MISSING,
    PayloadState.PARTIAL: MISSING,
    PayloadState.DELETED: DELETED,
}


class UnfitEntryError(ValueError):
    """An entry that the schema has no row for; the text says why."""


def check_fits(entry: StoredEntry) -> None:
    """Raises UnfitEntryError where a number is above what a BIGINT holds."""
    if entry.seq > SIGNED_MAX:
        raise UnfitEntryError(f"its seqnum {entry.seq} is above 2^63 - 1, which a BIGINT ends at")
    if entry.payload_bytes > SIGNED_MAX:
        raise UnfitEntryError(
            f"its payload's size {entry.payload_bytes} is above 2^63 - 1, which a BIGINT ends at"
        )


def varu64_bytes(number: int) -> int:
    """How many bytes the VarU64 of a number takes."""
    return 1 if number < 248 else 1 + (number.bit_length() + 7) // 8


class RowBuilder:
    """Makes record batches of entries, each field as the schema wants it."""

    def __init__(
        self, node: str, *, payloads: bool = True, payload_bytes_max: int, partition: bool = False
    ) -> None:
        self._node = node
        self._payloads = payloads
        self._payload_bytes_max = payload_bytes_max
        self._partition = partition
        self._schema = arrow_schema(partition=partition)
        self._decimals: dict[int, Decimal] = {}
        self._authors: dict[bytes, str] = {}

    @property
    def schema(self) -> "pa.Schema":
        """The schema of the batches."""
        return self._schema

    def wants_payload(self, entry: StoredEntry) -> bool:
        """Whether the row will hold the payload, which the store keeps outside of its own row."""
        return (
            self._payloads
            and entry.payload is None
            and entry.payload_state is PayloadState.PRESENT
            and entry.payload_bytes <= self._payload_bytes_max
        )

    def batch(self, entries: Iterable[StoredEntry]) -> "pa.RecordBatch":
        """One row for each entry, whose payload, if the row is to hold it, has been loaded."""
        import pyarrow as pa

        columns: list[list[object]] = [[] for _ in range(15)]
        append = [column.append for column in columns]
        for entry in entries:
            key, seq, ingest, encoded, hash_, received_at, state, payload, size, _ = entry
            links_end = len(encoded) - _TAIL - varu64_bytes(size)
            links = (links_end - 33 - self._head_bytes(key, seq)) // _LINK
            state_name = _STATES[state]
            if state is PayloadState.PRESENT and size > self._payload_bytes_max:
                state_name, payload = TOO_LARGE, None
            elif not self._payloads:
                payload = None
            append[0](self._author(key.author))
            append[1](self._decimal(key.log_id))
            append[2](seq)
            append[3](encoded[0] == 1)
            append[4](hash_[2:])
            append[5](encoded[links_end - 64 : links_end] if links else None)
            append[6](encoded[links_end - 130 : links_end - 66] if links == 2 else None)
            append[7](encoded[-128:-64])
            append[8](size)
            append[9](payload)
            append[10](state_name)
            append[11](encoded[-64:])
            append[12](received_at)
            append[13](ingest)
        arrays = [
            pa.array(column, type=pa.int64()).cast(field.type)
            if field.name == "received_at"
            else pa.array(column, type=field.type)
            for column, field in zip(columns[:14], self._schema, strict=False)
        ]
        arrays.append(pa.repeat(pa.scalar(self._node, pa.string()), len(columns[0])))
        if self._partition:
            days = pa.array([_day(at) for at in columns[12]], type=pa.int32())
            arrays.append(days.cast(pa.date32()))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _head_bytes(self, key: LogKey, seq: int) -> int:
        log_id = key.log_id
        return (1 if log_id < 248 else varu64_bytes(log_id)) + (
            1 if seq < 248 else varu64_bytes(seq)
        )

    def _author(self, author: bytes) -> str:
        found = self._authors.get(author)
        if found is None:
            if len(self._authors) >= 100_000:
                self._authors.clear()
            found = self._authors[author] = author.hex()
        return found

    def _decimal(self, log_id: int) -> Decimal:
        found = self._decimals.get(log_id)
        if found is None:
            if len(self._decimals) >= 100_000:
                self._decimals.clear()
            found = self._decimals[log_id] = Decimal(log_id)
        return found


def _day(received_at: object) -> int:
    assert isinstance(received_at, int)
    return received_at // _DAY_US
