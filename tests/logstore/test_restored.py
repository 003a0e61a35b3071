"""A store that is put back as it was, in every way that is usual, signs nothing twice.

On the disk that holds the project and on one in memory, as inodes are given out differently.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logstore import NewEntry, OwnLogsReadOnly, Store
from wire import LogKey

TIMES = 10
DISKS = {"disk": Path("/var/tmp"), "memory": Path("/dev/shm")}


@pytest.fixture(params=DISKS)
def root(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder on one of the file systems."""
    if not os.access(DISKS[request.param], os.W_OK):
        pytest.skip(f"{DISKS[request.param]} cannot be written to")
    with tempfile.TemporaryDirectory(dir=DISKS[request.param]) as folder:
        yield Path(folder)


def removed_and_copied(store: Path, old: Path) -> None:
    shutil.rmtree(store)
    subprocess.run(["cp", "-a", old, store], check=True)


def written_over(store: Path, old: Path) -> None:
    """What rsync --inplace and snapshots of a disk do."""
    for path in [each for each in store.rglob("*") if each.is_file()]:
        if not (old / path.relative_to(store)).exists():
            path.unlink()
    for path in [each for each in old.rglob("*") if each.is_file()]:
        with (store / path.relative_to(old)).open("r+b" if path.exists() else "wb") as file:
            file.write(path.read_bytes())
            file.truncate()


def unpacked_over(store: Path, old: Path) -> None:
    archive = old.with_suffix(".tar")
    subprocess.run(["tar", "cf", archive, "-C", old, "."], check=True)
    subprocess.run(["tar", "xf", archive, "-C", store], check=True)


def database_replaced(store: Path, old: Path) -> None:
    for path in store.glob("store.sqlite3*"):
        path.unlink()
    subprocess.run(["cp", "-a", f"{old}/.", store], check=True)


def moved_aside(store: Path, old: Path) -> None:
    store.rename(store.with_name("aside"))
    subprocess.run(["cp", "-a", old, store], check=True)


def linked(store: Path, old: Path) -> None:
    shutil.rmtree(store)
    subprocess.run(["cp", "-al", old, store], check=True)


WAYS = (removed_and_copied, written_over, unpacked_over, database_replaced, moved_aside, linked)


@pytest.mark.parametrize("way", WAYS)
def test_what_was_put_back_signs_nothing_twice(
    root: Path, way: Callable[[Path, Path], None]
) -> None:
    twice = 0
    for number in range(TIMES):
        folder = root / f"{number}"
        folder.mkdir()
        store, old = folder / "store", folder / "old"
        with Store.create(store) as made:
            made.append([b"%d" % each for each in range(number + 1)])
        subprocess.run(["cp", "-a", store, old], check=True)
        with Store.open(store) as again:
            signed = {each.seq: each.hash for each in again.append([b"once", b"and again"])}
        way(store, old)
        with Store.open(store) as restored:
            try:
                for each in restored.append([b"something else"]):
                    twice += signed.get(each.seq, each.hash) != each.hash
            except OwnLogsReadOnly:
                assert restored.own_logs_read_only is not None
                assert restored.own_entries_lost == 2
    assert twice == 0


def test_a_database_that_is_put_back_under_a_running_process_is_noticed_before_it_signs(
    tmp_path: Path,
) -> None:
    store, old = tmp_path / "store", tmp_path / "old"
    with Store.create(store) as made:
        made.append([b"one"])
    subprocess.run(["cp", "-a", store, old], check=True)
    with Store.open(store) as running:
        running.append([b"two"])
        removed_and_copied(store, old)
        with pytest.raises(OwnLogsReadOnly):
            running.append([b"three"])


def test_what_comes_back_from_a_peer_is_appended_to_without_a_confirmation(tmp_path: Path) -> None:
    store, old = tmp_path / "store", tmp_path / "old"
    with Store.create(store) as made:
        made.append([b"one"])
    subprocess.run(["cp", "-a", store, old], check=True)
    with Store.open(store) as again:
        again.append([b"two", b"three"])
        key = LogKey(again.author, 0)
        lost = again.read(key, 2, entries_max=9, bytes_max=9999, with_payload=False)
    written_over(store, old)
    with Store.open(store) as restored:
        back = [NewEntry(each.seq, each.encoded, each.hash, each.payload) for each in lost]
        restored.put_entries(key, back[:1], source="peer")
        with pytest.raises(OwnLogsReadOnly, match="1 own entries of 3"):
            restored.append([b"four"])
        assert restored.own_entries_lost == 1
        restored.put_entries(key, back[1:], source="peer")
        assert restored.append([b"four"])[0].seq == 4
    with Store.open(store) as restored:
        assert restored.append([b"five"])[0].seq == 5
