"""Retention: what is damaged in a stream keeps neither it nor the others from being trimmed."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateways.ockam import Book, Catalog, Keeper, Rule, Side, Stream
from gateways.ockam.logs import Push
from logstore import Dropped, Store, StoreDamaged
from tests.gateways.failing import damage

DAY_US = 86_400 * 1_000_000


@contextmanager
def kept(store: Store, *rules: str, now_us: int = 0) -> Iterator[tuple[Catalog, Keeper]]:
    side = Side(store)
    catalog = Catalog(store, side)
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
