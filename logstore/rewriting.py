"""Writing the write-ahead log once more, so that a sync means all of it.

A sync that has failed may have lost what it was to write: the pages count as clean afterwards, are
still seen by whoever reads the file, and the next sync succeeds without them (on Linux; A. Rebello
and others, "Can applications recover from fsync failures?", USENIX ATC 2020). SQLite would copy
such a log into the database, and a power cut in the middle of that would leave a database of which
one half is from a transaction that the log has no more.
"""

from pathlib import Path

import apsw

from .errors import is_full
from .schema import connect
from .system import READ_BYTES_MAX, PayloadHandle, System


def write_again(system: System, path: Path) -> bool:
    """Writes a file over itself and syncs it; nobody else may write to it meanwhile.

    That there is no such file is no error. False if there is no space to write it (some file
    systems never write in place): then it is synced as it is. Raises OSError.
    """
    try:
        file = system.open_file(path)
    except FileNotFoundError:
        return True
    with file:
        try:
            _write_over(file)
        except OSError as error:
            if not is_full(error):
                raise
            file.sync()
            return False
        file.sync()
    return True


def _write_over(file: PayloadHandle) -> None:
    offset = 0
    while data := file.read(READ_BYTES_MAX, offset):
        view = memoryview(data)
        while view:
            count = file.write(view, offset)
            offset += count
            view = view[count:]


def take_back(path: Path, system: System) -> None:
    """Takes back what a backup had begun that was killed while it was brought up to date.

    Its database has a journal then (backup_copy.py). Who only reads cannot do that, and would read
    one half.
    """
    if not system.file_size(path.with_name(f"{path.name}-journal")):
        return
    db = connect(str(path), apsw.SQLITE_OPEN_READWRITE, system.vfs)
    try:
        db.execute("SELECT 1 FROM sqlite_schema")
    finally:
        db.close(True)  # noqa: FBT003 (the parameter is positional)
