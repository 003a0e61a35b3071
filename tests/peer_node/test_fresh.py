"""What has just been stored is read from the news of it, and says what the store says."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from logstore import Store
from peer import EntriesRead, Ingest, Ingested, LogChanged, ReadEntries
from peer.node.host.changes import FRESH_MAX, ChangeFeed
from peer.node.host.read_host import FRESH_S
from peer.node.host.reading import from_fresh, read_entries
from wire import LogKey

from .support import Author, Client, running_host

OWN = 0


def command(log: LogKey, first: int, last: int, **changes: object) -> ReadEntries:
    fields: dict[str, object] = {"seqs": None, "entries_max": 100, "bytes_max": 1 << 20}
    fields |= {"payloads": True, **changes}
    return ReadEntries(request=7, log=log, first=first, last=last, **fields)  # type: ignore[arg-type]


@given(
    before=st.integers(0, 5),
    sizes=st.lists(st.integers(0, 90_000), min_size=1, max_size=FRESH_MAX),
    first=st.integers(1, 14),
    entries_max=st.integers(1, 5),
    bytes_max=st.integers(1, 200_000),
    payloads=st.booleans(),
)
def test_it_is_the_beginning_of_what_is_read_there(
    before: int,
    sizes: list[int],
    first: int,
    entries_max: int,
    bytes_max: int,
    *,
    payloads: bool,
) -> None:
    with Store.memory() as store:
        if before:
            store.append([b"earlier"] * before)
        feed = ChangeFeed(store)
        store.append([bytes(size) for size in sizes])
        fresh = feed.take().fresh
        log = LogKey(store.author, OWN)
        limits = {"entries_max": entries_max, "bytes_max": bytes_max, "payloads": payloads}
        wanted = command(log, first, 20, **limits)
        read = read_entries(store, wanted, ())
        found = None if fresh is None else from_fresh(wanted, fresh, ())
        if found is not None:
            assert found.entries == read.entries[: len(found.entries)]
            assert found.place == read.place
        elif fresh is not None:
            assert not before < first <= before + len(sizes)


def test_many_entries_are_not_fresh_nor_is_what_was_dropped() -> None:
    with Store.memory() as store:
        feed = ChangeFeed(store)
        store.append([b"entry"] * (FRESH_MAX + 1))
        assert feed.take().fresh is None
        store.append([b"new"])
        store.drop(LogKey(store.author, OWN), 1, FRESH_MAX + 2)
        fresh = feed.take().fresh
        assert fresh is None or all(entry.payload is None for entry in fresh.entries)
        assert feed.take().fresh is None


@pytest.mark.usefixtures("autojump_clock")
@pytest.mark.parametrize("age_s", [0, 2 * FRESH_S])
async def test_a_session_gets_it_without_a_thread_unless_it_is_old(age_s: float) -> None:
    author = Author()
    with Store.memory() as store:
        # Whoever looks for what other processes have stored finds nothing, and that is no news.
        async with running_host(store, poll_s=1e9) as host:
            client = Client(host)
            client.submit(Ingest(author.items(1, 3)))
            await client.wait_for(Ingested)
            await client.wait_for(LogChanged)
            await trio.sleep(age_s)
            client.submit(command(author.log, 2, 9))
            assert all(lane.idle for lane in host._reads.lanes) is not bool(age_s)
            read = await client.wait_for(EntriesRead)
            assert [entry.seq for entry in read.entries] == [2, 3]
            assert read.entries[1].encoded == author.encoded[3]


async def test_what_was_dropped_since_is_not_handed_out() -> None:
    author = Author()
    with Store.memory() as store:
        async with running_host(store) as host:
            client = Client(host)
            client.submit(Ingest(author.items(1, 3)))
            await client.wait_for(Ingested)
            await host.call(lambda: store.drop(author.log, 2, 2), also=(author.log,))
            client.submit(command(author.log, 2, 9))
            read = await client.wait_for(EntriesRead)
            assert [entry.payload for entry in read.entries][:1] == [None]
