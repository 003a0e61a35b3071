"""Which entries of a log are held: maximal runs of consecutive numbers.

The first run, from entry 1 to the height, is in the log's row. The table `runs` has a row for every
other one of what may be served; a log without gaps has none, and costs nothing here. Each change of
`entries` brings it up to date in the same transaction, by looking at the two neighbours of what is
new.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .rows import LogRow, pack_u64, unpack_u64

if TYPE_CHECKING:
    import apsw

Run = tuple[int, int]
"""The first and the last number of a run."""


def add_run(db: "apsw.Connection", row: LogRow, first: int, last: int) -> None:
    """Counts entries as held of which none was, in height, newest and runs; saves no row."""
    above = _next_run(db, row, last) if row.newest > last else None
    if above is not None and above[0] == last + 1:
        _delete(db, row, above)
        last = above[1]
    row.newest = max(row.newest, last)
    if first == row.height + 1:
        row.height = last
        return
    blob = db.execute(
        "SELECT first FROM runs WHERE log = ? AND last = ?", (row.id, pack_u64(first - 1))
    ).get
    if blob is not None:
        _delete(db, row, (0, first - 1))
        first = unpack_u64(blob)
    insert_runs(db, row, [(first, last)])


def limit_log(db: "apsw.Connection", row: LogRow) -> None:
    """Brings all of it below a limit that was just set: a fork, an end, a bad entry."""
    limit = row.servable
    row.height = min(row.height, limit)
    if row.newest <= limit:
        return
    blob = pack_u64(limit)
    cut = _next_run(db, row, limit)
    db.execute("DELETE FROM runs WHERE log = ? AND last > ?", (row.id, blob))
    if cut is not None and cut[0] <= limit:
        insert_runs(db, row, [(cut[0], limit)])
    newest = db.execute("SELECT max(last) FROM runs WHERE log = ?", (row.id,)).get
    row.newest = row.height if newest is None else unpack_u64(newest)


def load_runs(db: "apsw.Connection", row: LogRow, runs_from: int, limit: int) -> list[Run]:
    """The runs that end at or behind a number, ascending, as many as `limit` says."""
    runs = [(1, row.height)] if row.height > 0 and runs_from <= row.height else []
    if row.height < row.newest:
        found = db.execute(
            "SELECT first, last FROM runs WHERE log = ? AND last >= ? ORDER BY last LIMIT ?",
            (row.id, pack_u64(runs_from), limit - len(runs)),
        )
        runs += [(unpack_u64(first), unpack_u64(last)) for first, last in found]
    return runs[:limit]


def is_held(db: "apsw.Connection", row: LogRow, first: int, last: int) -> bool:
    """Whether every entry of a range is held and may be served."""
    if last <= row.height:
        return True
    run = _next_run(db, row, last - 1)
    return run is not None and run[0] <= first


def count_held(db: "apsw.Connection", row: LogRow, first: int, last: int) -> int:
    """How many entries of a range are held and may be served."""
    held = max(0, min(last, row.height) - first + 1)
    if row.height < row.newest:
        found = db.execute(
            "SELECT first, last FROM runs WHERE log = ? AND last >= ? AND first <= ?",
            (row.id, pack_u64(first), pack_u64(last)),
        )
        for low, high in found:
            held += min(last, unpack_u64(high)) - max(first, unpack_u64(low)) + 1
    return held


def count_runs(db: "apsw.Connection", row: LogRow) -> Iterator[Run]:
    """The runs above the height, counted from the entries themselves."""
    blobs = db.execute(
        "SELECT seq FROM entries WHERE log = ? AND seq > ? AND seq <= ? ORDER BY seq",
        (row.id, pack_u64(row.height), pack_u64(row.newest)),
    )
    return runs_of(unpack_u64(blob) for (blob,) in blobs)


def runs_of(seqs: Iterable[int]) -> Iterator[Run]:
    """Ascending numbers as maximal runs."""
    first = last = None
    for seq in seqs:
        if first is None or last is None:
            first = seq
        elif seq != last + 1:
            yield first, last
            first = seq
        last = seq
    if first is not None and last is not None:
        yield first, last


def insert_runs(db: "apsw.Connection", row: LogRow, runs: Iterable[Run]) -> None:
    """Adds rows as they are."""
    db.executemany(
        "INSERT INTO runs(log, last, first) VALUES (?, ?, ?)",
        [(row.id, pack_u64(last), pack_u64(first)) for first, last in runs],
    )


def _next_run(db: "apsw.Connection", row: LogRow, above: int) -> Run | None:
    """The first run that ends above a number."""
    found = db.execute(
        "SELECT first, last FROM runs WHERE log = ? AND last > ? ORDER BY last LIMIT 1",
        (row.id, pack_u64(above)),
    ).fetchone()
    return None if found is None else (unpack_u64(found[0]), unpack_u64(found[1]))


def _delete(db: "apsw.Connection", row: LogRow, run: Run) -> None:
    db.execute("DELETE FROM runs WHERE log = ? AND last = ?", (row.id, pack_u64(run[1])))
