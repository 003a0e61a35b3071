"""What sessions ask of the store is done, in order, and every session hears what changed."""

import functools
import threading
from pathlib import Path

import pytest
import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from logstore import (
    FULL,
    ForkProof,
    LogInfo,
    NewEntry,
    PolicyKind,
    Store,
    StoreFailed,
    StoreFull,
    Subscription,
)
from peer import (
    CheckEvidence,
    EntriesRead,
    Ingest,
    Ingested,
    IngestFailed,
    LogChanged,
    LookedUp,
    LookUp,
    PayloadRead,
    ReadEntries,
    ReadPayload,
    Refusal,
    StorageFailed,
    WritePayload,
)
from peer.node.host.changes import News
from peer.node.interests import Wanted
from wire import LogKey

from .support import Author, Client, running_host, spoiled


def read(author: Author, first: int, last: int, **changes: object) -> ReadEntries:
    fields: dict[str, object] = {"seqs": None, "entries_max": 100, "bytes_max": 1 << 20}
    fields |= {"payloads": True, **changes}
    return ReadEntries(request=5, log=author.log, first=first, last=last, **fields)  # type: ignore[arg-type]


class WantedSeen:
    """What a host said is wanted."""

    def __init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[Wanted](100)

    def take(self, wanted: Wanted) -> None:
        self._send.send_nowait(wanted)

    async def wait_for(self, expected: Wanted) -> None:
        with trio.fail_after(30):
            while await self._receive.receive() != expected:
                pass


async def stored(client: Client, author: Author, last: int, *, payload: bool = True) -> None:
    client.submit(Ingest(author.items(1, last, payload=payload)))
    await client.wait_for(Ingested)


async def test_entries_are_stored_and_answered_before_everybody_hears_of_them() -> None:
    author = Author()
    with Store.memory() as store:
        async with running_host(store) as host:
            one, other = Client(host, "one"), Client(host, "other")
            one.submit(Ingest(author.items(1, 3)))
            assert await one.wait_for(Ingested) == Ingested(1, 3)
            news = LogChanged(author.log, 3, 3)
            assert await one.wait_for(LogChanged) == news
            assert one.events == [Ingested(1, 3), news]
            assert other.events == [news]
        info = store.log(author.log)
        assert info is not None
        assert (info.payloads, info.newest_from) == (3, "one")


async def test_what_was_put_before_a_command_that_fails_is_done() -> None:
    author = Author()
    with Store.memory() as store:
        async with running_host(store) as host:
            client = Client(host)
            await stored(client, author, 1)
            with pytest.raises(KeyError):
                client.submit(LookUp(7, author.log), WritePayload(99, b"no such sink"))
            assert (await client.wait_for(LookedUp)).view.height == 1
            client.submit(LookUp(8, author.log))
            await client.wait_for(LookedUp, 2)


async def test_a_wrong_signature_is_refused_and_what_came_before_it_is_kept() -> None:
    author = Author()
    items = author.items(1, 4)
    items[2] = spoiled(items[2])
    with Store.memory() as store:
        async with running_host(store) as host:
            client = Client(host)
            client.submit(Ingest(items))
            failed = await client.wait_for(IngestFailed)
            assert client.of(Ingested) == [Ingested(1, 2)]
            assert (failed.seq, failed.entries, failed.refusal) == (3, 2, Refusal.INVALID)
        info = store.log(author.log)
        assert info is not None
        assert info.newest == 2


async def test_a_second_entry_of_a_number_is_a_fork_and_kept_as_proof() -> None:
    honest, forger = Author(), Author()
    for seq in (1, 2):
        honest.sign(seq, b"honest")
        forger.sign(seq, b"honest" if seq == 1 else b"forged")
    with Store.memory() as store:
        async with running_host(store) as host:
            client = Client(host)
            await stored(client, honest, 2)
            client.submit(Ingest(forger.items(1, 2)))
            failed = await client.wait_for(IngestFailed)
            assert (failed.seq, failed.refusal) == (2, Refusal.FORKED)
            await client.hear(lambda news: (news.fork, news.newest) == (2, 1))
            client.submit(LookUp(7, honest.log))
            view = (await client.wait_for(LookedUp)).view
            proof = (honest.encoded[2], forger.encoded[2])
            assert (view.fork, view.fork_proof, view.height) == (2, proof, 1)


async def test_a_full_disk_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    author = Author()

    def full(*args: object, **options: object) -> None:
        raise StoreFull("the disk is full", "here", "free space")

    with Store.memory() as store:
        monkeypatch.setattr(store, "put_many", full)
        async with running_host(store) as host:
            client = Client(host)
            client.submit(Ingest(author.items(1, 2)))
            failed = await client.wait_for(IngestFailed)
            assert (failed.seq, failed.entries, failed.refusal) == (1, 2, Refusal.STORAGE)
            assert failed.detail == "the disk is full: here; free space"


async def test_a_bug_in_storing_keeps_no_session_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise ZeroDivisionError

    with Store.memory() as store:
        monkeypatch.setattr(store, "put_many", broken)
        async with running_host(store) as host:
            client = Client(host)
            client.submit(Ingest(Author().items(1, 1)))
            failed = await client.wait_for(IngestFailed)
            assert failed.refusal is Refusal.STORAGE
    assert "ZeroDivisionError" in caplog.text


async def test_what_a_session_handed_in_is_stored_although_it_has_ended() -> None:
    author = Author()
    with Store.memory() as store:
        async with running_host(store) as host:
            client, other = Client(host), Client(host)
            client.submit(Ingest(author.items(1, 2)))
            host.close_port(client.port)
            assert (await other.wait_for(LogChanged)).height == 2
            assert client.events == []


async def test_a_look_up_says_what_is_held_and_the_hashes_that_go_on_from_there() -> None:
    author = Author()
    with Store.memory() as store:
        async with running_host(store) as host:
            client = Client(host)
            client.submit(LookUp(1, author.log))
            assert (await client.wait_for(LookedUp)).view.newest == 0
            await stored(client, author, 6)
            client.submit(LookUp(2, author.log, hashes_of=(1, 9), entry=2))
            view = (await client.wait_for(LookedUp, 2)).view
            assert (view.height, view.newest, view.tail_partial_bytes) == (6, 6, None)
            # Asked for: 1; always: the height, lipmaa(6) = 5 and lipmaa(7) = 6.
            assert view.hashes == {seq: author.hash(seq) for seq in (1, 5, 6)}
            assert view.entry is not None
            assert (view.entry.encoded, view.entry.payload) == (author.encoded[2], b"payload 2")


async def test_a_look_up_names_payloads_that_are_missing() -> None:
    author = Author()
    with Store.memory() as store:
        async with running_host(store) as host:
            client = Client(host)
            await stored(client, author, 4, payload=False)
            client.submit(LookUp(1, author.log))
            view = (await client.wait_for(LookedUp)).view
            assert (view.tail_partial_bytes, view.missing_payloads) == (0, ((1, 3),))
            client.submit(LookUp(2, author.log, missing_above=2))
            view = (await client.wait_for(LookedUp, 2)).view
            assert view.missing_payloads == ((3, 3),)


async def test_entries_are_read_up_to_the_first_that_is_not_held() -> None:
    author = Author()
    with Store.memory() as store:
        async with running_host(store) as host:
            client = Client(host)
            author.items(1, 6)
            client.submit(Ingest([author.item(seq) for seq in (1, 2, 3, 4, 6)]))
            await client.wait_for(Ingested)
            client.submit(read(author, 2, 6))
            found = await client.wait_for(EntriesRead)
            assert [entry.seq for entry in found.entries] == [2, 3, 4]
            assert all(entry.payload_held for entry in found.entries)
            client.submit(read(author, 1, 6, seqs=(1, 4, 5, 6)))
            found = await client.wait_for(EntriesRead, 2)
            assert [entry.seq for entry in found.entries] == [1, 4]
            client.submit(read(author, 1, 3, payloads=False, bytes_max=300))
            found = await client.wait_for(EntriesRead, 3)
            assert [(entry.seq, entry.payload) for entry in found.entries] == [(1, None)]


async def test_what_was_stored_just_now_is_answered_at_once() -> None:
    author = Author()
    with Store.memory() as store:
        async with running_host(store) as host:
            client = Client(host)
            author.items(1, 20)
            client.submit(Ingest([author.item(seq) for seq in range(1, 19)]))
            await client.hear(lambda news: news.newest == 18)
            assert host.submit(client.port, [read(author, 18, 20)]) == [], "more than a few"
            client.submit(Ingest([author.item(seq) for seq in (19, 20)]))
            await client.hear(lambda news: news.newest == 20)
            [answer] = host.submit(client.port, [read(author, 19, 20)])
            assert isinstance(answer, EntriesRead)
            assert [entry.seq for entry in answer.entries] == [19, 20]
            assert host.submit(client.port, [read(author, 1, 20)]) == [], "it begins before them"


async def test_a_payload_is_read_in_pieces_and_reads_as_nothing_once_it_is_gone() -> None:
    author = Author()
    payload = bytes(range(256)) * 1024
    author.sign(1, payload)
    with Store.memory() as store:
        entry = NewEntry(1, author.encoded[1], author.hash(1), payload)
        store.put_entries(author.log, [entry], source="test")
        async with running_host(store) as host:
            client = Client(host)
            client.submit(ReadPayload(5, author.log, 1, 0, 100_000))
            await client.wait_for(PayloadRead)
            client.submit(ReadPayload(5, author.log, 1, 100_000, 1 << 20))
            await client.wait_for(PayloadRead, 2)
            assert b"".join(event.data for event in client.of(PayloadRead)) == payload
            await host.call(functools.partial(store.drop, author.log))
            client.submit(ReadPayload(5, author.log, 1, 0, 100_000))
            assert (await client.wait_for(PayloadRead, 3)).data == b""


async def test_a_damaged_store_ends_a_request_and_not_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Store.memory() as store:
        async with running_host(store) as host:
            client = Client(host)
            host.submit(client.port, ())

            def damaged(*args: object, **options: object) -> None:
                raise StoreFull("damaged", "here", "verify")

            monkeypatch.setattr(store, "read", damaged)
            monkeypatch.setattr(store, "open_payload", damaged)
            client.submit(read(Author(), 1, 2), ReadPayload(6, Author().log, 1, 0, 10))
            await client.wait_for(StorageFailed, 2)
            assert client.of(StorageFailed) == [
                StorageFailed(5, "damaged: here; verify"),
                StorageFailed(6, "damaged: here; verify"),
            ]
            assert client.failures == []


async def test_a_look_up_that_fails_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.memory() as store:
        async with running_host(store) as host:
            client = Client(host)

            def damaged(*args: object) -> None:
                raise StoreFull("damaged", "here", "verify")

            monkeypatch.setattr(store, "held_log", damaged)
            client.submit(LookUp(1, Author().log))
            await host.wait_idle()
            assert [type(error) for error in client.failures] == [StoreFull]


async def test_news_that_a_look_up_under_way_has_missed_are_told_behind_it() -> None:
    author = Author()
    with Store.memory() as store:
        async with running_host(store) as host:
            client = Client(host)
            await stored(client, author, 1)
            await client.wait_for(LogChanged)
            client.submit(LookUp(1, author.log))
            # The look-up may have looked already; the news come before its answer is delivered.
            client.port.deliver(LogChanged(author.log, 1, 1))
            host._publish(News([LogChanged(author.log, 2, 2)], 2))
            await client.wait_for(LookedUp)
            assert client.events[-1] == LogChanged(author.log, 2, 2)


async def test_what_another_process_wants_is_noticed_beside_a_commit_of_this_one(
    tmp_path: object,
) -> None:
    path, log = f"{tmp_path}/store", LogKey(bytes(32), 5)
    with Store.create(path) as store, Store.open(path) as elsewhere:
        async with running_host(store) as host:
            seen = WantedSeen()
            host.want_watchers.add(seen.take)
            # Between a look and what this process does next, which takes the news of both.
            await host.call(lambda: (store.append([b"entry"]), elsewhere.follow(log)))
            await seen.wait_for(Wanted({log: FULL}))


async def test_what_another_process_commits_is_noticed(tmp_path: object) -> None:
    path = f"{tmp_path}/store"
    with Store.create(path) as store, Store.open(path) as elsewhere:
        async with running_host(store) as host:
            client = Client(host)
            seen = WantedSeen()
            host.want_watchers.add(seen.take)
            [appended] = await trio.to_thread.run_sync(elsewhere.append, [b"entry"])
            news = await client.wait_for(LogChanged)
            assert (news.log, news.height) == (appended.key, 1)
            await trio.to_thread.run_sync(elsewhere.follow, appended.key)
            await seen.wait_for(Wanted({appended.key: FULL}))
            sparse = Subscription(PolicyKind.SPARSE)
            await trio.to_thread.run_sync(elsewhere.follow, appended.key, sparse)
            await seen.wait_for(Wanted({appended.key: sparse}))
            await trio.to_thread.run_sync(elsewhere.want, appended.key, 2, 3)
            await seen.wait_for(Wanted({appended.key: sparse}, {appended.key: ((2, 3),)}))


async def test_evidence_of_a_fork_is_checked_and_kept() -> None:
    honest, forger, stranger = Author(), Author(), Author(2)
    honest.sign(1, b"honest")
    forger.sign(1, b"forged")
    with Store.memory() as store:
        async with running_host(store) as host:
            client = Client(host)
            await stored(client, honest, 1)
            for entries in (
                (honest.encoded[1],),
                (honest.encoded[1], honest.encoded[1]),
                (stranger.item(1).entries[0][1],),
                (spoiled(forger.item(1)).entries[0][1],),
                (b"no entry",),
            ):
                client.submit(CheckEvidence(honest.log, entries))
            await host.wait_idle()
            assert store.fork(honest.log) is None
            client.submit(CheckEvidence(honest.log, (forger.encoded[1],)))
            await client.hear(lambda news: news.fork == 1)
            proof = store.fork(honest.log)
            assert proof is not None
            assert {proof.first, proof.second} == {honest.encoded[1], forger.encoded[1]}


@pytest.mark.parametrize("wanted", [True, False])
async def test_evidence_against_a_log_that_is_neither_wanted_nor_held_is_not_kept(
    *, wanted: bool
) -> None:
    """Anybody can sign two entries, in as many logs as they like."""
    honest, forger = Author(), Author()
    honest.sign(1, b"honest")
    forger.sign(1, b"forged")
    proof = (honest.encoded[1], forger.encoded[1])
    with Store.memory() as store:
        async with running_host(store) as host:
            Client(host).submit(CheckEvidence(honest.log, proof, wanted))
            await host.wait_idle()
            assert (store.fork(honest.log) is not None) is wanted


async def test_evidence_is_kept_once_the_disk_lets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    honest, forger = Author(), Author()
    honest.sign(1, b"honest")
    forger.sign(1, b"forged")
    with Store.memory() as store:
        async with running_host(store) as host:
            client = Client(host)
            await stored(client, honest, 1)
            record, tries = store.record_fork, []

            def fail(log: LogKey, first: bytes, second: bytes, *, source: str) -> ForkProof:
                tries.append(log)
                if len(tries) < 3:
                    raise StoreFull("the disk is full", "here", "free space")
                return record(log, first, second, source=source)

            monkeypatch.setattr(store, "record_fork", fail)
            client.submit(CheckEvidence(honest.log, (forger.encoded[1],)))
            await client.hear(lambda news: (news.log, news.fork) == (honest.log, 1))
            assert len(tries) == 3


async def test_evidence_that_turns_out_to_be_of_no_concern_is_not_tried_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest, forger = Author(), Author()
    honest.sign(1, b"honest")
    forger.sign(1, b"forged")
    proof = (honest.encoded[1], forger.encoded[1])
    with Store.memory() as store:
        async with running_host(store) as host:
            look, again, failures = store.log, trio.Event(), ["the disk failed"]
            run = trio.lowlevel.current_trio_token()

            def fail_once(log: LogKey) -> LogInfo | None:
                if failures:
                    raise StoreFailed(failures.pop(), "here", "look at the disk")
                run.run_sync_soon(again.set)
                return look(log)

            monkeypatch.setattr(store, "log", fail_once)
            Client(host).submit(CheckEvidence(honest.log, proof, wanted=False))
            await again.wait()
            await host.wait_idle()
            assert not host._evidence.left


async def test_a_call_is_done_in_its_turn_and_told_to_sessions() -> None:
    with Store.memory() as store:
        async with running_host(store) as host:
            client = Client(host)
            [appended] = await host.call(lambda: store.append([b"one"]))
            assert client.of(LogChanged) == [LogChanged(appended.key, 1, 1)]
            with pytest.raises(ValueError, match="nothing to append"):
                await host.call(lambda: store.append([]))


async def test_what_calls_have_stored_is_told_in_order_though_one_was_given_up() -> None:
    told: list[int] = []
    gate = threading.Event()
    with Store.memory() as store:
        async with running_host(store) as host:
            host.watchers.add(lambda changes: told.extend(change.newest for change in changes))
            append = functools.partial(host.call, lambda: store.append([b"one"]))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(host.call, gate.wait)
                await wait_all_tasks_blocked()
                for _ in range(8):
                    nursery.start_soon(append)
                    await wait_all_tasks_blocked()
                with trio.move_on_after(0):
                    await append()
                gate.set()
            await host.wait_idle()
    assert told == list(range(1, 10))


async def test_a_store_that_cannot_be_looked_at_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = []

    def fail() -> int:
        looks.append(1)
        raise StoreFailed("the disk failed", "here", "look at the disk")

    with Store.memory() as store:
        async with running_host(store) as host:
            monkeypatch.setattr(store, "data_version", fail)
            while len(looks) < 5:
                await trio.lowlevel.checkpoint()
            monkeypatch.undo()
            await host.call(lambda: None)
    assert [record.message for record in caplog.records] == [
        "the store cannot be looked at: the disk failed: here; look at the disk"
    ]


async def test_the_log_of_the_database_is_copied_beside_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logstore.log_copying.COPIED_PAGES", 1)
    copied = trio.Event()
    copy_log, run = Store.copy_log, trio.lowlevel.current_trio_token()

    def copy(store: Store) -> None:
        copy_log(store)
        run.run_sync_soon(copied.set)

    monkeypatch.setattr(Store, "copy_log", copy)
    with Store.create(tmp_path / "store") as store:
        async with running_host(store) as host:
            await host.call(lambda: store.append([b"an entry"]))
            with trio.fail_after(30):
                await copied.wait()
            assert not store.copy_due
