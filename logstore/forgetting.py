"""Forgetting logs: their entries, payloads, and all that is only remembered because of them.

Theory. A log may have millions of entries, and to delete them takes a transaction for each of many
parts, or nobody else could write for long. No state in between may be taken for a log: one
that has lost some entries could be asked for, served and fetched again. So the first transaction
decides and does what counts: nobody follows the log, its row goes, and with it the log for whoever
looks. What is left are rows of `entries`, `runs` and `missing` with a number that no log has. It is
remembered (`forgetting/NUMBER`) that they are to go, and they go in steps; a new log gets a number
above all that are still in use there (rows.py). Whoever kills it in between leaves rows that the
next `forget` or `compact` deletes, and `verify` knows of them.

Its fork proof is evidence against its author, which nobody else may have: it stays, as the proof of
a log of which nothing is held. What proved it to be invalid was a payload, and goes.

A node beside it may be giving the log to peers. It reads that something was forgotten (`forgotten`,
a counter), and begins all its connections again: what sessions have said of their logs is not true
any more, and no message takes it back.

Not taken: to delete from the newest down, so that it is a log at each step: a node that serves it
meanwhile would offer what is gone with the next step. Tombstones, which keep it from being taken in
again: that it is not followed does.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from wire import U64_MAX, LogKey

from .alarms import forget_alarms_of
from .cursors import forget_cursors_of
from .errors import LogFollowed, LogUnknown, StoreFull
from .files import PayloadFiles, detach_file, set_file_state
from .following import load_subscriptions
from .names import forget_name_of
from .proofs import SIZE_FILE, load_fork, store_fork
from .records import ALL, Forgotten
from .rows import LogRow, create_log, load_log, load_logs_after, pack_u64, save_log
from .schema import FILE_ATTACHED, FILE_GARBAGE, PAYLOAD_FILE
from .upkeep import recall, recall_all, remember
from .wants import unwant_overlapping

if TYPE_CHECKING:
    import apsw

    from .database import Transaction
    from .opening import Opened

ROWS: Final = 1_000
"""Entries deleted in one transaction."""
ROWS_FULL: Final = 32
"""The same where the disk is full."""
_FORGETTING: Final = "forgetting/"
_COUNT: Final = "forgotten"
_LOGS_MAX: Final = 1 << 20


class Forgetting:
    """Forgets logs of one store."""

    def __init__(self, opened: "Opened", files: PayloadFiles) -> None:
        self._opened = opened
        self._files = files

    def plan(self, target: LogKey | bytes) -> list[Forgotten]:
        """What `run` would do now. Raises as it does."""
        with self._opened.database.read() as db:
            return [_held(row) for row in self._rows(db, target)]

    def run(self, target: LogKey | bytes) -> list[Forgotten]:
        """Forgets a log, or all of an author: what there was of each.

        Raises LogFollowed if it is our own or followed, LogUnknown if nothing is held.
        """

        def forget() -> list[Forgotten]:
            with self._opened.database.write(frees=True) as transaction:
                rows = self._rows(transaction.db, target)
                for row in rows:
                    _forget(transaction, row)
                forget_cursors_of(transaction.db, {row.key for row in rows})
                count = load_forgotten(transaction.db) + 1
                remember(transaction.db, _COUNT, str(count).encode())
                transaction.changes_wishes = True
                return [_held(row) for row in rows]

        done = self._opened.reserve.free(forget)
        self.finish()
        return done

    def finish(self) -> None:
        """Deletes what is left of logs that were forgotten, also by others."""
        system, rows_max = self._opened.system, ROWS
        while True:
            with self._opened.database.read() as db:
                numbers = forgetting(db)
            if not numbers:
                break
            began_s = system.monotonic_s()
            try:
                self._opened.reserve.free(self._step(numbers[0], rows_max))
            except StoreFull:
                if rows_max == ROWS_FULL:
                    raise
                rows_max = ROWS_FULL
            self._files.tidy()
            system.let_others(began_s)
        self._opened.reserve.set_aside()

    def _step(self, number: int, rows_max: int) -> Callable[[], None]:
        def step() -> None:
            with self._opened.database.write(frees=True) as transaction:
                _delete_some(transaction.db, number, rows_max)

        return step

    def _rows(self, db: "apsw.Connection", target: LogKey | bytes) -> list[LogRow]:
        author = target.author if isinstance(target, LogKey) else target
        name = str(target) if isinstance(target, LogKey) else author.hex()
        if author == self._opened.author:
            raise LogFollowed("it is signed here", name, "forget what others have signed")
        if isinstance(target, LogKey):
            row = load_log(db, target)
            found = [] if row is None else [row]
        else:
            found = load_logs_after(db, author, None, _LOGS_MAX)
        found = [row for row in found if row.entries]
        follows = load_subscriptions(db)
        for each in (target, *(row.key for row in found), author, ALL):
            if each in follows:
                raise LogFollowed(*_followed(each, name))
        if not found:
            raise LogUnknown("nothing is held of it", name, "`logs` lists what is held")
        return found


def _followed(by: object, name: str) -> tuple[str, str, str]:
    if by is ALL:
        return "all logs are followed", name, "`unfollow --all`, and follow those that you want"
    whose = by.hex() if isinstance(by, bytes) else str(by)
    what = "all logs of its author are followed" if isinstance(by, bytes) else "it is followed"
    return (f"{whose} is followed" if whose != name else what), name, f"`unfollow {whose}` first"


def _held(row: LogRow) -> Forgotten:
    return Forgotten(row.key, row.entries, row.payloads, row.bytes)


def _forget(transaction: "Transaction", row: LogRow) -> None:
    """The log is gone for whoever looks when this is committed."""
    db, key = transaction.db, row.key
    unwant_overlapping(db, key, 0, U64_MAX)
    forget_name_of(db, key)
    forget_alarms_of(db, key)
    _forget_files(db, row)
    proof = load_fork(db, row)
    db.execute("DELETE FROM proofs WHERE log = ?", (row.id,))
    db.execute("DELETE FROM logs WHERE id = ?", (row.id,))
    remember(db, f"{_FORGETTING}{row.id}", b"1")
    if proof is not None:
        kept = create_log(db, key)
        store_fork(transaction, kept, proof)
        save_log(db, kept)


def _forget_files(db: "apsw.Connection", row: LogRow) -> None:
    """Parts of payloads, and the payload that was proof of a wrong size."""
    parts = db.execute(
        "SELECT id FROM files WHERE author = ? AND log_id = ? AND state <> ?",
        (row.key.author, pack_u64(row.key.log_id), FILE_ATTACHED),
    )
    for (id_,) in list(parts):
        set_file_state(db, id_, FILE_GARBAGE)
    query = "SELECT second FROM proofs WHERE log = ? AND kind = ?"
    for (id_,) in list(db.execute(query, (row.id, SIZE_FILE))):
        detach_file(db, id_)


def _delete_some(db: "apsw.Connection", number: int, rows_max: int) -> None:
    """Entries go last: as long as there is one of them no new log gets the number."""
    for table, column in (("missing", "seq"), ("runs", "last")):
        some = f"SELECT {column} FROM {table} WHERE log = ? LIMIT ?"  # noqa: S608 (constants)
        db.execute(
            f"DELETE FROM {table} WHERE log = ? AND {column} IN ({some})",  # noqa: S608 (constants)
            (number, number, rows_max),
        )
        if db.changes() == rows_max:
            return
    rows = list(
        db.execute(
            "SELECT ingest, CASE payload_state WHEN ? THEN payload END FROM entries"
            " WHERE log = ? LIMIT ?",
            (PAYLOAD_FILE, number, rows_max),
        )
    )
    for _, file_id in rows:
        if file_id is not None:
            detach_file(db, file_id)
    db.executemany("DELETE FROM entries WHERE ingest = ?", [(ingest,) for ingest, _ in rows])
    if len(rows) < rows_max:
        remember(db, f"{_FORGETTING}{number}", None)


def forgetting(db: "apsw.Connection") -> list[int]:
    """The numbers of logs whose rows are still to go."""
    return sorted(_numbers(db))


def _numbers(db: "apsw.Connection") -> Iterator[int]:
    for name in recall_all(db, _FORGETTING):
        number = name[len(_FORGETTING) :]
        # Of a damaged name nothing can be deleted; `verify` says that it is damaged.
        if number.isascii() and number.isdigit():
            yield int(number)


def load_forgotten(db: "apsw.Connection") -> int:
    """How often something was forgotten: another number once something was."""
    value = recall(db, _COUNT)
    return int(value) if value is not None and value.isdigit() else 0
