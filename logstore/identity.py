"""Whether this store is where it was and as new as it was (bamboo.md One's own logs).

Signing a number twice forks a log for ever, and the usual ways to it are a store that was copied to
another machine, a backup that was put back, and a tail that was lost. So the database remembers its
place: the machine, and the inodes of its folder and of itself with the times when they were made,
as an inode is given to the next file. And the machine remembers what was signed (witness.py). If
the place differs or the database is behind, own logs are read-only until `Store.confirm_identity`;
a database in its place that was behind goes on by itself once peers have brought back all of it.

The generation number of an inode is not part of the place: asking for it takes a descriptor of the
database, and to close one lets go of all locks that SQLite has on the file. The times say the same.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .database import DATABASE
from .errors import OwnLogsReadOnly, StoreLocked, translated
from .meta import load_meta, set_meta
from .rows import pack_u64, unpack_u64
from .witness import LINEAGE_BYTES, Damaged, Held, Newest, Noted, Witness

if TYPE_CHECKING:
    import apsw

    from .database import Database, Transaction
    from .records import Appended
    from .system import System

RESTORED: Final = "restored"
"""The row of `meta` that a backup carries, and a store whose key was in use before."""
BACKUP: Final = b"\x01"
IMPORTED: Final = b"\x02"
"""Which of the two."""
IDENTITY: Final = "identity"
LINEAGE: Final = "lineage"
_MACHINE: Final = slice(0, 16)
_INODES: Final = slice(16, 32)
_BIRTHS: Final = (slice(32, 40), slice(40, 48))
_COUNT_OF_OLD: Final = "authored"
"""Where earlier versions counted what was signed: 8 bytes and their inverse, beside the database.
Looked at until the first entry is signed with a witness.
"""
_REMEDY: Final = (
    "sync with the peers that follow your logs, then confirm the store's identity"
    " (`key confirm`); never do it for a copy while the other one is in use"
)


def place_of(folder: Path, system: "System") -> bytes:
    """What the database remembers of its place: machine, inodes, and when they were made."""
    # A machine's name for itself is nobody's business, so only a hash of it is kept.
    machine = blake2b(system.machine_id(), digest_size=16, person=b"bamboo-store").digest()
    paths = (folder, folder / DATABASE)
    numbers = [*map(system.inode, paths), *map(system.born_ns, paths)]
    return machine + b"".join(map(pack_u64, numbers))


def _differs(then: bytes, now: bytes) -> str | None:
    if then[_MACHINE] != now[_MACHINE]:
        return "the store comes from another machine"
    moved = then[_INODES] != now[_INODES]
    for birth in _BIRTHS:
        # Neither earlier versions nor every file system say when a file was made.
        known = [each for each in (then[birth], now[birth]) if each.strip(b"\0")]
        moved = moved or (len(known) == 2 and known[0] != known[1])
    return "the store was copied or restored" if moved else None


def new_lineage(system: "System") -> bytes:
    """A name for a line of databases of which each goes on from the one before."""
    return system.random_bytes(LINEAGE_BYTES)


class Identity:
    """Of one store: the place it remembers, and the witness of its author."""

    def __init__(self, database: "Database", folder: Path, system: "System", author: bytes) -> None:
        self._database = database
        self._folder = folder
        self._system = system
        self.author: Final = author
        self._has_signed = False
        self._has_lineage = False
        self._place: tuple[int, bytes] | None = None
        self.witness: Final = Witness(system, author)

    def settle(self, db: "apsw.Connection") -> None:
        """Brings the witness up to what the database shows, whenever that may be news.

        At opening, before anything is written: whoever writes changes the times of the files, so
        that nobody can look after him. And after a failure, before anything is read: a commit that
        was reported as failed may have happened, and what others get to see has been signed.
        """
        self._place = None
        found, authored = self.witness.read(), _authored(db)
        if not isinstance(found, Noted):
            return
        behind = self._why_behind(db, load_meta(db), authored, found)
        is_ahead = authored > found.signed
        is_settled = not self._is_open_question(found) and not is_ahead
        if is_settled if behind is None else found.is_exact:
            return
        with self.witness.locked(wait=False) as held:
            # Whoever signs or has signed meanwhile looks for himself.
            if held is None or held.read() != found:
                return
            if behind is None:
                self._take_as_found(db, held, found)
            elif self._is_open_question(found):
                # Nobody can tell any more once the machine has started again.
                held.write(replace(found, lineage=new_lineage(self._system)), sync=True)
            else:
                # It was in memory only, and what refuses the store has to outlast a power cut.
                held.write(found, sync=True)

    def _take_as_found(self, db: "apsw.Connection", held: Held, found: Noted) -> None:
        authored = _authored(db)
        settled = replace(
            found,
            signed=max(found.signed, authored),
            reserved=max(found.reserved, authored),
            newest=_newest(db, self.author) or found.newest,
        )
        held.write(settled, sync=authored > found.reserved)
        self.witness.looked_at = found

    def _is_open_question(self, found: Noted | Damaged | None) -> bool:
        if not isinstance(found, Noted) or found.is_exact:
            return False
        return found.boot != self.witness.boot and found != self.witness.looked_at

    def why_read_only(self) -> OwnLogsReadOnly | None:
        """The reason why own logs must not be appended to, None if they may."""
        with translated(self._folder):
            # Before the database: another process may be appending.
            found = self.witness.read()
            with self._database.read() as db:
                return self.judge(db, load_meta(db), _authored(db), found)

    def entries_lost(self) -> int:
        """How many own entries were signed on this machine and are not held."""
        with translated(self._folder):
            found = self.witness.read()
            with self._database.read() as db:
                return max(0, self.signed_before(found) - _held(db, self.author))

    @contextmanager
    def signing(self) -> Iterator["Signing"]:
        """The right to sign, for one process on this machine; to be taken before the database's.

        Raises StoreLocked.
        """
        with translated(self._folder), self.witness.locked() as held:
            assert held is not None
            self._draw_lineage()
            yield Signing(self, held)

    def _draw_lineage(self) -> None:
        """For a store of an earlier version, in a transaction of its own.

        Were it part of the first append, a kill could leave a witness of a lineage that nobody has.
        """
        if self._has_lineage:
            return
        with self._database.read() as db:
            self._has_lineage = LINEAGE in load_meta(db)
        if not self._has_lineage and not isinstance(self.witness.read(), Noted):
            with self._database.write() as transaction:
                if LINEAGE not in load_meta(transaction.db):
                    set_meta(transaction.db, {LINEAGE: new_lineage(self._system)})

    def confirm(self) -> None:
        """Says that this store is the only one, and as new as its author's peers know."""
        with translated(self._folder), self.witness.locked() as held:
            assert held is not None
            signed = self.signed_before(held.read())
            with self._database.write() as transaction:
                lineage = new_lineage(self._system)
                place = place_of(self._folder, self._system)
                meta = {IDENTITY: place, RESTORED: None, LINEAGE: lineage}
                set_meta(transaction.db, meta)
                transaction.count_authored(max(0, signed - transaction.authored))
                newest, count = _newest(transaction.db, self.author), transaction.authored
                # Before the commit: of another lineage than the witness, nobody may sign.
                held.replace(Noted(lineage, b"", count, count, newest, 0))
            self._forget_old_count()

    def note_signed(self, *, is_first: bool) -> None:
        """Something was signed; `is_first`: the machine had no witness before."""
        self._has_signed = True
        if is_first:
            self._forget_old_count()

    def close(self) -> None:
        """Leaves the witness exact."""
        if not self._has_signed:
            return
        self._has_signed = False
        with suppress(StoreLocked), self.witness.locked() as held:
            found = None if held is None else held.read()
            if held is not None and isinstance(found, Noted) and not found.is_exact:
                held.write(replace(found, reserved=found.signed), sync=True)

    # --- what is wrong --------------------------------------------------------------------------

    def judge(
        self,
        db: "apsw.Connection",
        meta: Mapping[str, bytes],
        authored: int,
        found: Noted | Damaged | None,
    ) -> OwnLogsReadOnly | None:
        """The reason by what was found in the database and in the witness, None if all is well."""
        if meta.get(RESTORED) == IMPORTED:
            signed = self.signed_before(found)
            known = f", with which {signed} entries were signed on this machine" if signed else ""
            return self._refusal(f"the store's key was imported{known}")
        if RESTORED in meta:
            return self._refusal("the store is a backup")
        differs = _differs(meta.get(IDENTITY, b""), self._current_place())
        if differs is not None:
            return self._refusal(differs)
        return self._why_behind(db, meta, authored, found)

    def _why_behind(
        self,
        db: "apsw.Connection",
        meta: Mapping[str, bytes],
        authored: int,
        found: Noted | Damaged | None,
    ) -> OwnLogsReadOnly | None:
        """The table of witness.py."""
        if isinstance(found, Damaged):
            return self._refusal(f"what was signed here is damaged in {self.witness.path}")
        signed = self.signed_before(found)
        if found is not None and meta.get(LINEAGE) != found.lineage:
            return self._refusal(
                f"another store, or a later state of this one, has signed {signed} entries of this"
                " author on this machine"
            )
        if authored < signed and _held(db, self.author) < signed:
            return self._refusal(
                f"the database knows {authored} own entries of {signed} that were signed here"
            )
        if found is None:
            return None
        if found.newest is not None and not _knows(db, self.author, found.newest):
            return self._refusal("the database lacks the newest own entry that was signed here")
        if self._is_open_question(found) and self._has_changed(found):
            return self._refusal(
                "the machine stopped while own entries were signed, and the store's files have"
                " changed since"
            )
        return None

    def _current_place(self) -> bytes:
        """Looked at anew when another file has the database's name: while it is open, no other
        file can have its inode.
        """
        inode = self._system.inode(self._folder / DATABASE)
        if self._place is None or self._place[0] != inode:
            self._place = inode, place_of(self._folder, self._system)
        return self._place[1]

    def _refusal(self, what: str) -> OwnLogsReadOnly:
        return OwnLogsReadOnly(what, f"{self._folder} (own logs are read-only)", _REMEDY)

    def _has_changed(self, found: Noted) -> bool:
        paths = [self._folder / name for name in (DATABASE, f"{DATABASE}-wal")]
        return self._system.changed_since_boot(paths, found.written_at)

    def signed_before(self, found: Noted | Damaged | None) -> int:
        """How many own entries were signed on this machine, as far as is known."""
        return found.signed if isinstance(found, Noted) else self._old_count()

    def _old_count(self) -> int:
        try:
            data = (self._folder / _COUNT_OF_OLD).read_bytes()
        except OSError:
            return 0
        count = unpack_u64(data[:8])
        return count if data[8:] == pack_u64(2**64 - 1 - count) else 0

    def _forget_old_count(self) -> None:
        with suppress(OSError):
            (self._folder / _COUNT_OF_OLD).unlink(missing_ok=True)


class Signing:
    """One append, from the comparison to the note that it has happened."""

    def __init__(self, identity: Identity, held: Held) -> None:
        self._identity = identity
        self._held = held
        self._found: Noted | None = None
        self._base: Noted | None = None

    def begin(self, transaction: "Transaction", count: int) -> None:
        """Compares, under the database's lock too, and reserves. Raises OwnLogsReadOnly."""
        identity, db = self._identity, transaction.db
        found, meta = self._held.read(), load_meta(db)
        reason = identity.judge(db, meta, transaction.authored, found)
        if reason is not None:
            raise reason
        # What was lost and has come back from peers was signed here too.
        transaction.count_authored(max(0, identity.signed_before(found) - transaction.authored))
        authored = transaction.authored
        lineage = meta[LINEAGE]
        if isinstance(found, Noted):
            # More than is reserved: another account has signed.
            base = replace(found, signed=authored, reserved=max(found.reserved, authored))
            if authored > found.signed:
                self._held.write(base, sync=False)
        else:
            newest = _newest(db, identity.author)
            base = Noted(lineage, b"", authored, authored, newest, 0)
        self._found = found if isinstance(found, Noted) else None
        self._base = self._held.reserve(base, count)

    def end(self, authored: int, newest: "Appended") -> None:
        """Notes what was signed. It has been committed, and nobody has it yet."""
        assert self._base is not None
        last = Newest(newest.key.log_id, newest.seq, newest.hash)
        self._held.write(replace(self._base, signed=authored, newest=last), sync=False)
        self._identity.note_signed(is_first=self._found is None)


def _authored(db: "apsw.Connection") -> int:
    authored: int = db.execute("SELECT authored FROM counters").get
    return authored


def _held(db: "apsw.Connection", author: bytes) -> int:
    query = "SELECT coalesce(sum(entries), 0) FROM logs WHERE author = ?"
    held: int = db.execute(query, (author,)).get
    return held


def _newest(db: "apsw.Connection", author: bytes) -> Newest | None:
    """One of the newest own entries that are held; any would do, and this one says the most."""
    row = db.execute(
        "SELECT logs.log_id, entries.seq, entries.hash FROM logs"
        " JOIN entries ON entries.log = logs.id AND entries.seq = logs.newest"
        " WHERE logs.author = ? ORDER BY logs.changed DESC LIMIT 1",
        (author,),
    ).fetchone()
    return None if row is None else Newest(unpack_u64(row[0]), unpack_u64(row[1]), row[2])


def _knows(db: "apsw.Connection", author: bytes, newest: Newest) -> bool:
    found = db.execute(
        "SELECT entries.hash FROM logs JOIN entries ON entries.log = logs.id"
        " WHERE logs.author = ? AND logs.log_id = ? AND entries.seq = ?",
        (author, pack_u64(newest.log_id), pack_u64(newest.seq)),
    ).fetchone()
    return found is not None and found[0] == newest.hash
