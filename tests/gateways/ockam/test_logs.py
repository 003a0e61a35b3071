"""Streams as logs of a store: one of them that cannot go on keeps nothing from the others."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gateways.ockam import Catalog, Side, Stream
from gateways.ockam.declared import LEDGER_DECLARATION, declare_stream
from gateways.ockam.ledger import Trim, encode_records
from gateways.ockam.logs import Push
from gateways.ockam.outcomes import Outcome, message_bytes
from logstore import EntryRejected, LogState, Store, Subscription
from tests.gateways.failing import damage, fill_disk_once
from tests.logstore.authors import AuthorLog, signing_key
from wire import U64_MAX, lower_pool


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


def test_what_is_refused_in_advance_is_only_looked_for() -> None:
    with Store.memory() as store, catalog_of(store) as catalog:
        [orders] = made(catalog, "orders")
        pushes = [Push(orders, None), Push(orders, b"tea"), Push("ST_S_" + "f" * 16, None)]
        outcomes, error = catalog.append(pushes)
        assert (outcomes, error) == ([Outcome.REFUSED, 0, Outcome.UNKNOWN], None)


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


# Every row of the table of a pull's messages, of an own stream and of another author's ------------

ROOM = 64_000
"""About what a pull has."""


def indexes(catalog: Catalog, stream: Stream, index: int = 0) -> list[int]:
    return [each for each, _ in catalog.read(stream, index, 1_000, ROOM)]


class Followed:
    """A stream of another author at a node that follows it, at first without any message."""

    def __init__(self, store: Store, policy: str, *, max_bytes: int = U64_MAX) -> None:
        self.store = store
        self.author = AuthorLog(7, 3)
        parsed = Subscription.parse(policy)
        wanted = Subscription(
            parsed.kind, parsed.count, parsed.first, parsed.last, max_bytes=max_bytes
        )
        store.follow(self.author.key, wanted)
        self.put(1, declare_stream("orders", 0))

    def put(self, seq: int, payload: bytes, *, held: bool = True) -> None:
        """An entry comes, its payload with it or not; before it its path to entry 1, without."""
        path = sorted({*lower_pool(seq)} - {seq} - self.author.entries.keys())
        entries = [self.author.add(each, b"tea", held=False) for each in path]
        entries.append(self.author.add(seq, payload, held=held))
        self.store.put_entries(self.author.key, entries, source="a friend")

    def trim(self, earliest: int) -> None:
        """The author's ledger says that nothing is kept below an index."""
        ledger = AuthorLog(7, 2)
        entries = [
            ledger.add(1, LEDGER_DECLARATION),
            ledger.add(2, encode_records([Trim(3, earliest)])),
        ]
        self.store.put_entries(ledger.key, entries, source="a friend")


@contextmanager
def followed(policy: str, *, max_bytes: int = U64_MAX) -> Iterator[tuple[Catalog, Followed]]:
    with Store.memory() as store:
        there = Followed(store, policy, max_bytes=max_bytes)
        side = Side(store)
        try:
            yield Catalog(store, side, of=[there.author.key.author]), there
        finally:
            side.close()


def stream_of(catalog: Catalog) -> Stream:
    catalog.refresh()
    stream = catalog.find("orders", 0)
    assert stream is not None
    return stream


def test_a_pull_ends_at_its_limit_and_where_its_answer_is_full() -> None:
    with Store.memory() as store, catalog_of(store) as catalog:
        stream = catalog.at(made(catalog, "orders")[0])
        assert stream is not None
        store.append([b"tea", bytes(60_000), b"coffee"], log_id=stream.key.log_id)
        assert catalog.read(stream, 0, 0, ROOM) == []
        assert catalog.read(stream, 0, 1, ROOM) == [(0, b"tea")]
        assert indexes(catalog, stream) == [0, 1, 2]
        fits = message_bytes(0, b"tea") + message_bytes(1, bytes(60_000))
        for room, count in ((fits, 2), (fits - 1, 1)):
            assert len(catalog.read(stream, 0, 1_000, room)) == count
        assert indexes(catalog, stream, 2) == [2]


@pytest.mark.parametrize("index", [3, 4, 2**63, U64_MAX - 2, U64_MAX])
def test_a_pull_beyond_the_end_is_empty(index: int) -> None:
    with Store.memory() as store, catalog_of(store) as catalog:
        stream = catalog.at(made(catalog, "orders")[0])
        assert stream is not None
        store.append([b"a", b"b", b"c"], log_id=stream.key.log_id)
        assert catalog.read(stream, index, 1_000, ROOM) == []


def test_what_is_too_large_the_end_and_what_was_deleted_here_is_stepped_over() -> None:
    with Store.memory() as store, catalog_of(store) as catalog:
        stream = catalog.at(made(catalog, "orders")[0])
        assert stream is not None
        messages = [b"a", bytes(60_001), bytes(2 << 20), b"b", b"gone", b"c"]
        store.append(messages, log_id=stream.key.log_id)
        store.drop(stream.key, 6, 6)
        assert indexes(catalog, stream) == [0, 3, 5]
        store.append([b"the end"], log_id=stream.key.log_id, end_of_log=True)
        assert indexes(catalog, stream, 1) == [3, 5]
        assert catalog.next_index(stream) == 6


def test_an_empty_message_is_one() -> None:
    with Store.memory() as store, catalog_of(store) as catalog:
        stream = catalog.at(made(catalog, "orders")[0])
        assert stream is not None
        store.append([b"", b""], log_id=stream.key.log_id)
        assert catalog.read(stream, 0, 9, ROOM) == [(0, b""), (1, b"")]


def test_damage_gives_what_comes_before_and_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Store.memory() as store, catalog_of(store) as catalog:
        stream = catalog.at(made(catalog, "orders")[0])
        assert stream is not None
        store.append([b"a", b"b", b"c"], log_id=stream.key.log_id)
        damage(store, stream.key, 3)
        for _ in range(2):
            assert indexes(catalog, stream) == [0]
            assert indexes(catalog, stream, 1) == []
        assert indexes(catalog, stream, 2) == [2]
        assert caplog.text.count("orders/0: ") == 1


@pytest.mark.parametrize("lacking", ["entries", "payloads"])
@pytest.mark.parametrize("earliest", [None, 3, 5, 6, U64_MAX])
def test_what_lacks_ends_the_list_unless_its_author_keeps_it_no_more(
    lacking: str, earliest: int | None
) -> None:
    with followed("full") as (catalog, there):
        for seq in range(2, 9):
            is_held = seq not in {5, 6, 7}
            if is_held or lacking == "payloads":
                there.put(seq, b"tea", held=is_held)
        if earliest is not None:
            there.trim(earliest)
        stream = stream_of(catalog)
        # What is held is served, below the earliest too.
        found = [0, 1, 2] if earliest is None or earliest < 6 else [0, 1, 2, 6]
        for index in range(4):
            assert indexes(catalog, stream, index) == found[index:]
        assert indexes(catalog, stream, 6) == [6]


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        ("latest:2", [6, 7]),
        ("latest:5", []),
        ("range:8..9", [6, 7]),
        ("range:7..9", []),
        ("sparse", []),
        ("full", []),
    ],
)
def test_what_is_not_wanted_is_stepped_over(policy: str, found: list[int]) -> None:
    with followed(policy) as (catalog, there):
        for seq in (8, 9):
            there.put(seq, b"tea")
        assert indexes(catalog, stream_of(catalog)) == found


def test_of_the_path_alone_the_rest_is_stepped_over() -> None:
    with followed("sparse") as (catalog, there):
        there.put(4, b"tea")
        there.put(8, b"tea")
        assert indexes(catalog, stream_of(catalog)) == [2, 6]


def test_where_no_payload_is_wanted_those_that_are_held_are_served() -> None:
    with followed("metadata") as (catalog, there):
        for seq in range(2, 10):
            there.put(seq, b"tea", held=seq in {3, 8})
        assert indexes(catalog, stream_of(catalog)) == [1, 6]


def test_payloads_of_a_size_that_is_not_wanted_are_stepped_over() -> None:
    with followed("full", max_bytes=3) as (catalog, there):
        for seq, payload in ((2, b"tea"), (3, b"coffee"), (4, b"tea")):
            there.put(seq, payload, held=payload == b"tea")
        stream = stream_of(catalog)
        assert indexes(catalog, stream) == [0, 2]
        # Fetched by hand it is on its way, and order is never broken.
        there.store.want(there.author.key, 3, 3)
        assert indexes(catalog, stream) == [0]


def test_what_nobody_follows_any_more_is_stepped_over() -> None:
    with followed("full") as (catalog, there):
        there.put(8, b"tea")
        stream = stream_of(catalog)
        assert indexes(catalog, stream) == []
        there.store.unfollow(there.author.key)
        assert indexes(catalog, stream) == [6]


def test_a_million_numbers_are_stepped_over_without_reading_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with followed("latest:2") as (catalog, there):
        for seq in (1_000_002, 1_000_003):
            there.put(seq, b"tea")
        stream = stream_of(catalog)
        looks: list[str] = []
        for name in ("read", "entry", "next_payload", "is_held", "missing_payloads"):
            monkeypatch.setattr(there.store, name, counted(looks, name, getattr(there.store, name)))
        assert indexes(catalog, stream) == [1_000_000, 1_000_001]
        assert len(looks) < 10
        # The second time the run is looked up.
        looks.clear()
        assert indexes(catalog, stream, 500_000) == [1_000_000, 1_000_001]
        assert "next_payload" not in looks
        # What is wanted now is on its way.
        there.store.follow(there.author.key, Subscription())
        assert indexes(catalog, stream) == []


def counted(looks: list[str], name: str, look: Callable[..., object]) -> Callable[..., object]:
    def count(*given: object, **named: object) -> object:
        looks.append(name)
        return look(*given, **named)

    return count
