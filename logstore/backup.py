"""A consistent copy of a store while others write to it: the first one in a directory.

backup_update.py brings it up to date later.

1. Nothing is removed from `payloads` while the copy is made (collect.lock).
2. VACUUM INTO writes one moment of the database under a temporary name.
3. The files that this moment's entries name are copied and synced; unfinished payloads are not part
   of a backup.
4. The copy is marked, which makes its own logs read-only, synced, and gets its name last: a backup
   that was interrupted is not a store, and the next one takes its place.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from .backup_copy import copy_keys, copy_payload
from .backup_update import update_backup
from .database import DATABASE, close_now
from .errors import StoreExists, StoreLocked, translated
from .files import PAYLOADS, PayloadFiles
from .identity import BACKUP, RESTORED
from .keyfile import KEY_FILE, other_keys
from .meta import set_meta
from .modes import close_to_others, make_private_folder
from .opening import Opened, check_path
from .records import BackedUp
from .schema import FILE_ATTACHED, connect

if TYPE_CHECKING:
    from .system import System

_UNFINISHED: Final = DATABASE + ".unfinished"


def write_backup(
    opened: Opened, files: PayloadFiles, target: Path, system: "System | None" = None
) -> BackedUp:
    """Writes the copy into a new or empty directory, or over a backup that was killed.

    An earlier backup of the store is brought up to date. `system`: of the disk that a copy to bring
    up to date is on, if it is another one. Of what fails nothing is left. Raises StoreExists if
    there is something else, and StoreLocked while another backup is written there.
    """
    check_path(target)
    with translated(target):
        is_new = not target.exists()
        if not is_new and not target.is_dir():
            raise StoreExists("it is no directory", target, "choose a new one")
        if not is_new and opened.folder is not None and target.samefile(opened.folder):
            raise StoreExists("it is the store itself", target, "choose a new one")
        make_private_folder(target)
        with _alone(target):
            there = system or opened.system
            if there.file_size(target / DATABASE) is not None:
                close_to_others(target, PAYLOADS, KEY_FILE)
                try:
                    return update_backup(opened, files, target, there)
                finally:
                    close_to_others(target, PAYLOADS, KEY_FILE)
            return _write_first(opened, files, target, is_new=is_new)


def _write_first(opened: Opened, files: PayloadFiles, target: Path, *, is_new: bool) -> BackedUp:
    ours = _names(opened)
    _make_room(target, ours)
    close_to_others(target, PAYLOADS, KEY_FILE)
    try:
        written = _write(opened, files, target)
        close_to_others(target, PAYLOADS, KEY_FILE)
    except BaseException:
        with suppress(OSError):
            _remove(target, ours)
            if is_new:
                target.rmdir()
        raise
    return written


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Tells a backup that is being written from one that was killed."""
    fd = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreLocked(
                "another backup is being written there", target, "wait for it, or choose another"
            ) from None
        yield
    finally:
        os.close(fd)


def _names(opened: Opened) -> set[str]:
    """What a backup has in it, beside what is unfinished."""
    keys = [] if opened.folder is None else other_keys(opened.folder)
    return {DATABASE, PAYLOADS, KEY_FILE, *(each.name for each in keys)}


def _make_room(target: Path, ours: set[str]) -> None:
    """Removes a backup that was killed. Raises StoreExists if anything else is there."""
    names = {each.name for each in target.iterdir()}
    killed = _UNFINISHED in names and DATABASE not in names
    if names and not (killed and all(_is_ours(each, ours) for each in names)):
        raise StoreExists("the directory is not empty", target, "choose a new one")
    _remove(target, ours)


def _is_ours(name: str, ours: set[str]) -> bool:
    return name in ours or name.startswith(_UNFINISHED)


def _remove(target: Path, ours: set[str]) -> None:
    # What tells that it is unfinished goes last, should this be killed too.
    for path in sorted(target.iterdir(), key=lambda path: path.name == _UNFINISHED):
        if not _is_ours(path.name, ours):
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _write(opened: Opened, files: PayloadFiles, target: Path) -> BackedUp:
    unfinished = target / _UNFINISHED
    with files.kept():
        with opened.database.read_alone() as db:
            db.execute("VACUUM INTO ?", (str(unfinished),))
        copy = connect(str(unfinished), apsw.SQLITE_OPEN_READWRITE)
        try:
            written = _copy_files(copy, opened.system, files, target / PAYLOADS)
            _mark(copy)
            entries: int = copy.execute("SELECT count(*) FROM entries").get
        finally:
            close_now(copy)
    if opened.folder is not None:
        written += copy_keys(opened.folder, target)
    opened.system.sync_folder(target)
    unfinished.replace(target / DATABASE)
    opened.system.sync_folder(target)
    opened.system.sync_folder(target.absolute().parent)
    written += opened.system.file_size(target / DATABASE) or 0
    return BackedUp(incremental=False, bytes_written=written, entries=entries)


def _mark(copy: apsw.Connection) -> None:
    copy.execute("PRAGMA synchronous = FULL")
    copy.execute("BEGIN IMMEDIATE")
    copy.execute("DELETE FROM files WHERE state <> ?", (FILE_ATTACHED,))
    set_meta(copy, {RESTORED: BACKUP})
    copy.execute("COMMIT")


def _copy_files(copy: apsw.Connection, system: "System", files: PayloadFiles, root: Path) -> int:
    """Copies what the entries name, synced; how many bytes."""
    system.make_folder(root)
    written = 0
    folders = set()
    for (id_,) in copy.execute("SELECT id FROM files WHERE state = ?", (FILE_ATTACHED,)):
        written += copy_payload(system, files.path_of(id_), system, root, id_.hex())
        folders.add(root / id_.hex()[:2])
    for folder in sorted(folders):
        system.sync_folder(folder)
    system.sync_folder(root)
    return written
