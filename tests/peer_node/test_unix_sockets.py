"""Nodes on one machine that talk through a socket with a path (doors.md 2)."""

import os
import socket
import stat
from pathlib import Path

import pytest
import trio

from logstore import ALL, Store
from peer.api import CannotConnectError, CannotListenError, NodeConfig, Peer

from .support import PATIENCE_S

CONFIG = NodeConfig(workers=0, poll_s=0.01)


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Relative to the folder in which the test runs: that of tests may be too long."""
    monkeypatch.chdir(tmp_path_factory.mktemp("s"))
    return Path("node.sock")


def _mode(path: Path) -> int:
    """Kind and rights of what is there; 0 if there is nothing."""
    return path.lstat().st_mode if path.exists() else 0


def _write(path: Path) -> None:
    path.write_text("mine")


async def test_a_node_does_not_call_itself_through_its_socket(path: Path) -> None:
    with Store.memory() as store, trio.fail_after(PATIENCE_S):
        async with Peer(store, config=CONFIG) as peer:
            where = await peer.listen(f"unix:{path}")
            with pytest.raises(CannotConnectError, match="this store itself is served there"):
                await peer.sync(where)


async def test_two_nodes_through_a_socket_of_this_machine(path: Path) -> None:
    old = os.umask(0)
    try:
        with Store.memory() as giver, Store.memory() as taker, trio.fail_after(PATIENCE_S):
            giver.append([b"hello"])
            taker.follow(ALL)
            async with Peer(giver, config=CONFIG) as one, Peer(taker, config=CONFIG) as other:
                where = await one.listen(f"unix:{path}")
                assert _mode(path) == stat.S_IFSOCK | 0o600
                await other.sync(where)
                assert [info.height for info in taker.logs()] == [1]
                assert one.node.addresses == [where]
            assert not _mode(path)
    finally:
        os.umask(old)


async def test_what_a_killed_node_left_is_taken_over_and_what_another_one_has_is_not(
    path: Path,
) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    told: list[object] = []
    with Store.memory() as store, Store.memory() as other, trio.fail_after(PATIENCE_S):
        async with (
            Peer(store, config=CONFIG, observer=lambda event: told.append(event["event"])) as one,
            Peer(other, config=CONFIG) as two,
        ):
            await one.listen(f"unix:{path}")
            with pytest.raises(CannotListenError, match="already in use"):
                await two.listen(f"unix:{path}")
            assert _mode(path)
            # Whoever has asked is no caller. Somebody who comes later is heard of.
            await two.sync(f"unix:{path}")
    assert told[:2] == ["listening", "connected"]


async def test_a_socket_of_another_kind_that_somebody_has_is_left(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held, Store.memory() as store:
        held.bind(str(path))
        async with Peer(store, config=CONFIG) as peer:
            with pytest.raises(CannotListenError, match="already in use"):
                await peer.listen(f"unix:{path}")
        assert _mode(path)


async def test_no_file_of_another_kind_is_removed(path: Path) -> None:
    _write(path)
    with Store.memory() as store:
        async with Peer(store, config=CONFIG) as peer:
            with pytest.raises(CannotListenError, match="exists"):
                await peer.listen(f"unix:{path}")
    assert _mode(path) & stat.S_IFREG


async def test_that_nobody_listens_there_is_said(path: Path) -> None:
    with Store.memory() as store, trio.fail_after(PATIENCE_S):
        async with Peer(store, config=CONFIG) as peer:
            with pytest.raises(CannotConnectError, match="No such file"):
                await peer.sync(f"unix:{path}")


async def test_who_is_called_by_an_id_proves_it_through_a_socket_too(path: Path) -> None:
    with Store.memory() as store, Store.memory() as caller, trio.fail_after(PATIENCE_S):
        async with (
            Peer(store, config=CONFIG) as one,
            Peer(caller, config=CONFIG) as other,
        ):
            await one.listen(f"unix:{path}")
            # A plain listener speaks no TLS, and is not taken for whom it was for.
            with pytest.raises(CannotConnectError, match="does not speak TLS"):
                await other.sync(f"{store.author.hex()}@unix:{path}")
