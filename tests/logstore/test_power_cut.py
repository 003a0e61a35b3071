"""Power cuts and failing disks, simulated: nothing acknowledged is lost, nothing half is seen."""

import errno
import random
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from logstore import (
    Completion,
    KeepRule,
    LogUnknown,
    LogVerdict,
    NewEntry,
    Store,
    StoreError,
    StoreFailed,
    StoreFull,
)
from tests.logstore.authors import AuthorLog, signing_key
from tests.logstore.disk import PowerCutError, SimDisk
from wire import LogKey, yamf_hash

LARGE = 150_000


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints and syncs of partial payloads come often."""
    monkeypatch.setattr("logstore.schema.WAL_PAGES", 12)
    monkeypatch.setattr("logstore.sink.SYNC_BYTES", 40_000)


@dataclass
class World:
    """A store on a simulated disk, and what it has acknowledged."""

    folder: Path
    disk: SimDisk
    rng: random.Random
    own: dict[int, bytes] = field(default_factory=dict)
    """Own entries that were returned: their hashes."""
    both: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """The same of two logs that are appended to together, by log id too."""
    shown: dict[int, bytes] = field(default_factory=dict)
    """Own entries that were ever read."""
    foreign: AuthorLog = field(default_factory=AuthorLog)
    put: set[int] = field(default_factory=set)
    payloads: dict[int, bytes] = field(default_factory=dict)
    synced: dict[int, int] = field(default_factory=dict)
    other: AuthorLog = field(default_factory=lambda: AuthorLog(2))
    """A log whose payloads come behind its entries."""
    held: dict[int, bytes] = field(default_factory=dict)
    """Its payloads that were completed."""
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = Store.create(self.folder, signing_key=signing_key(7), system=self.disk)

    @property
    def own_key(self) -> LogKey:
        return LogKey(self.store.author, 0)

    def act(self) -> None:
        """Something that a node does, chosen by chance."""
        own = [self._append, self._append, self._append_many]
        self.rng.choice([*own, self._put, self._receive, self._complete, self._drop])()

    def act_for_ever(self) -> None:
        """Until something fails."""
        while True:
            self.act()

    def _append(self) -> None:
        payloads = [
            self.rng.randbytes(LARGE if self.rng.random() < 0.1 else self.rng.randint(0, 3000))
            for _ in range(self.rng.randint(1, 4))
        ]
        for appended in self.store.append(payloads):
            assert self.own.get(appended.seq, appended.hash) == appended.hash
            self.own[appended.seq] = appended.hash

    def _append_many(self) -> None:
        """To two logs at once, of which the one gets twice as many entries as the other."""
        batches = [(log_id, [self.rng.randbytes(500)]) for log_id in (5, 6, 5)]
        for [appended] in self.store.append_many(batches):
            self.both[appended.key.log_id, appended.seq] = appended.hash

    def _put(self) -> None:
        first = max(self.put, default=0) + 1
        entries = [
            self.foreign.entries.get(seq) or self.foreign.add(seq, self.rng.randbytes(600))
            for seq in range(first, first + self.rng.randint(1, 6))
        ]
        self.store.put_entries(self.foreign.key, entries, source="peer")
        self.put.update(entry.seq for entry in entries)

    def _receive(self) -> None:
        seq = self.rng.randint(1001, 1003)
        payload = self.payloads.setdefault(seq, self.rng.randbytes(LARGE))
        key = self.foreign.key
        sink = self.store.payload_sink(key, seq, LARGE, yamf_hash(payload), source="peer")
        assert sink.offset >= self.synced.get(seq, 0)
        while sink.offset < LARGE and self.rng.random() < 0.9:
            sink.write(payload[sink.offset : sink.offset + 20_000])
        if sink.offset < LARGE:
            sink.suspend()
            self.synced[seq] = sink.offset
            return
        file = sink.finish()
        assert not isinstance(file, bytes)
        # Once it was asked to go it may be there or not.
        self.synced[seq] = 0
        self.store.discard_payload(file)

    def _complete(self) -> None:
        """Several payloads, small and large, that become whole together."""
        first, count = len(self.other.entries) + 1, self.rng.randint(1, 4)
        sizes = [self.rng.choice([600, LARGE]) for _ in range(count)]
        payloads = {first + n: self.rng.randbytes(size) for n, size in enumerate(sizes)}
        key = self.other.key
        new = [self.other.add(seq, data)._replace(payload=None) for seq, data in payloads.items()]
        self.store.put_entries(key, [*self._earlier(first), *new], source="peer")
        completions, sinks = [], []
        with ExitStack() as opened:
            for seq, data in payloads.items():
                name = (key, seq, len(data), yamf_hash(data))
                sinks.append(opened.enter_context(self.store.payload_sink(*name, source="peer")))
                for begin in range(0, len(data), 50_000):
                    sinks[-1].write(data[begin : begin + 50_000])
                completions.append(Completion(key, seq, sinks[-1].seal()))
            completed = self.store.complete_payloads(completions)
            for sink in sinks:
                sink.release()
        assert all(each.added for each in completed)
        self.held.update(payloads)

    def _earlier(self, seq: int) -> list[NewEntry]:
        """Entries before one that a failure may have kept from being stored."""
        entries = (self.other.entries[each] for each in range(1, seq))
        return [entry._replace(payload=None) for entry in entries]

    def _drop(self) -> None:
        chance = self.rng.random()
        if chance < 0.2:
            self.store.compact()
        elif chance < 0.3 and self.put:
            self._forget()
        elif self.put and chance < 0.6:
            self.store.drop(self.foreign.key, min(self.put), min(self.put) + 2)
        elif self.put:
            self._tidy()

    def _tidy(self) -> None:
        """Of the one log; nobody has named the others."""
        self.store.keep(self.foreign.key, KeepRule(last=2, bytes=self.rng.choice([1300, 5000])))
        self.store.tidy()

    def _forget(self) -> None:
        """From now on it may be there or not."""
        self.put.clear()
        self.synced = dict.fromkeys(self.synced, 0)
        with suppress(LogUnknown):
            self.store.forget(self.foreign.key)

    def reopen(self) -> None:
        """After a crash; looks at everything that was promised."""
        self.store.close()
        self.store = Store.open(self.folder, system=self.disk)
        self.check()

    def check(self) -> None:
        """Nothing acknowledged is lost, nothing seen has changed, nothing is half there."""
        assert self.store.own_logs_read_only is None
        read = self.store.read(
            self.own_key, 1, entries_max=10_000, bytes_max=1 << 30, with_payload=False
        )
        hashes = {entry.seq: entry.hash for entry in read}
        assert self.own.items() <= hashes.items()
        assert self.shown.items() <= hashes.items()
        self.shown |= hashes
        assert list(hashes) == list(range(1, len(hashes) + 1))
        together = {
            (log_id, entry.seq): entry.hash
            for log_id in (5, 6)
            for entry in self.store.read(
                LogKey(self.store.author, log_id),
                1,
                entries_max=10_000,
                bytes_max=1 << 30,
                with_payload=False,
            )
        }
        assert self.both.items() <= together.items()
        counts = [sum(log_id == each for log_id, _ in together) for each in (5, 6)]
        assert counts[0] == 2 * counts[1]
        held = self.store.read(
            self.foreign.key, 1, entries_max=10_000, bytes_max=1 << 30, with_payload=False
        )
        assert self.put <= {entry.seq for entry in held}
        assert {e.seq: e.hash for e in held}.items() <= {
            seq: e.hash for seq, e in self.foreign.entries.items()
        }.items()
        for seq, data in self.held.items():
            with self.store.open_payload(self.other.key, seq) as reader:
                assert reader.read(0, LARGE) == data
        faults = [str(found) for found in self.store.verify() if not isinstance(found, LogVerdict)]
        assert faults == []
        # Taken as acknowledged from here on, which makes the next check the stricter.
        self.put |= {entry.seq for entry in held}


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A world of the seed that the test is parametrized with."""
    seed = request.param
    disk = SimDisk(seed)
    made = World(tmp_path / "store", disk, random.Random(seed))
    yield made
    made.store.close()
    disk.unregister()


def act_until_a_sync_fails(world: World) -> None:
    """Works until one of the next syncs has failed."""
    remaining = world.rng.randint(1, 8)

    def fault(what: str, number: int) -> None:
        nonlocal remaining
        remaining -= what == "sync"
        if what == "sync" and remaining == 0:
            raise OSError(errno.EIO, "simulated")

    world.disk.fault = fault
    with suppress(StoreError):
        while remaining > 0:
            world.act()


def run_until_cut(world: World, operations: int) -> None:
    """Works until the power is cut before the given number of operations from now."""
    last = world.disk.operations + operations

    def fault(kind: str, number: int) -> None:
        if number >= last:
            raise PowerCutError(errno.EIO, "no power")

    world.disk.fault = fault
    with pytest.raises(StoreError):
        world.act_for_ever()
    world.store.close()
    world.disk.cut_power()


def cut_often(world: World, cuts: int) -> None:
    for _ in range(cuts):
        run_until_cut(world, world.rng.randint(1, 80))
        world.reopen()


@pytest.mark.parametrize("world", range(15), indirect=True)
@pytest.mark.rule("P2P-8.18")
def test_a_power_cut_loses_nothing_that_was_acknowledged(world: World) -> None:
    """20 cuts at random operations for each seed: 300 in all."""
    cut_often(world, 20)
    assert world.own or world.both


@pytest.mark.long
@pytest.mark.parametrize("world", range(1000, 1100), indirect=True)
def test_thousands_of_power_cuts_lose_nothing(world: World) -> None:
    """100 cuts for each seed: 10,000 in all."""
    cut_often(world, 100)
    assert world.own or world.both


@pytest.mark.parametrize("world", range(3), indirect=True)
def test_a_cut_while_opening_after_a_cut_loses_nothing(world: World) -> None:
    interrupted = 0
    for _ in range(15):
        run_until_cut(world, world.rng.randint(20, 80))
        last = world.disk.operations + world.rng.randint(1, 6)

        def fault(kind: str, number: int, last: int = last) -> None:
            if number >= last:
                raise PowerCutError(errno.EIO, "no power")

        world.disk.fault = fault
        try:
            world.reopen()
        except StoreError:
            interrupted += 1
        world.disk.cut_power()
        world.reopen()
    assert interrupted > 3
    assert world.own or world.both


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("kind", ["write", "sync"])
@pytest.mark.parametrize("world", [1], indirect=True)
def test_each_write_and_sync_may_fail_once(world: World, kind: str, code: int) -> None:
    """The n-th write or sync fails: the error says so, and work goes on with nothing lost."""
    failures: set[type[StoreError]] = set()
    for nth in range(1, 41):
        remaining = nth

        def fault(what: str, number: int) -> None:
            nonlocal remaining
            if what == kind:
                remaining -= 1
                if remaining == 0:
                    raise OSError(code, "simulated")

        world.disk.fault = fault
        while remaining > 0:
            try:
                world.act()
            except StoreError as error:
                failures.add(type(error))
        world.disk.fault = lambda what, number: None
        world.check()
        world.act()
    assert (StoreFull if code == errno.ENOSPC and kind == "write" else StoreFailed) in failures


@pytest.mark.parametrize("world", range(4), indirect=True)
def test_a_failed_sync_and_then_a_power_cut_lose_nothing(world: World) -> None:
    """A sync that failed forgets what it should have written; the next one says it worked."""
    for _ in range(12):
        act_until_a_sync_fails(world)
        run_until_cut(world, world.rng.randint(1, 30))
        world.reopen()
    assert world.own or world.put


@pytest.mark.parametrize("world", range(8), indirect=True)
def test_what_failed_syncs_have_lost_is_never_put_into_the_database(world: World) -> None:
    """What was to be committed is still seen in the write-ahead log when it is opened again."""
    for _ in range(12):
        first = world.rng.randint(1, 8)
        failing, syncs = range(first, first + world.rng.randint(1, 4)), 0

        def fault(what: str, number: int, failing: range = failing) -> None:
            nonlocal syncs
            syncs += what == "sync"
            if what == "sync" and syncs in failing:
                raise OSError(errno.EIO, "simulated")

        world.disk.fault = fault
        while syncs < failing[-1]:
            with suppress(StoreError):
                world.act()
        run_until_cut(world, world.rng.randint(1, 14))
        world.reopen()
    assert world.own or world.put


@pytest.mark.parametrize("world", [5], indirect=True)
def test_a_full_disk_stays_readable_and_goes_on_when_there_is_space(world: World) -> None:
    for _ in range(5):
        world.act()

    def full(what: str, number: int) -> None:
        if what in ("write", "create"):
            raise OSError(errno.ENOSPC, "simulated")

    world.disk.fault = full
    for _ in range(20):
        with pytest.raises(StoreFull, match="disk is full"):
            world.store.append([b"x" * 3000])
        with pytest.raises(StoreFull, match="disk is full"):
            world.store.append_many([(5, [b"x", b"y"]), (6, [b"z" * 3000])])
    world.check()
    world.disk.fault = lambda what, number: None
    world.store.append([b"space"])
    world.store.append_many([(5, [b"x", b"y"]), (6, [b"z"])])
    world.check()


@pytest.mark.parametrize("world", range(6), indirect=True)
def test_what_a_failed_sync_may_have_lost_is_not_shown_where_it_cannot_be_written_again(
    world: World,
) -> None:
    """Else others have an own entry that a power cut takes back, and its number is signed anew."""
    world.store.append([b"before"])
    failed: list[str] = []

    def fault(what: str, number: int) -> None:
        if what == "sync" and not failed:
            failed.append(what)
            raise OSError(errno.EIO, "simulated")
        if what == "write" and failed:
            raise OSError(errno.ENOSPC, "simulated")

    world.disk.fault = fault
    with pytest.raises(StoreFailed):
        world.store.append([b"perhaps"])
    for _ in range(3):
        with pytest.raises(StoreFull):
            world.store.log(world.own_key)
    if world.disk.rng.random() < 0.5:
        world.disk.cut_power()
    world.disk.fault = lambda what, number: None
    shown = world.store.read(world.own_key, 1, entries_max=9, bytes_max=1 << 20, with_payload=False)
    world.disk.cut_power()
    world.reopen()
    again = world.store.read(world.own_key, 1, entries_max=9, bytes_max=1 << 20, with_payload=False)
    assert [entry.hash for entry in again] == [entry.hash for entry in shown]


def test_no_reader_sees_what_a_failed_sync_may_have_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append([b"before"])
    key = LogKey(store.author, 0)

    def fails(*_: object, **__: object) -> bool:
        raise OSError(errno.EIO, "simulated")

    monkeypatch.setattr("logstore.store.append_entries", fails)
    with pytest.raises(StoreFailed):
        store.append([b"perhaps"])
    with monkeypatch.context() as patched:
        patched.setattr("logstore.database.write_again", fails)
        with pytest.raises(StoreFailed):
            store.log(key)
    info = store.log(key)
    assert info is not None
    assert info.height == 1


@pytest.mark.parametrize("world", range(8), indirect=True)
def test_a_failed_sync_whose_process_was_killed_loses_nothing(world: World) -> None:
    """The next process knows nothing of it, and its own syncs say that all is well."""
    for _ in range(12):
        act_until_a_sync_fails(world)
        world.disk.fault = lambda what, number: None
        for file in world.disk.files.values():
            file.locked_by = None
        world.store = Store.open(world.folder, system=world.disk)
        run_until_cut(world, 1)
        world.reopen()
    assert world.own or world.both
