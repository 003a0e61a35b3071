"""Streams as logs of a store: one of them that cannot go on keeps nothing from the others."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateways.ockam import Catalog, Side, Stream
from gateways.ockam.logs import Push
from gateways.ockam.outcomes import Outcome
from logstore import EntryRejected, LogState, Store
from tests.gateways.failing import fill_disk_once
from tests.logstore.authors import AuthorLog, signing_key


@contextmanager
def catalog_of(store: Store) -> Iterator[Catalog]:
    side = Side(store)
    try:
        yield Catalog(store, side)
    finally:
        side.close()


def made(catalog: Catalog, *names: str) -> list[str]:
    """The addresses of new streams."""
    return [catalog.make(name, 1, may_make=True).partitions[0][1] for name in names]


def pushed(catalog: Catalog, *addresses: str) -> list[int | Outcome]:
    """What becomes of a message for each of some streams, all in one batch."""
    outcomes, error = catalog.append([Push(each, b"tea") for each in addresses])
    assert error is None
    return outcomes


def test_a_contested_stream_is_left_out_and_the_rest_is_stored() -> None:
    with Store.memory(signing_key=signing_key(99)) as store, catalog_of(store) as catalog:
        orders, bills = made(catalog, "orders", "bills")
        stream = catalog.at(orders)
        assert stream is not None
        elsewhere = AuthorLog(99, stream.key.log_id)
        with pytest.raises(EntryRejected):
            store.put_entries(stream.key, [elsewhere.add(1, b"another")], source="a friend")
        store.confirm_identity()
        info = store.log(stream.key)
        assert info is not None
        assert info.state is LogState.LIVE
        for index in range(2):
            assert pushed(catalog, orders, bills) == [Outcome.REFUSED, index]


@pytest.mark.parametrize("what", ["ended", "damaged"])
def test_a_stream_that_cannot_go_on_is_left_out(what: str) -> None:
    with Store.memory() as store, catalog_of(store) as catalog:
        orders, bills = made(catalog, "orders", "bills")
        stream = catalog.at(orders)
        assert stream is not None
        if what == "ended":
            # By another process, of which this one knows nothing.
            store.append([b""], log_id=stream.key.log_id, end_of_log=True)
        else:
            with store._database.write() as transaction:
                transaction.db.execute("UPDATE entries SET hash = zeroblob(66) WHERE ingest = 1")
        for index in range(2):
            assert pushed(catalog, orders, bills) == [Outcome.REFUSED, index]


def run_of(catalog: Catalog, messages: int, dropped: int) -> Stream:
    """A stream of which the first messages were dropped here."""
    stream = catalog.at(made(catalog, "orders")[0])
    assert stream is not None
    catalog.append([Push(stream.address, b"tea")] * messages)
    catalog.store.drop(stream.key, 2, dropped + 1)
    return stream


@pytest.mark.parametrize("dropped", [10, 90])
def test_what_is_fetched_is_waited_for(dropped: int) -> None:
    with Store.memory() as store, catalog_of(store) as catalog:
        stream = run_of(catalog, 100, dropped)
        for _ in range(2):
            assert catalog.read(stream, 0, 1, 1_000) == [(dropped, b"tea")]
        assert store.want(stream.key, dropped - 1, dropped + 1)
        assert catalog.read(stream, 0, 1, 1_000) == []
        assert catalog.read(stream, dropped, 1, 1_000) == [(dropped, b"tea")]
        for seq in range(dropped - 1, dropped + 2):
            store.complete_payload(stream.key, seq, b"tea")
        assert catalog.read(stream, 0, 1, 1_000) == [(dropped - 3, b"tea")]


def test_a_full_disk_keeps_nobody_from_what_is_behind_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Store.memory() as store, catalog_of(store) as catalog:
        stream = run_of(catalog, 100, 90)
        fill_disk_once(monkeypatch)
        assert catalog.read(stream, 0, 1, 1_000) == [(90, b"tea")]
        assert catalog.read(stream, 0, 1, 1_000) == [(90, b"tea")]
        store.drop(stream.key, 92, 92)
        fill_disk_once(monkeypatch)
        assert catalog.read(stream, 0, 1, 1_000) == [(91, b"tea")]
