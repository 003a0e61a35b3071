"""The store equals a naive model of it under any sequence of operations."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logstore import (
    ALL,
    FULL,
    EntryRejected,
    Follow,
    LogClosed,
    LogState,
    LogVerdict,
    NewEntry,
    PayloadFile,
    PolicyKind,
    Store,
    Subscription,
)
from tests.logstore.authors import AuthorLog, signing_key
from tests.logstore.model import ModelLog, ModelStore
from wire import LogKey, decode_entry, yamf_hash

SEQS = st.integers(1, 16)
LARGE = bytes(70_000)
SUBSCRIPTIONS = [
    Subscription(PolicyKind.METADATA),
    Subscription(PolicyKind.SPARSE, max_bytes=9),
    Subscription(PolicyKind.LATEST, count=4),
    Subscription(PolicyKind.RANGE, first=3, last=9, min_bytes=10),
    Subscription(min_bytes=10, max_bytes=2**64 - 1, eager_bytes=1000),
]


def make_logs() -> list[AuthorLog]:
    """Two logs of 16 entries with payloads of both kinds, the second ending at 11 and going on."""
    logs = [AuthorLog(1), AuthorLog(2, 2**64 - 1)]
    for number, log in enumerate(logs):
        for seq in range(1, 17):
            payload = LARGE if seq == 6 else b"payload %d" % seq
            log.add(seq, payload, is_end=number == 1 and seq == 11)
    return logs


HONEST = make_logs()
FORGED = [{seq: log.make(seq, b"another %d" % seq) for seq in range(1, 17)} for log in HONEST]
# Valid signatures over links that lead nowhere.
STRAY = [
    {seq: log.make(seq, b"stray", backlink=yamf_hash(b"nobody")) for seq in range(2, 17)}
    for log in HONEST
]
TARGETS: st.SearchStrategy[Follow] = st.sampled_from(
    [ALL, *(log.key for log in HONEST), HONEST[0].key.author]
)


class StoreMachine(RuleBasedStateMachine):
    """Does the same to a store and to a model."""

    @initialize(in_memory=st.booleans())
    def create(self, in_memory: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        os.environ["BAMBOO_PEER_STATE"] = f"{self.folder.name}/state"
        self.model = ModelStore()
        self.path = None if in_memory else Path(self.folder.name) / "store"
        if self.path is None:
            self.store = Store.memory(signing_key=signing_key(9))
        else:
            self.store = Store.create(self.path, signing_key=signing_key(9))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()

    @rule(
        log=st.sampled_from([0, 1]), seqs=st.lists(SEQS, min_size=1, max_size=8), held=st.booleans()
    )
    def put(self, log: int, seqs: list[int], held: bool) -> None:
        self._put(log, [self._honest(log, seq, held) for seq in seqs])

    @rule(log=st.sampled_from([0, 1]), first=SEQS, last=SEQS)
    def put_range(self, log: int, first: int, last: int) -> None:
        self._put(log, [self._honest(log, seq, held=True) for seq in range(first, last + 1)])

    @rule(log=st.sampled_from([0, 1]), seq=SEQS)
    def put_forged(self, log: int, seq: int) -> None:
        self._put(log, [FORGED[log][seq]])

    @rule(log=st.sampled_from([0, 1]), seq=st.integers(2, 16))
    def put_stray(self, log: int, seq: int) -> None:
        self._put(log, [STRAY[log][seq]])

    @rule(log=st.sampled_from([0, 1]), seq=SEQS)
    def put_wrong_payload(self, log: int, seq: int) -> None:
        entry = HONEST[log].entries[seq]
        self._put(log, [NewEntry(seq, entry.encoded, entry.hash, b"wrong")])

    @rule(count=st.integers(1, 5), end=st.sampled_from([False, False, False, True]))
    def append(self, count: int, end: bool) -> None:
        key = LogKey(self.store.author, 0)
        log = self.model.logs.setdefault(key, ModelLog())
        payloads = [b"own %d" % n for n in range(count)]
        if log.state is not LogState.LIVE:
            with pytest.raises(LogClosed):
                self.store.append(payloads, end_of_log=end)
            return
        appended = self.store.append(payloads, end_of_log=end)
        assert [each.seq for each in appended] == [
            len(log.entries) + n for n in range(1, count + 1)
        ]
        for each, payload in zip(appended, payloads, strict=True):
            stored = self.store.entry(key, each.seq)
            assert stored is not None
            assert self.model.put(key, each.seq, stored.encoded, payload)

    @rule(log=st.sampled_from([0, 1]), first=SEQS, last=SEQS)
    def drop(self, log: int, first: int, last: int) -> None:
        key = HONEST[log].key
        assert self.store.drop(key, first, last).count == self.model.drop(key, first, last)

    @rule(log=st.sampled_from([0, 1]), seq=SEQS, cut=st.integers(0, 70_000))
    def receive(self, log: int, seq: int, cut: int) -> None:
        key, entry = HONEST[log].key, HONEST[log].entries[seq]
        payload = entry.payload
        assert isinstance(payload, bytes)
        held = self.model.logs.get(key, ModelLog()).entries.get(seq)
        if held is None or held.encoded != entry.encoded:
            return
        wanted = (key, seq, len(payload), yamf_hash(payload))
        with self.store.payload_sink(*wanted, source="a") as sink:
            sink.write(payload[sink.offset : max(cut, sink.offset)])
            if sink.offset < len(payload):
                return
            done = self.store.complete_payload(key, seq, sink.finish())
        assert done == (held.payload is None)
        if done:
            held.payload = payload
            self.model.touch(key, seq)

    @rule(log=st.sampled_from([0, 1]), first=SEQS, last=SEQS)
    def want(self, log: int, first: int, last: int) -> None:
        key = HONEST[log].key
        if first > last:
            with pytest.raises(ValueError, match="no range"):
                self.store.want(key, first, last)
            return
        if first > self.model.logs.get(key, ModelLog()).limit:
            with pytest.raises(LogClosed):
                self.store.want(key, first, last)
            return
        self.model.asked.setdefault(key, set()).add((first, last))
        assert self.store.want(key, first, last) == ((first, last) in self.model.wants(key))

    @rule(log=st.sampled_from([0, 1]), data=st.data())
    def unwant(self, log: int, data: st.DataObject) -> None:
        key = HONEST[log].key
        asked = self.model.wants(key)
        first, last = data.draw(st.sampled_from([*asked, (1, 99)]))
        self.model.asked.setdefault(key, set()).discard((first, last))
        assert self.store.unwant(key, first, last) == ((first, last) in asked)

    @rule(followed=TARGETS, wanted=st.sampled_from([None, *SUBSCRIPTIONS]))
    def follow(self, followed: Follow, wanted: Subscription | None) -> None:
        before = dict(self.model.follows)
        self.model.follows[followed] = wanted or before.get(followed, FULL)
        assert self.store.follow(followed, wanted) == (self.model.follows != before)

    @rule(followed=TARGETS)
    def unfollow(self, followed: Follow) -> None:
        found = self.model.follows.pop(followed, None)
        assert self.store.unfollow(followed) == (found is not None)

    @precondition(lambda self: self.path is not None)
    @rule()
    def reopen(self) -> None:
        assert self.path is not None
        self.store.close()
        self.store = Store.open(self.path)

    @invariant()
    def the_store_equals_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        held = {key: log for key, log in self.model.logs.items() if log.entries}
        assert {info.key for info in self.store.logs()} == set(held)
        for key, log in held.items():
            self._compare(key, log)
        self.model.settle()
        assert self.store.subscriptions() == self.model.follows
        assert self.store.wants() == {
            key: sorted(asked) for key, asked in self.model.asked.items() if asked
        }
        changes = self.store.changes(0, 1000)
        assert [(c.key, c.seq, c.payload_state) for c in changes] == self.model.changes()
        assert all(isinstance(found, LogVerdict) for found in self.store.verify())

    def _compare(self, key: LogKey, log: ModelLog) -> None:
        info, served = self.store.log(key), log.served()
        assert info is not None
        assert (info.height, info.newest, info.state) == (
            log.height,
            max(served, default=0),
            log.state,
        )
        assert info.entries == len(log.entries)
        present = [each for each in log.entries.values() if each.payload is not None]
        assert info.payloads == len(present)
        assert info.missing_payloads == sum(e.state == "missing" for e in log.entries.values())
        assert info.bytes == sum(len(e.encoded) for e in log.entries.values()) + sum(
            len(e.payload or b"") for e in present
        )
        assert info.payload_bytes_held == sum(len(e.payload or b"") for e in present)
        said = [decode_entry(each.encoded).payload_bytes for each in log.entries.values()]
        assert info.payload_bytes_total == sum(said)
        assert (info.fork_seq is None) == (log.fork is None)
        fork = self.store.fork(key)
        assert (fork and (fork.seq, fork.first, fork.second)) == log.fork
        read = self.store.read(key, 1, entries_max=1000, bytes_max=1 << 30, with_payload=False)
        assert [(e.seq, e.encoded) for e in read] == [(s, e.encoded) for s, e in served.items()]
        for entry in read:
            model = served[entry.seq]
            state = "missing" if entry.payload_state == "partial" else entry.payload_state
            assert state == model.state
            if model.payload is not None:
                with self.store.open_payload(key, entry.seq) as reader:
                    assert reader.read(0, 1 << 20) == model.payload
        self._compare_what_is_missing(key, log)

    def _compare_what_is_missing(self, key: LogKey, log: ModelLog) -> None:
        runs = log.runs()
        assert self.store.runs(key, limit=99) == runs
        assert self.store.runs(key, 7, limit=2) == [run for run in runs if run[1] >= 7][:2]
        served, missing = log.served(), self.model.askable(key)
        for first, last in ((1, 3), (4, 4), (5, 9), (10, 16)):
            held = all(seq in served for seq in range(first, last + 1))
            assert self.store.is_held(key, first, last) == held
        for first, last in self.model.wants(key):
            holding = self.store.holding(key, first, last)
            present = [n for n, each in served.items() if each.state == "present"]
            assert holding.entries == sum(first <= n <= last for n in served)
            assert holding.payloads == sum(first <= n <= last for n in present)
        sizes = {seq: decode_entry(each.encoded).payload_bytes for seq, each in served.items()}
        for low, high in ((0, 10**6), (10, 10**6), (0, 9), (10, 10), (1, -1)):
            expected = [seq for seq in missing if low <= sizes[seq] <= high]
            for start in (1, 6, 99):
                found = self.store.missing_payloads(key, start, sizes=(low, high), limit=3)
                assert found == [seq for seq in expected if seq >= start][:3]
        if log.state is LogState.FORKED:
            # What is at or behind the fork is still counted among the payloads.
            return
        newest = max(served, default=0)
        for wanted in (FULL, *SUBSCRIPTIONS):
            of_it = {seq for seq in range(1, 17) if wanted.wants_entry(seq, newest)}
            shortfall = self.store.shortfall(key, wanted)
            assert shortfall.entries == len(of_it - set(served))
            assert shortfall.payloads == sum(
                served[seq].state == "missing" and wanted.wants_payload(sizes[seq])
                for seq in of_it & set(served)
            )

    @staticmethod
    def _honest(log: int, seq: int, held: bool) -> NewEntry:
        entry = HONEST[log].entries[seq]
        return entry if held else NewEntry(seq, entry.encoded, entry.hash)

    def _put(self, log: int, entries: list[NewEntry]) -> None:
        key = HONEST[log].key
        accepted = True
        for entry in sorted(entries, key=lambda each: each.seq):
            assert not isinstance(entry.payload, PayloadFile)
            accepted = self.model.put(key, entry.seq, entry.encoded, entry.payload)
            if not accepted:
                break
        if accepted:
            self.store.put_entries(key, entries, source="peer")
        else:
            with pytest.raises(EntryRejected):
                self.store.put_entries(key, entries, source="peer")


# The invariant reads everything and verifies it: a third of the examples elsewhere is enough.
StoreMachine.TestCase.settings = settings(
    max_examples=settings().max_examples // 3,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestStoreEqualsModel = StoreMachine.TestCase


def test_the_second_log_goes_on_after_its_end() -> None:
    """What makes the machine meet entries after an end."""
    entries = HONEST[1].entries
    assert decode_entry(entries[11].encoded).is_end
    assert decode_entry(entries[12].encoded).backlink == entries[11].hash
