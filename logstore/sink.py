"""Receiving one payload, piece by piece, across broken connections (point2point.md 8).

A sink takes the bytes in order. Above 64 KiB they go to a file that is locked by its sink. Now and
then they are synced and the row is told, which is where it goes on: when the sink is suspended,
every 8 MiB, and every second in which 1 MiB has gathered. So a process that is killed loses 1 MiB,
or what came in its last second, and a slow link is not asked again for what took it minutes.
What a file holds beyond that is cut off, although a killed process has left it intact: a power cut
leaves anything there, and that would be noticed only by the hash of all of it, in the end.

Small payloads stay in memory until they are finished, and go to a file only to be continued later.
Bytes count as nothing until `finish` has found their hash to be right. A payload that is dropped
meanwhile ends its sink at the next sync, or as soon as `is_dropped` is asked.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from wire import LogKey, PayloadHasher

from .blocks import Summing
from .errors import PayloadBusy, PayloadDropped, PayloadMismatch, StoreOverQuota, translated
from .files import (
    ArrivingFile,
    PayloadFiles,
    Staged,
    name_blank,
    read_through,
    set_file_state,
    write_all,
)
from .records import INLINE_BYTES_MAX, PayloadFile
from .rows import pack_u64
from .schema import FILE_GARBAGE, FILE_PARTIAL, FILE_WHOLE

if TYPE_CHECKING:
    import apsw

    from .database import Database, Transaction
    from .quotas import Ledger
    from .system import PayloadHandle, System

SYNC_BYTES: Final = 8 << 20
"""How much is written between two syncs at most."""
CHECKPOINT_BYTES: Final = 1 << 20
"""So much is synced as well, unless the last sync was..."""
CHECKPOINT_S: Final = 1.0
"""... less than so many seconds ago."""
_SOURCES_MAX: Final = 16

Claim = tuple[LogKey, int, bytes]
"""What one sink at a time may receive: log, sequence number, payload hash."""
Judged = Callable[[], AbstractContextManager[tuple["Transaction", "Ledger | None"]]]


class PayloadSink:
    """One payload on its way in. Not for two threads at a time; closes as a context manager."""

    def __init__(
        self,
        database: "Database",
        files: PayloadFiles,
        system: "System",
        wanted: PayloadFile,
        source: str,
        release: Callable[[], None],
        judged: "Judged",
    ) -> None:
        """`judged`: a write, and the books of it where quotas go for who brings the payload."""
        self._database = database
        self._files = files
        self._system = system
        self._wanted = wanted
        self._source = source
        self._release = release
        self._judged = judged
        self._hasher = PayloadHasher()
        self._sums = Summing()
        self._memory: bytearray | None = None
        self._handle: PayloadHandle | None = None
        self._file_id = b""
        self._offset = 0
        self._synced = 0
        self._synced_at_s = system.monotonic_s()
        self._earlier: tuple[str, ...] = ()
        self._resumed = False
        self._open = True
        try:
            self._resume()
        except BaseException:
            self._close()
            raise

    @property
    def offset(self) -> int:
        """The bytes that are held already: the next one to be written."""
        return self._offset

    @property
    def payload_bytes(self) -> int:
        """The size that the payload is to have."""
        return self._wanted.payload_bytes

    @property
    def resumed(self) -> bool:
        """Whether a part of the bytes was received earlier."""
        return self._resumed

    @property
    def sources(self) -> tuple[str, ...]:
        """Who the bytes came from, the earliest first."""
        if self._source in self._earlier:
            return self._earlier
        return (*self._earlier[: _SOURCES_MAX - 1], self._source)

    def write(self, data: bytes | memoryview) -> None:
        """Takes the next bytes. ValueError beyond the payload's size; the errors of a disk.

        Raises PayloadDropped, not at once but after 8 MiB at most.
        """
        self._check_open()
        if self._offset + len(data) > self._wanted.payload_bytes:
            raise ValueError(f"more than the {self._wanted.payload_bytes} bytes of the payload")
        if self._memory is not None:
            self._memory += data
        else:
            with self._failing():
                write_all(self._file(), data, self._offset)
            self._sums.update(data)
        self._hasher.update(data)
        self._offset += len(data)
        if self._memory is None and self._offset - self._synced >= SYNC_BYTES:
            self._sync(FILE_PARTIAL)
        else:
            self.checkpoint()

    @property
    def wants_checkpoint(self) -> bool:
        """Whether `checkpoint` would sync; from any thread, as a hint."""
        if not self._open or self._offset - self._synced < CHECKPOINT_BYTES:
            return False
        return self._system.monotonic_s() >= self._synced_at_s + CHECKPOINT_S

    def checkpoint(self) -> None:
        """Syncs if 1 MiB has gathered and a second has passed; `write` does, where bytes come.

        Raises the errors of a disk, and PayloadDropped.
        """
        if self.wants_checkpoint:
            self._sync(FILE_PARTIAL)

    @property
    def file(self) -> "ArrivingFile | None":
        """The file that the bytes go to, for passing them on before they are verified.

        None for a small payload, which stays in memory.
        """
        if self._memory is not None or not self._file_id:
            return None
        return ArrivingFile(self._files, self._file_id)

    def is_right(self) -> bool:
        """Whether all bytes have come and are the payload's; `finish` then only syncs."""
        self._check_open()
        whole = self._offset == self._wanted.payload_bytes
        return whole and self._hasher.digest_yamf() == self._wanted.payload_hash

    def is_dropped(self) -> bool:
        """Whether the payload was dropped since this began: nothing of it will be kept."""
        if not self._open or not self._file_id:
            return False
        return self._files.any_dropped([self._file_id])

    def finish(self) -> bytes | PayloadFile:
        """The payload, verified and, unless it is small, on disk: for `put` or `complete_payload`.

        Raises PayloadMismatch or PayloadDropped, after which nothing is left of the bytes, and
        ValueError if some are still to come.
        """
        whole = self._whole()
        if whole is not None:
            return whole
        wanted = self._wanted
        self._sync(FILE_WHOLE)
        self._close()
        return PayloadFile(
            self._file_id, wanted.key, wanted.seq, wanted.payload_bytes, wanted.payload_hash
        )

    def seal(self) -> bytes | Staged:
        """Like `finish`, for `complete_payloads`, with one transaction less.

        Until `release` nobody else receives the payload, and the row of its file says that it is a
        part: of what no entry takes over `suspend` keeps it, as of any part.
        """
        whole = self._whole()
        if whole is not None:
            return whole
        with self._failing():
            self._file().sync()
        wanted = self._wanted
        return Staged(
            wanted.payload_bytes,
            wanted.payload_hash,
            None,
            self._file_id,
            self._handle,
            self._sums.encode(),
        )

    def release(self) -> None:
        """Lets go of what was sealed, once it is its entry's."""
        self._close()

    def _whole(self) -> bytes | None:
        """What is verified and was in memory; None if it is in the file, and all of it right."""
        self._check_open()
        if self._offset != self._wanted.payload_bytes:
            raise ValueError(f"{self._offset} of {self._wanted.payload_bytes} bytes have come")
        if not self.is_right():
            mismatch = PayloadMismatch(self._where, resumed=self._resumed, sources=self.sources)
            self.discard()
            raise mismatch
        if self._memory is None:
            return None
        whole = bytes(self._memory)
        self.discard()
        return whole

    def suspend(self) -> None:
        """Keeps what was received, so that a later sink for the same payload goes on from there.

        Nothing of a payload that was dropped.
        """
        if not self._open:
            return
        try:
            if self.is_dropped():
                self.discard()
                return
            if self._memory and self._offset:
                if self._handle is None and self._make_file() is not None:
                    raise _busy(self._where)
                with self._failing():
                    write_all(self._file(), bytes(self._memory), 0)
            if self._handle is not None and not self._offset:
                self.discard()
            elif self._handle is not None and self._offset != self._synced:
                self._sync(FILE_PARTIAL)
        finally:
            self._close()

    def discard(self) -> None:
        """Forgets everything that was received."""
        if not self._open:
            return
        try:
            if self._file_id:
                with self._database.write() as transaction:
                    set_file_state(transaction.db, self._file_id, FILE_GARBAGE)
        finally:
            had_file = bool(self._file_id)
            self._close()
        if had_file:
            self._files.tidy()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.suspend()

    @property
    def _where(self) -> str:
        return f"{self._wanted.key}/{self._wanted.seq}"

    def _resume(self) -> None:
        small = self._wanted.payload_bytes <= INLINE_BYTES_MAX
        if small:
            with self._database.read() as db:
                found = self._find(db)
        else:
            # Most are new, and whether there is a part of it is asked where that is written.
            found = self._make_file()
        if found is not None:
            self._take_over(found)
        if small:
            self._memory = bytearray()
            if self._offset and self._handle is not None:
                with translated(self._where):
                    self._memory += self._handle.read(self._offset, 0)

    def _find(self, db: "apsw.Connection") -> bytes | None:
        wanted = self._wanted
        id_: bytes | None = db.execute(
            "SELECT id FROM files WHERE author = ? AND log_id = ? AND seq = ? AND state <> 3"
            " AND state IN (?, ?) AND payload_hash = ? AND payload_bytes = ?",
            (
                wanted.key.author,
                pack_u64(wanted.key.log_id),
                pack_u64(wanted.seq),
                FILE_PARTIAL,
                FILE_WHOLE,
                wanted.payload_hash,
                pack_u64(wanted.payload_bytes),
            ),
        ).get
        return id_

    def _take_over(self, id_: bytes) -> None:
        claimed = self._files.claim(id_, (FILE_PARTIAL, FILE_WHOLE))
        if claimed is None:
            # Another has it, or it was finished or given up since its row was seen.
            raise _busy(self._where)
        self._handle, self._file_id = claimed.handle, id_
        handle, synced = claimed.handle, claimed.synced
        with translated(self._where):
            found = read_through(handle, synced)
            if found.size == synced:
                self._hasher, self._sums = found.hasher, found.sums
            else:
                # It is shorter than what was synced: nothing of it can be relied on.
                synced = 0
            if handle.size() != synced:
                handle.truncate(synced)
        self._offset = self._synced = synced
        if synced:
            self._resumed = True
            self._earlier = tuple(claimed.sources.split("\n"))

    def _make_file(self) -> bytes | None:
        """A file for a payload of which no part is there; else the file of that, and none is made.

        Raises StoreOverQuota before anything has changed.
        """
        id_, handle = self._files.take_blank()
        try:
            found = self._begin_in(id_)
        except StoreOverQuota:
            self._files.give_back(id_, handle)
            raise
        except BaseException:
            # Whether the row has been written is not known: it is blank no more.
            handle.close()
            raise
        if found is not None:
            self._files.give_back(id_, handle)
            return found
        self._handle, self._file_id = handle, id_
        return None

    def _begin_in(self, id_: bytes) -> bytes | None:
        with self._judged() as (transaction, ledger):
            found = self._find(transaction.db)
            if found is None:
                if ledger is not None:
                    ledger.declare(self._wanted)
                name_blank(transaction.db, id_, self._wanted, self._source)
            return found

    def _sync(self, state: int) -> None:
        with self._failing():
            self._file().sync()
            with self._database.write() as transaction:
                is_kept = set_file_state(
                    transaction.db,
                    self._file_id,
                    state,
                    synced=self._offset,
                    sources="\n".join(self.sources),
                    sums=self._sums.encode() if state == FILE_WHOLE else None,
                )
        if not is_kept:
            self.discard()
            raise PayloadDropped(
                "the payload was dropped while it was received", self._where, "fetch it again"
            )
        self._synced = self._offset
        self._synced_at_s = self._system.monotonic_s()

    def _file(self) -> "PayloadHandle":
        assert self._handle is not None
        return self._handle

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """After a failed write or sync nothing beyond the last good sync is known to be there."""
        try:
            with translated(self._where):
                yield
        except BaseException:
            self._close()
            raise

    def _check_open(self) -> None:
        if not self._open:
            raise ValueError("the sink is finished, suspended, discarded or has failed")

    def _close(self) -> None:
        if self._open:
            self._open = False
            if self._handle is not None:
                self._handle.close()
                self._handle = None
            self._release()


def _busy(where: str) -> PayloadBusy:
    return PayloadBusy(
        "another connection or process is receiving this payload", where, "try again later"
    )
