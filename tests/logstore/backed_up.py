"""What is in backups, and a store to which all sorts of things happen between them."""

import random
from contextlib import suppress
from pathlib import Path

import apsw

from logstore import KeepRule, LogClosed, Store
from tests.logstore.authors import AuthorLog
from tests.logstore.carrying import faults
from tests.payload_files import payload_files
from wire import LogKey, yamf_hash

LARGE = 70_000
Rows = dict[str, list[tuple[object, ...]]]


def rows_of(folder: Path) -> Rows:
    """All that is in the database of a backup."""
    db = apsw.Connection(str(folder / "store.sqlite3"))
    try:
        names = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        tables = [str(name) for (name,) in names]
        found: Rows = {}
        for name in sorted(tables):
            columns = [each[1] for each in db.execute(f"PRAGMA table_info({name})")]
            order = ", ".join(columns)
            found[name] = list(db.execute(f"SELECT {order} FROM {name} ORDER BY {order}"))
        return found
    finally:
        db.close()


def same(one: Path, other: Path) -> bool:
    """Whether two backups have the same rows, payload files and keys."""
    files = [
        {path.name: path.read_bytes() for path in payload_files(folder)} for folder in (one, other)
    ]
    keys = [{path.name: path.read_bytes() for path in each.glob("*.key")} for each in (one, other)]
    return rows_of(one) == rows_of(other) and files[0] == files[1] and keys[0] == keys[1]


def check(folder: Path) -> None:
    with Store.open(folder, readonly=True) as copy:
        assert faults(copy) == []


class Work:
    """A store to which all sorts of things happen."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        # With a key of its own: the machine remembers what was signed with each.
        self.store = Store.create(folder)
        self.rng = random.Random(seed)
        self.logs = [AuthorLog(1), AuthorLog(1, 7), AuthorLog(2)]

    def append(self) -> None:
        sizes = [self.rng.choice((10, 3_000, LARGE)) for _ in range(self.rng.randint(1, 3))]
        payloads = [self.rng.randbytes(size) for size in sizes]
        self.store.append(payloads, log_id=self.rng.randint(0, 2))

    def replicate(self) -> None:
        log = self.rng.choice(self.logs)
        info = self.store.log(log.key)
        first = 1 if info is None else info.newest + 1
        new = [
            log.entries.get(seq) or log.add(seq, self.rng.randbytes(600))
            for seq in range(first, first + 4)
        ]
        held = [entry if self.rng.random() < 0.5 else entry._replace(payload=None) for entry in new]
        self.store.put_entries(log.key, held, source="peer")

    def fetch(self) -> None:
        """Payloads that were missing or dropped come, a large one in part."""
        log = self.rng.choice(self.logs)
        info = self.store.log(log.key)
        entries = [] if info is None else list(log.entries.values())[: info.newest]
        if entries:
            some = self.rng.sample(entries, min(3, len(entries)))
            with suppress(LogClosed):
                self.store.want(log.key, 1, len(entries))
            some.sort(key=lambda entry: entry.seq)
            self.store.put_entries(log.key, some, source="peer")
        name = (self.logs[0].key, 1000, LARGE, yamf_hash(bytes(LARGE)))
        with self.store.payload_sink(*name, source="peer") as sink:
            sink.write(bytes(min(10_000, LARGE - 1 - sink.offset)))

    def drop(self) -> None:
        keys = [info.key for info in self.store.logs()]
        if keys:
            first = self.rng.randint(1, 8)
            self.store.drop(self.rng.choice(keys), first, first + self.rng.randint(0, 3))

    def keep(self) -> None:
        target = self.rng.choice([log.key for log in self.logs])
        self.store.keep(target, KeepRule(last=self.rng.randint(1, 3)))
        self.store.tidy()

    def follow(self) -> None:
        key = self.rng.choice(self.logs).key
        self.rng.choice((self.store.follow, self.store.unfollow))(key)

    def fork(self) -> None:
        log = self.logs[2]
        if log.entries:
            seq = self.rng.randint(1, len(log.entries))
            other = log.make(seq, b"another")
            self.store.put_entries(log.key, [other], source="peer")

    def forget(self) -> None:
        keys = {info.key for info in self.store.logs()}
        known = [log.key for log in self.logs[:2] if log.key in keys]
        if known:
            forget(self.store, self.rng.choice(known))

    ACTIONS = ("append", "replicate", "fetch", "drop", "keep", "follow", "fork", "forget")

    def do(self, *names: str) -> None:
        for name in names:
            getattr(self, name)()


def delete_entries(db: apsw.Connection, id_: int, remaining: int) -> None:
    """All of a log but the last few."""
    query = "SELECT ingest FROM entries WHERE log = ? ORDER BY seq DESC LIMIT -1 OFFSET ?"
    db.execute(f"DELETE FROM entries WHERE ingest IN ({query})", (id_, remaining))


def forget(store: Store, *keys: LogKey, remaining: int = 0) -> None:
    """Removes logs, as if they had never been there, or all but a few rows that no log has."""
    with store._opened.database.write() as transaction:
        for author, log_id in keys:
            name = (author, log_id.to_bytes(8, "big"))
            query = "SELECT id FROM logs WHERE author = ? AND log_id = ?"
            id_: int = transaction.db.execute(query, name).get
            for table in ("runs", "missing"):
                transaction.db.execute(f"DELETE FROM {table} WHERE log = ?", (id_,))
            delete_entries(transaction.db, id_, remaining)
            transaction.db.execute("DELETE FROM logs WHERE id = ?", (id_,))
        transaction.take_ingest()
