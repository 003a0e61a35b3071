"""Making a store, finding one, and whether its own logs may be appended to."""

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from .database import DATABASE, Database
from .errors import (
    KeyFileWrong,
    StoreDamaged,
    StoreError,
    StoreExists,
    StoreFull,
    StoreLocked,
    translated,
)
from .files import PAYLOADS
from .identity import IDENTITY, IMPORTED, LINEAGE, RESTORED, Identity, new_lineage, place_of
from .keyfile import KEY_FILE, generated_key, read_key_file, write_key_file
from .meta import load_meta
from .modes import close_to_others, make_private_folder
from .nodelock import NODE_LOCK, NodeLock
from .reserve import OPENING_BYTES, Reserve
from .system import System

if TYPE_CHECKING:
    import apsw
    from nacl.signing import SigningKey

AUTHOR: Final = "author"
STORE_ID: Final = "store id"
_STORE_ID_BYTES: Final = 16


class Opened(NamedTuple):
    """What a `Store` is made of."""

    database: Database
    system: System
    folder: Path | None
    author: bytes
    signing_key: "SigningKey | None"
    """None: read from the key file when it is needed."""
    identity: Identity | None = None
    """None in memory, which nobody restores."""

    @property
    def reserve(self) -> Reserve:
        """Room for the day when the disk is full."""
        return self.database.reserve


def check_path(path: Path) -> None:
    """Raises StoreError if no database can be there, whatever the disk holds."""
    if "\0" in str(path):
        raise StoreError("no file name has a zero byte", path, "choose another one")
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise StoreError(
            "the name of a store has to be UTF-8", path, "choose another one"
        ) from None


def create_store(
    folder: Path, signing_key: "SigningKey | None", system: System, *, imported: bool = False
) -> Opened:
    """A new store. A `create` that was interrupted is continued with the key it wrote.

    Raises StoreExists, KeyFileError, and the errors of a disk; StoreError for what `check_path`
    refuses.
    """
    check_path(folder)
    with translated(folder):
        make_private_folder(folder)
        database = Database(folder, system)
        taken = system.file_size(folder / DATABASE) is not None and database.is_created()
        if not taken:
            make_private_folder(folder / PAYLOADS)
    if taken:
        database.close()
        raise StoreExists("there is a store already", folder, "choose another directory")
    key = _new_key(folder / KEY_FILE, signing_key)
    author = bytes(key.verify_key)
    with translated(folder):
        database.create()
        database.create_tables(
            [
                (AUTHOR, author),
                (STORE_ID, system.random_bytes(_STORE_ID_BYTES)),
                (IDENTITY, place_of(folder, system)),
                (LINEAGE, new_lineage(system)),
                *([(RESTORED, IMPORTED)] if imported else []),
            ]
        )
        system.sync_folder(folder)
        system.sync_folder(folder.absolute().parent)
    database.reserve.set_aside()
    close_to_others(folder, PAYLOADS, KEY_FILE)
    identity = Identity(database, folder, system, author)
    database.look = identity.settle
    return Opened(database, system, folder, author, key, identity)


def _new_key(path: Path, signing_key: "SigningKey | None") -> "SigningKey":
    if path.exists():
        old = read_key_file(path)
        if signing_key is not None and bytes(signing_key) != bytes(old):
            raise KeyFileWrong("there is another author's key already", path, "move it away")
        return old
    key = signing_key or generated_key()
    write_key_file(path, key)
    return key


def create_in_memory(signing_key: "SigningKey | None", system: System) -> Opened:
    """A store of which nothing survives `close`."""
    key = signing_key or generated_key()
    author = bytes(key.verify_key)
    database = Database(None, system)
    database.create_tables([(AUTHOR, author), (STORE_ID, system.random_bytes(_STORE_ID_BYTES))])
    return Opened(database, system, None, author, key)


def open_store(folder: Path, system: System, *, readonly: bool) -> Opened:
    """An existing store, brought to this version's format unless it is only read.

    Raises NotAStore, StoreTooNew, StoreDamaged, StoreReadOnly, StoreLocked and others.
    """
    check_path(folder)
    database = Database(folder, system, readonly=readonly)
    identity: Identity | None = None

    def look(db: "apsw.Connection") -> None:
        nonlocal identity
        identity = identity or Identity(database, folder, system, _author_of(database, db))
        if not readonly:
            identity.settle(db)

    database.look = look
    try:
        try:
            database.open()
        except StoreFull:
            if readonly or not database.reserve.spend(OPENING_BYTES):
                raise
            database.open()
        if database.is_old and not readonly:
            _migrate(database, folder, system)
    except BaseException:
        database.close()
        raise
    if not readonly:
        database.reserve.set_aside()
        close_to_others(folder, PAYLOADS, KEY_FILE)
    assert identity is not None
    return Opened(database, system, folder, identity.author, None, identity)


def _migrate(database: Database, folder: Path, system: System) -> None:
    """Brings an earlier format to this one, while no node of an earlier version serves the store.

    Raises StoreLocked.
    """
    with translated(folder):
        system.open_file(folder / NODE_LOCK, create=True).close()
    # Shared, so that two processes may come to do it at once: one finds it done by the other.
    with NodeLock.kept_free(folder) as free:
        if not free:
            raise StoreLocked(
                "a node of an earlier version is serving this store, which has another format",
                folder,
                "end that node, and start it with this version",
            )
        database.migrate()


def _author_of(database: Database, db: "apsw.Connection") -> bytes:
    author = load_meta(db).get(AUTHOR)
    if author is None or len(author) != 32:
        raise StoreDamaged("the store does not say whose it is", database.where, "restore a backup")
    return author
