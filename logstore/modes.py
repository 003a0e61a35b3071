"""A store is its owner's: nobody else of the machine reads it (doors.md 5).

What a peer may not read, every user of its machine could, were the files open to all. A directory
that only its owner enters would do, until somebody moves or copies it with what is in it; so the
files are closed too, and neither depends on the umask. Stores that were made before are mended when
they are opened to write: the files first, the directory last, so that whoever is interrupted in
between begins anew.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600


def make_private_folder(path: Path) -> None:
    """Makes a directory, unless it is there, that its owner alone enters. Raises OSError.

    Those above it are as the umask has them: they are not the store's.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(FOLDER_MODE)
        # A umask takes rights away, which the owner may lack then.
        path.chmod(FOLDER_MODE)


def is_open_to_others(path: Path) -> bool:
    """Whether others than its owner may do anything with a file or directory."""
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
    except OSError:
        return False


def close_to_others(folder: Path, payloads: str, key_file: str) -> None:
    """Takes all rights of others from a store's directory, and from every file in it.

    Where the directory is closed, the payload files (in the directory `payloads`) are not looked
    at: there may be a million, and they are made closed. SQLite makes its own as it likes. What
    belongs to another user stays as it is, and so does the key file: whoever could read it may have
    done so, and nothing is signed with it before a person has seen to it (keyfile.py).
    """
    if is_open_to_others(folder):
        for place, folders, files in os.walk(folder / payloads):
            for name in files:
                _narrow(Path(place) / name, FILE_MODE)
            for name in folders:
                _narrow(Path(place) / name, FOLDER_MODE)
        _narrow(folder / payloads, FOLDER_MODE)
    with suppress(OSError):
        for each in folder.iterdir():
            if each.is_file() and each.name != key_file:
                _narrow(each, FILE_MODE)
    _narrow(folder, FOLDER_MODE)


def _narrow(path: Path, mode: int) -> None:
    with suppress(OSError):
        if not path.is_symlink() and is_open_to_others(path):
            path.chmod(mode)
