"""Positions of consumers: none is lost while the disk is well, nor refused for what it was not."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateways.ockam import Book, Catalog, Side
from gateways.ockam.declared import LEDGER_DECLARATION
from gateways.ockam.ledger import Position, encode_records
from gateways.ockam.logs import Push
from logstore import EntryRejected, Store, StoreError, StoreFull
from tests.gateways.failing import damage
from tests.logstore.authors import AuthorLog, signing_key


@contextmanager
def book_of(store: Store, *share: bytes, positions_max: int = 1_000) -> Iterator[Book]:
    side = Side(store)
    try:
        yield Book(Catalog(store, side), share, positions_max)
    finally:
        side.close()


def saved(book: Book, *clients: str, index: int = 1) -> list[int | None]:
    """What is known of some clients once a save of each was written."""
    for client in clients:
        book.save((client, "orders", 0), index)
    book.flush()
    return [book.get((client, "orders", 0)) for client in clients]


def test_what_a_full_disk_refuses_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.memory() as store, book_of(store, positions_max=2) as book:
        with monkeypatch.context() as patched:

            def fail(*_: object, **__: object) -> None:
                raise StoreFull("the disk is full", "here", "free space")

            patched.setattr(book._catalog, "sign", fail)
            for _ in range(2):
                with pytest.raises(StoreFull):
                    saved(book, "a", "b")
        assert saved(book, "a", "b") == [1, 1]
        assert saved(book, "c", index=2) == [None]
        assert saved(book, "a", "b", index=2) == [2, 2]


def test_a_client_that_goes_between_two_hubs_is_one_position() -> None:
    with Store.memory() as store:
        other = AuthorLog(7)
        key = other.key
        with book_of(store, key.author, positions_max=2) as book:
            assert saved(book, "a") == [1]
            store.put_entries(key, [other.add(1, LEDGER_DECLARATION)], source="a friend")
            for index in (2, 4, 6):
                record = encode_records([Position(store.author, "orders", 0, "a", 0, index)])
                entry = other.add(index // 2 + 1, record)
                store.put_entries(key, [entry], source="a friend")
                assert saved(book, "a", index=index + 1) == [index + 1]
            assert saved(book, "b") == [1]


@pytest.mark.parametrize("what", ["ended", "forked", "damaged", "dropped"])
def test_a_ledger_that_cannot_go_on_is_named_and_no_other_is_made(what: str) -> None:
    with Store.memory(signing_key=signing_key(99)) as store:
        with book_of(store) as book:
            assert saved(book, "a") == [1]
            key = book._catalog.ledger()
        if what == "ended":
            store.append([b""], log_id=key.log_id, end_of_log=True)
        elif what == "forked":
            elsewhere = AuthorLog(99, key.log_id)
            with pytest.raises(EntryRejected):
                store.put_entries(key, [elsewhere.add(1, b"another")], source="a friend")
            store.confirm_identity()
        elif what == "damaged":
            damage(store, key, 1)
        else:
            store.drop(key, 1, 1)
        # Who begins with nothing but the logs.
        with book_of(store) as book:
            for _ in range(2):
                with pytest.raises(StoreError, match=str(key)):
                    saved(book, "a", "b", index=2)
            assert book.waiting == 2
            catalog = book._catalog
            made = catalog.make("orders", 1, may_make=True)
            assert catalog.append([Push(made.partitions[0][1], b"tea")]) == ([0], None)
            assert [each.key.log_id for each in store.logs()] == [key.log_id, key.log_id + 1]
