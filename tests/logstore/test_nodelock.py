"""Whether a node serves a store can be asked by any number at once, and changes nothing."""

import fcntl
from pathlib import Path

import pytest

from logstore import NodeLock, Store, StoreLocked


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


def test_a_node_that_starts_while_somebody_asks_is_let_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(folder) as store:
        store.lock_node().close()
        asking = (folder / "node.lock").open("rb")
        fcntl.flock(asking, fcntl.LOCK_SH)
        monkeypatch.setattr("logstore.nodelock.time.sleep", lambda _: asking.close())
        with store.lock_node():
            assert NodeLock.is_held(folder)


def test_any_number_may_keep_nodes_away(folder: Path) -> None:
    with Store.open(folder) as store:
        with store.lock_node(), NodeLock.kept_free(folder) as free:
            assert not free
        with NodeLock.kept_free(folder) as one, NodeLock.kept_free(folder) as another:
            assert one
            assert another
            with pytest.raises(StoreLocked, match="another node"):
                store.lock_node()
