"""Stores with known content, and ways to look at an export."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from analytics import Exporter, ExportResult, Settings
from logstore import Store, System
from tests.logstore.authors import AuthorLog, signing_key

DAY_US = 86_400_000_000
NOON = 1_790_000_000_000_000 // DAY_US * DAY_US + DAY_US // 2


class Clock(System):
    """A clock that stands still until it is moved."""

    def __init__(self, now: int = NOON) -> None:
        self.now = now

    def now_us(self) -> int:
        return self.now


def make_store(path: Path, node: int = 99, clock: System | None = None) -> Store:
    """A new store of the author with this number."""
    return Store.create(path, signing_key=signing_key(node), system=clock or Clock())


def put(store: Store, log: AuthorLog, seqs: range) -> None:
    """Makes entries of a log, each with a payload of its own, and stores them."""
    store.put_entries(log.key, log.add_all(seqs), source="test")


def filled_store(path: Path, *, logs: int = 3, entries: int = 10) -> Store:
    """Foreign logs, all complete."""
    store = make_store(path)
    for number in range(1, logs + 1):
        put(store, AuthorLog(number), range(1, entries + 1))
    return store


def export(
    store: Store,
    root: Path,
    *,
    settings: Settings | None = None,
    file_bytes_max: int = 48 << 20,
) -> ExportResult:
    """One run of an export; what it did."""
    return Exporter(store, root, settings, file_bytes_max=file_bytes_max).run()


def table(root: Path) -> pa.Table:
    """Everything in an export."""
    if not list(root.glob("date=*/*.parquet")):
        return pa.table({"author": [], "log_id": [], "seq": [], "ingest_seq": []})
    found = ds.dataset(root, partitioning="hive").to_table()
    return found.sort_by([("author", "ascending"), ("seq", "ascending")])


def keys(root: Path) -> list[tuple[str, int, int]]:
    """(author, log id, seq) of every row."""
    found = table(root)
    columns = (found[name].to_pylist() for name in ("author", "log_id", "seq"))
    return sorted((author, int(log_id), seq) for author, log_id, seq in zip(*columns, strict=True))


def held(store: Store) -> list[tuple[str, int, int]]:
    """(author, log id, seq) of every entry of a store."""
    changes = store.changes(0, 1_000_000)
    return sorted((each.key.author.hex(), each.key.log_id, each.seq) for each in changes)


def files(root: Path) -> list[str]:
    """The data files, relative."""
    return sorted(path.relative_to(root).as_posix() for path in root.glob("date=*/*.parquet"))
