"""A log that is forgotten leaves nothing behind, whenever it is killed: logstore/forgetting.py."""

import json
from pathlib import Path

import pytest

from logstore import (
    ALL,
    Fault,
    KeepRule,
    LogFollowed,
    LogUnknown,
    Store,
    StoreError,
    Subscription,
    System,
    forgetting,
)
from tests.logstore.authors import AuthorLog
from wire import LogKey, yamf_hash

LARGE = bytes(range(256)) * 300


class StopError(Exception):
    """The process is killed here."""


class Steps(System):
    """Counts the pauses, in the n-th of which it is killed."""

    def __init__(self) -> None:
        self.count = 0
        self.killed_at = 0

    def sleep(self, seconds: float) -> None:
        self.count += 1
        if self.count == self.killed_at:
            raise StopError


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(forgetting, "ROWS", 3)
    monkeypatch.setenv("BAMBOO_PEER_STATE", str(tmp_path / "state"))


def filled(store: Store, seed: int = 1, log_id: int = 0, count: int = 11) -> AuthorLog:
    log = AuthorLog(seed, log_id)
    for seq in range(1, count + 1):
        log.add(seq, LARGE if seq % 4 == 0 else b"payload %d" % seq)
    store.put_entries(log.key, list(log.entries.values()), source="a")
    return log


def rows(store: Store) -> dict[str, int]:
    """How many rows each table has."""
    tables = ("logs", "entries", "runs", "missing", "files", "proofs", "wants")
    with store._database.read() as db:
        return {name: db.execute(f"SELECT count(*) FROM {name}").get for name in tables}


def remembered(store: Store) -> list[str]:
    with store._database.read() as db:
        return [name for (name,) in db.execute("SELECT name FROM memory ORDER BY name")]


def faults(store: Store) -> list[Fault]:
    return [found for found in store.verify() if isinstance(found, Fault)]


def test_nothing_is_left_of_it_and_all_of_the_others(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store") as store:
        before, files = rows(store), list((tmp_path / "store" / "payloads").rglob("*"))
        log = filled(store)
        gap = AuthorLog(1, 7)
        for seq in range(1, 14):
            gap.add(seq, LARGE)
        few = [gap.entries[seq]._replace(payload=None) for seq in (1, 2, 3, 4, 13)]
        store.put_entries(gap.key, few, source="a")
        digest = yamf_hash(LARGE)
        with store.payload_sink(gap.key, 1, len(LARGE), digest, source="a") as sink:
            sink.write(LARGE[:5_000])
        for key in (log.key, gap.key):
            store.set_name(f"name-{key.log_id}", key)
            store.want(key, 1, 100)
            store.alarms.note(Fault("here", "it is damaged", key, 1))
            with store.cursors.reading(f"cursor-{key.log_id}", key) as cursor:
                cursor.acknowledge(3)
        store.keep(log.key, KeepRule(last=100))
        other = filled(store, 2)
        held = [store.forget(log.key.author)]
        assert [(each.key, each.entries) for each in held[0]] == [(log.key, 11), (gap.key, 5)]
        assert [info.key for info in store.logs()] == [other.key]
        found = store.log(other.key)
        assert found is not None
        assert (found.entries, found.payloads) == (11, 11)
        assert store.names() == {}
        assert store.cursors.all() == []
        assert store.wants() == {}
        assert store.alarms.faults() == []
        assert list(store.keeps()) == [log.key]
        assert faults(store) == []
        store.forget(other.key)
        assert {**rows(store), "files": 0} == {**before, "files": 0}
        left = [path for path in (tmp_path / "store" / "payloads").rglob("*") if path.is_file()]
        assert {path.stat().st_size for path in left} <= {0}
        assert len(files) <= len(left) + 600
        assert store.read_changes(0, entries_max=100, bytes_max=1 << 30) == []


@pytest.mark.parametrize("as_author", [False, True])
def test_what_is_our_own_followed_or_not_held_is_refused(as_author: bool) -> None:
    with Store.memory() as store:
        store.append([b"ours"])
        log = filled(store)
        target = log.key.author if as_author else log.key
        own = store.author if as_author else LogKey(store.author, 0)
        with pytest.raises(LogFollowed, match="it is signed here"):
            store.forget(own)
        for followed in (ALL, log.key.author, log.key):
            store.follow(followed, Subscription())
            for attempt in (store.forget, store.plan_forgetting):
                with pytest.raises(LogFollowed, match="unfollow"):
                    attempt(target)
            store.unfollow(followed)
        with pytest.raises(LogUnknown, match="nothing is held of it"):
            store.forget(b"n" * 32 if as_author else LogKey(log.key.author, 5))
        with pytest.raises(TypeError, match="it is a log or an author"):
            store.forget(ALL)
        planned = store.plan_forgetting(target)
        assert store.forget(target) == planned
        assert [each.payloads for each in planned] == [11]
        with pytest.raises(LogUnknown):
            store.forget(target)


def test_the_proof_of_a_fork_stays() -> None:
    one, other = AuthorLog(1), AuthorLog(1)
    for seq in range(1, 6):
        one.add(seq, b"payload")
        other.add(seq, b"payload" if seq < 5 else b"another")
    with Store.memory() as store:
        store.put_entries(one.key, list(one.entries.values()), source="a")
        fork = max(one.entries)
        second = other.entries[fork]
        result = store.put_entries(one.key, [second], source="b")
        assert result.fork is not None
        store.forget(one.key)
        assert [proof.seq for proof in store.forks()] == [fork]
        info = store.log(one.key)
        assert info is not None
        assert (info.entries, info.newest, info.fork_seq) == (0, 0, fork)
        assert faults(store) == []
        store.put_entries(one.key, [one.entries[1]], source="a")
        assert faults(store) == []


@pytest.mark.parametrize("killed_at", range(1, 8))
@pytest.mark.parametrize("how", ["forget", "compact"])
def test_what_was_left_behind_by_a_kill_is_no_log_and_goes_the_next_time(
    killed_at: int, how: str, tmp_path: Path
) -> None:
    system = Steps()
    with Store.create(tmp_path / "store", system=system) as store:
        log = filled(store)
        system.killed_at = killed_at
        try:
            store.forget(log.key)
        except StopError:
            assert killed_at < 6
        system.killed_at = 0
        assert list(store.logs()) == []
        assert store.read_changes(0, entries_max=100, bytes_max=1 << 30) == []
        assert faults(store) == []
    with Store.open(tmp_path / "store", system=system) as store:
        # Another log, and the same again, get numbers of their own.
        other = filled(store, 2, count=5)
        again = filled(store, count=6)
        assert faults(store) == []
        if how == "compact":
            store.compact()
            counts = {info.key: info.entries for info in store.logs()}
            assert counts == {other.key: 5, again.key: 6}
        else:
            store.forget(other.key)
            assert [info.entries for info in store.logs()] == [6]
        assert not any(name.startswith("forgetting/") for name in remembered(store))
        assert rows(store)["entries"] == sum(info.entries for info in store.logs())
        assert faults(store) == []


def test_who_follows_it_meanwhile_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is decided in the transaction that forgets."""
    with Store.memory() as store:
        log = filled(store)
        store.plan_forgetting(log.key)
        store.follow(log.key)
        with pytest.raises(StoreError):
            store.forget(log.key)
        assert [info.entries for info in store.logs()] == [11]


def test_it_counts_how_often_something_was_forgotten() -> None:
    with Store.memory() as store:
        assert store.forgotten() == 0
        for n in range(1, 4):
            store.forget(filled(store).key)
            assert store.forgotten() == n
        assert json.dumps(remembered(store)) == '["forgotten"]'
