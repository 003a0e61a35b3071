"""Whether a node serves a store can be asked by any number at once, and changes nothing."""

import fcntl
from pathlib import Path

import pytest

from logstore import NodeLock, Store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Store.create(tmp_path / "store").close()
    return tmp_path / "store"


def test_a_node_is_seen_as_long_as_it_serves(folder: Path) -> None:
    with Store.open(folder) as store:
        with store.lock_node():
            assert NodeLock.is_held(folder)
        assert not NodeLock.is_held(folder)


def test_who_asks_is_not_taken_for_a_node(folder: Path) -> None:
    with Store.open(folder) as store:
        store.lock_node().close()
    with (folder / "node.lock").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not NodeLock.is_held(folder)


def test_asking_leaves_nothing_behind(folder: Path) -> None:
    before = sorted(folder.iterdir())
    assert not NodeLock.is_held(folder)
    assert not NodeLock.is_held(None)
    assert sorted(folder.iterdir()) == before
