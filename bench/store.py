"""How fast the store is, beside what bounds it: signing alone, and plain SQLite inserts.

    python bench/store.py [--entries 50000] [--large] [--grow]

One JSON object per line. Rates drift from machine to machine, so each run measures its own limits
and gives ratios. `--grow` compares a store of 1,000 entries with one of 1,000,000
instead.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
from nacl.signing import SigningKey

from bench.limits import sign_per_s
from bench.support.logs import signed_log
from bench.support.output import report
from logstore import NewEntry, Store
from wire import LogKey, PayloadHasher

PAYLOAD_BYTES = 256
BATCH = 256


def make_log(key: SigningKey, log_id: int, count: int) -> list[NewEntry]:
    """A log of entries whose payload is the same random bytes each time."""
    return signed_log(key, log_id, [os.urandom(PAYLOAD_BYTES)] * count)


def rate(count: int, work: Callable[[], object]) -> float:
    """Things a second."""
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


@contextmanager
def folder() -> Iterator[Path]:
    """A directory on the disk that the checkout is on."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as name:
        yield Path(name)


def yardstick_insert(entries: list[NewEntry], batch: int) -> float:
    """The same bytes into a plain SQLite table with one index, durable, in the same batches."""
    with folder() as path:
        db = apsw.Connection(str(path / "plain"))
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, seq INTEGER, hash, encoded, payload)")
        db.execute("CREATE UNIQUE INDEX i ON t(seq)")

        def work() -> None:
            for at in range(0, len(entries), batch):
                with db:
                    db.executemany(
                        "INSERT INTO t(seq, hash, encoded, payload) VALUES (?, ?, ?, ?)",
                        [(e.seq, e.hash, e.encoded, e.payload) for e in entries[at : at + batch]],
                    )

        result = rate(len(entries), work)
        db.close()
        return result


def bench_put(count: int) -> None:
    """Foreign entries, one log and many."""
    key = SigningKey.generate()
    author = bytes(key.verify_key)
    entries = make_log(key, 0, count)
    plain = yardstick_insert(entries, BATCH)
    report("plain sqlite insert", plain, "entries/s", batch=BATCH)
    with folder() as path, Store.create(path / "s") as store:

        def put() -> None:
            for at in range(0, count, BATCH):
                store.put_entries(LogKey(author, 0), entries[at : at + BATCH], source="bench")

        one = rate(count, put)
        report("put, one log", one, "entries/s", batch=BATCH, of_plain=round(one / plain, 2))
        bench_read(store, LogKey(author, 0), count)
    logs = [make_log(key, log_id, 20) for log_id in range(1000)]
    with folder() as path, Store.create(path / "s") as store:

        def put_logs() -> None:
            for at in range(0, 1000, 12):
                store.put_many(
                    [(LogKey(author, at + i), log) for i, log in enumerate(logs[at : at + 12])],
                    source="bench",
                )

        many = rate(20_000, put_logs)
        report("put, 1,000 logs of 20", many, "entries/s", of_one_log=round(many / one, 2))


def bench_read(store: Store, key: LogKey, count: int) -> None:
    """Entries with inline payloads, re-hashed."""

    def read() -> None:
        at = 1
        while found := store.read(key, at, entries_max=256, bytes_max=1 << 20, with_payload=False):
            at = found[-1].seq + 1

    report("read", rate(count, read), "entries/s")

    def changes() -> None:
        at = 0
        while found := store.changes(at, 1000):
            at = found[-1].ingest

    report("changes", rate(count, changes), "entries/s")
    report("verify", rate(count, lambda: list(store.verify())), "entries/s")


def bench_append(count: int) -> None:
    """Own entries, one at a time and 1,000 as one operation."""
    sign = sign_per_s(20_000)
    report("sign alone", sign, "entries/s")
    payloads = [os.urandom(PAYLOAD_BYTES) for _ in range(1000)]
    with folder() as path, Store.create(path / "s") as store:
        batches = max(1, count // 1000)
        result = rate(
            batches * 1000, lambda: [store.append(list(payloads)) for _ in range(batches)]
        )
        report("append, batches of 1,000", result, "entries/s", of_signing=round(result / sign, 2))
        singles = 3000
        result = rate(singles, lambda: [store.append([payloads[0]]) for _ in range(singles)])
        report("append, one at a time", result, "entries/s")


def bench_large(size: int = 1 << 30) -> None:
    """One payload of 1 GiB through a sink, and read back."""
    piece = os.urandom(1 << 16)
    hasher = PayloadHasher()
    for _ in range(size // len(piece)):
        hasher.update(piece)
    payload_hash = hasher.digest_yamf()
    key = LogKey(bytes(32), 0)
    with folder() as path, Store.create(path / "s") as store:
        sink = store.payload_sink(key, 1, size, payload_hash, source="bench")

        def receive() -> None:
            for _ in range(size // len(piece)):
                sink.write(piece)
            sink.finish()

        report("receive 1 GiB in 64 KiB pieces", rate(size >> 20, receive), "MiB/s")


def bench_grow() -> None:
    """Whether the cost grows with the store: rates on top of 1,000 and of 1,000,000 entries."""
    key = SigningKey.generate()
    with folder() as path, Store.create(path / "s", signing_key=key) as store:
        payloads = [os.urandom(PAYLOAD_BYTES) for _ in range(1000)]
        rates = {}
        foreign = SigningKey.generate()
        author = LogKey(bytes(foreign.verify_key), 0)
        for label, entries_before in (("1,000", 1_000), ("1,000,000", 1_000_000)):
            while store.position() < entries_before:
                store.append(list(payloads))
            samples = []
            for _ in range(5):
                log_id = store.position()
                entries = make_log(foreign, log_id, 5_000)

                def put(log_id: int = log_id, entries: list[NewEntry] = entries) -> None:
                    for at in range(0, len(entries), BATCH):
                        store.put_entries(
                            LogKey(author.author, log_id), entries[at : at + BATCH], source="bench"
                        )

                samples.append(
                    (
                        rate(5_000, put),
                        rate(5_000, lambda: [store.append(payloads) for _ in "12345"]),
                    )
                )
            rates[label] = [sorted(each)[2] for each in zip(*samples, strict=True)]
            report("put on top of " + label, rates[label][0], "entries/s")
            report("append on top of " + label, rates[label][1], "entries/s")
        small, big = rates.values()
        report("put, 1,000,000 to 1,000", big[0] / small[0] * 100, "%")
        report("append, 1,000,000 to 1,000", big[1] / small[1] * 100, "%")


def main() -> int:
    """Runs what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--entries", type=int, default=50_000)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--grow", action="store_true")
    arguments = parser.parse_args()
    if arguments.grow:
        bench_grow()
        return 0
    bench_put(arguments.entries)
    bench_append(arguments.entries)
    if arguments.large:
        bench_large()
    return 0


if __name__ == "__main__":
    sys.exit(main())
