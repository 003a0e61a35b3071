"""A consistent copy of a store while others write to it.

1. Nothing is removed from `payloads` while the copy is made (collect.lock).
2. VACUUM INTO writes one moment of the database under a temporary name.
3. The files that this moment's entries name are copied and synced; unfinished payloads are not part
   of a backup.
4. The copy is marked, which makes its own logs read-only, synced, and gets its name last: a backup
   that was interrupted is not a store.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from .database import DATABASE, close_now
from .errors import StoreExists, translated
from .files import PAYLOADS, PayloadFiles, write_all
from .identity import RESTORED
from .keyfile import KEY_FILE, read_key_file, write_key_file
from .opening import Opened, check_path, set_meta
from .schema import FILE_ATTACHED
from .system import READ_BYTES_MAX

if TYPE_CHECKING:
    from .system import System

_UNFINISHED: Final = ".unfinished"


def write_backup(opened: Opened, files: PayloadFiles, target: Path) -> None:
    """Writes the copy into a new or empty directory. Raises StoreExists if it is not empty."""
    check_path(target)
    with translated(target):
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise StoreExists("the directory is not empty", target, "choose a new one")
        unfinished = target / (DATABASE + _UNFINISHED)
        with files.kept():
            with opened.database.read_alone() as db:
                db.execute("VACUUM INTO ?", (str(unfinished),))
            copy = apsw.Connection(str(unfinished))
            try:
                _copy_files(copy, opened.system, files, target / PAYLOADS)
                _mark(copy)
            finally:
                close_now(copy)
        if opened.folder is not None and (opened.folder / KEY_FILE).exists():
            write_key_file(target / KEY_FILE, read_key_file(opened.folder / KEY_FILE))
        opened.system.sync_folder(target)
        unfinished.replace(target / DATABASE)
        opened.system.sync_folder(target)
        opened.system.sync_folder(target.absolute().parent)


def _mark(copy: apsw.Connection) -> None:
    copy.execute("PRAGMA synchronous = FULL")
    copy.execute("BEGIN IMMEDIATE")
    copy.execute("DELETE FROM files WHERE state <> ?", (FILE_ATTACHED,))
    set_meta(copy, {RESTORED: b"\x01"})
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
