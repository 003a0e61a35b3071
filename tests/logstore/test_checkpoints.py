"""What a process that is killed loses of a payload that it receives. logstore/sink.py."""

from pathlib import Path

import pytest

from logstore import PayloadSink, Store
from logstore.sink import CHECKPOINT_BYTES, CHECKPOINT_S, SYNC_BYTES
from logstore.system import PayloadHandle, System
from wire import LogKey, yamf_hash

MIB = 1 << 20
PAYLOAD_BYTES = 64 * MIB
LOG = LogKey(b"a" * 32, 0)
HASH = yamf_hash(b"whatever it will be")


class Ticking(System):
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s


class Receiving:
    """A sink for which bytes come at a rate, until the process is killed."""

    def __init__(self, folder: Path) -> None:
        self.system = Ticking()
        self.folder = folder
        self.store = Store.create(folder, system=self.system)
        self.sink = sink(self.store)

    def take(self, bytes_per_s: int, seconds: float) -> None:
        step_s = 0.01
        for _ in range(round(seconds / step_s)):
            self.system.now_s += step_s
            self.sink.write(bytes(round(bytes_per_s * step_s)))

    def lost_by_kill(self) -> int:
        """How many bytes are asked for again, by a sink that a later process opens."""
        came = self.sink.offset
        # The kernel lets go of the lock, and nothing else is done.
        self.sink._handle.close()  # type: ignore[union-attr]
        with Store.open(self.folder) as later, sink(later) as again:
            return came - again.offset


def sink(store: Store) -> PayloadSink:
    return store.payload_sink(LOG, 1, PAYLOAD_BYTES, HASH, source="a peer")


@pytest.mark.parametrize("bytes_per_s", [60_000, 400_000, 3 * MIB, 20 * MIB])
@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.9])
def test_a_kill_costs_1_mib_or_the_last_second(
    bytes_per_s: int, seconds: float, tmp_path: Path
) -> None:
    receiving = Receiving(tmp_path / "store")
    receiving.take(bytes_per_s, seconds)
    last_second = bytes_per_s * min(seconds, CHECKPOINT_S)
    assert receiving.lost_by_kill() <= min(max(CHECKPOINT_BYTES, last_second), SYNC_BYTES) + 50_000


def test_what_came_at_once_and_then_nothing_is_kept_a_second_later(tmp_path: Path) -> None:
    receiving = Receiving(tmp_path / "store")
    receiving.sink.write(bytes(3 * MIB))
    wants = [receiving.sink.wants_checkpoint]
    receiving.system.now_s += CHECKPOINT_S
    wants.append(receiving.sink.wants_checkpoint)
    receiving.sink.checkpoint()
    wants.append(receiving.sink.wants_checkpoint)
    assert wants == [False, True, False]
    assert receiving.lost_by_kill() == 0


def test_a_fast_link_is_not_slowed_down_by_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One each second, or each 8 MiB."""
    syncs = []

    def sync(handle: PayloadHandle) -> None:
        syncs.append(handle)

    monkeypatch.setattr(PayloadHandle, "sync", sync)
    receiving = Receiving(tmp_path / "store")
    receiving.take(20 * MIB, 3)
    assert 60 // 8 - 1 <= len(syncs) <= 60 // 8 + 3
