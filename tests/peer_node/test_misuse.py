"""Who calls it wrongly is told which argument it was, of which type, and what was in it; and what
people write for a log is taken wherever a program may name one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import trio

from logstore import ALL, Ambiguous, KeepRule, NothingSoCalled, Store, Subscription
from peer import aio, blocking
from peer.api import Peer
from peer.node import NodeConfig
from wire import LogKey

CONFIG = NodeConfig(workers=0, poll_s=0.001)
LOG = LogKey(bytes(32), 0)
ELSEWHERE = "127.0.0.1:1"

# What is called, how it fails, and what its text says, which names argument, type and value.
OF_BOTH: tuple[tuple[Callable[[Any], Any], type[Exception], str], ...] = (
    (lambda it: it.append([b"x"], log_id="x"), TypeError, "log_id='x' is a str: a log id is"),
    (lambda it: it.append([b"x"], log_id=None), TypeError, "log_id=None: a log id is a number"),
    (lambda it: it.append([b"x"], log_id=True), TypeError, "log_id=True is a bool"),
    (lambda it: it.append([b"x"], log_id=-1), ValueError, "log_id=-1: a log id is a number from"),
    (lambda it: it.append([b"x"], expected_seq="1"), TypeError, "expected_seq='1' is a str"),
    (lambda it: it.append("x"), TypeError, "payloads='x' is a str: append takes a list"),
    (lambda it: it.append(b"x"), TypeError, "payloads=b'x' is a bytes: append takes a list"),
    (lambda it: it.append(None), TypeError, "payloads=None: append takes a list"),
    (lambda it: it.append(["x"]), TypeError, "payloads[0]='x' is a str: a payload is bytes"),
    (lambda it: it.append([b"x", 1]), TypeError, "payloads[1]=1 is an int: a payload is bytes"),
    (lambda it: it.append([]), ValueError, "nothing to append"),
    (lambda it: it.append_many([b"x"]), TypeError, "batches[0]=b'x' is a bytes: a batch is"),
    (lambda it: it.append_many([("0", [b"x"])]), TypeError, "batches[0][0]='0' is a str"),
    (lambda it: it.append_many([(0, b"x")]), TypeError, "batches[0][1]=b'x' is a bytes"),
    (lambda it: it.append_many([(0, ["x"])]), TypeError, "batches[0][1][0]='x' is a str"),
    (
        lambda it: it.append_many([(0, [b"x"])], expected_seqs=["1"]),
        TypeError,
        "expected_seqs[0]='1' is a str",
    ),
    (lambda it: it.follow(None), TypeError, "target=None: a log is a LogKey, an author 32 bytes"),
    (lambda it: it.follow(5), TypeError, "target=5 is an int: a log is a LogKey, an author"),
    (lambda it: it.follow(bytes(5)), ValueError, "target: an author has 32 bytes, not 5"),
    (lambda it: it.follow(LogKey(bytes(5), 0)), ValueError, "author: an author has 32 bytes"),
    (lambda it: it.follow(ALL, "latest:2"), TypeError, "subscription='latest:2' is a str"),
    (lambda it: it.follow("a/b/c"), ValueError, "a slash is followed by the number of a log"),
    (lambda it: it.follow("nobody"), NothingSoCalled, "nothing has that name: nobody"),
    (lambda it: it.unfollow(["x"]), TypeError, "target=['x'] is a list"),
    (lambda it: it.keep(ALL, 5), TypeError, "rule=5 is an int: write KeepRule("),
    (lambda it: it.tidy(7), TypeError, "target=7 is an int"),
)
OF_PEERS: tuple[tuple[Callable[[Any], Any], type[Exception], str], ...] = (
    (lambda it: it.fetch(5, 1), TypeError, "log=5 is an int: a log is a LogKey, or text"),
    (lambda it: it.fetch(bytes(32), 1), TypeError, "is a bytes: a log is a LogKey, or text"),
    (lambda it: it.fetch(LOG, "1..3"), TypeError, "first='1..3' is a str: an entry is named by"),
    (lambda it: it.fetch(LOG, 1, (3,)), TypeError, "last=(3,) is a tuple"),
    (lambda it: it.fetch(LOG, 3, 2), ValueError, "3..2 is no range of entries"),
    (lambda it: it.fetch(LOG, 1, timeout_s="5"), TypeError, "timeout_s='5' is a str: a time"),
    (lambda it: it.fetch(LOG, 1, timeout_s=-1), ValueError, "timeout_s=-1: a time limit is"),
    (lambda it: it.wait_for(LOG, "1"), TypeError, "seq='1' is a str"),
    (lambda it: it.wait_for(LOG, 0), ValueError, "seq=0 is no entry"),
    (lambda it: it.wait_for(5, 1), TypeError, "log=5 is an int"),
    (lambda it: it.wait_for(LOG, 1, timeout_s=[1]), TypeError, "timeout_s=[1] is a list"),
    (lambda it: it.wait_in_sync(timeout_s=float("nan")), ValueError, "timeout_s=nan: a time"),
    (lambda it: it.sync(5), TypeError, "address=5 is an int: an address is text"),
    (lambda it: it.sync(ELSEWHERE, timeout_s="1"), TypeError, "timeout_s='1' is a str"),
    (lambda it: it.newest(ELSEWHERE, LOG), TypeError, "logs=LogKey('0000"),
    (lambda it: it.newest(ELSEWHERE, [5]), TypeError, "logs[0]=5 is an int"),
    (lambda it: it.newest(ELSEWHERE, [LOG], timeout_s=-1), ValueError, "timeout_s=-1: a time"),
    (lambda it: it.why(5), TypeError, "subject=5 is an int"),
    (lambda it: it.listen(5), TypeError, "address=5 is an int: an address is text"),
    (lambda it: it.connect(5), TypeError, "address=5 is an int: an address is text"),
    (lambda it: first_of(it.entries(5)), TypeError, "target=5 is an int"),
    (lambda it: first_of(it.entries(after="x")), TypeError, "after='x' is a str: an ingest"),
    (lambda it: first_of(it.entries(after=-1)), ValueError, "after=-1: an ingest number is"),
)
OF_STORES: tuple[tuple[Callable[[Any], Any], type[Exception], str], ...] = (
    (lambda it: it.resolve(5), TypeError, "text=5 is an int"),
    (lambda it: it.log(5), TypeError, "key=5 is an int: a log is a LogKey, or text"),
    (lambda it: it.log(LogKey._make(["x", 0])), TypeError, "author='x' is a str"),
    (lambda it: list(it.logs(5)), TypeError, "author=5 is an int"),
    (lambda it: list(it.logs("/5")), ValueError, "is a log, and an author is wanted"),
    (
        lambda it: it.read(LOG, "1", entries_max=1, bytes_max=1, with_payload=False),
        TypeError,
        "start='1' is a str",
    ),
    (
        lambda it: it.read(LOG, 1, entries_max="1", bytes_max=1, with_payload=False),
        TypeError,
        "entries_max='1' is",
    ),
    (lambda it: it.entry(LOG, None), TypeError, "seq=None"),
    (lambda it: it.open_payload(LOG, "1"), TypeError, "seq='1' is a str"),
    (lambda it: it.changes("x", 1), TypeError, "after='x' is a str"),
    (lambda it: it.read_arrivals("0", entries_max=1, bytes_max=1), TypeError, "after='0' is"),
    (lambda it: it.drop(LOG, (1, 2)), TypeError, "first=(1, 2) is a tuple"),
    (lambda it: it.drop(5), TypeError, "key=5 is an int"),
    (lambda it: it.want(LOG, 2, 1), ValueError, "2..1 is no range of entries"),
    (lambda it: it.want(LOG, "1", 2), TypeError, "first='1' is a str"),
    (lambda it: it.set_name("ben", 5), TypeError, "target=5 is an int"),
    (lambda it: it.fork(bytes(32)), TypeError, "is a bytes: a log is a LogKey"),
)


def first_of(entries: Any) -> object:  # noqa: ANN401 - of any of the three classes
    return anext(entries) if hasattr(entries, "__anext__") else next(entries)


@contextmanager
def refused(kind: type[Exception], text: str) -> Iterator[None]:
    with pytest.raises(kind) as caught:
        yield
    assert caught.type is kind
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("call", "kind", "text"), [*OF_BOTH, *OF_STORES])
def test_a_store_names_what_is_wrong(
    call: Callable[[Any], Any], kind: type[Exception], text: str
) -> None:
    with Store.memory() as store:
        with refused(kind, text):
            call(store)
        assert not store.follows()
        assert not store.position()


@pytest.mark.parametrize(("call", "kind", "text"), [*OF_BOTH, *OF_PEERS])
async def test_a_peer_names_what_is_wrong(
    call: Callable[[Any], Any], kind: type[Exception], text: str
) -> None:
    with Store.memory() as store:
        async with Peer(store, config=CONFIG) as peer:
            with refused(kind, text):
                await call(peer)
        assert not store.follows()
        assert not store.position()


def test_a_facade_without_a_loop_says_the_same() -> None:
    with Store.memory() as store, blocking.Peer(store, config=CONFIG) as peer:
        for call, kind, text in (*OF_BOTH, *OF_PEERS):
            with refused(kind, text):
                call(peer)
        assert not store.position()


def test_a_facade_of_asyncio_says_the_same() -> None:
    async def main() -> None:
        with Store.memory() as store:
            async with aio.Peer(store, config=CONFIG) as peer:
                for call, kind, text in (*OF_BOTH, *OF_PEERS):
                    with refused(kind, text):
                        found = call(peer)
                        if found is not None:
                            await found
                assert not store.position()

    asyncio.run(main())


@pytest.mark.parametrize("kind", [Peer, aio.Peer, blocking.Peer])
def test_a_path_is_no_store(kind: Callable[[Any], object]) -> None:
    with refused(TypeError, "store='x' is a str: a Peer serves a Store: Store.open(path)"):
        kind("x")


@asynccontextmanager
async def running(store: Store) -> AsyncIterator[Peer]:
    with trio.fail_after(30):
        async with Peer(store, config=CONFIG) as peer:
            yield peer


async def test_a_peer_takes_what_people_write_for_a_log() -> None:
    with Store.memory() as store:
        store.append([b"own"])
        store.append([b"other"], log_id=7)
        store.set_name("ben", bytes(32))
        own = store.author.hex()
        async with running(store) as peer:
            assert await peer.follow("ben/3", Subscription.parse("latest:2"))
            assert await peer.follow("ben")
            assert set(peer.subscriptions) == {LogKey(bytes(32), 3), bytes(32)}
            assert await peer.keep("ben", KeepRule(last=1))
            assert set(peer.keeps) == {bytes(32)}
            assert await peer.unfollow("ben/3")
            # An author is log 0 where a log is wanted, and all of his where one may follow him.
            assert (await peer.wait_for(own, 1)).key == LogKey(store.author, 0)
            assert (await peer.wait_for("7", 1)).key == LogKey(store.author, 7)
            found = [entry async for entry in first_few(peer, own[:9], 2)]
            assert found == [b"own", b"other"]
            assert [entry async for entry in first_few(peer, "/7", 1)] == [b"other"]
            with pytest.raises(TimeoutError, match="0000/3 1 within 0 s"):
                await peer.fetch("ben/3", 1, timeout_s=0)
            assert await peer.why("7") == await peer.why(LogKey(store.author, 7))
            # Nothing is called so: a host.
            assert "localhost" in str((await peer.why("localhost"))[0])
            store.follow(bytes.fromhex(own[:-1] + ("0" if own[-1] != "0" else "1")))
            with pytest.raises(Ambiguous):
                await peer.wait_for(own[:9], 1)


async def first_few(peer: Peer, target: str, count: int) -> AsyncIterator[bytes | None]:
    entries = peer.entries(target)
    for _ in range(count):
        yield (await anext(entries)).payload
    await entries.aclose()


def test_a_store_takes_what_people_write_for_a_log() -> None:
    with Store.memory() as store:
        store.append([b"one", b"two"])
        key = LogKey(store.author, 0)
        store.set_name("mine", key)
        beginning = store.author.hex()[:8]
        for text in ("mine", "0", "/0", str(key), store.author.hex(), beginning, f"{beginning}/0"):
            assert store.log(text) == store.log(key)
            assert store.entry(text, 2) == store.entry(key, 2)
            with store.open_payload(text, 1) as payload:
                assert payload.read(0, 10) == b"one"
        assert [info.key for info in store.logs(beginning)] == [key]
        assert store.drop("mine", 2).count == 1
        store.set_name("again", "mine")
        assert store.names()["again"] == key
        with pytest.raises(NothingSoCalled):
            store.log("nobody")
