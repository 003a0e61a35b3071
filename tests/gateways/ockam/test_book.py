"""Positions of consumers: none is lost while the disk is well, nor refused for what it was not."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateways.ockam import Book, Catalog, Side
from gateways.ockam.declared import LEDGER_DECLARATION
from gateways.ockam.ledger import Position, encode_records
from logstore import Store, StoreFull
from tests.logstore.authors import AuthorLog


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
