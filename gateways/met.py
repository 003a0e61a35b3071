"""Which logs of a store say that they are a system's, and what is new in them.

A gateway that serves many logs derives its side table from all of them. It has met a log once entry
1 was read, whatever that says; those that declare something of the system are followed from then
on. The change feed of the store says in which logs anything is new: the table remembers up to which
of its numbers it has come, so that bringing it on costs what is new, and starting over what is
declared. What came behind later entries, or whose payload did, is found by walking the feed once
for all logs that have such gaps.

All of it is in the side table, and in the transaction that says so. What a process remembered of a
log beside it would outlive a transaction that is rolled back, and that log would never be met. And
since a table may be put beside a store that it was not derived from, or one that was put back and
has grown again past the same number, the newest entry that was applied stands beside its number.

A damaged entry counts as one that is not held, until it or another of its log has come anew: it
keeps nobody from the other logs.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import apsw

from logstore import PayloadState, Seldom, Store, StoreDamaged, StoredEntry
from wire import LogKey

from .applied import APPLIED_COLUMNS, applied_ingest, applied_row
from .prefix import sound_entries, sound_entry
from .side_table import SideTable, pack_u64, unpack_u64

log = logging.getLogger(__name__)

NOTHING: Final = 0
"""The kind of a log that declares nothing of the system: it is met, and not read again."""
_CHANGES: Final = 10_000


class MetLog(NamedTuple):
    """A log that was met."""

    id: int
    """In the side table."""
    key: LogKey
    kind: int
    seq: int
    """The last entry that was given out as news; 1 of one that is new."""
    has_gaps: bool
    """Whether an entry up to there, or its payload, was not held then."""
    is_new: bool
    """Whether it was met just now."""


DeclaredRow = tuple[int, *tuple[int | str | bytes | None, ...]]
"""A kind other than `NOTHING`, and the values of the system's own columns."""
Declare = Callable[[StoredEntry], DeclaredRow | None]
"""What entry 1 of a log declares, None: nothing of the system. A large one has no payload."""
News = Callable[[apsw.Connection, MetLog, Iterator[StoredEntry], Iterator[StoredEntry]], bool]
"""Takes what is new in a log that declares something, in the transaction of the side table: entries
up to `seq` that are late, and fresh ones behind it, all with their payloads. Both are read while
they are taken, and count as taken once the fresh ones are taken to their end; who leaves them is
given them again. Returns whether the gateway has to know of it."""
Forgotten = Callable[[apsw.Connection], object]
"""All that was derived is to be forgotten, in the transaction of the side table."""


class Met:
    """The logs of a store as the side table of one system has met them. Blocks.

    `seldom` says what is damaged. `columns`: of the system, with their types, behind those of the
    table `logs` that are the same for all; what `declare` returns fills them.
    """

    def __init__(
        self,
        store: Store,
        seldom: Seldom,
        columns: Sequence[str] = (),
        *,
        declare: Declare,
        news: News,
        forgotten: Forgotten,
    ) -> None:
        self._store = store
        self._seldom = seldom
        self._declare = declare
        self._news = news
        self._forgotten = forgotten
        self._is_ours = False
        """Whether the table was found to be this store's: a number that is the same may be, in a
        file that was there, that of another history."""
        own = "".join(f", {column}" for column in columns)
        self.statements: Final = (
            f"CREATE TABLE applied({', '.join(APPLIED_COLUMNS)})",
            (
                "CREATE TABLE logs(id INTEGER PRIMARY KEY, author BLOB NOT NULL,"
                " log_id BLOB NOT NULL, seq BLOB NOT NULL, gaps INTEGER NOT NULL,"
                f" kind INTEGER NOT NULL{own})"
            ),
            "CREATE UNIQUE INDEX logs_by_key ON logs(author, log_id)",
        )
        """Make the tables of what was met."""
        names = "".join(f", {column.partition(' ')[0]}" for column in columns)
        self._insert = (
            f"INSERT INTO logs(author, log_id, seq, gaps, kind{names})"  # noqa: S608 (constants)
            f" VALUES (?, ?, ?, 0, ?{', ?' * len(columns)})"
        )
        self._nothing: DeclaredRow = (NOTHING, *(None for _ in columns))

    def bring_on(self, table: SideTable) -> bool:
        """Applies what is new in the store, in one transaction; whether any of `news` said so.

        Raises StoreError.
        """
        # Asked of the table, not remembered: one that was damaged has been made anew, and is empty.
        position: int | None = table.look(
            lambda db: (
                db.execute("SELECT ingest FROM applied").get if self._is_ours else self._applied(db)
            )
        )
        has_news = position != self._store.position() and table.run(self._advance)
        self._is_ours = True
        return has_news

    def _advance(self, db: apsw.Connection) -> bool:
        before = self._applied(db)
        if before is None:
            db.execute("DELETE FROM logs")
            self._forgotten(db)
            before = 0
        position, changed = self._store.changed_logs(before)
        met = [each for key in changed if (each := self._load(db, key) or self._meet(db, key))]
        declaring = [each for each in met if each.kind != NOTHING]
        late = self._late(before, {each.key: each.seq for each in declaring if each.has_gaps})
        has_news = False
        for each in declaring:
            came = self._present(each.key, late.get(each.key, ()))
            has_news |= self._news(db, each, came, self.fresh(db, each))
        self._save(db, position)
        return has_news

    # Logs ----------------------------------------------------------------------------------------

    def _load(self, db: apsw.Connection, key: LogKey) -> MetLog | None:
        row = db.execute(
            "SELECT id, kind, seq, gaps FROM logs WHERE author = ? AND log_id = ?",
            (key.author, pack_u64(key.log_id)),
        ).fetchone()
        if row is None:
            return None
        id_, kind, seq, gaps = row
        return MetLog(id_, key, kind, unpack_u64(seq), bool(gaps), is_new=False)

    def _meet(self, db: apsw.Connection, key: LogKey) -> MetLog | None:
        """Records what a log says it is; None while entry 1 or its payload is not here."""
        entry = sound_entry(self._store, key, 1, self._say_damaged)
        if entry is None or entry.payload_state is not PayloadState.PRESENT:
            return None
        row = self._declare(entry) or self._nothing
        db.execute(self._insert, (key.author, pack_u64(key.log_id), pack_u64(1), *row))
        return MetLog(db.last_insert_rowid(), key, row[0], 1, has_gaps=False, is_new=True)

    # Their entries -------------------------------------------------------------------------------

    def fresh(self, db: apsw.Connection, of: MetLog) -> Iterator[StoredEntry]:
        """What is behind `of.seq`, as `News` is given it, which may name a later one instead.

        For who has just made what is before, and need not read it: all of it is here.
        """
        seq, gaps = of.seq, of.has_gaps
        for entry in sound_entries(self._store, of.key, seq + 1, self._say_damaged):
            is_here = entry.payload_state is PayloadState.PRESENT
            gaps = gaps or entry.seq != seq + 1 or not is_here
            seq = entry.seq
            if is_here:
                yield entry
        db.execute(
            "UPDATE logs SET seq = ?, gaps = ? WHERE id = ?", (pack_u64(seq), int(gaps), of.id)
        )

    def _late(self, before: int, lasts: dict[LogKey, int]) -> dict[LogKey, list[int]]:
        """Of some logs, up to a last entry each, what has come since a place of the feed."""
        late: dict[LogKey, list[int]] = {}
        while lasts and (changes := self._store.changes(before, _CHANGES)):
            before = changes[-1].ingest
            for _, key, seq, payload_state in changes:
                if 1 < seq <= lasts.get(key, 0) and payload_state is PayloadState.PRESENT:
                    late.setdefault(key, []).append(seq)
        return late

    def _present(self, key: LogKey, seqs: Iterable[int]) -> Iterator[StoredEntry]:
        for seq in seqs:
            entry = sound_entry(self._store, key, seq, self._say_damaged)
            if entry is not None and entry.payload_state is PayloadState.PRESENT:
                yield entry

    def _say_damaged(self, error: StoreDamaged) -> None:
        self._seldom.warn(log, error.where, f"it is passed over: {error}")

    # How far it has come -------------------------------------------------------------------------

    def _applied(self, db: apsw.Connection) -> int | None:
        """The ingest number that was applied last; None if the table says nothing of this store."""
        row = db.execute("SELECT * FROM applied").fetchone()
        return None if row is None else applied_ingest(self._store, row)

    def _save(self, db: apsw.Connection, ingest: int) -> None:
        db.execute("DELETE FROM applied")
        db.execute(
            "INSERT INTO applied VALUES (?, ?, ?, ?, ?, ?)", applied_row(self._store, ingest)
        )
