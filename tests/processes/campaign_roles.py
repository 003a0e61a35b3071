"""What the processes of a campaign do, each on the store that all of them have open."""

import io
import random
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from logstore import (
    EntryRejected,
    LogVerdict,
    NewEntry,
    PayloadBusy,
    PayloadDropped,
    PayloadState,
    Store,
    StoreError,
)
from tests.processes.ledger import Ledger, Promise, content, read_ledgers
from wire import LogKey, yamf_hash

KEPT_LOG: Final = 0
"""Nobody drops any of it."""
LARGE_LOG: Final = 1
"""Payloads far above the boundary, and dropped again so that the disk does not fill up."""
FOREIGN_LOG: Final = 2
FOREIGN_ENTRIES: Final = 60
_AROUND: Final = (0, 1, 1_000, 65_535, 65_536, 65_537, 65_537, 70_000, 70_000, 100_001)
_FAR_ABOVE: Final = (65_537, 300_000, (1 << 20) + 1, 3 << 20, (8 << 20) + 1)
_LARGE_KEPT: Final = 60
"""So many entries of the large log keep their payloads."""
_DROP_EACH_S: Final = 0.3
_PIECE_BYTES: Final = 100_000
_PAGE: Final = 200
_COMPARED_MAX: Final = 2_000
"""Of a backup, whose other payloads are verified all the same; in the end all are compared."""


def foreign_payload(seq: int) -> bytes:
    """The payload of an entry of the log that is replicated."""
    return content(seq, _FAR_ABOVE[seq % 4] if seq % 3 else _AROUND[seq % len(_AROUND)])


def make_stores(folder: Path) -> None:
    """The store, and another one with a log of which the first has the entries alone."""
    with Store.create(folder / "other") as other, Store.create(folder / "store") as store:
        payloads = [foreign_payload(seq) for seq in range(1, FOREIGN_ENTRIES + 1)]
        key = other.append(payloads, log_id=FOREIGN_LOG)[0].key
        held = other.read(
            key, 1, entries_max=FOREIGN_ENTRIES, bytes_max=1 << 30, with_payload=False
        )
        entries = [NewEntry(each.seq, each.encoded, each.hash) for each in held]
        store.put_entries(key, entries, source="other")
        store.follow(key)


class Work:
    """One process: its store, its random choices and its ledger."""

    def __init__(self, folder: Path, name: str, seed: int) -> None:
        self.folder = folder
        self.name = name
        self.rng = random.Random(seed)
        self.ledger = Ledger(folder / f"{name}.ledger")

    def run(self, role: "Callable[[Work, Store], None]") -> None:
        """Works until it is killed, with the store opened anew now and then."""
        while True:
            # Whoever opens the store collects what others have left.
            with Store.open(self.folder / "store") as store:
                self.ledger.note("opened")
                for _ in range(self.rng.choice((1, 1, 2, 10))):
                    role(self, store)

    def check(self, store: Store, what: str, *, collect: bool = False) -> None:
        """Verifies a store; whatever is found is a fault of the campaign."""
        for found in store.verify(collect=collect):
            if not isinstance(found, LogVerdict):
                self.ledger.note("fault", what=f"{what}: {found}")


def append(work: Work, store: Store) -> None:
    """Appends payloads given in all three ways, to the log that keeps them or to the other."""
    rng = work.rng
    log_id, sizes = rng.choice(((KEPT_LOG, _AROUND), (KEPT_LOG, _AROUND), (LARGE_LOG, _FAR_ABOVE)))
    chosen = [(rng.getrandbits(40), rng.choice(sizes)) for _ in range(rng.randint(1, 4))]
    given: list[bytes | Path | io.BytesIO] = []
    for index, (seed, size) in enumerate(chosen):
        data = content(seed, size)
        path = work.folder / f"{work.name}.{index}"
        how = rng.randrange(3)
        if how == 0:
            path.write_bytes(data)
        given.append((path, io.BytesIO(data), data)[how])
    begun = work.ledger.note("append")
    appended = store.append(given, log_id=log_id)
    payloads = [[each.seq, *known] for each, known in zip(appended, chosen, strict=True)]
    author = store.author.hex()
    work.ledger.note("appended", author=author, log=log_id, begun=begun, payloads=payloads)


def _drop(work: Work, store: Store, key: LogKey, first: int, last: int) -> None:
    where = {"author": key.author.hex(), "log": key.log_id, "first": first, "last": last}
    work.ledger.note("drop", **where)
    store.drop(key, first, last)
    work.ledger.note("dropped")


def drop(work: Work, store: Store) -> None:
    """Drops some of what was fetched, and all but the newest of the large log."""
    # Else it would be all that ever happens to what was fetched.
    time.sleep(work.rng.expovariate(1 / _DROP_EACH_S))
    foreign = next(key for key in (each.key for each in store.logs()) if key.author != store.author)
    first = work.rng.randint(1, FOREIGN_ENTRIES)
    _drop(work, store, foreign, first, first + work.rng.randrange(8))
    own = LogKey(store.author, LARGE_LOG)
    info = store.log(own)
    if info is not None and info.newest > _LARGE_KEPT:
        _drop(work, store, own, 1, info.newest - work.rng.randint(0, _LARGE_KEPT))


def fetch(work: Work, store: Store) -> None:
    """Receives payloads that are missing, in pieces and not always to the end."""
    key = next(key for key in (each.key for each in store.logs()) if key.author != store.author)
    for entry in store.read(key, 1, entries_max=_PAGE, bytes_max=1 << 20, with_payload=False):
        if entry.payload_state is PayloadState.PRESENT or work.rng.random() < 0.5:
            continue
        try:
            _receive(work, store, key, entry.seq)
        except (PayloadBusy, PayloadDropped):
            work.ledger.note("busy or dropped")
        except EntryRejected as error:
            # Another process took the finished file over and gave it up.
            if "the payload file is gone" not in str(error):
                raise
            work.ledger.note("file gone")


def _receive(work: Work, store: Store, key: LogKey, seq: int) -> None:
    payload = foreign_payload(seq)
    with store.payload_sink(key, seq, len(payload), yamf_hash(payload), source=work.name) as sink:
        end = work.rng.choice((len(payload), len(payload), len(payload) // 2))
        while sink.offset < end:
            sink.write(payload[sink.offset : min(end, sink.offset + _PIECE_BYTES)])
        if sink.offset < len(payload):
            return
        whole = sink.finish()
    begun = work.ledger.note("completing")
    store.complete_payload(key, seq, whole)
    promised = [[seq, seq, len(payload)]]
    author, log = key.author.hex(), key.log_id
    work.ledger.note("fetched", author=author, log=log, begun=begun, payloads=promised)


def check(work: Work, store: Store) -> None:
    """Verifies the store while the others write, and removes what belongs to nothing."""
    work.check(store, "while others write", collect=True)
    work.ledger.note("checked")


def back_up(work: Work, store: Store) -> None:
    """Copies the store, then compares the copy with what had been acknowledged before."""
    target = work.folder / f"{work.name}.backup"
    if (target / "store.sqlite3").exists():
        shutil.rmtree(target)
    promises = read_ledgers(work.folder).promises
    promises = work.rng.sample(promises, min(len(promises), _COMPARED_MAX))
    store.backup(target)
    with Store.open(target, readonly=True) as copy:
        work.check(copy, "a backup")
        for lost in compare(work.folder, copy, promises):
            work.ledger.note("fault", what=f"a backup: {lost}")
    work.ledger.note("backed up")
    shutil.rmtree(target)


ROLES: Final = {"append": append, "drop": drop, "fetch": fetch, "check": check, "backup": back_up}


def compare(folder: Path, store: Store, promises: Sequence[Promise]) -> Iterable[str]:
    """Compares payloads with what was acknowledged, byte for byte; what is lost and not dropped."""
    lost = []
    for promise in promises:
        reason = _difference(store, promise)
        if reason is not None:
            lost.append((promise, reason))
    # Read afterwards: somebody may have dropped it meanwhile.
    ledgers = read_ledgers(folder)
    for promise, reason in lost:
        if not ledgers.may_be_gone(promise):
            author, log_id, seq = promise.name
            yield f"{author}/{log_id}/{seq} of {promise.size} bytes: {reason}"


def _difference(store: Store, promise: Promise) -> str | None:
    author, log_id, seq = promise.name
    try:
        with store.open_payload(LogKey(bytes.fromhex(author), log_id), seq) as reader:
            held = reader.read(0, promise.size + 1)
    except StoreError as error:
        return str(error)
    return None if held == _expected(promise) else "other bytes than were appended"


def _expected(promise: Promise) -> bytes:
    if promise.name[1] == FOREIGN_LOG:
        return foreign_payload(promise.name[2])
    return content(promise.seed, promise.size)
