"""Several processes on one store, and processes that are killed."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from logstore import LogVerdict, Store
from wire import LogKey, yamf_hash

ROOT = Path(__file__).resolve().parents[2]

# Prints what was acknowledged, one line for each append, right after it returned.
APPENDER = """
import sys
from logstore import Store
store = Store.open(sys.argv[1])
count, size = int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
for n in range(count):
    for each in store.append([b"%d" % n, bytes(size)]):
        sys.stdout.write(f"{each.seq} {each.hash.hex()}\\n")
    sys.stdout.flush()
"""

RECEIVER = """
import sys
from logstore import Store
from wire import LogKey, yamf_hash
from logstore import sink
sink.SYNC_BYTES = 100_000
store = Store.open(sys.argv[1])
payload = bytes(range(256)) * 40_000
key = LogKey(bytes(32), 0)
into = store.payload_sink(key, 1, len(payload), yamf_hash(payload), source="a")
print("ready", flush=True)
while into.offset < len(payload):
    into.write(payload[into.offset : into.offset + 10_000])
    sys.stdout.write(f"{into.offset}\\n")
    sys.stdout.flush()
into.finish()
"""


def start(script: str, path: Path, *arguments: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", script, str(path), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def own_hashes(store: Store) -> dict[int, str]:
    key = LogKey(store.author, 0)
    found = store.read(key, 1, entries_max=1 << 20, bytes_max=1 << 40, with_payload=False)
    return {entry.seq: entry.hash.hex() for entry in found}


def faults(store: Store) -> list[str]:
    return [str(found) for found in store.verify() if not isinstance(found, LogVerdict)]


def acknowledged(lines: str) -> dict[int, str]:
    # The last line may be torn: its process was killed while it wrote.
    whole = lines[: lines.rfind("\n") + 1].splitlines()
    pairs = (line.split() for line in whole if line != "ready")
    return {int(seq): hash_ for seq, hash_ in pairs}


def kill_appenders(path: Path, kills: int, seed: int) -> int:
    """Kills one appending process after another; returns how many entries were acknowledged."""
    rng = random.Random(seed)
    promised: dict[int, str] = {}
    for _ in range(kills):
        process = start(APPENDER, path, 100_000, rng.choice([10, 3000, 70_000]))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(rng.randint(0, 30)):
            line = process.stdout.readline().split()
            promised[int(line[0])] = line[1]
        process.send_signal(signal.SIGKILL)
        promised |= acknowledged(process.stdout.read())
        process.wait()
        process.stdout.close()
    with Store.open(path) as store:
        assert store.own_logs_read_only is None
        held = own_hashes(store)
        assert promised.items() <= held.items()
        assert list(held) == list(range(1, len(held) + 1))
        assert faults(store) == []
    return len(promised)


def test_killed_processes_lose_nothing_that_they_acknowledged(tmp_path: Path) -> None:
    Store.create(tmp_path / "store").close()
    assert kill_appenders(tmp_path / "store", 24, seed=1) > 24


@pytest.mark.long
def test_a_thousand_killed_processes_lose_nothing(tmp_path: Path) -> None:
    Store.create(tmp_path / "store").close()
    assert kill_appenders(tmp_path / "store", 1000, seed=2) > 1000


def test_eight_processes_that_append_at_once_do_not_fork(tmp_path: Path) -> None:
    path = tmp_path / "store"
    Store.create(path).close()
    processes = [start(APPENDER, path, 50, 100) for _ in range(8)]
    promised: dict[int, str] = {}
    for process in processes:
        lines, _ = process.communicate()
        assert process.returncode == 0
        mine = acknowledged(lines)
        assert len(mine) == 100
        assert not promised.keys() & mine.keys()
        promised |= mine
    with Store.open(path) as store:
        assert own_hashes(store) == promised
        assert sorted(promised) == list(range(1, 801))
        assert faults(store) == []


def test_a_killed_receiver_leaves_what_it_synced(tmp_path: Path) -> None:
    path = tmp_path / "store"
    payload = bytes(range(256)) * 40_000
    with Store.create(path) as store:
        offset = 0
        for _ in range(4):
            process = start(RECEIVER, path)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            for _ in range(60):
                process.stdout.readline()
            os.kill(process.pid, signal.SIGKILL)
            rest = process.stdout.read()
            process.wait()
            process.stdout.close()
            lines = rest[: rest.rfind("\n") + 1].split()
            told = int(lines[-1]) if lines else offset
            key = LogKey(bytes(32), 0)
            with store.payload_sink(key, 1, len(payload), yamf_hash(payload), source="b") as sink:
                assert sink.offset >= max(offset, told - 110_000)
                offset = sink.offset
        assert faults(store) == []


LARGE_APPENDER = """
import sys
from logstore import Store
store = Store.open(sys.argv[1])
print("ready", flush=True)
for n in range(int(sys.argv[2])):
    for each in store.append([b"%08d" % n * 9_000]):
        sys.stdout.write(f"{each.seq} {each.hash.hex()}\\n")
    sys.stdout.flush()
"""


def test_opening_the_store_removes_no_payload_that_another_process_appends(tmp_path: Path) -> None:
    path = tmp_path / "store"
    Store.create(path).close()
    process = start(LARGE_APPENDER, path, 100)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    opened = 0
    while process.poll() is None:
        Store.open(path).close()
        opened += 1
    promised = acknowledged(process.stdout.read())
    process.stdout.close()
    assert len(promised) == 100
    assert opened > 10
    with Store.open(path) as store:
        assert faults(store) == []
        for seq in promised:
            with store.open_payload(LogKey(store.author, 0), seq) as reader:
                assert reader.read(0, 1 << 20) == b"%08d" % (seq - 1) * 9_000


CLOSER = """
import sys
import apsw
db = apsw.Connection(sys.argv[1])
db.execute("PRAGMA locking_mode = EXCLUSIVE")
db.execute("BEGIN EXCLUSIVE")
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("readonly", [True, False])
def test_whoever_opens_waits_for_a_process_that_has_the_database_for_itself(
    tmp_path: Path, readonly: bool
) -> None:
    """As the last one has that closes it, and whoever recovers the log of one that was killed."""
    path = tmp_path / "store"
    Store.create(path).close()
    process = subprocess.Popen(
        [sys.executable, "-c", CLOSER, str(path / "store.sqlite3")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(lambda: Store.open(path, readonly=readonly).close())
        with pytest.raises(TimeoutError):
            opening.result(timeout=0.3)
        process.communicate("\n")
        opening.result(timeout=60)


def test_news_of_another_process_is_seen(tmp_path: Path) -> None:
    with Store.create(tmp_path / "store") as store:
        before, position = store.data_version(), store.position()
        process = start(APPENDER, tmp_path / "store", 1, 1)
        process.communicate()
        assert store.data_version() != before
        assert store.changed_logs(position) == (position + 2, [LogKey(store.author, 0)])
        assert store.changed_logs(position + 2) == (position + 2, [])


def test_wishes_have_another_version_once_anybody_may_have_changed_them(tmp_path: Path) -> None:
    def changed(store: Store, change: Callable[[], object]) -> bool:
        before = store.wishes_version()
        change()
        return store.wishes_version() != before

    with Store.create(tmp_path / "store") as store, Store.open(tmp_path / "store") as other:
        log = store.append([b"a"])[0].key
        foreign = LogKey(bytes(32), 5)
        assert not changed(store, lambda: store.append([b"b"]))
        assert changed(store, lambda: other.follow(log))
        assert not changed(store, lambda: store.append([b"c"]))
        assert changed(store, lambda: store.follow(foreign))
        assert changed(store, lambda: store.want(foreign, 1, 2))
        assert changed(store, lambda: store.unwant(foreign, 1, 2))
        assert changed(store, lambda: store.unfollow(foreign))
        assert changed(store, lambda: store.drop(log))
        assert store.want(log, 1, 2)
        payloads = {1: b"a", 2: b"b"}
        assert not changed(store, lambda: store.complete_payload(log, 1, payloads[1]))
        assert changed(store, lambda: store.complete_payload(log, 2, payloads[2]))
    with Store.memory() as memory:
        assert not changed(memory, lambda: memory.append([b"a"]))
        assert changed(memory, lambda: memory.follow(foreign))


@pytest.mark.parametrize("same", [False, True])
def test_readers_are_not_held_up_by_a_writer(tmp_path: Path, same: bool) -> None:
    """Neither in another process nor in another thread, which shares the connections."""
    with Store.create(tmp_path / "store") as store:
        key = store.append([b"a"])[0].key
        with Store.open(tmp_path / "store", readonly=True) as other:
            found: list[int] = []

            def read() -> None:
                reader = store if same else other
                with reader.snapshot():
                    found.extend(info.height for info in reader.logs())
                found.extend(reader.hashes(key, [1]))

            thread = threading.Thread(target=read)
            with store._database.write():
                thread.start()
                thread.join(60)
                assert found == [1, 1]
            thread.join()
