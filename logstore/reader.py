"""Reading one payload, each block of its file checked before it leaves (blocks.py).

A file without sums, which an earlier version wrote, is hashed while it is read, as long as that
goes from the start to the end.
"""

from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from wire import LogKey, PayloadHasher

from .blocks import BLOCK_BYTES, BlockSums
from .errors import translated
from .reading import locate_payload, payload_damaged
from .usual import PAYLOAD_HASH

if TYPE_CHECKING:
    from .database import Database
    from .files import PayloadFiles
    from .system import PayloadHandle, System


class PayloadReader:
    """An open payload. Stays readable while it is dropped. Not for two threads at a time."""

    def __init__(
        self,
        key: LogKey,
        seq: int,
        content: "bytes | PayloadHandle",
        payload_bytes: int,
        payload_hash: bytes,
        sums: BlockSums | None = None,
    ) -> None:
        self.key: Final = key
        self.seq: Final = seq
        self.payload_bytes: Final = payload_bytes
        self._inline = content if isinstance(content, bytes) else None
        self._handle = None if isinstance(content, bytes) else content
        self._payload_hash = payload_hash
        self._hasher = PayloadHasher()
        self._hashed = 0
        self._sums = sums
        self._last = b""
        """A block that is right and of which only a part was asked for: the rest comes next."""
        self._last_at = 0

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Bytes from `offset` on, `bytes_max` at most, none at the end.

        Raises StoreDamaged where the file is short, and in place of anything of a block that is not
        what was stored. Of a file without sums that shows only if it is read in order from the
        start, in place of the last bytes: when the whole has not the hash that the entry names.
        """
        count = min(bytes_max, self.payload_bytes - offset)
        if count <= 0:
            return b""
        if self._inline is not None:
            return self._inline[offset : offset + count]
        if self._handle is None:
            raise ValueError("the reader is closed")
        if self._sums is not None:
            return self._read_checked(self._handle, self._sums, offset, count)
        data = self._read_some(self._handle, offset, count)
        if offset == self._hashed:
            self._hasher.update(data)
            self._hashed += len(data)
            whole = self._hashed == self.payload_bytes
            if whole and self._hasher.digest_yamf() != self._payload_hash:
                raise payload_damaged(self.key, self.seq, "the payload is damaged")
        return data

    def _read_checked(
        self, handle: "PayloadHandle", sums: BlockSums, offset: int, count: int
    ) -> bytes:
        """Whole blocks are read, once each where one reads on from where the last read ended."""
        begin = offset // BLOCK_BYTES * BLOCK_BYTES
        end = min(-(-(offset + count) // BLOCK_BYTES) * BLOCK_BYTES, self.payload_bytes)
        had = self._last if self._last_at == begin else b""
        start = at = begin + len(had)
        parts = []
        while at < end:
            parts.append(self._read_some(handle, at, end - at))
            at += len(parts[-1])
        read = b"".join(parts)
        if not sums.are_right(start // BLOCK_BYTES, read):
            raise payload_damaged(self.key, self.seq, "the payload is damaged")
        data = had + read
        self._last_at = (end - 1) // BLOCK_BYTES * BLOCK_BYTES
        self._last = data[self._last_at - begin :] if offset + count < end else b""
        return data[offset - begin : offset - begin + count]

    def _read_some(self, handle: "PayloadHandle", offset: int, count: int) -> bytes:
        with translated(f"{self.key}/{self.seq}"):
            data = handle.read(count, offset)
        if not data:
            raise payload_damaged(self.key, self.seq, "the payload's file is short")
        return data

    def close(self) -> None:
        """Lets go of the file."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_payload(
    database: "Database", files: "PayloadFiles", system: "System", key: LogKey, seq: int
) -> PayloadReader:
    """A reader of a payload that is held whole. Raises PayloadUnavailable and StoreDamaged."""
    gone = None
    while True:
        with database.read() as db:
            entry, file = locate_payload(db, key, seq)
        payload_hash = entry.encoded[PAYLOAD_HASH]
        if entry.payload is not None:
            return PayloadReader(key, seq, entry.payload, entry.payload_bytes, payload_hash)
        assert file is not None
        file_id, encoded = file
        with translated(f"{key}/{seq}"):
            try:
                handle = system.open_file(files.path_of(file_id), write=False)
            except FileNotFoundError:
                if file_id == gone:
                    raise payload_damaged(key, seq, "the payload's file is missing") from None
                # Dropped between the two; then looking again says so, or names another file.
                gone = file_id
                continue
        sums = BlockSums.load(encoded, entry.payload_bytes)
        return PayloadReader(key, seq, handle, entry.payload_bytes, payload_hash, sums)
