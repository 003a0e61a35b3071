"""A node's trace: a line for each message of each connection, and no harm to the node."""

import json
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from logstore import ALL, Store
from peer.api import NodeConfig, Peer, memory_link
from peer.node import CannotTraceError, Direction, Ending, EndKind
from peer.node.links.trace import WAITING_BYTES_MAX, TraceFile
from tests.records import replace
from wire import LogKey

from .support import PATIENCE_S

CONFIG = NodeConfig(workers=0, poll_s=0.001)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ignored(_: Mapping[str, object]) -> None:
    """An observer."""


async def test_a_node_traces_every_connection_from_its_begin_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with Store.memory() as left, Store.memory() as right:
        left.append([b"one", b"two"])
        right.follow(ALL)
        async with (
            Peer(left, config=replace(CONFIG, trace=path)) as giver,
            Peer(right, config=CONFIG) as taker,
            trio.open_nursery() as nursery,
        ):
            here, there = memory_link()
            nursery.start_soon(lambda: giver.serve_stream(here, proactive=True, name="them"))
            nursery.start_soon(lambda: taker.serve_stream(there, proactive=False))
            with trio.fail_after(PATIENCE_S):
                await taker.wait_for(LogKey(left.author, 0), 2)
            nursery.cancel_scope.cancel()
    header, begin, *rest, end = records(path)
    assert header["bamboo_peer_trace"] == 1
    assert begin["direction"] == "outgoing"
    assert (begin["channel"], begin["message"], begin["peer"]) == ("connection", "begin", "them")
    assert (end["channel"], end["message"]) == ("connection", "end")
    assert {record["connection"] for record in rest} == {1}
    sent = [r["message"] for r in rest if (r["channel"], r["way"]) == ("data", "sent")]
    assert sent[-5:] == ["switch", "metadata", "payload bytes", "metadata", "payload bytes"]
    times = [record["time"] for record in records(path)]
    assert times == sorted(times)


async def test_only_its_owner_reads_a_trace_and_a_former_one_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.touch(mode=0o644)
    for _ in range(2):
        trace = TraceFile(path, ignored, clock=lambda: 0)
        await trace.close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert records(path) == [{"bamboo_peer_trace": 1, "time": "1970-01-01T00:00:00.000000Z"}]


def test_a_file_that_is_no_trace_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter"
    path.write_text("dear reader")
    with pytest.raises(CannotTraceError, match="no trace; name another file"):
        TraceFile(path, ignored)
    assert path.read_text() == "dear reader"


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(CannotTraceError, match=r"cannot write the trace .*: No such file"):
        TraceFile(tmp_path / "none" / "trace", ignored)


async def test_a_trace_is_on_disk_within_a_second(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path = tmp_path / "trace"
    trace = TraceFile(path, ignored)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trace.run)
        trace.begin("a", Direction.INCOMING)
        await trio.sleep(1.5)
        # What a thread writes takes real time, in which the clock stands still.
        patience = time.monotonic() + PATIENCE_S
        while len(records(path)) < 2 and time.monotonic() < patience:
            await trio.testing.wait_all_tasks_blocked()
        assert len(records(path)) == 2
        nursery.cancel_scope.cancel()
    await trace.close()


async def test_the_end_of_a_connection_is_written_at_once(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    trace = TraceFile(path, ignored)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trace.run)
        trace.begin("a", Direction.INCOMING).ended(Ending(EndKind.VIOLATION, "request 4: no"))
        with trio.fail_after(PATIENCE_S):
            while not path.stat().st_size:
                await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await trace.close()
    assert records(path)[-1] == {
        "time": records(path)[-1]["time"],
        "connection": 1,
        "peer": "a",
        "channel": "connection",
        "message": "end",
        "kind": "violation",
        "reason": "request 4: no",
    }


async def test_nothing_is_lost_when_the_end_of_a_connection_is_the_end_of_the_node(
    tmp_path: Path,
) -> None:
    path = tmp_path / "trace"
    trace = TraceFile(path, ignored)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trace.run)
        await trio.testing.wait_all_tasks_blocked()
        trace.begin("a", Direction.INCOMING).ended(None)
        nursery.cancel_scope.cancel()
    await trace.close()
    assert len(records(path)) == 3


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")  # noqa: PTH110
async def test_a_full_disk_ends_the_trace_with_one_warning_and_not_the_node() -> None:
    told: list[Mapping[str, object]] = []
    ended = trio.Event()

    def observe(event: Mapping[str, object]) -> None:
        told.append(event)
        ended.set()

    trace = TraceFile(Path("/dev/full"), observe)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trace.run)
        for _ in range(2):
            connection = trace.begin("a", Direction.INCOMING)
            connection.ended(None)
            with trio.fail_after(PATIENCE_S):
                await ended.wait()
        nursery.cancel_scope.cancel()
    await trace.close()
    assert told == [
        {
            "event": "trace_failed",
            "reason": "/dev/full: No space left on device; the trace ends here",
        }
    ]


async def test_what_a_slow_disk_leaves_waiting_is_bounded_and_what_was_dropped_is_said(
    tmp_path: Path,
) -> None:
    path = tmp_path / "trace"
    trace = TraceFile(path, ignored)
    filler = {"message": "x" * (WAITING_BYTES_MAX // 8)}
    for _ in range(12):
        trace.put(1, "a", filler)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trace.run)
        with trio.fail_after(PATIENCE_S):
            while not path.stat().st_size:
                await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    trace.put(1, "a", {"message": "last"})
    await trace.close()
    found = records(path)
    assert found[-2]["dropped_records"] == 4
    assert found[-1]["message"] == "last"
    assert len(found) == 1 + 8 + 2
