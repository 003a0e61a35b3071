"""The seam to the operating system: SQLite's file layer, payload files, clock and randomness.

Tests put a failing or forgetful disk here. `System` is the real one. Everything that has to be on
disk in a certain order goes through `PayloadHandle.sync` and `System.sync_folder`; SQLite does its
own syncs through the VFS.
"""

import fcntl
import os
import secrets
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

READ_BYTES_MAX: Final = 1 << 20
"""Files are hashed and copied in pieces of this size."""

_READ_NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
"""Linux's flag for a read that does not wait for the disk."""


class PayloadHandle:
    """An open payload file. Raises OSError and nothing else."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, data: bytes | memoryview, offset: int) -> int:
        """Writes some of `data` at `offset`; returns how many bytes, which may be fewer."""
        return os.pwrite(self._fd, data, offset)

    def read(self, bytes_max: int, offset: int) -> bytes:
        """Up to `bytes_max` bytes from `offset`, none at the end."""
        return os.pread(self._fd, bytes_max, offset)

    def read_cached(self, bytes_max: int, offset: int) -> bytes:
        """Like `read`, of what is in memory, without ever waiting for the disk; may be none."""
        if _READ_NO_WAIT is None:
            return b""
        buffer = bytearray(bytes_max)
        try:
            count = os.preadv(self._fd, [buffer], offset, _READ_NO_WAIT)
        except OSError:
            # Not cached, or this file system does not know; whoever waits for it finds out.
            return b""
        del buffer[count:]
        return bytes(buffer)

    def size(self) -> int:
        """The file's length in bytes."""
        return os.fstat(self._fd).st_size

    def truncate(self, length: int) -> None:
        """Cuts the file to `length` bytes."""
        os.ftruncate(self._fd, length)

    def allocate(self, length: int) -> None:
        """Takes the room for `length` bytes on the disk, whatever will be in them."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._fd, 0, length)
        else:
            # Zeros may be left out.
            os.pwrite(self._fd, secrets.token_bytes(length), 0)

    def sync(self) -> None:
        """Returns once content and length are on disk."""
        os.fsync(self._fd)

    def try_lock(self) -> bool:
        """Takes the file for this handle alone, across processes; False if another has it."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def share(self) -> None:
        """Waits for a lock that others may share and that `try_lock` cannot pass."""
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def close(self) -> None:
        """Lets go of the file and its lock."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class System:
    """The operating system as a store needs it."""

    vfs: str | None = None
    """The name of the SQLite VFS, None for SQLite's own."""
    single_connection: bool = False
    """Whether one connection does everything, which a VFS without shared memory needs."""

    def now_us(self) -> int:
        """The wall clock, microseconds since 1970. For display; nothing is decided by it."""
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        """Seconds of a clock that only goes forward; for pacing work."""
        return time.monotonic()

    def random_bytes(self, count: int) -> bytes:
        """Bytes that nobody can guess."""
        return secrets.token_bytes(count)

    def open_file(self, path: Path, *, create: bool = False, write: bool = True) -> PayloadHandle:
        """Opens a payload file; FileNotFoundError unless it exists or `create` is set."""
        flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC
        return PayloadHandle(os.open(path, flags | (os.O_CREAT if create else 0), 0o644))

    def make_folder(self, path: Path) -> bool:
        """Makes one folder; False if it is there already."""
        try:
            path.mkdir()
        except FileExistsError:
            return False
        return True

    def sync_folder(self, path: Path) -> None:
        """Returns once the names in a folder are on disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def remove_file(self, path: Path) -> None:
        """Removes a file; that it is gone already is no error."""
        path.unlink(missing_ok=True)

    def list_folder(self, path: Path) -> list[str]:
        """The names in a folder, none if it does not exist."""
        try:
            return sorted(each.name for each in path.iterdir())
        except FileNotFoundError:
            return []

    def file_size(self, path: Path) -> int | None:
        """A file's length in bytes, None if there is no such file."""
        try:
            return path.stat().st_size if path.is_file() else None
        except FileNotFoundError:
            return None

    def free_bytes(self, path: Path) -> int:
        """How many bytes may still be written to the disk that a folder is on."""
        disk = os.statvfs(path)
        return disk.f_bavail * disk.f_frsize

    def inode(self, path: Path) -> int:
        """A number that a copy of the file or folder does not share."""
        return path.stat().st_ino

    def machine_id(self) -> bytes:
        """Something that another machine does not share; empty if there is nothing like it."""
        for name in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
            try:
                return Path(name).read_bytes().strip()
            except OSError:
                continue
        return b""
