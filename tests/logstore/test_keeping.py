"""Rules delete what they name, whatever happens: logstore/keep_rules.py, keeping.py, tidying.py."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logstore import (
    ALL,
    PAUSE_S,
    Completion,
    Follow,
    Keeper,
    KeepRule,
    LogFollowed,
    LogUnknown,
    LogVerdict,
    NewEntry,
    PayloadDropped,
    PayloadState,
    PolicyKind,
    Store,
    Subscription,
    System,
    Tidied,
    forgetting,
    merged,
    tidying,
)
from tests.logstore.authors import AuthorLog, signing_key
from tests.logstore.keeping_model import KeepingModel
from wire import LogKey, yamf_hash

SECOND = 1_000_000
LOGS = [AuthorLog(1), AuthorLog(1, 5), AuthorLog(2)]
LARGE = bytes(70_000)
for each in LOGS:
    for number in range(1, 14):
        each.add(number, LARGE if number == 5 else b"payload %3d" % number)
OWN = LogKey(bytes(signing_key(9).verify_key), 0)
SEQS = st.integers(1, 13)
FOREIGN = st.integers(0, len(LOGS) - 1)
KEYS = st.sampled_from([OWN, *(log.key for log in LOGS)])
TARGETS: st.SearchStrategy[Follow] = st.sampled_from(
    [ALL, OWN, OWN.author, LOGS[0].key.author, *(log.key for log in LOGS)]
)
RULES = st.builds(
    KeepRule,
    last=st.sampled_from([None, None, 0, 1, 3, 8]),
    age_s=st.sampled_from([None, None, 0, 1, 4]),
    bytes=st.sampled_from([None, None, 0, 22, 70_000, 70_033]),
).filter(lambda rule: rule != KeepRule())
LATEST = [Subscription(), *(Subscription(PolicyKind.LATEST, count=n) for n in (1, 4))]


class Clock(System):
    """Time stands still unless it is told to go on."""

    now = 1_000 * SECOND

    def now_us(self) -> int:
        return self.now

    def sleep(self, _: float) -> None:
        """Nobody is waited for."""


class KeepingMachine(RuleBasedStateMachine):
    """Does the same to a store and to a model, with few rows at a time."""

    @initialize(
        in_memory=st.booleans(),
        steady=st.booleans(),
        rules=st.dictionaries(TARGETS, RULES, min_size=1, max_size=3),
    )
    def create(self, in_memory: bool, steady: bool, rules: dict[Follow, KeepRule]) -> None:
        """`steady`: these are the rules, and one keeper has been at it all the time."""
        self.patch = pytest.MonkeyPatch()
        for name, value in (("ROWS", 3), ("QUEUE_ROWS", 4), ("CHANGES_MAX", 25)):
            self.patch.setattr(tidying, name, value)
        self.patch.setattr(forgetting, "ROWS", 3)
        self.folder = tempfile.TemporaryDirectory()
        self.patch.setenv("BAMBOO_PEER_STATE", f"{self.folder.name}/state")
        self.clock = Clock()
        self.path = None if in_memory else Path(self.folder.name) / "store"
        if self.path is None:
            self.store = Store.memory(signing_key=signing_key(9), system=self.clock)
        else:
            self.store = Store.create(self.path, signing_key=signing_key(9), system=self.clock)
        self.model = KeepingModel(self.store.author)
        self.keeper: Keeper | None = None
        self.steady = steady
        for named, kept in rules.items() if steady else ():
            self.store.keep(named, kept)
            self.model.rules[named] = kept

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()
            self.patch.undo()

    # What is forgotten

    @rule(log=FOREIGN, whole=st.booleans())
    def forget(self, log: int, whole: bool) -> None:
        """A log, or all of its author's, unless it is followed."""
        key = LOGS[log].key
        target = key.author if whole else key
        held = [each for each in sorted(self.model.logs) if target in (each, each.author)]
        held = [each for each in held if self.model.logs[each]]
        if any(each in self.model.follows for each in (target, key.author, ALL, *held)):
            with pytest.raises(LogFollowed):
                self.store.forget(target)
        elif not held:
            with pytest.raises(LogUnknown):
                self.store.forget(target)
        else:
            would = self.store.plan_forgetting(target)
            assert [each.key for each in would] == held
            assert self.store.forget(target) == would
            for each in held:
                del self.model.logs[each]
                self.model.fetched.pop(each, None)

    # What goes back to the disk

    @rule()
    def compact(self) -> None:
        self.store.compact()

    # What comes

    @rule(count=st.integers(1, 6))
    def append(self, count: int) -> None:
        for appended in self.store.append([b"own payload"] * count):
            self._put(appended.key, appended.seq, 11, with_payload=True, undeletes=True)

    @rule(log=FOREIGN, last=SEQS, without=st.sets(SEQS), peer=st.booleans())
    def replicate(self, log: int, last: int, without: set[int], peer: bool) -> None:
        """All up to an entry, some without their payloads; from a peer or by `import`."""
        self._bring(LOGS[log], [*range(1, last + 1)], without, peer=peer)

    @rule(log=FOREIGN, seqs=st.lists(SEQS, unique=True), without=st.sets(SEQS), peer=st.booleans())
    def replicate_parts(self, log: int, seqs: list[int], without: set[int], peer: bool) -> None:
        taken: list[int] = []
        for seq in sorted(seqs):
            if self.model.fits(LOGS[log].key, taken, seq):
                taken.append(seq)
        self._bring(LOGS[log], taken, without, peer=peer)

    def _bring(self, log: AuthorLog, seqs: list[int], without: set[int], *, peer: bool) -> None:
        entries = [log.entries[seq] for seq in seqs]
        given = [NewEntry(e.seq, e.encoded, e.hash) if e.seq in without else e for e in entries]
        giver = b"peer" if peer else None
        self.store.put_many([(log.key, given)], source="peer", giver=giver)
        for entry in entries:
            payload, whole = entry.payload, entry.seq not in without
            assert isinstance(payload, bytes)
            size = len(payload)
            self._put(log.key, entry.seq, size, with_payload=whole, undeletes=not peer)
        self.model.settle()

    @rule(log=FOREIGN, seq=SEQS, cut=st.integers(0, 70_000))
    def receive(self, log: int, seq: int, cut: int) -> None:
        """A payload comes by itself from a peer, or a part of it."""
        key = LOGS[log].key
        held = self.model.logs.get(key, {}).get(seq)
        if held is None or held.state == "present":
            return
        payload = LOGS[log].entries[seq].payload
        assert isinstance(payload, bytes)
        wanted = (key, seq, len(payload), yamf_hash(payload))
        with self.store.payload_sink(*wanted, source="a", giver=b"peer") as sink:
            sink.write(payload[sink.offset : max(cut, sink.offset)])
            held.has_part = 0 < sink.offset < len(payload)
            if sink.offset < len(payload):
                return
            whole = sink.finish()
        if held.state == "deleted" and not self.model.is_fetched(key, seq):
            with pytest.raises(PayloadDropped):
                self.store.complete_payload(key, seq, whole, giver=b"peer")
            return
        assert self.store.complete_payload(key, seq, whole, giver=b"peer")
        self._put(key, seq, len(payload), with_payload=True, undeletes=False)

    def _put(
        self, log: LogKey, seq: int, size: int, *, with_payload: bool, undeletes: bool
    ) -> None:
        self.model.put(
            log, seq, size, self.clock.now, with_payload=with_payload, undeletes=undeletes
        )

    # What is wanted

    @rule(log=FOREIGN, first=SEQS, count=st.integers(0, 4))
    def fetch(self, log: int, first: int, count: int) -> None:
        key = LOGS[log].key
        self.store.want(key, first, first + count)
        self.model.fetched.setdefault(key, set()).add((first, first + count))

    @rule(data=st.data())
    def fetch_no_more(self, data: st.DataObject) -> None:
        wanted = [(log, *each) for log, ranges in self.model.fetched.items() for each in ranges]
        if wanted:
            log, first, last = data.draw(st.sampled_from(sorted(wanted)))
            assert self.store.unwant(log, first, last)
            self.model.fetched[log].remove((first, last))

    @precondition(lambda self: not self.steady)
    @rule(named=TARGETS, wanted=st.sampled_from(LATEST))
    def follow(self, named: Follow, wanted: Subscription) -> None:
        self.store.follow(named, wanted)
        self.model.follows[named] = wanted

    @precondition(lambda self: not self.steady)
    @rule(named=TARGETS)
    def unfollow(self, named: Follow) -> None:
        self.store.unfollow(named)
        self.model.follows.pop(named, None)

    # What goes

    @precondition(lambda self: not self.steady)
    @rule(named=TARGETS, kept=RULES)
    def keep(self, named: Follow, kept: KeepRule) -> None:
        asked = {**self.model.rules, named: kept}
        would = self.model.lines(self.model.goes(self.clock.now, rules=asked))
        assert self.store.plan_tidying(rules=asked) == would
        assert self.store.keep(named, kept) == (self.model.rules.get(named) != kept)
        self.model.rules[named] = kept

    @precondition(lambda self: not self.steady)
    @rule(named=TARGETS)
    def keep_everything(self, named: Follow) -> None:
        found = self.model.rules.pop(named, None)
        assert self.store.keep(named, None) == (found is not None)

    @rule(log=KEYS, first=SEQS, last=SEQS)
    def drop(self, log: LogKey, first: int, last: int) -> None:
        self.store.drop(log, first, last)
        self.model.drop(log, first, last)

    @rule(named=st.one_of(st.none(), TARGETS))
    def tidy(self, named: Follow | None) -> None:
        gone = self.model.goes(self.clock.now, named)
        assert self.store.plan_tidying(named) == self.model.lines(gone)
        assert self.store.tidy(named) == self.model.lines(gone)
        self.model.delete(gone)

    @rule()
    def node_tidies(self) -> None:
        """Whoever has been at it all the time comes to the same as who looks at everything."""
        self._node_tidies()

    @precondition(lambda self: self.steady)
    @rule(log=FOREIGN, last=SEQS, without=st.sets(SEQS))
    def node_tidies_what_comes(self, log: int, last: int, without: set[int]) -> None:
        self._node_tidies()
        self.replicate(log, last, without, peer=True)
        self._node_tidies()

    def _node_tidies(self) -> None:
        gone = self.model.goes(self.clock.now)
        done = []
        self.keeper = self.keeper or self.store.keeper()
        while self.keeper.look():
            done += self.keeper.act()
        assert merged(done) == self.model.lines(gone)
        self.model.delete(gone)

    @precondition(lambda self: not self.steady)
    @rule(steps=st.integers(1, 3))
    def node_is_killed(self, steps: int) -> None:
        """It has got so far, and what it would have done is done by the next one."""
        gone = self.model.goes(self.clock.now)
        keeper = self.store.keeper()
        for _ in range(steps):
            if keeper.look():
                keeper.act()
        self.model.delete(
            {
                (log, seq): kind
                for (log, seq), kind in gone.items()
                if (entry := self.store.entry(log, seq)) and entry.payload_state == "deleted"
            }
        )
        self._restart()

    @rule(seconds=st.sampled_from([1, 1, 2, 5]))
    def wait(self, seconds: int) -> None:
        self.clock.now += seconds * SECOND

    @precondition(lambda self: not self.steady)
    @rule()
    def restart(self) -> None:
        self._restart()

    def _restart(self) -> None:
        if self.path is not None:
            self.store.close()
            self.store = Store.open(self.path, system=self.clock)
            self.keeper = None

    # What is held

    @invariant()
    def the_store_equals_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        self.model.settle()
        assert self.store.keeps() == self.model.rules
        for log, entries in self.model.logs.items():
            read = self.store.read(log, 1, entries_max=1000, bytes_max=1 << 30, with_payload=False)
            states = {
                e.seq: "missing" if e.payload_state == "partial" else e.payload_state for e in read
            }
            assert states == {seq: held.state for seq, held in sorted(entries.items())}
            assert self.store.missing_payloads(log, limit=99) == self.model.askable(
                log, self.clock.now
            )
        assert all(isinstance(found, LogVerdict) for found in self.store.verify())


KeepingMachine.TestCase.settings = settings(
    max_examples=settings().max_examples,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestRulesDeleteWhatTheyName = KeepingMachine.TestCase


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kept(clock: Clock) -> Iterator[Store]:
    """A store with all of one log."""
    with Store.memory(signing_key=signing_key(9), system=clock) as store:
        put(store, range(1, 14))
        yield store


def put(store: Store, seqs: Iterable[int]) -> None:
    store.put_entries(LOGS[0].key, [LOGS[0].entries[seq] for seq in seqs], source="peer")


def present(store: Store, key: LogKey = LOGS[0].key) -> list[int]:
    read = store.read(key, 1, entries_max=10_000, bytes_max=1 << 30, with_payload=False)
    return [entry.seq for entry in read if entry.payload_state is PayloadState.PRESENT]


def test_a_rule_says_how_long_a_payload_stays(kept: Store, clock: Clock) -> None:
    key = LOGS[0].key
    assert kept.keep(key, KeepRule(last=4))
    assert not kept.keep(key, KeepRule(last=4))
    [line] = kept.plan_tidying()
    sizes = 70_000 + 8 * 11
    assert line == Tidied(key, 9, sizes, 1, 9, "log")
    assert kept.tidy() == [line]
    assert kept.tidy() == []
    assert present(kept) == [10, 11, 12, 13]
    clock.now += 11 * SECOND
    kept.keep(key, KeepRule(age_s=10))
    assert present(kept) == [10, 11, 12, 13]
    kept.tidy()
    assert present(kept) == []
    assert kept.keep(key, None)
    assert kept.missing_payloads(key, limit=1) == []


def test_the_nearest_rule_counts_and_all_of_it(kept: Store) -> None:
    own = kept.append([b"own"] * 5)[-1].key
    kept.keep(ALL, KeepRule(last=1))
    kept.keep(LOGS[0].key.author, KeepRule(bytes=1 << 30))
    assert kept.tidy() == []
    assert present(kept, own) == [1, 2, 3, 4, 5]
    kept.keep(LOGS[0].key.author, None)
    kept.keep(own.author, KeepRule(last=2))
    kinds = {each.key: each.rule for each in kept.tidy()}
    assert kinds == {LOGS[0].key: "all", own: "author"}
    assert present(kept) == [13]
    assert present(kept, own) == [4, 5]


def test_a_log_of_which_the_latest_are_wanted_keeps_no_more(kept: Store) -> None:
    kept.follow(ALL, Subscription(PolicyKind.LATEST, count=3))
    assert [each.rule for each in kept.plan_tidying()] == ["latest"]
    kept.keep(LOGS[0].key, KeepRule(last=5))
    kept.tidy()
    assert present(kept) == [9, 10, 11, 12, 13]
    kept.keep(LOGS[0].key, None)
    kept.tidy()
    assert present(kept) == [11, 12, 13]


def test_a_peer_brings_nothing_back_and_import_does(kept: Store) -> None:
    key = LOGS[0].key
    kept.keep(key, KeepRule(last=1))
    kept.tidy()
    several = [LOGS[0].entries[seq] for seq in (3, 4)]
    [result] = kept.put_many([(key, several)], source="peer", giver=b"peer")
    assert (result.known, present(kept)) == (2, [13])
    kept.put_many([(key, several)], source="bundle", undeletes=False)
    assert present(kept) == [13]
    kept.put_many([(key, several)], source="import")
    assert present(kept) == [3, 4, 13]
    assert [each.count for each in kept.tidy()] == [2]


@pytest.mark.parametrize("seq", [4, 5])
def test_a_payload_that_was_deleted_while_it_came_is_not_kept(kept: Store, seq: int) -> None:
    payload = LOGS[0].entries[seq].payload
    assert isinstance(payload, bytes)
    kept.drop(LOGS[0].key, seq, seq)
    wanted = (LOGS[0].key, seq, len(payload), yamf_hash(payload))
    with kept.payload_sink(*wanted, source="a", giver=b"peer") as sink:
        sink.write(payload)
        [done] = kept.complete_payloads([Completion(LOGS[0].key, seq, sink.seal())], giver=b"peer")
    assert isinstance(done.error, PayloadDropped)
    assert seq not in present(kept)
    assert kept.partial_payloads() == {}
    assert all(isinstance(found, LogVerdict) for found in kept.verify())


def test_what_is_arriving_is_left_alone(kept: Store) -> None:
    log = AuthorLog(4)
    kept.put_entries(log.key, [log.add(1, LARGE, held=False), log.add(2, b"small")], source="peer")
    wanted = (log.key, 1, len(LARGE), yamf_hash(LARGE))
    with kept.payload_sink(*wanted, source="a", giver=b"peer") as sink:
        sink.write(LARGE[:60_000])
        kept.keep(log.key, KeepRule(last=1))
        assert kept.tidy() == []
        sink.write(LARGE[60_000:])
        assert kept.complete_payload(log.key, 1, sink.finish(), giver=b"peer")
    assert [each.count for each in kept.tidy()] == [1]


@pytest.mark.parametrize("column", ["value", "name"])
def test_while_a_rule_is_damaged_everything_is_kept(tmp_path: Path, column: str) -> None:
    path = tmp_path / "store"
    with Store.create(path, signing_key=signing_key(9)) as store:
        put(store, range(1, 14))
        store.keep(ALL, KeepRule(last=1))
        store.keep(LOGS[0].key, KeepRule(last=10))
    db = apsw.Connection(str(path / "store.sqlite3"))
    damaged = "x'00'" if column == "value" else "'keep/zz'"
    db.execute(f"UPDATE memory SET {column} = {damaged} WHERE name LIKE 'keep/%/0'")
    db.close()
    with Store.open(path) as store:
        assert store.tidy() == []
        assert not all(isinstance(found, LogVerdict) for found in store.verify())
        if column == "value":
            store.keep(LOGS[0].key, KeepRule(last=10))
            assert [each.rule for each in store.tidy()] == ["log"]


@pytest.mark.parametrize(
    "limits", [{"last": -1}, {"bytes": 1 << 64}, {"age_s": -1.0}, {"age_s": float("nan")}]
)
def test_a_limit_is_a_number_from_zero_on(limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="it is a number"):
        KeepRule(**limits)  # type: ignore[arg-type]


def test_a_rule_without_a_limit_is_none(kept: Store) -> None:
    with pytest.raises(ValueError, match="a rule has a limit"):
        kept.keep(ALL, KeepRule())
    with pytest.raises(ValueError, match="32 bytes"):
        kept.keep(b"short", KeepRule(last=1))


@pytest.mark.parametrize("rule", [KeepRule(last=2), KeepRule(age_s=10), KeepRule(bytes=30)])
def test_nothing_is_looked_through_twice(
    kept: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, rule: KeepRule
) -> None:
    """Something comes every second to a store of which nearly all was deleted."""
    log = AuthorLog(4)
    kept.keep(ALL, rule)
    keeper = kept.keeper()

    def tidy() -> list[Tidied]:
        done = []
        while keeper.look():
            done += keeper.act()
        return done

    tidy()
    for name in ("held_of", "rows_of_logs", "load_logs_after"):
        monkeypatch.setattr(tidying, name, None)
    gone = 0
    for seq in range(1, 31):
        clock.now += SECOND
        kept.put_entries(log.key, [log.add(seq, b"some bytes")], source="peer")
        gone += sum(each.count for each in tidy() if each.key == log.key)
    assert gone == {2: 28, None: 19 if rule.age_s else 27}[rule.last]


def tidied(keeper: Keeper) -> list[int]:
    """The newest numbers of what it deletes, in steps."""
    done = []
    while keeper.look():
        done += [each.newest_seq for each in keeper.act()]
    return done


def test_what_was_fetched_goes_once_nobody_fetches_it(kept: Store) -> None:
    key = LOGS[0].key
    kept.drop(key, 2, 2)
    kept.want(key, 1, 2)
    kept.keep(key, KeepRule(last=10))
    keeper = kept.keeper()
    assert tidied(keeper) == [3]
    kept.unwant(key, 1, 2)
    assert tidied(keeper) == [1]


def test_the_bytes_of_a_rule_are_counted_as_they_come_and_go(kept: Store) -> None:
    log = AuthorLog(4)
    kept.put_entries(log.key, log.add_all(range(1, 9)), source="peer")  # 9 bytes each
    kept.keep(log.key, KeepRule(bytes=72))
    keeper = kept.keeper()
    assert tidied(keeper) == []
    kept.put_entries(log.key, [log.add(9, b"123456789")], source="peer")
    assert tidied(keeper) == [1]
    kept.drop(log.key, 8, 9)
    kept.put_entries(log.key, [log.add(10, b"123456789")], source="peer")
    assert tidied(keeper) == []
    entry = log.entries[9]
    kept.put_entries(log.key, [entry], source="import")
    assert tidied(keeper) == []
    kept.put_entries(log.key, [log.add(11, b"123456789")], source="peer")
    assert tidied(keeper) == [2]


def test_who_begins_in_the_middle_deletes_the_rest(
    kept: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tidying, "ROWS", 4)
    kept.keep(ALL, KeepRule(last=3))
    keeper = kept.keeper()
    assert keeper.look()
    assert [each.count for each in keeper.act()] == [4]
    kept.keep(ALL, KeepRule(last=8))
    assert keeper.act() == []
    assert present(kept) == [*range(5, 14)]
    assert keeper.look()
    assert [each.newest_seq for each in keeper.act()] == [5]
    assert not keeper.look()


def test_tidying_lets_others_have_the_store(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process appends between two transactions."""
    monkeypatch.setattr(tidying, "ROWS", 2)
    kept.keep(LOGS[0].key, KeepRule(last=3))
    paused: list[float] = []

    def append(seconds: float) -> None:
        paused.append(seconds)
        kept.append([b"in between"])

    monkeypatch.setattr(Clock, "sleep", lambda _, seconds: append(seconds))
    assert [each.count for each in kept.tidy()] == [10]
    assert len(paused) == 5
    assert min(paused) >= PAUSE_S
