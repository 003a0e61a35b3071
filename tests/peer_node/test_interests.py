"""What a node wants and offers follows from its store, and keeps up with it."""

from logstore import ALL, FULL, NewEntry, PolicyKind, Store, Subscription
from peer import Interests, LogChanged
from peer.node.interests import InterestBook, Wanted
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
            logs=frozenset({held[1]}),
            authors=frozenset({held[2].author}),
            own=frozenset({own}),
            author=store.author,
            subscriptions={held[1]: FULL, held[2].author: FULL},
            shared={own: 0},
            held={own, *held},
        )
        assert book.current.offers == tuple(sorted([own, held[1], held[2], held[3]]))
        assert book.wanted.follows == store.follows()


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


def test_what_is_wanted_of_what_is_followed_is_told() -> None:
    log, author = Author(2, 4).log, Author(3).log.author
    rules = [Subscription(PolicyKind.LATEST, count=n) for n in (1, 2, 3)]
    with Store.memory() as store:
        store.follow(log, rules[0])
        store.follow(author, rules[1])
        store.follow(ALL, rules[2])
        interests = loaded(store).current.interests
        assert interests.subscriptions == {log: rules[0], author: rules[1], ALL: rules[2]}
        store.follow(ALL, FULL)
        assert loaded(store).current.interests.subscriptions[ALL] == FULL


def test_other_rules_for_the_same_logs_need_no_look_at_the_store() -> None:
    log, sparse = Author(2).log, Subscription(PolicyKind.SPARSE)
    with Store.memory() as store:
        store.follow(log)
        book = loaded(store)
        store.follow(log, sparse)
        store.want(log, 3, 4)
        assert book.take(Wanted.load(store))
        assert book.current.interests.subscription(log) == sparse
        assert book.current.interests.fetches == {log: ((3, 4),)}
        store.follow(log.author)
        assert not book.take(Wanted.load(store))


def test_a_log_that_is_only_fetched_is_not_offered() -> None:
    with Store.memory() as store:
        store.want(Author(2).log, 1, 2)
        book = loaded(store)
        assert book.current.offers == ()
        assert not book.note([LogChanged(Author(2).log, 1, 1)])
        assert book.current.offers == ()


def test_a_node_for_fetches_only_wants_and_offers_nothing_else() -> None:
    log = Author(2).log
    with Store.memory() as store:
        store.append([b"own"])
        store.follow(ALL)
        store.want(log, 3, 4)
        book = InterestBook(store.author, fetches_only=True).load(store)
        assert book.current.offers == ()
        shared = {LogKey(store.author, 0): 0}
        held = shared.keys()
        assert book.current.interests == Interests(
            fetches={log: ((3, 4),)}, shared=shared, held=set(held)
        )
        assert not book.note([LogChanged(LogKey(store.author, 0), 1, 1)])
        store.unwant(log, 3, 4)
        store.follow(log)
        assert book.take(Wanted.load(store))
        assert book.current.interests == Interests(shared=shared, held=set(held))


def test_what_others_have_of_own_logs_is_remembered_and_grows() -> None:
    with Store.memory() as store:
        first, second = LogKey(store.author, 0), LogKey(store.author, 1)
        store.append([b"1", b"2"])
        store.note_shared({first: 2})
        book = loaded(store)
        interests = book.current.interests
        assert interests.shared == {first: 2}
        book.note([LogChanged(second, 1, 1)])
        assert interests.shared == {first: 2, second: 0}
        assert book.note_shared(second, 1)
        assert not book.note_shared(second, 1)
        assert not book.note_shared(Author(2).log, 1)
        assert interests.shared == {first: 2, second: 1}
        assert book.load(store).current.interests.shared == {first: 2}


def test_a_book_of_one_own_log_asks_for_it_and_for_nothing_else() -> None:
    with Store.memory() as store:
        log = LogKey(store.author, 4)
        store.append([b"another"])
        store.follow(ALL)
        store.want(Author(2).log, 3, 4)
        book = InterestBook(store.author, only=frozenset((log,))).load(store)
        assert book.current.offers == (log,)
        assert book.current.interests == Interests(
            own=frozenset({log}),
            shared={log: 0, LogKey(store.author, 0): 0},
            asked=frozenset({log}),
            held={LogKey(store.author, 0)},
        )
        assert book.take(Wanted.load(store))
