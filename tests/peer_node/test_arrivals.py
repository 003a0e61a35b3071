"""Payloads are read by other sessions while one session receives them (point2point.md 8)."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

import pytest
import trio

from logstore import Dropped, PayloadState, Store, StoreFull
from peer import (
    ArrivalChanged,
    ClosePayload,
    EntriesRead,
    FinishPayload,
    PayloadFinished,
    PayloadRead,
    PayloadWithdrawn,
    PayloadWritten,
    ReadEntries,
    ReadPayload,
    StopReading,
    StorageFailed,
    Verdict,
    WritePayload,
)
from peer.node.host.store_host import StoreHost

from .support import Author, Client, host_without_payload

PAYLOAD = bytes(range(256)) * 1024
WRONG = PAYLOAD[:-1] + b"x"
SIZE = len(PAYLOAD)
HALF = SIZE // 2


@dataclass
class Bench:
    """A host that holds entry 1, whose payload is to come, a session that brings it, and readers.

    Every session's requests have number 5.
    """

    store: Store
    host: StoreHost
    author: Author
    source: Client
    readers: list[Client]
    sinks: int = 0

    @property
    def reader(self) -> Client:
        return self.readers[0]

    async def open(self, source: Client | None = None, *, offset: int = 0) -> int:
        """Somebody begins to bring the payload; returns the sink."""
        source = source or self.source
        self.sinks += 1
        source.submit(self.author.open_payload(1, self.sinks, offset))
        await self.host.wait_idle()
        return self.sinks

    async def write(self, sink: int, data: bytes, source: Client | None = None) -> None:
        source = source or self.source
        source.submit(WritePayload(sink, data))
        await source.wait_for(PayloadWritten, len(source.of(PayloadWritten)) + 1)

    async def finish(self, sink: int, source: Client | None = None) -> Verdict:
        source = source or self.source
        source.submit(FinishPayload(sink))
        return (await source.wait_for(PayloadFinished)).verdict

    def ask(self, offset: int, reader: Client | None = None, bytes_max: int = 1 << 20) -> None:
        command = ReadPayload(5, self.author.log, 1, offset, bytes_max, arriving=True)
        (reader or self.reader).submit(command)

    async def read(self, offset: int, reader: Client | None = None) -> PayloadRead:
        reader = reader or self.reader
        count = len(reader.of(PayloadRead)) + 1
        self.ask(offset, reader)
        return await reader.wait_for(PayloadRead, count)

    def received(self, reader: Client | None = None) -> bytes:
        return b"".join(event.data for event in (reader or self.reader).of(PayloadRead))

    def files_open(self) -> int:
        return self.host.arrivals.readings


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with host_without_payload(PAYLOAD) as (store, host, author, source):
        yield Bench(store, host, author, source, [Client(host) for _ in range(3)])


async def test_what_has_been_written_is_read_and_the_last_byte_once_all_is_right(
    bench: Bench,
) -> None:
    sink = await bench.open()
    await bench.write(sink, PAYLOAD[:HALF])
    assert await bench.read(0) == PayloadRead(5, 1, 0, PAYLOAD[:HALF], verified=False)
    await bench.write(sink, PAYLOAD[HALF:])
    assert await bench.read(HALF) == PayloadRead(5, 1, HALF, PAYLOAD[HALF:-1], verified=False)
    bench.ask(SIZE - 1)
    assert await bench.finish(sink) is Verdict.VALID
    last = await bench.reader.wait_for(PayloadRead, 3)
    assert last == PayloadRead(5, 1, SIZE - 1, PAYLOAD[-1:], verified=True)
    assert bench.files_open() == 0


async def test_a_read_that_is_ahead_waits_for_the_writing(bench: Bench) -> None:
    sink = await bench.open()
    bench.ask(0)
    bench.ask(100, bench.readers[1])
    await bench.write(sink, PAYLOAD[:100])
    assert (await bench.reader.wait_for(PayloadRead)).data == PAYLOAD[:100]
    await bench.host.wait_idle()
    assert bench.readers[1].of(PayloadRead) == []
    await bench.write(sink, PAYLOAD[100:150])
    assert (await bench.readers[1].wait_for(PayloadRead)).data == PAYLOAD[100:150]


async def test_a_payload_that_is_dropped_stops_at_once(bench: Bench) -> None:
    sink = await bench.open()
    await bench.write(sink, PAYLOAD[:HALF])
    await bench.read(0)
    bench.ask(HALF)
    # Past the host, as another process does it.
    assert bench.store.drop(bench.author.log) == Dropped(1, HALF, HALF)
    finished = await bench.source.wait_for(PayloadFinished)
    assert finished == PayloadFinished(sink, Verdict.DROPPED)
    assert await bench.reader.wait_for(PayloadWithdrawn) == PayloadWithdrawn(5, 1)
    bench.source.submit(WritePayload(sink, PAYLOAD[HALF:]), ClosePayload(sink, discard=False))
    await bench.host.wait_idle()
    assert bench.files_open() == 0
    assert not bench.store._files.listed()
    entry = bench.store.entry(bench.author.log, 1)
    assert entry is not None
    assert entry.payload_state is PayloadState.DELETED


async def test_a_payload_is_dropped_when_all_of_it_has_come(bench: Bench) -> None:
    sink = await bench.open()
    await bench.write(sink, PAYLOAD)
    await bench.host.wait_idle()
    bench.store.drop(bench.author.log)
    assert await bench.finish(sink) is Verdict.DROPPED


async def test_any_number_of_sessions_read_at_their_own_pace(bench: Bench) -> None:
    sink = await bench.open()
    async with trio.open_nursery() as nursery:
        for step, reader in zip((1_000, 60_000, SIZE), bench.readers, strict=True):
            nursery.start_soon(read_all, bench, reader, step)
        for at in range(0, SIZE, 30_000):
            await bench.write(sink, PAYLOAD[at : at + 30_000])
        assert await bench.finish(sink) is Verdict.VALID
    assert [bench.received(reader) for reader in bench.readers] == [PAYLOAD] * 3
    assert bench.files_open() == 0


async def read_all(bench: Bench, reader: Client, step: int) -> None:
    offset = 0
    while offset < SIZE:
        bench.ask(offset, reader, step)
        offset += len((await reader.wait_for(PayloadRead, len(reader.of(PayloadRead)) + 1)).data)


async def test_who_reads_a_wrong_payload_is_told_at_once(bench: Bench) -> None:
    sink = await bench.open()
    await bench.write(sink, WRONG)
    await bench.read(0)
    bench.ask(SIZE - 1)
    assert await bench.finish(sink) is Verdict.INVALID
    await bench.host.wait_idle()
    assert bench.reader.of(PayloadWithdrawn) == [PayloadWithdrawn(5, 1)]
    assert bench.received() == WRONG[:-1]
    assert bench.files_open() == 0


async def test_who_reads_is_told_when_the_sender_apologised(bench: Bench) -> None:
    sink = await bench.open()
    await bench.write(sink, PAYLOAD[:HALF])
    await bench.read(0)
    bench.source.submit(ClosePayload(sink, discard=True))
    assert await bench.reader.wait_for(PayloadWithdrawn) == PayloadWithdrawn(5, 1)
    assert bench.files_open() == 0


async def test_after_a_lost_connection_the_readers_wait_for_whoever_goes_on(bench: Bench) -> None:
    sink = await bench.open()
    await bench.write(sink, PAYLOAD[:HALF])
    await bench.read(0)
    bench.ask(HALF)
    bench.host.close_port(bench.source.port)
    await bench.host.wait_idle()
    assert bench.reader.of(PayloadWithdrawn) == []
    other = Client(bench.host)
    sink = await bench.open(other, offset=HALF)
    await bench.write(sink, PAYLOAD[HALF:], other)
    await bench.reader.wait_for(PayloadRead, 2)
    bench.ask(SIZE - 1)
    assert await bench.finish(sink, other) is Verdict.VALID
    await bench.reader.wait_for(PayloadRead, 3)
    assert bench.received() == PAYLOAD


async def test_a_payload_that_begins_anew_is_another_one_for_who_read_the_first(
    bench: Bench,
) -> None:
    sink = await bench.open()
    await bench.write(sink, PAYLOAD[:HALF])
    await bench.read(0)
    bench.source.submit(ClosePayload(sink, discard=False))
    await bench.open(offset=0)
    await bench.reader.wait_for(PayloadWithdrawn)
    assert bench.files_open() == 0


async def test_bytes_that_a_failing_disk_may_not_have_are_withdrawn(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise StoreFull("the disk is full", "here", "free space")

    sink = await bench.open()
    await bench.write(sink, PAYLOAD[:HALF])
    await bench.read(0)
    monkeypatch.setattr("logstore.sink.write_all", fail)
    await bench.write(sink, PAYLOAD[HALF:])
    assert await bench.reader.wait_for(PayloadWithdrawn) == PayloadWithdrawn(5, 1)
    assert bench.received() == PAYLOAD[:HALF]


async def test_a_resumed_payload_is_read_from_its_beginning(bench: Bench) -> None:
    sink = await bench.open()
    await bench.write(sink, PAYLOAD[:HALF])
    bench.source.submit(ClosePayload(sink, discard=False))
    await bench.open(offset=HALF)
    assert await bench.read(0) == PayloadRead(5, 1, 0, PAYLOAD[:HALF], verified=False)


async def test_a_payload_that_nobody_brings_is_not_held(bench: Bench) -> None:
    assert (await bench.read(0)).data == b""
    sink = await bench.open()
    await bench.write(sink, PAYLOAD[:HALF])
    bench.source.submit(ClosePayload(sink, discard=False))
    await bench.host.wait_idle()
    assert (await bench.read(0)).data == b""


async def test_unverified_bytes_are_given_only_to_who_takes_them(bench: Bench) -> None:
    sink = await bench.open()
    await bench.write(sink, PAYLOAD[:HALF])
    bench.reader.submit(ReadPayload(5, bench.author.log, 1, 0, 100))
    assert (await bench.reader.wait_for(PayloadRead)).data == b""


@pytest.mark.parametrize("busy", [False, True])
async def test_a_read_that_is_given_up_leaves_nothing_behind(bench: Bench, busy: bool) -> None:
    sink = await bench.open()
    await bench.write(sink, PAYLOAD[:HALF])
    await bench.read(0)
    bench.ask(0 if busy else HALF)
    bench.reader.submit(StopReading(5))
    assert bench.files_open() == 0
    await bench.write(sink, PAYLOAD[HALF:])
    await bench.host.wait_idle()
    assert len(bench.reader.of(PayloadRead)) == 1


async def test_a_session_that_ends_leaves_no_reads_behind(bench: Bench) -> None:
    sink = await bench.open()
    await bench.write(sink, PAYLOAD[:HALF])
    await bench.read(0)
    bench.ask(HALF)
    bench.ask(HALF, bench.readers[1])
    bench.host.close_port(bench.reader.port)
    assert bench.files_open() == 1
    bench.host.close_port(bench.source.port)
    bench.host.close_port(bench.readers[1].port)
    await bench.host.wait_idle()
    assert bench.files_open() == 0
    assert (bench.author.log, 1) not in bench.host.arrivals


async def test_a_read_takes_the_place_of_one_that_waits(bench: Bench) -> None:
    sink = await bench.open()
    await bench.write(sink, PAYLOAD[:100])
    bench.ask(100)
    bench.ask(50)
    await bench.write(sink, PAYLOAD[100:200])
    await bench.host.wait_idle()
    assert [event.offset for event in bench.reader.of(PayloadRead)] == [50]


async def test_who_asks_again_while_the_last_bytes_are_read_has_an_answer(bench: Bench) -> None:
    """It has begun anew, as when the payload is its entry's by now."""
    sink = await bench.open()
    await bench.write(sink, PAYLOAD)
    bench.ask(0, bytes_max=10)
    await bench.reader.wait_for(PayloadRead)
    assert await bench.finish(sink) is Verdict.VALID
    bench.ask(10)
    bench.ask(HALF)
    await bench.reader.wait_for(PayloadRead, 3)
    assert [event.offset for event in bench.reader.of(PayloadRead)] == [0, 10, HALF]
    assert bench.files_open() == 0


async def test_sessions_are_told_when_a_payload_begins_and_ceases_to_arrive(bench: Bench) -> None:
    arriving = partial(is_arriving, bench)
    changed = [ArrivalChanged(bench.author.log, 1)]
    sink = await bench.open()
    assert await arriving()
    bench.source.submit(ClosePayload(sink, discard=False))
    await bench.host.wait_idle()
    assert not await arriving()
    assert bench.readers[1].of(ArrivalChanged) == changed * 2
    sink = await bench.open()
    await bench.write(sink, PAYLOAD)
    assert await bench.finish(sink) is Verdict.VALID
    assert not await arriving()
    assert bench.readers[1].of(ArrivalChanged) == changed * 4


async def is_arriving(bench: Bench) -> bool:
    count = len(bench.reader.of(EntriesRead)) + 1
    bench.reader.submit(ReadEntries(6, bench.author.log, 1, 1, None, 1, 1000, payloads=False))
    return (await bench.reader.wait_for(EntriesRead, count)).entries[0].payload_arriving


async def test_a_reader_that_has_begun_goes_on_with_the_payload_when_it_is_held(
    bench: Bench,
) -> None:
    sink = await bench.open()
    await bench.write(sink, PAYLOAD)
    bench.ask(0, bytes_max=100)
    await bench.reader.wait_for(PayloadRead)
    assert await bench.finish(sink) is Verdict.VALID
    rest = await bench.read(100)
    assert rest == PayloadRead(5, 1, 100, PAYLOAD[100:], verified=True)


async def test_reading_that_fails_ends_the_request_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> bytes:
        raise OSError(5, "the disk is broken")

    sink = await bench.open()
    await bench.write(sink, PAYLOAD[:HALF])
    monkeypatch.setattr("logstore.system.PayloadHandle.read", fail)
    bench.ask(0)
    assert "the disk is broken" in (await bench.reader.wait_for(StorageFailed)).detail
    assert bench.reader.failures == []
    assert bench.files_open() == 0


async def test_a_small_payload_is_read_when_it_is_whole() -> None:
    """It is in memory until then, and who waits looks again."""
    async with host_without_payload(b"small") as (_, host, author, source):
        reader = Client(host)
        source.submit(author.open_payload(), WritePayload(1, b"sma"))
        await source.wait_for(PayloadWritten)
        reader.submit(ReadPayload(5, author.log, 1, 0, 100, arriving=True))
        source.submit(WritePayload(1, b"ll"), FinishPayload(1))
        assert (await source.wait_for(PayloadFinished)).verdict is Verdict.VALID
        await reader.wait_for(PayloadWithdrawn)
        assert host.arrivals.readings == 0
