"""A consistent copy of a store while others write to it.

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

from .database import DATABASE, close_now
from .errors import StoreExists, StoreLocked, translated
from .files import PAYLOADS, PayloadFiles, write_all
from .identity import BACKUP, RESTORED
from .keyfile import KEY_FILE, copy_key_file, other_keys, read_key_file, write_key_file
from .meta import set_meta
from .modes import close_to_others, make_private_folder
from .opening import Opened, check_path
from .schema import FILE_ATTACHED, connect
from .system import READ_BYTES_MAX

if TYPE_CHECKING:
    from .system import System

_UNFINISHED: Final = DATABASE + ".unfinished"


def write_backup(opened: Opened, files: PayloadFiles, target: Path) -> None:
    """Writes the copy into a new or empty directory, or over a backup that was killed.

    Of what fails nothing is left. Raises StoreExists if there is something else, and StoreLocked
    while another backup is written there.
    """
    check_path(target)
    with translated(target):
        is_new = not target.exists()
        if not is_new and not target.is_dir():
            raise StoreExists("it is no directory", target, "choose a new one")
        make_private_folder(target)
        with _alone(target):
            ours = _names(opened)
            _make_room(target, ours)
            close_to_others(target, PAYLOADS, KEY_FILE)
            try:
                _write(opened, files, target)
                close_to_others(target, PAYLOADS, KEY_FILE)
            except BaseException:
                with suppress(OSError):
                    _remove(target, ours)
                    if is_new:
                        target.rmdir()
                raise


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


def _write(opened: Opened, files: PayloadFiles, target: Path) -> None:
    unfinished = target / _UNFINISHED
    with files.kept():
        with opened.database.read_alone() as db:
            db.execute("VACUUM INTO ?", (str(unfinished),))
        copy = connect(str(unfinished), apsw.SQLITE_OPEN_READWRITE)
        try:
            _copy_files(copy, opened.system, files, target / PAYLOADS)
            _mark(copy)
        finally:
            close_now(copy)
    if opened.folder is not None:
        if (opened.folder / KEY_FILE).exists():
            write_key_file(target / KEY_FILE, read_key_file(opened.folder / KEY_FILE))
        # Without those, a store that is put back would be somebody else to the peers of a gateway.
        for key in other_keys(opened.folder):
            copy_key_file(key, target / key.name)
    opened.system.sync_folder(target)
    unfinished.replace(target / DATABASE)
    opened.system.sync_folder(target)
    opened.system.sync_folder(target.absolute().parent)


def _mark(copy: apsw.Connection) -> None:
    copy.execute("PRAGMA synchronous = FULL")
    copy.execute("BEGIN IMMEDIATE")
    copy.execute("DELETE FROM files WHERE state <> ?", (FILE_ATTACHED,))
    set_meta(copy, {RESTORED: BACKUP})
    copy.execute("COMMIT")


def _copy_files(copy: apsw.Connection, system: "System", files: PayloadFiles, root: Path) -> None:
    system.make_folder(root)
    for (id_,) in copy.execute("SELECT id FROM files WHERE state = ?", (FILE_ATTACHED,)):
        source = files.path_of(id_)
        target = root / source.parent.name / source.name
        system.make_folder(target.parent)
        with (
            system.open_file(source, write=False) as reader,
            system.open_file(target, create=True) as writer,
        ):
            offset = 0
            while data := reader.read(READ_BYTES_MAX, offset):
                write_all(writer, data, offset)
                offset += len(data)
            writer.sync()
        system.sync_folder(target.parent)
    system.sync_folder(root)
