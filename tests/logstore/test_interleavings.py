"""Processes on one store, interleaved at every place where one can be stopped or killed.

What each of them was told is compared with what the store holds in the end, whoever else appended,
dropped, received, opened, collected, verified or backed up meanwhile.
"""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logstore import (
    EntryRejected,
    KeepRule,
    LogVerdict,
    NewEntry,
    PayloadBusy,
    PayloadDropped,
    PayloadState,
    PayloadUnavailable,
    Store,
)
from tests.logstore.authors import AuthorLog, signing_key
from tests.logstore.processes import Scheduler, SteppedSystem, Switch, step, stepped_databases
from wire import LogKey, yamf_hash

FOREIGN = AuthorLog(1)
LARGE = [bytes([n]) * (65_537 + n) for n in range(4)]
ENTRIES = [FOREIGN.add(seq, LARGE[seq]) for seq in (1, 2)]
OWN = LogKey(bytes(signing_key(9).verify_key), 0)


@dataclass
class World:
    """A store, and what its processes were told."""

    path: Path
    held: dict[tuple[LogKey, int], bytes] = field(default_factory=dict)
    """Payloads that were acknowledged; in question is what somebody dropped."""
    dropped: set[tuple[LogKey, int]] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    backups: int = 0

    @property
    def system(self) -> SteppedSystem:
        """The operating system of each process."""
        return SteppedSystem(self.path.with_name("state"))

    def prepare(self) -> None:
        """One own entry, one foreign payload that is held, and one that was begun."""
        with Store.create(self.path, signing_key=signing_key(9), system=self.system) as store:
            store.append([LARGE[0]])
            store.put_entries(
                FOREIGN.key, [NewEntry(e.seq, e.encoded, e.hash) for e in ENTRIES], source="peer"
            )
            store.complete_payload(FOREIGN.key, 2, LARGE[2])
            payload = LARGE[1]
            with store.payload_sink(
                FOREIGN.key, 1, len(payload), yamf_hash(payload), source="a"
            ) as sink:
                sink.write(payload[:40_000])
        self.held = {(OWN, 1): LARGE[0], (FOREIGN.key, 2): LARGE[2]}

    # --- what a process may do ------------------------------------------------------------------

    def append(self, store: Store) -> None:
        for each in store.append([LARGE[3]]):
            self.held[each.key, each.seq] = LARGE[3]

    def collect(self, store: Store) -> None:
        store._files.collect()

    def open(self, store: Store) -> None:
        assert store.path is not None
        with Store.open(store.path, system=store._system):
            pass

    def drop_own(self, store: Store) -> None:
        self.dropped |= {(OWN, 1)}
        store.drop(OWN, 1, 1)

    def drop_foreign(self, store: Store) -> None:
        self.dropped |= {(FOREIGN.key, 1), (FOREIGN.key, 2)}
        store.drop(FOREIGN.key)

    def tidy_foreign(self, store: Store) -> None:
        self.dropped |= {(FOREIGN.key, 1)}
        store.keep(FOREIGN.key.author, KeepRule(last=1))
        store.tidy()

    def tidy_own(self, store: Store) -> None:
        """By bytes: what has come meanwhile is kept, and what was there goes for it."""
        store.keep(OWN, KeepRule(bytes=len(LARGE[3])))
        before = {
            (OWN, entry.seq)
            for entry in store.read(OWN, 1, entries_max=9, bytes_max=1, with_payload=False)
        }
        gone = {(each.key, each.newest_seq) for each in store.tidy(OWN)}
        self.dropped |= before | gone

    def receive(self, store: Store) -> None:
        self._receive(store, len(LARGE[1]))

    def begin_to_receive(self, store: Store) -> None:
        self._receive(store, 50_000)

    def _receive(self, store: Store, end: int) -> None:
        key, payload = FOREIGN.key, LARGE[1]
        try:
            with store.payload_sink(key, 1, len(payload), yamf_hash(payload), source="b") as sink:
                sink.write(payload[sink.offset : max(sink.offset, end)])
                if sink.offset < len(payload):
                    return
                whole = sink.finish()
            store.complete_payload(key, 1, whole)
        except (PayloadBusy, PayloadDropped):
            return
        except EntryRejected as error:
            # Taken over by another as soon as it was finished, and then given up.
            if "the payload file is gone" not in str(error):
                raise
            return
        self.held[key, 1] = payload

    def give_up(self, store: Store) -> None:
        key, payload = FOREIGN.key, LARGE[1]
        try:
            store.payload_sink(key, 1, len(payload), yamf_hash(payload), source="b").discard()
        except PayloadBusy:
            return

    def verify(self, store: Store) -> None:
        self.faults += [str(f) for f in store.verify(collect=True) if not isinstance(f, LogVerdict)]

    def back_up(self, store: Store) -> None:
        self.backups += 1
        target = self.path.with_name(f"backup{self.backups}")
        store.backup(target)
        with Store.open(target, readonly=True) as copy:
            self.faults += [f"backup: {f}" for f in copy.verify() if not isinstance(f, LogVerdict)]

    def read(self, store: Store) -> None:
        for key in (OWN, FOREIGN.key):
            for entry in store.read(key, 1, entries_max=9, bytes_max=1 << 20, with_payload=False):
                if entry.payload_state is PayloadState.PRESENT and entry.payload is None:
                    self._read(store, key, entry.seq)

    def _read(self, store: Store, key: LogKey, seq: int) -> None:
        try:
            with store.open_payload(key, seq) as reader:
                assert len(reader.read(0, 1 << 20)) >= 65_537
        except PayloadUnavailable:
            assert (key, seq) in self.dropped

    # --- what has to be true --------------------------------------------------------------------

    def judge(self) -> None:
        """Compares byte for byte, and checks that nothing is left over."""
        assert self.faults == []
        with Store.open(self.path) as store:
            store._files.collect()
            for (key, seq), payload in self.held.items():
                entry = store.entry(key, seq)
                assert entry is not None, f"entry {seq} is gone"
                if entry.payload_state is not PayloadState.PRESENT:
                    assert (key, seq) in self.dropped, f"nobody dropped {seq}"
                    continue
                with store.open_payload(key, seq) as reader:
                    assert reader.read(0, 1 << 20) == payload
            assert [str(f) for f in store.verify() if not isinstance(f, LogVerdict)] == []
            with store._database.read() as db:
                rows = {id_ for (id_,) in db.execute("SELECT id FROM files WHERE state <> 1")}
            listed = set(store._files.listed())
            assert rows <= listed, "a file is gone"


ACTS = (
    "append",
    "collect",
    "open",
    "drop_own",
    "drop_foreign",
    "tidy_foreign",
    "tidy_own",
    "receive",
    "begin_to_receive",
    "give_up",
    "verify",
    "back_up",
    "read",
)


def run(
    programs: list[list[str]], switches: list[Switch], kill: tuple[int, int] | None = None
) -> list[int]:
    """Runs a process for each program on a new store; returns how many steps each took."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stores, stepped_databases():
        world = World(Path(folder) / "store")
        world.prepare()

        def process(program: list[str]) -> Callable[[], None]:
            store = stores.enter_context(Store.open(world.path, system=world.system))

            def act() -> None:
                for name in program:
                    getattr(world, name)(store)

            return act

        scheduler = Scheduler([process(program) for program in programs])
        scheduler.run(switches, kill)
        stores.close()
        world.judge()
        return [each.steps for each in scheduler.processes]


def run_all_pairs_of_stops(first: str, second: str) -> None:
    """The first stops once, the second stops once while it does, and the first runs on then."""
    own, other = run([[first], [second]], [])
    for at in range(1, own + 1):
        for inside in range(1, other + 1):
            run([[first], [second]], [(at, 0), (inside, 1)])


PROGRAMS = st.lists(st.lists(st.sampled_from(ACTS), min_size=1, max_size=2), min_size=2, max_size=3)
SWITCHES = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 2)), max_size=8)
KILLS = st.none() | st.tuples(st.integers(0, 1), st.integers(1, 60))


# Each example makes a store and opens it several times.
@settings(max_examples=settings().max_examples // 2)
@given(programs=PROGRAMS, switches=SWITCHES, kill=KILLS)
@example(
    programs=[["append", "give_up"], ["append", "give_up"], ["collect", "begin_to_receive"]],
    switches=[(9, 2), (38, 2), (16, 0), (20, 2), (4, 0)],
    kill=(1, 12),
)
def test_processes_in_any_order(
    programs: list[list[str]], switches: list[Switch], kill: tuple[int, int] | None
) -> None:
    run(programs, switches, kill)


def test_processes_that_wait_for_each_other_are_told_and_ended() -> None:
    def wait() -> None:
        while True:
            step(waits=True)

    with pytest.raises(AssertionError, match="wait for each other"):
        Scheduler([wait, wait]).run([])


def test_an_append_and_a_collection_are_stopped_everywhere() -> None:
    """What is being appended when the collection looks is an entry's when it removes."""
    run_all_pairs_of_stops("append", "collect")


@pytest.mark.long
@pytest.mark.parametrize("first", ["append", "receive", "begin_to_receive", "give_up"])
@pytest.mark.parametrize("second", ACTS)
def test_two_processes_are_stopped_everywhere(first: str, second: str) -> None:
    run_all_pairs_of_stops(first, second)


def test_whoever_waits_for_ever_is_noticed() -> None:
    """The tests above would else be waited for themselves."""

    def wait() -> None:
        while True:
            step(waits=True)

    with pytest.raises(AssertionError, match="wait for each other"):
        Scheduler([wait, wait]).run([])
