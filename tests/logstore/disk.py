"""A disk in memory that forgets what was not synced, fails on command, and breaks off.

The model: every file has the bytes that are on the platter and those that programs see. A write
goes to the second and into a list of what is pending; a sync empties the list. When the power is
cut each pending write, in 512-byte sectors, reaches the platter or not, as a coin decides, and
later ones may although earlier ones did not. A new payload file is itself pending until its
folder has been synced. A sync that fails leaves pending writes pending, and the next one forgets
them: they are in memory and may never reach the platter (what Linux does).

Creating, deleting and truncating SQLite's own files counts as durable at once.
"""

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import apsw

from logstore import PayloadHandle, System

SECTOR = 512
STATE = Path("/state")
"""The state directory, which only exists on the simulated disk."""
_names = count()


class PowerCutError(OSError):
    """Nothing reaches the disk any more."""


@dataclass(slots=True)
class SimFile:
    """One file: what programs see, what the platter has, and what lies between."""

    seen: bytearray = field(default_factory=bytearray)
    platter: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes]] = field(default_factory=list)
    named: bool = True
    locked_by: object = None
    modified_us: int = 0

    def write(self, data: bytes, offset: int) -> None:
        _write(self.seen, data, offset)
        self.pending.append((offset, bytes(data)))

    def truncate(self, length: int) -> None:
        for content in (self.seen, self.platter):
            del content[length:]
        if len(self.seen) < length:
            self.seen.extend(bytes(length - len(self.seen)))
        self.pending = [(at, data) for at, data in self.pending if at < length]

    def sync(self) -> None:
        for offset, data in self.pending:
            _write(self.platter, data, offset)
        if len(self.platter) < len(self.seen):
            self.platter.extend(bytes(len(self.seen) - len(self.platter)))
        self.pending.clear()

    def cut(self, rng: random.Random) -> None:
        for offset, data in self.pending:
            at = 0
            while at < len(data):
                size = min(SECTOR - (offset + at) % SECTOR, len(data) - at)
                if rng.random() < 0.5:
                    _write(self.platter, data[at : at + size], offset + at)
                at += size
        self.pending.clear()
        self.seen = bytearray(self.platter)
        self.locked_by = None


def _write(content: bytearray, data: bytes, offset: int) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class SimDisk(System):
    """The operating system of a store whose disk is simulated. Folders and key file are real."""

    single_connection = True

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.files: dict[str, SimFile] = {}
        self.operations = 0
        self.fault: Callable[[str, int], None] = lambda kind, number: None
        self.room: int | None = None
        """How many bytes all files may have together, None for any number."""
        self.boots = 0
        self.put_back: set[str] = set()
        """Files that were written since the machine started by something that is not the store."""
        self.vfs = f"sim{next(_names)}"
        self._clock = 1_700_000_000_000_000
        self.elapsed_s: Callable[[], float] = lambda: 0.0
        """How much time has passed for this machine, beside what looking at the clock takes."""
        self._registered = SimVFS(self.vfs, self)

    def unregister(self) -> None:
        """Takes the VFS away; without it a process collects them."""
        self._registered.unregister()

    def step(self, kind: str) -> None:
        """Called before everything that changes the disk."""
        self.operations += 1
        self.fault(kind, self.operations)

    def grow(self, kind: str, file: SimFile, length: int) -> None:
        """Called before a file gets a length, which the disk may have no room for."""
        self.step(kind)
        if self.room is not None and 0 < length - len(file.seen) > self.free_bytes(Path()):
            raise OSError(errno.ENOSPC, "simulated")

    def cut_power(self) -> None:
        """What is left after the power was gone."""
        self.fault = lambda kind, number: None
        self.boots += 1
        self.put_back.clear()
        self.files = {name: file for name, file in self.files.items() if file.named}
        for file in self.files.values():
            file.cut(self.rng)

    def lose_failed_sync(self, file: SimFile) -> None:
        """A sync that failed: a part reached the platter, and nobody will try the rest again."""
        for offset, data in file.pending:
            if self.rng.random() < 0.5:
                _write(file.platter, data, offset)
        file.pending.clear()

    # --- System ---

    def sleep(self, _: float) -> None:
        """Nobody is waited for."""

    def now_us(self) -> int:
        self._clock += 1
        return self._clock + int(self.elapsed_s() * 1_000_000)

    def random_bytes(self, count: int) -> bytes:
        return self.rng.randbytes(count)

    def open_file(self, path: Path, *, create: bool = False, write: bool = True) -> PayloadHandle:
        file = self.files.get(str(path))
        if file is None:
            if not create:
                raise FileNotFoundError(2, "no such file", str(path))
            self.step("create")
            file = self.files[str(path)] = SimFile(named=False, modified_us=self.now_us())
        return SimHandle(self, file)

    def make_folder(self, path: Path) -> bool:
        return False

    def sync_folder(self, path: Path) -> None:
        self.step("sync")
        for name, file in self.files.items():
            if Path(name).parent == path:
                file.named = True

    def remove_file(self, path: Path) -> None:
        self.step("delete")
        self.files.pop(str(path), None)

    def list_folder(self, path: Path) -> list[str]:
        depth = len(path.parts)
        inside = (Path(name).parts for name in self.files)
        return sorted(
            {parts[depth] for parts in inside if parts[:depth] == path.parts and len(parts) > depth}
        )

    def file_size(self, path: Path) -> int | None:
        file = self.files.get(str(path))
        return None if file is None else len(file.seen)

    def modified_us(self, path: Path) -> int | None:
        file = self.files.get(str(path))
        return None if file is None else file.modified_us

    def free_bytes(self, path: Path) -> int:
        return 0 if self.room is None else self.room - sum(len(f.seen) for f in self.files.values())

    def allocated_bytes(self, folder: Path) -> int:
        return sum(
            len(file.seen) for name, file in self.files.items() if name.startswith(f"{folder}/")
        )

    def disk_bytes(self, path: Path) -> int:
        return self.room or 0

    def inode(self, path: Path) -> int:
        return 1

    def born_ns(self, path: Path) -> int:
        return 0

    def state_folder(self) -> Path:
        return STATE

    def make_private_folder(self, path: Path) -> None:
        return

    def boot_id(self) -> bytes:
        return b"%d" % self.boots

    def changed_since_boot(self, paths: Sequence[Path], since_us: int) -> bool:
        return any(str(path) in self.put_back for path in paths)

    def machine_id(self) -> bytes:
        return b"simulated"


class SimHandle(PayloadHandle):
    """A payload file on a simulated disk."""

    __slots__ = ("_disk", "_file")

    def __init__(self, disk: SimDisk, file: SimFile) -> None:
        super().__init__(-1)
        self._disk = disk
        self._file = file

    def write(self, data: bytes | memoryview, offset: int) -> int:
        self._disk.grow("write", self._file, offset + len(data))
        # A disk may take less than it was given, though not of a sector.
        part = bytes(data)
        if len(part) > SECTOR:
            part = part[: max(1, self._disk.rng.randint(len(data) // 2, len(data)))]
        self._file.write(part, offset)
        self._file.modified_us = self._disk.now_us()
        return len(part)

    def read(self, bytes_max: int, offset: int) -> bytes:
        return bytes(self._file.seen[offset : offset + bytes_max])

    def size(self) -> int:
        return len(self._file.seen)

    def truncate(self, length: int) -> None:
        self._disk.step("truncate")
        self._file.truncate(length)

    def allocate(self, length: int) -> None:
        self._disk.grow("write", self._file, length)
        self._file.write(bytes(length), 0)
        self._file.modified_us = self._disk.now_us()

    def sync(self) -> None:
        try:
            self._disk.step("sync")
        except OSError:
            self._disk.lose_failed_sync(self._file)
            raise
        self._file.sync()

    def try_lock(self) -> bool:
        if self._file.locked_by not in (None, self):
            return False
        self._file.locked_by = self
        return True

    def share(self) -> None:
        return

    def close(self) -> None:
        if self._file.locked_by is self:
            self._file.locked_by = None


class SimVFS(apsw.VFS):
    """SQLite's view of a simulated disk."""

    def __init__(self, name: str, disk: SimDisk) -> None:
        super().__init__(name, "")
        self._disk = disk

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802, ANN401 (SQLite's names)
        path = name.filename() if isinstance(name, apsw.URIFilename) else (name or "temporary")
        file = self._disk.files.get(path)
        if file is None:
            if not flags[0] & apsw.SQLITE_OPEN_CREATE:
                raise apsw.CantOpenError("no such file")
            file = self._disk.files[path] = SimFile()
        flags[1] = flags[0]
        return SimVFSFile(self._disk, file)

    def xDelete(self, name: str, sync_folder: bool) -> None:  # noqa: N802 (SQLite's name)
        _sqlite_step(partial(self._disk.step, "delete"))
        self._disk.files.pop(name, None)

    def xAccess(self, name: str, flags: int) -> bool:  # noqa: N802 (SQLite's name)
        return name in self._disk.files

    def xFullPathname(self, name: str) -> str:  # noqa: N802 (SQLite's name)
        return name


def _sqlite_step(step: Callable[[], None]) -> None:
    """SQLite is told of failures in its own terms."""
    try:
        step()
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise apsw.FullError("disk full") from None
        raise apsw.IOError("simulated failure") from None


class SimVFSFile:
    """One of SQLite's files."""

    def __init__(self, disk: SimDisk, file: SimFile) -> None:
        self._disk = disk
        self._file = file

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 (SQLite's name)
        return bytes(self._file.seen[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 (SQLite's name)
        _sqlite_step(partial(self._disk.grow, "write", self._file, offset + len(data)))
        self._file.write(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802 (SQLite's name)
        _sqlite_step(partial(self._disk.step, "truncate"))
        self._file.truncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802 (SQLite's name)
        try:
            self._disk.step("sync")
        except OSError:
            self._disk.lose_failed_sync(self._file)
            # SQLite has one error for all syncs that fail.
            raise apsw.IOError("simulated failure") from None
        self._file.sync()

    def xFileSize(self) -> int:  # noqa: N802 (SQLite's name)
        return len(self._file.seen)

    def xLock(self, level: int) -> None:  # noqa: N802 (SQLite's name)
        return

    def xUnlock(self, level: int) -> None:  # noqa: N802 (SQLite's name)
        return

    def xCheckReservedLock(self) -> bool:  # noqa: N802 (SQLite's name)
        return False

    def xFileControl(self, op: int, pointer: int) -> bool:  # noqa: N802 (SQLite's name)
        return False

    def xSectorSize(self) -> int:  # noqa: N802 (SQLite's name)
        return SECTOR

    def xDeviceCharacteristics(self) -> int:  # noqa: N802 (SQLite's name)
        return 0

    def xClose(self) -> None:  # noqa: N802 (SQLite's name)
        return
