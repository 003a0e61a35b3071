"""A log whose newest state counts: what is saved is written once, and never lost to a summary."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gateways import LogHost, NewestState, Said, Saver, newest_state
from gateways.saving import SAVED_AFTER_S
from logstore import Dropped, Store, StoreFull
from wire import LogKey


class Receipts(NewestState[str, int]):
    """Lines `NAME NUMBER`, of which the largest number of a name counts."""

    def __init__(self, store: Store, waiting_max: int = 100) -> None:
        super().__init__(store, self.sign, waiting_max)
        self.key = LogKey(store.author, 5)
        self.signed: list[list[bytes]] = []
        self.dropped: list[Dropped] = []
        store.append([b"what it is"], log_id=5)

    def sign(self, batches: Any, **named: Any) -> Any:  # noqa: ANN401 - those of append_many
        appended = self._store.append_many(batches, **named)
        self.signed += [list(payloads) for _, payloads in batches]
        return appended

    def _is_newer(self, value: int, known: int) -> bool:
        return value > known

    def _write(self, values: Mapping[str, int]) -> None:
        self.sign([(5, [line(name, number) for name, number in values.items()])])

    def _entries(self) -> list[tuple[int, bytes]]:
        entries = self._store.read(
            self.key, 2, entries_max=10_000, bytes_max=1 << 30, with_payload=False
        )
        return [(each.seq, each.payload) for each in entries if each.payload is not None]

    def _said(self) -> Said:
        info = self._store.log(self.key)
        assert info is not None
        return Said(self.key, info.newest, sum(len(payload) for _, payload in self._entries()))

    def state(self) -> dict[str, int]:
        known: dict[str, int] = {}
        for _, payload in self._entries():
            name, number = payload.split()
            known[name.decode()] = max(int(number), known.get(name.decode(), 0))
        return known

    def _state(self) -> list[bytes]:
        return [line(name, number) for name, number in self.state().items()]

    def _dropped(self, key: LogKey, dropped: Dropped) -> None:
        self.dropped.append(dropped)


def line(name: str, number: int) -> bytes:
    return b"%s %030d" % (name.encode(), number)


@contextmanager
def receipts(**how: int) -> Iterator[Receipts]:
    with Store.memory() as store:
        yield Receipts(store, **how)


def test_of_what_is_gathered_the_newest_is_written_once() -> None:
    with receipts() as state:
        for number in (3, 7, 5):
            assert state.save("a", number)
        assert state.save("b", 1)
        assert state.is_waiting("a")
        state.flush()
        state.flush()
        assert state.signed == [[line("a", 7), line("b", 1)]]
        assert (state.waiting, state.is_waiting("a")) == (0, False)


def test_there_is_room_for_so_many_and_for_what_replaces_them() -> None:
    with receipts(waiting_max=2) as state:
        assert state.save("a", 1)
        assert state.save("b", 1)
        assert not state.save("c", 1)
        assert state.save("a", 2)
        state.flush()
        assert state.save("c", 1)


def test_what_comes_while_it_is_written_or_is_not_written_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with receipts() as state:
        write = state._write

        def write_while_more_comes(values: Mapping[str, int]) -> None:
            write(values)
            state.save("a", 2)
            state.save("b", 1)

        with monkeypatch.context() as patched:
            patched.setattr(state, "_write", write_while_more_comes)
            state.save("a", 1)
            state.save("b", 1)
            state.flush()
        assert state.is_waiting("a")
        assert not state.is_waiting("b")
        with monkeypatch.context() as patched:

            def fail(*_: object) -> None:
                raise StoreFull("the disk is full", "here", "free space")

            patched.setattr(state, "_write", fail)
            with pytest.raises(StoreFull):
                state.flush()
        assert state.is_waiting("a")
        state.flush()
        assert state.state() == {"a": 2, "b": 1}


def test_a_state_that_takes_much_less_is_written_anew_and_the_rest_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(newest_state, "SUMMARY_FLOOR_BYTES", 1000)
    monkeypatch.setattr(newest_state, "_SUMMARY_BATCH", 2)
    with receipts() as state:
        state._summary_at = 1000
        for number in range(1, 40):
            state.save(f"n{number % 3}", number)
            state.flush()
            assert state.state() == {f"n{n % 3}": n for n in range(max(1, number - 2), number + 1)}
        assert state.dropped
        assert state._said().bytes <= 1000 + 3 * len(line("n0", 0))
        # Entry 1 says what the log is, whatever becomes of the others.
        entry = state._store.entry(state.key, 1)
        assert entry is not None
        assert entry.payload == b"what it is"


def test_what_another_process_writes_meanwhile_is_in_the_summary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(newest_state, "SUMMARY_FLOOR_BYTES", 100)
    with receipts() as state:
        state._summary_at = 100
        for number in range(5):
            state._write({"a": number})
        others = [9]
        known = state._state

        def state_and_more() -> list[bytes]:
            found = known()
            if others:
                state._store.append([line("b", others.pop())], log_id=5)
            return found

        monkeypatch.setattr(state, "_state", state_and_more)
        state.save("a", 5)
        state.flush()
        assert len(state.dropped) == 1
        assert state.state() == {"a": 5, "b": 9}


async def test_a_save_is_written_within_a_second_and_at_once_if_it_is_waited_for(
    autojump_clock: MockClock,
) -> None:
    with receipts() as state:
        host = LogHost(state._store)
        saver = Saver(host, state)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(saver.run)
            start = trio.current_time()
            assert saver.save("a", 1)
            await saver.written()
            assert trio.current_time() - start == pytest.approx(SAVED_AFTER_S)
            start = trio.current_time()
            saver.save("a", 2)
            await saver.settled("b")
            assert state.is_waiting("a")
            await saver.settled("a")
            assert trio.current_time() == start
            assert state.state() == {"a": 2}
            nursery.cancel_scope.cancel()


async def test_a_store_that_fails_is_said_and_asked_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receipts() as state:
        events: list[Any] = []
        saver = Saver(LogHost(state._store, events.append), state)
        with monkeypatch.context() as patched:

            def fail(*_: object) -> None:
                raise StoreFull("the disk is full", "here", "free space")

            patched.setattr(state, "_write", fail)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(saver.run)
                saver.save("a", 1)
                with pytest.raises(StoreFull):
                    await saver.settled("a")
                nursery.start_soon(partial(trio.sleep, 0))
                patched.undo()
                await saver.settled("a")
                nursery.cancel_scope.cancel()
        assert state.state() == {"a": 1}
        assert [each["event"] for each in events] == ["storage_failed"]
