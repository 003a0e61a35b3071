"""Retention: by age, count and bytes, at its author and at replicas, and on bad days."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateways.ockam import Book, Catalog, Keeper, Rule, Side, Stream
from gateways.ockam.declared import declare_stream
from gateways.ockam.logs import Push
from logstore import Dropped, Fault, NewEntry, PayloadState, Store, StoreDamaged, System
from tests.gateways.failing import damage
from tests.logstore.authors import AuthorLog

DAY_US = 86_400 * 1_000_000


@contextmanager
def kept(
    store: Store, *rules: str, now_us: int = 0, of: tuple[bytes, ...] = ()
) -> Iterator[tuple[Catalog, Keeper]]:
    side = Side(store)
    catalog = Catalog(store, side, of=of)
    parsed = [Rule.parse(each) for each in rules]
    try:
        yield catalog, Keeper(catalog, Book(catalog), parsed, clock_us=lambda: now_us)
    finally:
        side.close()


def made(catalog: Catalog, name: str, messages: int) -> Stream:
    """A stream of messages of ten bytes each."""
    made = catalog.make(name, 1, may_make=True)
    stream = catalog.at(made.partitions[0][1])
    assert stream is not None
    catalog.append([Push(stream.address, bytes(10))] * messages)
    return stream


@pytest.mark.parametrize(
    ("rule", "earliest"), [("*:age=30d", 6), ("*:bytes=30", 3), ("*:count=2", 4)]
)
def test_a_damaged_entry_goes_with_the_others(rule: str, earliest: int) -> None:
    with Store.memory() as store, kept(store, rule, now_us=2**62) as (catalog, keeper):
        stream = made(catalog, "orders", 6)
        damage(store, stream.key, 3)
        trimmed = keeper.keep_all()
        assert [each.earliest for each in trimmed] == [earliest]
        assert [index for index, _ in catalog.read(stream, 0, 10, 10_000)] == list(
            range(earliest, 6)
        )
        assert keeper.keep_all() == []


def test_a_stream_whose_trim_cannot_be_finished_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Store.memory() as store, kept(store, "*:count=1") as (catalog, keeper):
        first, second = made(catalog, "a", 3), made(catalog, "b", 3)
        for stream in (first, second):
            keeper._book.trim(stream, 2)
        next_payload = store.next_payload

        def fail(key: object, seq: int) -> int | None:
            if key == first.key:
                raise StoreDamaged("the database is damaged", str(key), "run verify")
            return next_payload(second.key, seq)

        monkeypatch.setattr(store, "next_payload", fail)
        done = keeper.finish_trims()
        assert [(each.stream.name, each.dropped) for each in done] == [("b", Dropped(2, 20))]
        assert "a/0: the database is damaged" in caplog.text


class _Clock(System):
    """A clock that goes on when it is told."""

    day = 0

    def now_us(self) -> int:
        return self.day * DAY_US


def faults(store: Store) -> list[Fault]:
    return [each for each in store.verify() if isinstance(each, Fault)]


def indexes(catalog: Catalog, stream: Stream, index: int = 0) -> list[int]:
    return [each for each, _ in catalog.read(stream, index, 1_000, 100_000)]


@pytest.mark.parametrize(
    ("rule", "earliest"),
    [
        ("*:age=4d", 2),
        ("*:age=345599s", 3),
        ("*:age=5d", 1),
        ("*:age=30d", None),
        ("*:count=0", 6),
        ("*:count=5", 1),
        ("*:count=6", None),
        ("*:bytes=0", 6),
        ("*:bytes=29", 4),
        ("*:bytes=30", 3),
        ("*:bytes=60", None),
        ("*:age=4d,count=3,bytes=50", 3),
        ("*:age=5d,count=5,bytes=20", 4),
        ("*:age=1d,count=5,bytes=50", 5),
        ("or?ers:count=2", 4),
        ("bills:count=2", None),
        ("ord*:count=4", 2),
        ("orders:count=100", None),
    ],
)
def test_what_no_limit_excludes_is_kept(rule: str, earliest: int | None) -> None:
    clock = _Clock()
    with (
        Store.memory(system=clock) as store,
        kept(store, rule, now_us=6 * DAY_US) as (
            catalog,
            keeper,
        ),
    ):
        stream = made(catalog, "orders", 0)
        for clock.day in range(6):
            # A message of ten bytes each day. What is as old as the limit is not above it.
            catalog.append([Push(stream.address, bytes(10))])
        trimmed = keeper.keep_all()
        if earliest is None:
            assert trimmed == []
        else:
            assert [each[1:] for each in trimmed] == [(earliest, Dropped(earliest, 10 * earliest))]
        assert indexes(catalog, stream) == list(range(earliest or 0, 6))
        assert catalog.side.earliest(stream.key) == (earliest or 0)
        assert keeper.keep_all() == []
        # The chain is whole, and no index is given out again.
        assert faults(store) == []
        assert catalog.append([Push(stream.address, b"next")]) == ([6], None)


def test_the_first_rule_that_matches_counts() -> None:
    rules = "orders:count=3", "or*:count=1", "*:count=2"
    with Store.memory() as store, kept(store, *rules) as (catalog, keeper):
        streams = [made(catalog, name, 4) for name in ("orders", "orange", "bills")]
        keeper.keep_all()
        assert [indexes(catalog, each)[0] for each in streams] == [1, 3, 2]


def test_bytes_are_counted_on_and_anew_where_something_else_has_dropped() -> None:
    with Store.memory() as store, kept(store, "*:bytes=40") as (catalog, keeper):
        stream = made(catalog, "orders", 4)
        assert keeper.keep_all() == []
        store.drop(stream.key, 2, 3)
        catalog.append([Push(stream.address, bytes(10))] * 2)
        assert keeper.keep_all() == []
        catalog.append([Push(stream.address, bytes(10))])
        assert [each.earliest for each in keeper.keep_all()] == [3]
        assert indexes(catalog, stream) == [3, 4, 5, 6]


def test_a_trim_is_never_beyond_the_end_nor_taken_back() -> None:
    with Store.memory() as store, kept(store) as (catalog, keeper):
        stream = made(catalog, "orders", 4)
        assert keeper.trim(stream, 3) == (stream, 3, Dropped(3, 30))
        assert keeper.trim(stream, 1) == (stream, 3, Dropped(0, 0))
        assert keeper.trim(stream, 100) == (stream, 4, Dropped(1, 10))
        catalog.append([Push(stream.address, b"tea")])
        assert indexes(catalog, stream) == [4]


class _Stopped(BaseException):
    """The process ends here."""


def test_a_trim_before_whose_drop_the_gateway_was_stopped_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise _Stopped

    path = tmp_path / "store"
    with Store.create(path) as store, kept(store, "*:count=2") as (catalog, keeper):
        stream = made(catalog, "orders", 5)
        monkeypatch.setattr(store, "drop", stop)
        with pytest.raises(_Stopped):
            keeper.keep_all()
    with Store.open(path) as store, kept(store) as (catalog, keeper):
        catalog.refresh()
        # What the trim says is dropped, with no rule and though it is held until then.
        assert indexes(catalog, stream) == [0, 1, 2, 3, 4]
        assert [each[1:] for each in keeper.finish_trims()] == [(3, Dropped(3, 30))]
        assert indexes(catalog, stream) == [3, 4]
        assert keeper.finish_trims() == []
        assert faults(store) == []


def test_a_replica_drops_by_its_own_rules_and_says_nothing_of_it() -> None:
    author = AuthorLog(7, 3)
    with Store.memory() as store:
        entries = [author.add(1, declare_stream("orders", 0))]
        entries += [author.add(seq, bytes(10)) for seq in range(2, 8)]
        store.follow(author.key)
        store.put_entries(author.key, entries, source="a friend")
        with kept(store, "*:count=2", of=(author.key.author,)) as (catalog, keeper):
            catalog.refresh()
            stream = catalog.find("orders", 0)
            assert stream is not None
            assert [each[1:] for each in keeper.keep_all()] == [(4, Dropped(4, 40))]
            assert keeper.keep_all() == []
            assert indexes(catalog, stream) == [4, 5]
            # No trim, and no ledger for one.
            assert catalog.side.earliest(stream.key) == 0
            assert catalog.side.ledger(store.author) is None
            assert {each.key for each in store.logs()} == {author.key}


def test_a_replica_keeps_and_serves_what_its_author_has_trimmed() -> None:
    with Store.memory() as home, Store.memory() as away, kept(home, "*:count=1") as (here, keeper):
        stream = made(here, "orders", 3)

        def copy() -> None:
            for info in home.logs():
                for entry in home.read(
                    info.key, 1, entries_max=100, bytes_max=1 << 20, with_payload=False
                ):
                    if entry.payload_state is PayloadState.PRESENT:
                        new = NewEntry(entry.seq, entry.encoded, entry.hash, entry.payload)
                        away.put_entries(info.key, [new], source="a friend")

        away.follow(home.author)
        copy()
        assert [each.earliest for each in keeper.keep_all()] == [2]
        copy()
        with kept(away, of=(home.author,)) as (there, other):
            there.refresh()
            assert there.side.earliest(stream.key) == 2
            assert other.finish_trims() == other.keep_all() == []
            copied = there.find("orders", 0)
            assert copied is not None
            assert indexes(there, copied) == [0, 1, 2]
        assert indexes(here, stream) == [2]
