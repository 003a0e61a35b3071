"""Payloads in files: those above 64 KiB, and unfinished ones.

Every file has a random name for its whole life, and a row in `files` that says what it is. A file
that is finished is not renamed: the row's state is what counts, and with it the rename, the sync of
the folder after it and a state between the two fall away.

The order that makes a crash harmless:
1. the row is committed, then the file is made and the folder synced: there is no file without a
   row, whatever happens, and a row without a file is one of which nothing was kept;
2. bytes, then sync, then the row says how many: what is beyond is cut at the next opening;
3. a payload is whole once its row says so, after hash, sync, and sync of the folder; with it the
   row gets the sums of its blocks, by which its readers see that it still is (blocks.py);
4. an entry takes a whole file over in the transaction that stores the entry;
5. what goes is first marked as garbage in the transaction that lets go of it, then removed.

What makes other processes harmless: a file is made or taken over (`claim`), and removed
(`remove`), in a write transaction that has asked for its row's state. There is one writer at a time
among all processes, so that nothing comes between the question and the act; what was read before is
a hint, of what to ask for. No other code makes or removes a payload file.

A file being written is locked by its writer, so garbage of the living is told from that of the
dead. `collect.lock` is shared by a backup while it copies; nothing is removed meanwhile.

Files are made ahead (`take_blank`): several, in one folder, cost two transactions and a sync of the
folder together, where each cost as much alone. A payload just above 64 KiB took three times as long
as one just below. A blank file is empty and locked by this process, and its row says `FILE_STAGING`
like that of any file whose payload nobody has named: of a process that was killed it is garbage.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from wire import LogKey, PayloadHasher, yamf_hash

from .arguments import IN_MEMORY
from .blocks import Summing
from .errors import READ_ONLY, StoreError, StoreFailed, StoreLocked, translated
from .hashing import Hashing
from .records import INLINE_BYTES_MAX, PayloadFile
from .rows import pack_u64, row_tag
from .schema import FILE_ATTACHED, FILE_GARBAGE, FILE_PARTIAL, FILE_STAGING, FILE_WHOLE
from .system import READ_BYTES_MAX, PayloadHandle, System

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    import apsw

    from .database import Database

PAYLOADS: Final = "payloads"
COLLECT_LOCK: Final = "collect.lock"
_ID_BYTES: Final = 16
_COLLECT_ROWS: Final = 256
_ASKED_AT_ONCE: Final = 64
_MARKS: Final = ", ".join("?" * _ASKED_AT_ONCE)
_COUNT_PARTS: Final = f"SELECT count(*) FROM files WHERE state IN (?, ?) AND id IN ({_MARKS})"  # noqa: S608 - marks
_BLANK_ATTEMPTS: Final = 100
BLANKS_MAX: Final = 16
"""Made ahead in the end. First one, then twice as many each time: who appends one large payload has
no use for more, and a file costs as much to remove."""
_REMOVABLE: Final = (FILE_STAGING, FILE_GARBAGE)
"""The states of files that nothing needs once nobody has locked them."""


@dataclass(frozen=True, slots=True)
class ArrivingFile:
    """The file of a payload that a sink is receiving; it stays the same when the sink is resumed.

    Two are equal if they are the same file.
    """

    _files: "PayloadFiles" = field(compare=False, repr=False)
    id: bytes

    def open(self) -> PayloadHandle | None:
        """Reads the file beside its sink; None if it is gone.

        What is beyond what the sink has written may be anything, and nothing of it is verified. The
        file stays readable through the handle when it has been completed or removed.
        """
        return self._files.open_for_reading(self.id)


class Staged(NamedTuple):
    """A payload that is ready for a transaction: its bytes, or a synced file that is locked."""

    payload_bytes: int
    payload_hash: bytes
    inline: bytes | None
    id: bytes = b""
    handle: PayloadHandle | None = None
    sums: bytes | None = None


class Claimed(NamedTuple):
    """A file that is locked, and what its row says of it."""

    handle: PayloadHandle
    synced: int
    sources: str


def _read_stream(stream: BinaryIO) -> bytes:
    """Raises StoreFailed: that a caller's stream fails says nothing of the disk."""
    try:
        piece = stream.read(READ_BYTES_MAX)
    except OSError as error:
        raise StoreFailed(
            f"the payload cannot be read ({error})", "stream", "look at where it comes from"
        ) from error
    if not isinstance(piece, bytes | bytearray | memoryview):
        raise TypeError(f"a payload's stream has to give bytes, not {type(piece).__name__}")
    return bytes(piece)


def _views(payload: bytes | bytearray | memoryview) -> Iterable[bytes | memoryview]:
    """What is in memory, not to be copied there once more."""
    if type(payload) is bytes:
        return (payload,)
    # What may change is copied to be hashed: piece by piece, and not all of it at once.
    view = memoryview(payload).cast("B")
    return (view[at : at + READ_BYTES_MAX] for at in range(0, len(view), READ_BYTES_MAX))


def write_all(handle: PayloadHandle, data: bytes | memoryview, offset: int) -> None:
    """Writes all of `data`; a disk may take less than it was given without an error."""
    view = memoryview(data)
    while view:
        count = handle.write(view, offset)
        if count <= 0:
            raise OSError(5, "a write took no bytes")
        offset += count
        view = view[count:]


class ReadThrough(NamedTuple):
    """What a file holds from its start on."""

    size: int
    hasher: PayloadHasher
    sums: Summing


def read_through(handle: PayloadHandle, bytes_max: int | None = None) -> ReadThrough:
    """Reads a file to its end, or `bytes_max` bytes of it at most."""
    hasher, sums, size = PayloadHasher(), Summing(), 0
    while bytes_max is None or size < bytes_max:
        count = READ_BYTES_MAX if bytes_max is None else min(READ_BYTES_MAX, bytes_max - size)
        data = handle.read(count, size)
        if not data:
            break
        hasher.update(data)
        sums.update(data)
        size += len(data)
    return ReadThrough(size, hasher, sums)


def file_tag(
    state: int,
    name: tuple[bytes | None, bytes | None, bytes | None],
    payload_hash: bytes | None,
    payload_bytes: bytes | None,
    synced: int,
    sources: str,
) -> int:
    """The tag of a row of `files`. Of its sums it says nothing: they do that themselves."""
    return row_tag(state, *name, payload_hash, payload_bytes, synced, sources)


def set_file_state(
    db: "apsw.Connection",
    id_: bytes,
    state: int,
    *,
    synced: int | None = None,
    sources: str = "",
    sums: bytes | None = None,
) -> bool:
    """Changes the row of a file that is no entry's; False if there is none (any more).

    Garbage stays garbage. `sums`: of a file that is whole; they hold no longer than this state.
    """
    row = db.execute(
        "SELECT author, log_id, seq, payload_hash, payload_bytes, synced, sources FROM files"
        " WHERE id = ? AND state NOT IN (?, ?)",
        (id_, FILE_ATTACHED, FILE_GARBAGE),
    ).fetchone()
    if row is None:
        return False
    author, log_id, seq, payload_hash, payload_bytes, old, old_sources = row
    synced = old if synced is None else synced
    sources = sources or old_sources
    tag = file_tag(state, (author, log_id, seq), payload_hash, payload_bytes, synced, sources)
    db.execute(
        "UPDATE files SET state = ?, synced = ?, sources = ?, tag = ?, sums = ? WHERE id = ?",
        (state, synced, sources, tag, sums, id_),
    )
    return True


def unnamed_tag(state: int) -> int:
    """The tag of a row that says nothing but its file's state."""
    return file_tag(state, (None, None, None), None, None, 0, "")


ADD_UNNAMED: Final = "INSERT INTO files(id, state, synced, sources, tag) VALUES (?, ?, 0, '', ?)"
"""Of an id, a state, and the tag of an unnamed row in it."""
LET_GO: Final = (
    f"UPDATE files SET state = {FILE_GARBAGE}, author = NULL, log_id = NULL, seq = NULL,"  # noqa: S608 (constants)
    " payload_hash = NULL, payload_bytes = NULL, synced = 0, sources = '',"
    f" tag = {unnamed_tag(FILE_GARBAGE)}, sums = NULL WHERE id = ?"
)
"""Makes a file, whatever it is, garbage."""


def detach_file(db: "apsw.Connection", id_: bytes) -> None:
    """Makes an entry's file garbage, to be removed by `PayloadFiles.collect` after the commit."""
    db.execute(LET_GO, (id_,))


def attach_file(db: "apsw.Connection", key: LogKey, seq: int, given: PayloadFile | Staged) -> None:
    """Makes a file the payload of an entry. It keeps the sums that it has, if it brings none."""
    size = given.payload_bytes
    file = PayloadFile(given.id, key, seq, size, given.payload_hash)
    sums = given.sums if isinstance(given, Staged) else None
    _name_file(db, given.id, FILE_ATTACHED, file, size, "", sums)


def load_sums(db: "apsw.Connection", id_: bytes) -> bytes | None:
    """What the row of a file says of its blocks, if anything."""
    sums: bytes | None = db.execute("SELECT sums FROM files WHERE id = ?", (id_,)).get
    return sums


def name_blank(db: "apsw.Connection", id_: bytes, wanted: PayloadFile, source: str) -> None:
    """Makes a blank file the part of a payload, none of which is there yet."""
    _name_file(db, id_, FILE_PARTIAL, wanted, 0, source)


def _name_file(
    db: "apsw.Connection",
    id_: bytes,
    state: int,
    payload: PayloadFile,
    synced: int,
    sources: str,
    sums: bytes | None = None,
) -> None:
    name = (payload.key.author, pack_u64(payload.key.log_id), pack_u64(payload.seq))
    size = pack_u64(payload.payload_bytes)
    tag = file_tag(state, name, payload.payload_hash, size, synced, sources)
    db.execute(
        "UPDATE files SET state = ?, author = ?, log_id = ?, seq = ?, payload_hash = ?,"
        " payload_bytes = ?, synced = ?, sources = ?, tag = ?, sums = coalesce(?, sums)"
        " WHERE id = ?",
        (state, *name, payload.payload_hash, size, synced, sources, tag, sums, id_),
    )


class PayloadFiles:
    """The folder `payloads` of a store."""

    def __init__(self, database: "Database", system: System, folder: Path | None) -> None:
        self._database = database
        self._system = system
        self._folder = folder
        self._temporary: TemporaryDirectory[str] | None = None
        self._named: set[Path] = set()
        """Folders whose names are on disk for certain: this has synced the one that they are in."""
        self._blank: dict[bytes, PayloadHandle] = {}
        self._blank_lock = Lock()
        """Held while they are made, too. Nobody takes it who is in a transaction."""
        self._blanks_next = 1

    @property
    def root(self) -> Path:
        """The folder that holds the files; a temporary one for a store in memory."""
        if self._folder is not None:
            return self._folder / PAYLOADS
        if self._temporary is None:
            from tempfile import TemporaryDirectory

            self._temporary = TemporaryDirectory(prefix="bamboo-store-")
        return Path(self._temporary.name)

    def close(self) -> None:
        """Removes what was made ahead, and the temporary folder of a store in memory.

        Before the database is closed.
        """
        with self._blank_lock:
            blank = list(self._blank.values())
            self._blank.clear()
        for handle in blank:
            handle.close()
        if blank:
            self.tidy()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def path_of(self, id_: bytes) -> Path:
        """Where a payload file lies."""
        name = id_.hex()
        return self.root / name[:2] / name

    def open_for_reading(self, id_: bytes) -> PayloadHandle | None:
        """A file beside its writer, if there is one; None if it is gone."""
        with translated(self._database.where):
            try:
                return self._system.open_file(self.path_of(id_), write=False)
            except FileNotFoundError:
                return None

    def claim(self, id_: bytes, states: Collection[int]) -> Claimed | None:
        """The file of a row, locked, and made if it is not there; None if it cannot be had.

        Either another has it, or its row is gone or in none of the states. The file's name is on
        disk when this returns: a crash may have taken a file and left its row.
        """
        return self._claim((id_,), states)[0]

    def _claim(self, ids: Collection[bytes], states: Collection[int]) -> list[Claimed | None]:
        with translated(self._database.where), ExitStack() as opened:
            claimed: list[Claimed | None] = []
            made: list[Path] = []
            failed: OSError | None = None
            with self._database.write() as transaction:
                for id_ in ids:
                    row = transaction.db.execute(
                        "SELECT state, synced, sources FROM files WHERE id = ?", (id_,)
                    ).fetchone()
                    if row is None or row[0] not in states:
                        claimed.append(None)
                        continue
                    try:
                        handle = self._make(self.path_of(id_), made)
                    except OSError as error:
                        # It says nothing of the database, whose connections would be given up.
                        failed = error
                        break
                    opened.callback(handle.close)
                    if handle.try_lock():
                        claimed.append(Claimed(handle, row[1], row[2]))
                    else:
                        handle.close()
                        claimed.append(None)
            if failed is not None:
                raise failed
            had = zip(ids, claimed, strict=True)
            self._sync_folders({self.path_of(id_).parent for id_, found in had if found}, made)
            opened.pop_all()
            return claimed

    def _make(self, path: Path, made: list[Path]) -> PayloadHandle:
        """Opens a file, made if need be; the folders that had to be made for it go to `made`."""
        # Tools that copy a store may leave empty folders out.
        folders = (path.parent.parent, path.parent)
        made += [folder for folder in folders if self._system.make_folder(folder)]
        return self._system.open_file(path, create=True)

    def _sync_folders(self, folders: set[Path], made: Collection[Path]) -> None:
        """Brings the names of new files to disk, and those of the folders that they are in."""
        if self.root in made:
            self._system.sync_folder(self.root.parent)
        if made or not folders <= self._named:
            # Whoever made the folder may have been killed before this.
            self._system.sync_folder(self.root)
            self._named |= folders
        for folder in sorted(folders):
            self._system.sync_folder(folder)

    def any_dropped(self, ids: Collection[bytes]) -> bool:
        """Whether any of the files is no part of a payload any more; an entry's is none either."""
        asked = list(set(ids))
        for at in range(0, len(asked), _ASKED_AT_ONCE):
            some = asked[at : at + _ASKED_AT_ONCE]
            padded = (*some, *[b""] * (_ASKED_AT_ONCE - len(some)))
            with self._database.read() as db:
                count = db.execute(_COUNT_PARTS, (FILE_PARTIAL, FILE_WHOLE, *padded)).get
            if count < len(some):
                return True
        return False

    def take_blank(self) -> tuple[bytes, PayloadHandle]:
        """A file that is made, locked and empty, and that nobody else has; its row is to be told
        what it is for (`name_blank`), or an entry takes it over."""
        with self._blank_lock:
            for _ in range(_BLANK_ATTEMPTS):
                while self._blank:
                    id_, handle = self._blank.popitem()
                    if self._system.file_size(self.path_of(id_)) is not None:
                        return id_, handle
                    # It has waited for long, and somebody has tidied empty files away. What would
                    # be written to it would be acknowledged and be in no folder.
                    handle.close()
                count = self._blanks_next
                try:
                    self._make_blank(count)
                except StoreError:
                    if count == 1:
                        raise
                    # Where handles or room run short there may be enough for the one.
                    self._blanks_next = 1
                else:
                    self._blanks_next = min(2 * count, BLANKS_MAX)
        raise StoreLocked(
            "other processes are in the way of a new payload file", self.root, "try again"
        )

    def give_back(self, id_: bytes, handle: PayloadHandle) -> None:
        """A blank file was not used, and its row is as it was."""
        with self._blank_lock:
            self._blank[id_] = handle

    def _make_blank(self, count: int) -> None:
        folder = self._system.random_bytes(1)
        ids = [folder + self._system.random_bytes(_ID_BYTES - 1) for _ in range(count)]
        tag = unnamed_tag(FILE_STAGING)
        with self._database.write() as transaction:
            transaction.db.executemany(ADD_UNNAMED, [(id_, FILE_STAGING, tag) for id_ in ids])
        # Between the two another process may have taken a row for that of a dead one.
        for id_, claimed in zip(ids, self._claim(ids, (FILE_STAGING,)), strict=True):
            if claimed is not None:
                self._blank[id_] = claimed.handle

    def stage(self, payload: bytes | Path | BinaryIO) -> Staged:
        """Hashes a payload and, above 64 KiB, brings it to disk. `release` it afterwards.

        Nothing larger than 64 KiB is read into memory whole.
        """
        if isinstance(payload, IN_MEMORY):
            # First: nearly all are, and a batch has a thousand.
            if len(payload) <= INLINE_BYTES_MAX:
                return Staged(len(payload), yamf_hash(payload), bytes(payload))
            return self._stage_file(_views(payload))
        if isinstance(payload, Path):
            with translated(payload), payload.open("rb") as file:
                return self._stage_pieces(lambda: file.read(READ_BYTES_MAX))
        return self._stage_pieces(lambda: _read_stream(payload))

    def _stage_pieces(self, read: Callable[[], bytes]) -> Staged:
        # A pipe hands out less than it was asked for, so what is small is known only at its end.
        head = bytearray()
        while len(head) <= INLINE_BYTES_MAX:
            piece = read()
            if not piece:
                return Staged(len(head), yamf_hash(head), bytes(head))
            head += piece
        return self._stage_file(chain((bytes(head),), iter(read, b"")))

    def _stage_file(self, pieces: Iterable[bytes | memoryview]) -> Staged:
        id_, handle = self.take_blank()
        try:
            with translated(self._database.where), Hashing() as hashing:
                size, sums = 0, Summing()
                for piece in pieces:
                    hashing.update(piece)
                    sums.update(piece)
                    write_all(handle, piece, size)
                    size += len(piece)
                handle.sync()
        except BaseException:
            handle.close()
            self.tidy()
            raise
        return Staged(size, hashing.digest_yamf(), None, id_, handle, sums.encode())

    def release(self, staged: Iterable[Staged]) -> None:
        """Lets go of staged payloads; the files that no entry took over go away."""
        files = [each.handle for each in staged if each.handle is not None]
        for handle in files:
            handle.close()
        if files:
            self.tidy()

    def tidy(self) -> None:
        """Like `collect`, for when something else has been done: what fails is left for later."""
        with suppress(StoreError):
            self.collect()

    def collect(self) -> int:
        """Removes files that are garbage, or whose writer died; returns how many."""
        with translated(self._database.where):
            return self._collect()

    def _collect(self) -> int:
        collected = 0
        while True:
            with self._database.read() as db:
                # Garbage first: what others have made ahead would be in its way.
                rows = db.execute(
                    "SELECT id FROM files WHERE state <> 3 AND state IN (?, ?)"
                    " ORDER BY state DESC LIMIT ?",
                    (*_REMOVABLE, _COLLECT_ROWS),
                )
                candidates = [id_ for (id_,) in rows if id_ not in self._blank]
            removed = len(self.remove(candidates))
            collected += removed
            if len(candidates) < _COLLECT_ROWS or not removed:
                return collected

    def remove(self, ids: Collection[bytes]) -> list[bytes]:
        """Removes those of the files that nothing needs, with their rows; returns which.

        Asked here, whatever the caller knows: garbage, what a writer left behind that died, and
        files without a row. Nothing while a backup is made or another process removes files.
        """
        if not ids:
            return []
        removed = []
        with translated(self._database.where), self._collect_lock() as free:
            if not free:
                return []
            with self._database.write(frees=True) as transaction:
                for id_ in ids:
                    query = "SELECT state FROM files WHERE id = ?"
                    row = transaction.db.execute(query, (id_,)).fetchone()
                    if (row is None or row[0] in _REMOVABLE) and self._remove_free(id_):
                        transaction.db.execute("DELETE FROM files WHERE id = ?", (id_,))
                        removed.append(id_)
        return removed

    def _remove_free(self, id_: bytes) -> bool:
        """Removes a file unless somebody has locked it; only `remove` may."""
        path = self.path_of(id_)
        with suppress(FileNotFoundError), self._system.open_file(path) as handle:
            if not handle.try_lock():
                return False
            self._system.remove_file(path)
        return True

    def listed(self) -> list[bytes]:
        """The names of all files that there are."""
        ids = []
        for folder in self._system.list_folder(self.root):
            for name in self._system.list_folder(self.root / folder):
                try:
                    ids.append(bytes.fromhex(name))
                except ValueError:
                    continue
        return ids

    def unknown(self, ids: list[bytes]) -> list[bytes]:
        """Those of the files that have no row, and are still there."""
        with self._database.read() as db:
            known = {id_ for (id_,) in db.execute("SELECT id FROM files")}
        with translated(self._database.where):
            # What was removed meanwhile was removed before its row.
            sizes = ((id_, self._system.file_size(self.path_of(id_))) for id_ in ids)
            return [id_ for id_, size in sizes if id_ not in known and size is not None]

    @contextmanager
    def _collect_lock(self) -> Iterator[bool]:
        if self._folder is None:
            yield True
            return
        with self._system.open_file(self._folder / COLLECT_LOCK, create=True) as lock:
            yield lock.try_lock()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Nothing is removed by any process while the block runs.

        Without a lock where that can only be read, and nobody has ever removed anything.
        """
        if self._folder is None:
            yield
            return
        path = self._folder / COLLECT_LOCK
        with ExitStack() as opened:
            try:
                lock = self._system.open_file(path, create=True)
            except OSError as error:
                if error.errno not in READ_ONLY:
                    raise
                with suppress(FileNotFoundError):
                    lock = opened.enter_context(self._system.open_file(path, write=False))
                    lock.share()
            else:
                opened.enter_context(lock).share()
            yield
