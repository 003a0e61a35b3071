"""The seam to the operating system: SQLite's file layer, payload files, clock and randomness.

Tests put a failing or forgetful disk here. `System` is the real one. Everything that has to be on
disk in a certain order goes through `PayloadHandle.sync` and `System.sync_folder`; SQLite does its
own syncs through the VFS.
"""

import ctypes
import fcntl
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from .modes import FILE_MODE, FOLDER_MODE

PAUSE_S: Final = 0.025
"""What is left to others between two steps of long work in a store, at least. Who waits for it asks
that often, or more seldom only after an eighth of a second."""
READ_BYTES_MAX: Final = 1 << 20
"""Files are hashed and copied in pieces of this size."""

_READ_NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
"""Linux's flag for a read that does not wait for the disk."""


LATEST_US: Final = 253_402_214_400_000_000
"""The last day that dates can say: 9999-12-31T00:00:00Z."""


def wall_clock_us() -> int:
    """Microseconds since 1970, however wrong the clock is: at most `LATEST_US`.

    Python's own functions raise OverflowError from the year 2262 on (63 bits of nanoseconds).
    """
    try:
        now_us = time.time_ns() // 1000
    except OverflowError:
        now_us = int(time.clock_gettime(time.CLOCK_REALTIME) * 1e6)
    return min(now_us, LATEST_US)


def _of_linux(name: str, *argtypes: type) -> "ctypes._NamedFuncPointer | None":
    """A function of Linux's C library that Python does not offer, where there is one."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        found: ctypes._NamedFuncPointer = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (OSError, AttributeError):
        return None
    found.argtypes = argtypes
    return found


_statx: Final = _of_linux(
    "statx", ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p
)
"""A stat that knows when a file was made."""
_sync_file_range: Final = _of_linux(
    "sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint
)
"""Has the disk begin with what was written."""
_SYNC_FILE_RANGE_WRITE: Final = 2
_BEGIN_BYTES: Final = 2 << 20
"""So much is given to the disk at a time. A payload of less than that has one sync, during which
others are written: with a step of 256 KiB those of 1 MiB came at 0.95 of the rate."""


class PayloadHandle:
    """An open payload file. Raises OSError and nothing else.

    What is written in order is given to the disk as it comes, so that there is little left to wait
    for when it is synced: an operating system by itself begins only after seconds, and a sync of
    8 MiB took as long as hashing 5 of them, while nothing else could be done for that payload. That
    makes nothing durable, and it asks for no outcome: what fails meanwhile is told by `sync`, which
    it would not be if this had been told before.
    """

    __slots__ = ("_begun", "_fd", "_written")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._begun = 0
        """Up to where the disk was told to begin."""
        self._written = 0
        """Where the last write ended."""

    def write(self, data: bytes | memoryview, offset: int) -> int:
        """Writes some of `data` at `offset`; returns how many bytes, which may be fewer."""
        count = os.pwrite(self._fd, data, offset)
        if offset != self._written:
            self._begun = offset
        self._written = offset + count
        if self._written - self._begun >= _BEGIN_BYTES and _sync_file_range is not None:
            length = self._written - self._begun
            _sync_file_range(self._fd, self._begun, length, _SYNC_FILE_RANGE_WRITE)
            self._begun = self._written
        return count

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
            os.pwrite(self._fd, os.urandom(length), 0)

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
        """The wall clock, microseconds since 1970. For display, and for the ages of rules."""
        return wall_clock_us()

    def monotonic_s(self) -> float:
        """Seconds of a clock that only goes forward; for pacing work."""
        return time.monotonic()

    def let_others(self, began_s: float) -> None:
        """Lets others have a store behind a step of long work that began then (`monotonic_s`).

        For as long as it took, and PAUSE_S at least.
        """
        self.sleep(max(PAUSE_S, self.monotonic_s() - began_s))

    def sleep(self, seconds: float) -> None:
        """Lets others go on for so long."""
        time.sleep(seconds)

    def random_bytes(self, count: int) -> bytes:
        """Bytes that nobody can guess."""
        return os.urandom(count)

    def open_file(self, path: Path, *, create: bool = False, write: bool = True) -> PayloadHandle:
        """Opens a file; FileNotFoundError unless it exists or `create` is set."""
        flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC
        return PayloadHandle(os.open(path, flags | (os.O_CREAT if create else 0), FILE_MODE))

    def make_folder(self, path: Path) -> bool:
        """Makes one folder; False if it is there already."""
        try:
            path.mkdir(FOLDER_MODE)
        except FileExistsError:
            return False
        return True

    def make_private_folder(self, path: Path) -> None:
        """Makes a folder that its owner alone can enter, and those above it, durably."""
        missing = []
        while not path.exists():
            missing.append(path)
            path = path.parent
        for each in reversed(missing):
            each.mkdir(mode=FOLDER_MODE, exist_ok=True)
            self.sync_folder(each.parent)

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

    def disk_bytes(self, path: Path) -> int:
        """How large the disk is that a folder is on; 0 where it does not say."""
        disk = os.statvfs(path)
        return disk.f_blocks * disk.f_frsize

    def allocated_bytes(self, folder: Path) -> int:
        """What a folder and all below it take on the disk; what goes away meanwhile counts not."""
        blocks = folder.lstat().st_blocks
        for parent, folders, files in os.walk(folder):
            for name in (*folders, *files):
                with suppress(FileNotFoundError):
                    blocks += os.lstat(os.path.join(parent, name)).st_blocks  # noqa: PTH118 - of many
        return blocks * 512

    def modified_us(self, path: Path) -> int | None:
        """When a file was written to last, microseconds since 1970; None if there is none."""
        try:
            return path.stat().st_mtime_ns // 1000
        except FileNotFoundError:
            return None

    def inode(self, path: Path) -> int:
        """A number that a copy of the file or folder does not share."""
        return path.stat().st_ino

    def born_ns(self, path: Path) -> int:
        """When a file or folder was made, which a later one with its inode does not share.

        Nanoseconds since 1970; 0 where the file system or the platform does not say.
        """
        born = getattr(path.stat(), "st_birthtime_ns", None)
        if born is None and _statx is not None:
            buffer, mask = ctypes.create_string_buffer(256), 0x800
            # AT_FDCWD, no flags, STATX_BTIME; the offsets are those of the kernel's struct statx.
            if _statx(-100, os.fsencode(path), 0, mask, buffer) != 0:
                return 0
            found = buffer.raw
            if int.from_bytes(found[0:4], sys.byteorder) & mask:
                seconds = int.from_bytes(found[80:88], sys.byteorder, signed=True)
                born = seconds * 10**9 + int.from_bytes(found[88:92], sys.byteorder)
        return max(0, min(born or 0, 2**63 - 1))

    def state_folder(self) -> Path | None:
        """Where this user's programs keep what is not to be restored with a store; None: nowhere.

        `BAMBOO_PEER_STATE` says it, or else what the platform has for it.
        """
        if chosen := os.environ.get("BAMBOO_PEER_STATE"):
            return Path(chosen).absolute()
        if (xdg := os.environ.get("XDG_STATE_HOME", "")).startswith("/"):
            return Path(xdg) / "bamboo-peer"
        try:
            home = Path.home()
        except RuntimeError:
            return None
        if sys.platform == "darwin":
            # Not "bamboo-peer": a store is there by default, and would take this along.
            return home / "Library" / "Application Support" / "bamboo-peer.state"
        return home / ".local" / "state" / "bamboo-peer"

    def boot_id(self) -> bytes:
        """Something that is new whenever the machine starts; empty if there is nothing like it."""
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
        except OSError:
            return b""

    def changed_since_boot(self, paths: Sequence[Path], since_us: int) -> bool:
        """Whether any of these files has changed since the machine started, if that can be known.

        It cannot if the clock is behind `since_us` (microseconds since 1970), a time before that.
        """
        if not hasattr(time, "CLOCK_BOOTTIME"):
            return False
        started_us = self.now_us() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        if started_us <= since_us:
            return False
        changed = 0
        for path in paths:
            try:
                changed = max(changed, path.stat().st_ctime_ns)
            except FileNotFoundError:
                continue
        return changed // 1000 >= started_us

    def machine_id(self) -> bytes:
        """Something that another machine does not share; empty if there is nothing like it."""
        for name in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
            try:
                return Path(name).read_bytes().strip()
            except OSError:
                continue
        return b""
