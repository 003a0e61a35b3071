"""Payloads in pieces: stored in order, checked where they are not stored, kept for resuming."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from logstore import OverQuota, PayloadState, QuotaLimits, Store, StoreFull
from peer import (
    ClosePayload,
    FinishPayload,
    LookedUp,
    LookUp,
    OpenPayload,
    PayloadFinished,
    PayloadWritten,
    Verdict,
    WritePayload,
)
from peer.node.host.store_host import StoreHost

from .support import Author, Client, host_without_payload

PAYLOAD = bytes(range(256)) * 1024
HALF = len(PAYLOAD) // 2


@dataclass
class Bench:
    """A host that holds entry 1, whose payload is to come, and a session."""

    store: Store
    host: StoreHost
    author: Author
    client: Client

    def open(self, sink: int = 1, offset: int = 0) -> OpenPayload:
        return self.author.open_payload(1, sink, offset)

    async def verdict(self, count: int = 1) -> PayloadFinished:
        return await self.client.wait_for(PayloadFinished, count)

    async def hold_half(self) -> None:
        """The first half comes from somebody else, who leaves."""
        other = Client(self.host, "another peer")
        other.submit(self.open(9), WritePayload(9, PAYLOAD[:HALF]), ClosePayload(9, discard=False))
        await self.host.wait_idle()

    def state(self) -> tuple[PayloadState, int]:
        entry = self.store.entry(self.author.log, 1)
        assert entry is not None
        return entry.payload_state, entry.partial_bytes


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with host_without_payload(PAYLOAD) as parts:
        yield Bench(*parts)


async def test_a_payload_in_pieces_is_stored_and_told(bench: Bench) -> None:
    pieces = [PAYLOAD[i : i + 10_000] for i in range(0, len(PAYLOAD), 10_000)]
    bench.client.submit(bench.open(), *(WritePayload(1, piece) for piece in pieces))
    bench.client.submit(FinishPayload(1))
    assert await bench.verdict() == PayloadFinished(1, Verdict.VALID)
    assert sum(event.bytes_written for event in bench.client.of(PayloadWritten)) == len(PAYLOAD)
    await bench.client.hear(lambda news: not news.lacks)
    assert bench.state() == (PayloadState.PRESENT, 0)


async def test_chunks_that_have_gathered_are_written_at_once(bench: Bench) -> None:
    bench.client.submit(bench.open(), *(WritePayload(1, bytes(10)) for _ in range(500)))
    await bench.client.wait_for(PayloadWritten)
    assert bench.client.of(PayloadWritten) == [PayloadWritten(1, 5000)]


async def test_a_payload_is_arriving_from_its_first_piece_to_its_last(bench: Bench) -> None:
    bench.client.submit(bench.open())
    await bench.host.wait_idle()
    bench.client.submit(LookUp(1, bench.author.log, entry=1))
    view = (await bench.client.wait_for(LookedUp)).view
    assert view.entry is not None
    assert view.entry.payload_arriving
    bench.client.submit(WritePayload(1, PAYLOAD), FinishPayload(1))
    await bench.verdict()
    bench.client.submit(LookUp(2, bench.author.log, entry=1))
    view = (await bench.client.wait_for(LookedUp, 2)).view
    assert view.entry is not None
    assert (view.entry.payload_arriving, view.entry.payload_held) == (False, True)


async def test_wrong_bytes_that_came_whole_are_the_senders_fault(bench: Bench) -> None:
    bench.client.submit(bench.open(), WritePayload(1, PAYLOAD[:-1] + b"x"), FinishPayload(1))
    assert (await bench.verdict()).verdict is Verdict.INVALID
    assert bench.state() == (PayloadState.MISSING, 0)


async def test_a_payload_goes_on_where_another_peer_has_left_it(bench: Bench) -> None:
    await bench.hold_half()
    assert bench.state() == (PayloadState.PARTIAL, HALF)
    bench.client.submit(bench.open(1, HALF), WritePayload(1, PAYLOAD[HALF:]), FinishPayload(1))
    assert (await bench.verdict()).verdict is Verdict.VALID
    assert bench.state() == (PayloadState.PRESENT, 0)


async def test_wrong_bytes_in_a_resumed_payload_blame_nobody(bench: Bench) -> None:
    await bench.hold_half()
    bench.client.submit(bench.open(1, HALF), WritePayload(1, bytes(HALF)), FinishPayload(1))
    assert (await bench.verdict()).verdict is Verdict.INVALID_RESUMED
    assert bench.state() == (PayloadState.MISSING, 0)


async def test_what_comes_whole_is_judged_by_itself_whatever_was_held(bench: Bench) -> None:
    await bench.hold_half()
    bench.client.submit(bench.open(), WritePayload(1, bytes(len(PAYLOAD))), FinishPayload(1))
    assert (await bench.verdict()).verdict is Verdict.INVALID


async def test_bytes_that_are_held_already_are_passed_over(bench: Bench) -> None:
    await bench.hold_half()
    bench.client.submit(bench.open(1, 1000), WritePayload(1, PAYLOAD[1000:]), FinishPayload(1))
    assert (await bench.verdict()).verdict is Verdict.VALID
    assert bench.state() == (PayloadState.PRESENT, 0)


async def test_bytes_beyond_what_is_held_cannot_be_judged(bench: Bench) -> None:
    await bench.hold_half()
    at = HALF + 1
    bench.client.submit(bench.open(1, at), WritePayload(1, PAYLOAD[at:]), FinishPayload(1))
    assert (await bench.verdict()).verdict is Verdict.INVALID_RESUMED
    assert bench.state() == (PayloadState.PARTIAL, HALF)


@pytest.mark.parametrize("right", [True, False])
async def test_a_payload_that_another_session_receives_is_only_checked(
    bench: Bench, right: bool
) -> None:
    other = Client(bench.host)
    other.submit(bench.open(9), WritePayload(9, PAYLOAD[:100]))
    await other.wait_for(PayloadWritten)
    data = PAYLOAD if right else bytes(len(PAYLOAD))
    bench.client.submit(bench.open(), WritePayload(1, data), FinishPayload(1))
    verdict = Verdict.VALID if right else Verdict.INVALID
    assert (await bench.verdict()).verdict is verdict
    other.submit(WritePayload(9, PAYLOAD[100:]), FinishPayload(9))
    assert (await other.wait_for(PayloadFinished)).verdict is Verdict.VALID


async def test_the_rest_of_a_payload_that_another_session_receives_is_not_now(bench: Bench) -> None:
    other = Client(bench.host)
    other.submit(bench.open(9), WritePayload(9, PAYLOAD[:100]))
    await other.wait_for(PayloadWritten)
    bench.client.submit(bench.open(1, 50), WritePayload(1, PAYLOAD[50:]), FinishPayload(1))
    assert (await bench.verdict()).verdict is Verdict.STORAGE


@pytest.mark.parametrize("offset", [0, HALF])
@pytest.mark.parametrize("right", [True, False])
async def test_a_payload_that_is_held_is_only_checked(
    bench: Bench, offset: int, right: bool
) -> None:
    bench.client.submit(bench.open(), WritePayload(1, PAYLOAD), FinishPayload(1))
    await bench.verdict()
    data = PAYLOAD[offset:] if right else bytes(len(PAYLOAD) - offset)
    bench.client.submit(bench.open(2, offset), WritePayload(2, data), FinishPayload(2))
    verdict = Verdict.VALID if right else Verdict.INVALID
    assert (await bench.verdict(2)).verdict is verdict


async def test_what_was_discarded_is_not_resumed(bench: Bench) -> None:
    bench.client.submit(bench.open(), WritePayload(1, bytes(1000)), ClosePayload(1, discard=True))
    bench.client.submit(bench.open(2), WritePayload(2, PAYLOAD), FinishPayload(2))
    assert (await bench.verdict()).verdict is Verdict.VALID


async def test_what_came_before_a_session_ended_is_kept(bench: Bench) -> None:
    bench.client.submit(bench.open(), WritePayload(1, PAYLOAD[:HALF]))
    bench.host.close_port(bench.client.port)
    await bench.host.wait_idle()
    assert bench.state() == (PayloadState.PARTIAL, HALF)


async def test_a_full_disk_is_nobodys_fault(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **options: object) -> None:
        raise StoreFull("the disk is full", "here", "free space")

    monkeypatch.setattr(bench.store, "payload_sink", full)
    bench.client.submit(bench.open(), WritePayload(1, PAYLOAD), FinishPayload(1))
    finished = await bench.verdict()
    assert finished == PayloadFinished(1, Verdict.STORAGE, "the disk is full: here; free space")
    assert bench.client.of(PayloadWritten) == [PayloadWritten(1, len(PAYLOAD))]


async def test_what_has_no_room_when_its_session_leaves_is_told_by_the_limit_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A small one has no file before, and so was not judged. A line for each would fill the log."""
    async with host_without_payload(bytes(5_000)) as parts:
        bench, told = Bench(*parts), list[OverQuota]()
        bench.host.quota_watchers.add(told.append)
        bench.store.set_quotas(QuotaLimits(store_bytes=1_000))
        leave = ClosePayload(1, discard=False)
        bench.client.submit(bench.open(), WritePayload(1, bytes(100)), leave)
        await bench.host.wait_idle()
        assert [over.key for over in told] == ["store-bytes"]
        assert bench.state() == (PayloadState.MISSING, 0)
    assert not caplog.records
