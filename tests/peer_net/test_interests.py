"""What a node wants and offers follows from its store, and keeps up with it."""

from logstore import ALL, NewEntry, Store
from peer import Interests, LogChanged
from peer.net.interests import InterestBook
from wire import LogKey

from .support import Author


def hold(store: Store, author: Author) -> LogKey:
    author.sign(1, b"")
    store.put_entries(
        author.log, [NewEntry(1, author.encoded[1], author.hash(1), b"")], source="test"
    )
    return author.log


def loaded(store: Store) -> InterestBook:
    return InterestBook(store.author).load(store)


def test_own_logs_and_those_followed_are_offered_in_order() -> None:
    with Store.memory() as store:
        held = [hold(store, Author(seed, log_id)) for seed in (2, 3) for log_id in (0, 5)]
        store.append([b""], log_id=3)
        store.follow(held[1])
        store.follow(held[2].author)
        book = loaded(store)
        own = LogKey(store.author, 3)
        assert book.current.interests == Interests(
            frozenset({held[1]}), frozenset({held[2].author}), False, frozenset({own}), True
        )
        assert book.current.offers == tuple(sorted([own, held[1], held[2], held[3]]))
        assert book.follows == store.follows()


def test_log_0_of_an_author_is_offered_before_anything_of_it_is_held() -> None:
    with Store.memory() as store:
        store.follow(Author(2).log.author)
        assert loaded(store).current.offers == (Author(2).log,)


def test_following_all_offers_every_log_that_is_held() -> None:
    with Store.memory() as store:
        held = hold(store, Author(2, 9))
        assert loaded(store).current.offers == ()
        store.follow(ALL)
        assert loaded(store).current.offers == (held,)


def test_a_new_log_of_ones_own_is_news_for_every_session() -> None:
    with Store.memory() as store:
        book, own = loaded(store), LogKey(store.author, 7)
        assert book.note([LogChanged(own, 1, 1)])
        assert book.current.offers == (own,)
        assert book.current.interests.own == {own}
        assert not book.note([LogChanged(own, 2, 2)])


def test_a_new_log_that_is_wanted_is_offered_to_those_who_come_later() -> None:
    wanted, other = Author(2, 4).log, Author(3).log
    with Store.memory() as store:
        store.follow(wanted.author)
        book = loaded(store)
        assert not book.note([LogChanged(wanted, 1, 1), LogChanged(other, 1, 1)])
        assert book.current.offers == tuple(sorted([wanted, LogKey(wanted.author, 0)]))
