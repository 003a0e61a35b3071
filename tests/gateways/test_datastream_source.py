"""Sources: operations, rollbacks, updates, batches, the lock, and others who append."""

import errno
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from gateways.datastream import DataStream, DataStreamSource, StreamBroken
from gateways.datastream import source as source_module
from gateways.datastream.logs import StreamLog
from gateways.datastream.sessions import OperationError
from logstore import LogMoved, Store, StoreFull, StoreLocked
from wire import LogKey

from .streams import declare, raw
from .test_datastream_logs import read_all


async def test_an_operation_is_one_log_entry_and_a_rollback_nothing() -> None:
    with Store.memory() as store:
        key = await DataStreamSource.create(store, system_id=137)
        async with DataStreamSource(store) as source:
            with pytest.raises(KeyError):  # noqa: PT012
                async with source.atomic() as op:
                    op.event(1, b"never")
                    raise KeyError
            async with source.atomic() as op:
                assert op.bookmark(b"b") == 0
                assert op.event(1, b"short") == 1
                op.event(2, b"other")
                op.update(1, 1, b"rather longer")
                for refused in (
                    lambda: op.update(1, 2, b"another type"),
                    lambda: op.update(3, 1, b"not there"),
                    lambda: op.event(176, b""),
                    lambda: op.event(0xFFFFFFFF, b""),
                    lambda: op.event(1, b"x" * 1_048_560),
                    lambda: op.bookmark(b""),
                    lambda: op.bookmark(b"x" * 17),
                ):
                    with pytest.raises(OperationError):
                        refused()
            assert (op.seq, op.first, op.last) == (2, 0, 2)
            async with source.atomic() as op:
                pass
            assert (op.seq, op.last) == (None, None)
            with pytest.raises(OperationError):
                source.rollback_atomic_op()
        entry = store.entry(key, 2)
        assert entry is not None
        wanted = raw(0, 176, b"b") + raw(1, 1, b"rather longer") + raw(2, 2, b"other")
        assert entry.payload == wanted
        info = store.log(key)
        assert info is not None
        assert info.height == 2


@pytest.mark.parametrize("size", [500_000, 400_000])
async def test_a_large_operation_is_kept_in_a_file_and_can_be_updated(size: int) -> None:
    with Store.memory() as store:
        key = await DataStreamSource.create(store)
        async with DataStreamSource(store) as source:
            async with source.atomic() as op:
                for number in range(6):
                    op.event(number, bytes([number]) * 500_000)
                op.update(1, 1, b"q" * size)
                with pytest.raises(OperationError, match="has type 1, not 2"):
                    op.update(1, 2, b"")
                op.update(5, 5, b"last")
                op.event(9, b"end")
            assert source.total_entries == 7
        stream = DataStream(store, key)
        found = [entry async for entry in stream.entries()]
        stream.close()
        assert [entry.type for entry in found] == [0, 1, 2, 3, 4, 5, 9]
        assert found[1].data == b"q" * size
        assert found[2].data == b"\x02" * 500_000
        assert found[5].data == b"last"


class Filling(io.BytesIO):
    """A file on a disk that is full after some bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        if self.tell() + len(data) > self._room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


@pytest.mark.parametrize("when", ["added", "updated", "committed"])
async def test_an_operation_that_a_full_disk_takes_in_part_is_rolled_back(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = {"added": [1_000_000], "updated": [1_200_040, 800_000], "committed": [1_200_040]}[when]
    with Store.memory() as store:
        key = await DataStreamSource.create(store)
        monkeypatch.setattr(source_module, "_unnamed_file", lambda _: Filling(rooms.pop(0)))
        async with DataStreamSource(store) as source:
            source.start_atomic_op()
            source.add_stream_entry(1, bytes(600_000))
            if when == "added":
                with pytest.raises(StoreFull):
                    source.add_stream_entry(2, bytes(600_000))
            else:
                source.add_stream_entry(2, bytes(600_000))
            if when == "updated":
                with pytest.raises(StoreFull):
                    source.update_entry_data(0, 1, bytes(500_000))
            if when == "committed":
                source.add_stream_entry(3, b"rest")
            # Whoever has not heard of it, and commits all the same, has nothing signed.
            with pytest.raises(StoreFull if when == "committed" else OperationError):
                await source.commit_atomic_op()
            async with source.atomic() as op:
                op.event(4, b"next")
        found = [
            entry.payload
            for entry in store.read(key, 2, entries_max=9, bytes_max=9_999, with_payload=False)
        ]
        assert found == [raw(0, 4, b"next")]


async def test_a_batch_is_there_whole_or_not_at_all() -> None:
    with Store.memory() as store:
        key = await DataStreamSource.create(store)
        async with DataStreamSource(store) as source:
            with pytest.raises(KeyError):  # noqa: PT012
                async with source.batch() as batch:
                    with batch.atomic() as op:
                        op.event(1, b"never")
                    raise KeyError
            async with source.batch() as batch:
                for number in range(100):
                    with batch.atomic() as op:
                        op.bookmark(bytes([number]))
                        op.event(1, b"x")
                with pytest.raises(OperationError), batch.atomic() as op:  # noqa: PT012
                    op.event(1, b"rolled back")
                    op.bookmark(b"")
            assert [each.seq for each in batch.operations] == list(range(2, 102))
            assert source.total_entries == 200
            assert await source.get_data_between_bookmarks(b"\x03", b"\x05") == b"xx"
            assert await source.get_bookmark(b"\x07") == 14
        assert store.log(key) is not None


@pytest.mark.parametrize(("size", "most"), [(0, 10_000), (500_000, 17), (600_000, 64)])
async def test_a_batch_is_bounded_and_what_is_in_it_becomes_durable(size: int, most: int) -> None:
    with Store.memory() as store:
        await DataStreamSource.create(store)
        async with DataStreamSource(store) as source:
            async with source.batch() as batch:
                count = 0
                while not batch.is_full:
                    with batch.atomic() as op:
                        op.event(1, b"x" * size)
                        op.event(1, b"x" * size)
                    count += 1
                with pytest.raises(OperationError, match="the batch is full"), batch.atomic():
                    pass
            assert count == most
            assert source.total_entries == 2 * most
            assert (await source.get_header()).total_entries == 2 * most
            async with source.batch() as batch:
                assert not batch.is_full
                with batch.atomic() as op:
                    op.event(1, b"next")
            assert op.first == 2 * most


async def test_a_second_source_is_refused_and_an_append_in_between_is_met(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store") as store, Store.open(tmp_path / "store") as other:
        await DataStreamSource.create(store)
        async with DataStreamSource(store) as source:
            with pytest.raises(StoreLocked, match="process"):
                async with DataStreamSource(other):
                    pass
            source.start_atomic_op()
            source.add_stream_entry(1, b"mine")
            other.append([raw(0, 1, b"theirs")])
            with pytest.raises(LogMoved):
                await source.commit_atomic_op()
            assert source.total_entries == 1
            async with source.atomic() as op:
                assert op.event(1, b"mine") == 1
            await source.truncate(1)
            with pytest.raises(OperationError):
                await source.truncate(1)
            other.append([b"foreign"])
            with pytest.raises(StreamBroken, match="log entry 5"):
                await source.end()
        with pytest.raises(StreamBroken):
            async with DataStreamSource(store):
                pass


def test_two_sources_in_two_processes_and_an_append_in_between(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Store.create(path) as store:
        declare(store)
        with subprocess.Popen(
            [sys.executable, "-m", "tests.gateways.killed", "hold", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")

            def commit() -> list[str]:
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
                return [next(lines), next(lines)]

            assert [next(lines), next(lines)] == ["begun\n", "open 0\n"]
            with pytest.raises(StoreLocked, match=f"process {process.pid}"):
                trio.run(_open_source, store)
            assert commit() == ["committed 0\n", "open 1\n"]
            store.append([raw(1, 1, b"another's")])
            assert commit() == ["moved\n", "open 2\n"]
            assert commit() == ["committed 2\n", "open 3\n"]
            process.stdin.close()
            assert process.wait(60) == 0
        trio.run(_open_source, store)
        stream = StreamLog(store, LogKey(store.author, 0))
        stream.update()
        wanted = raw(0, 1, b"held") + raw(1, 1, b"another's") + raw(2, 1, b"held")
        assert read_all(stream) == wanted
        stream.close()


async def _open_source(store: Store) -> None:
    async with DataStreamSource(store):
        pass
