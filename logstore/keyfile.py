"""The file that holds the author's secret key.

One line of text: the 32-byte Ed25519 seed as 64 hex digits. The mode is 0600, and a file that
others may read is refused: a key that two machines sign with forks its logs.
"""

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .errors import KeyFileExposed, KeyFileMissing, KeyFileWrong, StoreExists, translated

if TYPE_CHECKING:
    from nacl.signing import SigningKey

KEY_FILE: Final = "author.key"
_BYTES_MAX: Final = 4096


def generated_key() -> "SigningKey":
    """A new one."""
    from nacl.signing import SigningKey

    return SigningKey.generate()


def write_key_file(path: Path, key: "SigningKey | bytes") -> None:
    """Writes a new key file and syncs it; never overwrites one, and leaves no part of one.

    `key`: the author's, or the secret bytes of another one that stands beside it.

    Raises StoreExists if there is a file already, and the errors of a disk.
    """
    _write_anew(path, bytes(key).hex().encode() + b"\n")


def other_keys(folder: Path) -> list[Path]:
    """The keys that stand in a store beside the author's: its gateways sign with them."""
    return sorted(each for each in folder.glob("*.key") if each.name != KEY_FILE)


def replace_key_file(path: Path, text: bytes, unfinished: Path) -> None:
    """Gives a key file another content, by way of a file beside it: one of the two is there."""
    with translated(path):
        unfinished.unlink(missing_ok=True)
        _write_anew(unfinished, text)
        unfinished.replace(path)
        _sync_folder(path.parent)


def _write_anew(path: Path, text: bytes) -> None:
    with translated(path):
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise StoreExists("the key file exists", path, "choose another name") from None
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            _sync_folder(path.parent)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_key_file(path: Path, author: bytes | None = None) -> "SigningKey":
    """The key in a key file, which has to be `author`'s if that is given.

    Raises KeyFileMissing, KeyFileExposed or KeyFileWrong.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_BYTES_MAX)
    except FileNotFoundError:
        raise KeyFileMissing(
            "the author's key file is missing", path, "put it back, or use key import"
        ) from None
    except OSError as error:
        raise KeyFileWrong(
            f"the author's key file cannot be read ({error.strerror})", path, "look at its mode"
        ) from error
    if stat.S_IMODE(mode) & 0o077:
        raise KeyFileExposed(
            f"other users may read the author's key (mode {stat.S_IMODE(mode):04o})",
            path,
            "chmod 600 it",
        )
    # It loads libsodium, which nobody needs who only reads.
    from nacl.signing import SigningKey

    try:
        key = SigningKey(bytes.fromhex(text.decode("ascii").strip()))
    except (ValueError, TypeError):
        raise KeyFileWrong(
            "the author's key file does not hold 64 hex digits", path, "restore it"
        ) from None
    if author is not None and bytes(key.verify_key) != author:
        raise KeyFileWrong(
            f"the key is that of {bytes(key.verify_key).hex()}, the store's author is "
            f"{author.hex()}",
            path,
            "put the right key file back",
        )
    return key
