"""Making a store, finding one, and whether its own logs may be appended to."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nacl.signing import SigningKey

from .database import DATABASE, Database
from .errors import (
    KeyFileWrong,
    OwnLogsReadOnly,
    StoreDamaged,
    StoreError,
    StoreExists,
    StoreFull,
    StoreLocked,
    translated,
)
from .files import PAYLOADS
from .identity import (
    IDENTITY,
    IMPORTED,
    RESTORED,
    place_of,
    read_witness,
    why_read_only,
    write_witness,
)
from .keyfile import KEY_FILE, read_key_file, write_key_file
from .nodelock import NODE_LOCK, NodeLock
from .reserve import OPENING_BYTES, Reserve
from .rows import row_tag
from .system import System

if TYPE_CHECKING:
    import apsw

AUTHOR: Final = "author"
STORE_ID: Final = "store id"
_STORE_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Opened:
    """What a `Store` is made of."""

    database: Database
    system: System
    folder: Path | None
    author: bytes
    signing_key: SigningKey | None
    """None: read from the key file when it is needed."""

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
    folder: Path, signing_key: SigningKey | None, system: System, *, imported: bool = False
) -> Opened:
    """A new store. A `create` that was interrupted is continued with the key it wrote.

    Raises StoreExists, KeyFileError, and the errors of a disk; StoreError for what `check_path`
    refuses.
    """
    check_path(folder)
    with translated(folder):
        folder.mkdir(parents=True, exist_ok=True)
        database = Database(folder, system)
        taken = system.file_size(folder / DATABASE) is not None and database.is_created()
        if not taken:
            (folder / PAYLOADS).mkdir(exist_ok=True)
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
                *([(RESTORED, IMPORTED)] if imported else []),
            ]
        )
        system.sync_folder(folder)
        system.sync_folder(folder.absolute().parent)
    database.reserve.set_aside()
    return Opened(database, system, folder, author, key)


def _new_key(path: Path, signing_key: SigningKey | None) -> SigningKey:
    if path.exists():
        old = read_key_file(path)
        if signing_key is not None and bytes(signing_key) != bytes(old):
            raise KeyFileWrong("there is another author's key already", path, "move it away")
        return old
    key = signing_key or SigningKey.generate()
    write_key_file(path, key)
    return key


def create_in_memory(signing_key: SigningKey | None, system: System) -> Opened:
    """A store of which nothing survives `close`."""
    key = signing_key or SigningKey.generate()
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
    try:
        try:
            database.open()
        except StoreFull:
            if readonly or not database.reserve.spend(OPENING_BYTES):
                raise
            database.open()
        if database.is_old and not readonly:
            _migrate(database, folder, system)
        author = _author_of(database)
    except BaseException:
        database.close()
        raise
    if not readonly:
        database.reserve.set_aside()
    return Opened(database, system, folder, author, None)


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


def _author_of(database: Database) -> bytes:
    with database.read() as db:
        author = load_meta(db).get(AUTHOR)
    if author is None or len(author) != 32:
        raise StoreDamaged("the store does not say whose it is", database.where, "restore a backup")
    return author


def load_meta(db: "apsw.Connection") -> dict[str, bytes]:
    """What the store says of itself. Raises StoreDamaged where a tag is wrong."""
    meta = {}
    for name, value, tag in db.execute("SELECT name, value, tag FROM meta"):
        if tag != row_tag(name, value):
            raise StoreDamaged(f"the row {name!r} of meta is damaged", "meta", "restore a backup")
        meta[name] = value
    return meta


def set_meta(db: "apsw.Connection", values: Mapping[str, bytes | None]) -> None:
    """Changes what the store says of itself; None removes a row."""
    for name, value in values.items():
        db.execute("DELETE FROM meta WHERE name = ?", (name,))
        if value is not None:
            db.execute("INSERT INTO meta VALUES (?, ?, ?)", (name, value, row_tag(name, value)))


def own_logs_read_only(opened: Opened) -> OwnLogsReadOnly | None:
    """The reason why own logs must not be appended to, None if they may."""
    if opened.folder is None:
        return None
    with translated(opened.folder):
        signed = read_witness(opened.folder)
        with opened.database.read() as db:
            meta = load_meta(db)
            authored: int = db.execute("SELECT authored FROM counters").get
        return why_read_only(opened.folder, opened.system, meta, signed, authored)


def own_entries_lost(opened: Opened) -> int:
    """How many entries were signed here, by the file beside the database, and are not held."""
    if opened.folder is None:
        return 0
    with translated(opened.folder), opened.database.read() as db:
        query = "SELECT coalesce(sum(entries), 0) FROM logs WHERE author = ?"
        held: int = db.execute(query, (opened.author,)).get
        return max(0, read_witness(opened.folder) - held)


def confirm_identity(opened: Opened) -> None:
    """Says that this store is the only one, and as new as its author's peers know."""
    if opened.folder is None:
        return
    with translated(opened.folder):
        signed = read_witness(opened.folder)
        with opened.database.write() as transaction:
            place = place_of(opened.folder, opened.system)
            set_meta(transaction.db, {IDENTITY: place, RESTORED: None})
            transaction.count_authored(max(0, signed - transaction.authored))
            authored = transaction.authored
        write_witness(opened.folder, authored)
