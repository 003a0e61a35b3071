"""Names inside an export, and what is found under them.

    date=2026-01-31/part-<node, 8 digits>-<first, 20 digits>-<last>.zstd.parquet
    _manifests/00000001.json, ..., _manifests/_latest.json
    _schema.ddl, _states.jsonl
    .export.lock, date=*/.part-*.tmp

`first` and `last` are a range of the store's ingest sequence. All rows of a range that fall on one
date are in one file, so a range has a file for each of its dates. What begins with `_` or `.` is
read by nobody who reads the directory as Parquet.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .errors import AnalyticsError, ExportFailed, NotAnExport

MANIFESTS: Final = "_manifests"
LATEST: Final = "_latest.json"
DDL: Final = "_schema.ddl"
STATES: Final = "_states.jsonl"
LOCK: Final = ".export.lock"
TEMPORARY: Final = ".tmp"

_DATE = re.compile(r"date=([0-9]{4}-[0-9]{2}-[0-9]{2})")
_PART = re.compile(r"part-([0-9a-f]{8})-([0-9]{20})-([0-9]{20})\.zstd\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """A data file of an export."""

    first: int
    last: int
    date: str
    node: str
    """The first 8 digits."""

    @property
    def name(self) -> str:
        """The path inside the export."""
        file = f"part-{self.node}-{self.first:020}-{self.last:020}.zstd.parquet"
        return f"date={self.date}/{file}"


def parse_part(folder: str, file: str) -> Part | None:
    """The part of these names, None if they are others."""
    date, part = _DATE.fullmatch(folder), _PART.fullmatch(file)
    if date is None or part is None:
        return None
    return Part(int(part[2]), int(part[3]), date[1], part[1])


def is_hidden(name: str) -> bool:
    """Whether nobody reads it as data."""
    return name.startswith((".", "_"))


def find_parts(root: Path) -> list[Part]:
    """Every data file, in the order of the ranges. Raises NotAnExport at anything else."""
    parts = []
    for folder in _names(root):
        if is_hidden(folder):
            continue
        if _DATE.fullmatch(folder) is None or not (root / folder).is_dir():
            raise _foreign(root / folder)
        for file in _names(root / folder):
            if is_hidden(file):
                continue
            part = parse_part(folder, file)
            if part is None:
                raise _foreign(root / folder / file)
            parts.append(part)
    return sorted(parts)


def remove_temporaries(root: Path) -> None:
    """Removes what a killed export was writing. Only for who holds the lock."""
    folders = [root, root / MANIFESTS, *(root / name for name in _names(root))]
    for folder in folders:
        if not folder.is_dir() or (is_hidden(folder.name) and folder.name != MANIFESTS):
            continue
        for file in _names(folder):
            if file.startswith(".") and file.endswith(TEMPORARY):
                (folder / file).unlink(missing_ok=True)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names, of folders with many files
    except FileNotFoundError:
        return []


def _foreign(path: Path) -> NotAnExport:
    return NotAnExport(
        "this is no part of an export", path, "move it away, or name another directory"
    )


def sync_folder(path: Path) -> None:
    """Returns once the names in a folder are on disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_whole(path: Path, content: bytes) -> None:
    """Replaces a file: whoever reads it sees the old content or the new one."""
    temporary = path.with_name(f".{path.name}{TEMPORARY}")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


@contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Turns an OSError into an ExportFailed that says what to do."""
    try:
        yield
    except AnalyticsError:
        raise
    except OSError as error:
        raise disk_error(error, where) from error


def disk_error(error: OSError, where: Path) -> ExportFailed:
    """The export's own error for a failed call of the operating system."""
    import errno

    path = error.filename or where
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return ExportFailed(
            "the disk is full", path, "free space and run it again; what was written is whole"
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ExportFailed("no permission", path, "use an account that may, or another directory")
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return ExportFailed("there is a file where a directory has to be", path, "name another one")
    reason = error.strerror or str(error).partition("\n")[0]
    return ExportFailed(f"the disk failed ({reason})", path, "look at the disk, then run it again")
