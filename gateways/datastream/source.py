"""The one that writes a stream (3.2): atomic operations, each a signed log entry."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import BinaryIO, Final, Self, cast

from gateways import LogHost, WriterLock, create_logs
from gateways.datastream.codec import (
    ENTRY_HEAD,
    HEAD_BYTES,
    Declaration,
    Entry,
    Header,
    encode_declaration,
    encode_entry,
    encode_truncation,
)
from gateways.datastream.sessions import OpenOperation, OperationError
from logstore import Appended, LogMoved, Store, from_os_error
from peer.api import Peer
from wire import LogKey

from .errors import StreamBroken
from .logs import StreamLog
from .stream import DataStream

MEMORY_BYTES_MAX: Final = 1 << 20
"""What exceeds it of an open operation is in a file."""
BATCH_OPERATIONS_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 16 << 20
"""What a batch holds in memory of operations that are done."""
BATCH_FILES_MAX: Final = 64
"""Operations of more than 1 MiB in a batch: each one is an open file."""
_COPY_BYTES: Final = 1 << 20


def lock_name(log_id: int) -> str:
    """The lock file of a log's source."""
    return f"datastream-{log_id}.lock"


class Operation:
    """An operation: open, then committed or rolled back. Made by `DataStreamSource`.

    A disk that cannot hold it (StoreFull, StoreFailed) rolls it back.
    """

    def __init__(self, store: Store, first: int) -> None:
        self._store = store
        self._open: OpenOperation | None = OpenOperation(first)
        self._file: BinaryIO | None = None
        self._file_bytes = 0
        self.first: Final = first
        self.last: int | None = None
        """Its last entry, once committed; None if it has none."""
        self.seq: int | None = None
        """The log entry that it is, once committed; None if it has no entries."""

    @property
    def count(self) -> int:
        """Entries so far."""
        return self._operation.next_number - self.first

    def event(self, type_: int, data: bytes) -> int:
        """Adds an entry; returns its number. Raises OperationError, and changes nothing then."""
        number = self._operation.event(type_, data)
        self._spill()
        return number

    def bookmark(self, data: bytes) -> int:
        """Adds a bookmark of 1 to 16 bytes; returns its number. Raises OperationError."""
        number = self._operation.bookmark(data)
        self._spill()
        return number

    def update(self, number: int, type_: int, data: bytes) -> None:
        """Replaces the data of an entry of this operation and this type. Raises OperationError."""
        if not self._operation.update(number, type_, data):
            with self._filing():
                self._update_file(number, type_, data)

    @property
    def _operation(self) -> OpenOperation:
        if self._open is None:
            raise OperationError("no operation is open")
        return self._open

    def _spill(self) -> None:
        operation = self._operation
        if operation.bytes <= MEMORY_BYTES_MAX:
            return
        with self._filing():
            if self._file is None:
                self._file = _unnamed_file(self._store)
            for encoded in operation.take():
                self._file.write(encoded)
                self._file_bytes += len(encoded)
            # What is still in a buffer is not known to find room.
            self._file.flush()

    @contextmanager
    def _filing(self) -> Iterator[None]:
        """What was written in part is no operation: signed all the same, it would have a hole."""
        try:
            yield
        except OSError as error:
            self.close()
            raise from_os_error(error, self._store.path or "memory") from error

    def _update_file(self, number: int, type_: int, data: bytes) -> None:
        """Written anew behind the entry if its size is another one: the rest has to move."""
        assert self._file is not None
        self._file.flush()
        self._file.seek(0)
        offset = 0
        while True:
            self._file.seek(offset)
            _, length, old_type, found = ENTRY_HEAD.unpack(self._file.read(HEAD_BYTES))
            if found == number:
                break
            offset += length
        if old_type != type_:
            self._file.seek(self._file_bytes)
            raise OperationError(f"entry {number} has type {old_type}, not {type_}")
        encoded = encode_entry(Entry(number, type_, data))
        if len(encoded) == length:
            self._file.seek(offset)
            self._file.write(encoded)
        else:
            anew = _unnamed_file(self._store)
            try:
                self._copy(anew, 0, offset)
                anew.write(encoded)
                self._copy(anew, offset + length, self._file_bytes)
            except OSError:
                _let_go(anew)
                raise
            _let_go(self._file)
            self._file = anew
            self._file_bytes += len(encoded) - length
        self._file.seek(self._file_bytes)

    def _copy(self, to: BinaryIO, start: int, end: int) -> None:
        assert self._file is not None
        self._file.seek(start)
        while start < end:
            piece = self._file.read(min(_COPY_BYTES, end - start))
            to.write(piece)
            start += len(piece)

    def finish(self) -> tuple[int, bytes | BinaryIO | None]:
        """For the source: how many entries, and the payload, None if there are none."""
        operation = self._operation
        count = self.count
        rest = b"".join(operation.take())
        self._open = None
        if not count:
            return 0, None
        if self._file is None:
            return count, rest
        with self._filing():
            self._file.write(rest)
            self._file.flush()
            self._file.seek(0)
        return count, self._file

    def close(self) -> None:
        """Rolls back if it is open, and lets go of the file."""
        self._open = None
        if self._file is not None:
            _let_go(self._file)
            self._file = None

    def done(self, seq: int | None, count: int) -> None:
        """For the source: it is on disk, or empty."""
        self.seq = seq
        self.last = self.first + count - 1 if count else None


def _unnamed_file(store: Store) -> BinaryIO:
    return cast("BinaryIO", tempfile.TemporaryFile(dir=store.path))


def _let_go(file: BinaryIO) -> None:
    # Closing writes what is left in a buffer, which a full disk does not take either.
    with suppress(OSError):
        file.close()


class Batch:
    """Operations that become durable together. Made by `DataStreamSource.batch`.

    It is bounded, since none of them is on disk before all of them are: once it `is_full`, no other
    operation is begun (OperationError), and what is in it becomes durable behind its block.
    """

    def __init__(self, store: Store, first: int) -> None:
        self._store = store
        self._next = first
        self.operations: list[Operation] = []
        self.payloads: list[bytes | BinaryIO] = []
        self.counts: list[int] = []
        self._bytes = 0
        self._files = 0

    @property
    def is_full(self) -> bool:
        """Whether it takes no further operation: 10,000 of them, 64 of more than 1 MiB, or 16 MiB
        of smaller ones.
        """
        return (
            len(self.payloads) >= BATCH_OPERATIONS_MAX
            or self._bytes >= BATCH_BYTES_MAX
            or self._files >= BATCH_FILES_MAX
        )

    @contextmanager
    def atomic(self) -> Iterator[Operation]:
        """An operation; an exception rolls it back, and what was done before stays.

        Raises OperationError if the batch is full.
        """
        operation = self.begin()
        try:
            yield operation
        except BaseException:
            operation.close()
            raise
        self.add(operation)

    def add(self, operation: Operation) -> None:
        """Takes an operation that was begun with the batch's next number."""
        count, payload = operation.finish()
        if payload is None:
            operation.done(None, 0)
            return
        self._keep(operation, payload, count)

    def begin(self) -> Operation:
        """An operation that is handed to `add`, or closed. Raises OperationError if it is full."""
        if self.is_full:
            raise OperationError(
                f"the batch is full with {len(self.payloads)} operations: end it, and begin another"
            )
        return Operation(self._store, self._next)

    def add_encoded(self, payload: bytes, count: int) -> None:
        """Takes entries that are encoded already and have the right numbers."""
        operation = self.begin()
        operation.close()
        self._keep(operation, payload, count)

    def _keep(self, operation: Operation, payload: bytes | BinaryIO, count: int) -> None:
        self._next += count
        self.operations.append(operation)
        self.payloads.append(payload)
        self.counts.append(count)
        if isinstance(payload, bytes):
            self._bytes += len(payload)
        else:
            self._files += 1

    def close(self) -> None:
        """Forgets what is not durable."""
        for operation in self.operations:
            operation.close()


class DataStreamSource:
    """Writes the stream of one own log, inside an `async with` block.

    Entering raises StoreLocked if another source of the log is open, NotAStream, StreamBroken, and
    StoreError. What is refused (OperationError) changes nothing. LogMoved says that somebody else
    has appended to the log; the operation is rolled back, and the next one knows of it.
    """

    def __init__(self, peer_or_store: Peer | Store, *, log_id: int = 0) -> None:
        self._over = peer_or_store
        self._host = LogHost(peer_or_store)
        self.key: Final = LogKey(self._host.store.author, log_id)
        self._lock: WriterLock | None = None
        self._log: StreamLog | None = None
        self._stream: DataStream | None = None
        self._seq = 0
        self._entries = 0
        self._operation: Operation | Batch | None = None

    @staticmethod
    async def create(
        peer_or_store: Peer | Store,
        *,
        log_id: int = 0,
        stream_type: int = 1,
        system_id: int = 0,
        file_version: int = 1,
        origin: str = "source",
    ) -> LogKey:
        """Declares a stream in an own log without entries. Raises LogMoved if it has some."""
        declared = Declaration(stream_type, system_id, file_version, origin)
        payload = encode_declaration(declared)
        host = LogHost(peer_or_store)
        (signed,) = await host.call(partial(create_logs, host.sign, [payload], log_id))
        return signed.key

    async def __aenter__(self) -> Self:
        store = self._host.store
        what = f"another source of log {self.key.log_id} is open"
        self._lock = WriterLock(store.path, lock_name(self.key.log_id), what)
        try:
            self._log = StreamLog(store, self.key)
            self._stream = DataStream(self._over, self.key)
            await self._catch_up()
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._operation is not None:
            self._operation.close()
            self._operation = None
        self._close()

    def _close(self) -> None:
        for each in (self._log, self._stream, self._lock):
            if each is not None:
                each.close()
        self._lock = None

    async def _catch_up(self) -> None:
        """What the log holds now, by whomever."""
        log = self._log
        assert log is not None

        def look() -> tuple[int, int]:
            state = log.update()
            log.declared()
            if state.broken:
                raise StreamBroken(
                    f"log entry {state.seq + 1}: {state.broken}", str(self.key), "use another log"
                )
            return state.seq, state.total_entries

        self._seq, self._entries = await self._host.call(look)

    @property
    def log(self) -> StreamLog:
        """What is visible of the stream. RuntimeError outside of the block."""
        if self._log is None or self._lock is None:
            raise RuntimeError("a DataStreamSource reads inside `async with`")
        return self._log

    async def declaration(self) -> Declaration:
        """What the log declares."""
        return await self._host.call(self.log.declared)

    @property
    def total_entries(self) -> int:
        """Committed entries, as far as this source knows."""
        return self._entries

    # Operations

    def _begin(self) -> None:
        if self._lock is None:
            raise RuntimeError("a DataStreamSource writes inside `async with`")
        if self._operation is not None:
            raise OperationError("an operation is open already")

    @asynccontextmanager
    async def atomic(self) -> AsyncIterator[Operation]:
        """An operation; on disk behind the block, an exception rolls it back."""
        self.start_atomic_op()
        operation = self._current()
        try:
            yield operation
        except BaseException:
            self.rollback_atomic_op()
            raise
        await self.commit_atomic_op()

    @asynccontextmanager
    async def batch(self) -> AsyncIterator[Batch]:
        """Many operations, all of them durable behind the block or none."""
        self._begin()
        batch = self._operation = Batch(self._host.store, self._entries)
        try:
            yield batch
            await self._append(batch)
        finally:
            batch.close()
            self._operation = None

    async def _append(self, batch: Batch) -> None:
        if not batch.payloads:
            return
        appended = await self._sign(batch.payloads)
        self._entries += sum(batch.counts)
        for operation, entry, count in zip(batch.operations, appended, batch.counts, strict=True):
            operation.done(entry.seq, count)

    async def _sign(
        self, payloads: list[bytes | BinaryIO], *, end_of_log: bool = False
    ) -> list[Appended]:
        try:
            appended = await self._host.append(
                payloads,
                log_id=self.key.log_id,
                end_of_log=end_of_log,
                expected_seq=self._seq + 1,
            )
        except LogMoved:
            await self._catch_up()
            raise
        self._seq = appended[-1].seq
        return appended

    def start_atomic_op(self) -> None:
        """Opens an operation. Raises OperationError if one is open."""
        self._begin()
        self._operation = Operation(self._host.store, self._entries)

    def _current(self) -> Operation:
        if not isinstance(self._operation, Operation):
            raise OperationError("no operation is open")
        return self._operation

    def add_stream_entry(self, type_: int, data: bytes) -> int:
        """Adds an event to the open operation; returns its number."""
        return self._current().event(type_, data)

    def add_stream_bookmark(self, data: bytes) -> int:
        """Adds a bookmark to the open operation; returns its number."""
        return self._current().bookmark(data)

    def update_entry_data(self, number: int, type_: int, data: bytes) -> None:
        """Replaces the data of an entry of the open operation."""
        self._current().update(number, type_, data)

    async def commit_atomic_op(self) -> Operation:
        """Signs the open operation: on disk when it returns. Whatever fails rolls it back."""
        operation = self._current()
        try:
            count, payload = operation.finish()
            if payload is None:
                operation.done(None, 0)
                return operation
            (entry,) = await self._sign([payload])
            self._entries += count
            operation.done(entry.seq, count)
        finally:
            operation.close()
            self._operation = None
        return operation

    def rollback_atomic_op(self) -> None:
        """Forgets the open operation; the next one begins with the same number."""
        self._current().close()
        self._operation = None

    async def truncate(self, number: int) -> int:
        """Signs that the stream goes back to `number` entries; returns the log entry."""
        self._begin()
        if not 0 <= number < self._entries:
            raise OperationError(f"{number} is not below the {self._entries} entries of the stream")
        (entry,) = await self._sign([encode_truncation(number)])
        self._entries = number
        return entry.seq

    async def end(self) -> int:
        """Ends the log, and with it the stream; returns the log entry."""
        self._begin()
        return (await self._sign([b""], end_of_log=True))[0].seq

    # Queries by the names of upstream

    @property
    def _reader(self) -> DataStream:
        if self._stream is None or self._lock is None:
            raise RuntimeError("a DataStreamSource reads inside `async with`")
        return self._stream

    async def get_header(self) -> Header:
        """`DataStream.header`."""
        return await self._reader.header()

    async def get_entry(self, number: int) -> Entry | None:
        """`DataStream.entry`."""
        return await self._reader.entry(number)

    async def get_bookmark(self, bookmark: bytes) -> int | None:
        """The number of a bookmark, None if it is unknown."""
        found = await self._reader.bookmark(bookmark)
        return None if found is None else found.number

    async def get_first_event_after_bookmark(self, bookmark: bytes) -> Entry | None:
        """`DataStream.first_event_after`."""
        return await self._reader.first_event_after(bookmark)

    async def get_data_between_bookmarks(self, first: bytes, second: bytes) -> bytes:
        """`DataStream.data_between`."""
        return await self._reader.data_between(first, second)
