"""What a service manager hears of a node, over the socket that it names."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from bamboo_cli.notifying import STATUS_S, Manager
from logstore import Store
from peer.api import NodeConfig, Peer

PATIENCE_S = 30


class Listener:
    """The manager's end."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.setblocking(False)

    def heard(self) -> list[str]:
        """Messages that have come."""
        found = []
        while True:
            try:
                found.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listener]:
    address = str(tmp_path / "notify")
    listener = Listener(address if request.param == "path" else f"@bamboo{os.getpid()}{address}")
    yield listener
    listener.close()


async def test_each_word_is_a_datagram(listener: Listener) -> None:
    with Manager(listener.address) as manager:
        await manager.ready()
        await manager.reloading()
        await manager.stopping()
    ready, reloading, stopping = listener.heard()
    assert (ready, stopping) == ("READY=1", "STOPPING=1")
    assert reloading.startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert reloading.rpartition("=")[2].isdecimal()


async def test_the_event_loop_feeds_the_watchdog_at_half_of_its_time(
    listener: Listener, autojump_clock: trio.testing.MockClock
) -> None:
    with Manager(listener.address, watchdog_s=10.0) as manager, Store.memory() as store:
        async with (
            Peer(store, config=NodeConfig(workers=0)) as peer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(manager.run, peer)
            await trio.sleep(14)
            assert listener.heard().count("WATCHDOG=1") == 3
            nursery.cancel_scope.cancel()


async def test_how_the_node_is_is_said_when_it_changes(
    listener: Listener, autojump_clock: trio.testing.MockClock
) -> None:
    with Manager(listener.address) as manager, Store.memory() as store:
        config = NodeConfig(workers=0)
        async with (
            Peer(store, config=config, observer=manager.take) as peer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(manager.run, peer)
            await trio.sleep(STATUS_S)
            assert listener.heard() == ["STATUS=not listening; 0 connections"]
            address = await peer.listen()
            await trio.sleep(2 * STATUS_S)
            assert listener.heard() == [f"STATUS=listening on {address}; 0 connections"]
            manager.take({"event": "disconnected"})
            await trio.sleep(2 * STATUS_S)
            assert listener.heard() == []
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("usec", "pid", "watchdog_s"),
    [
        ("3000000", "7", 3.0),
        ("3000000", None, 3.0),
        ("3000000", "8", None),
        ("0", None, None),
        ("soon", None, None),
        (None, None, None),
    ],
)
def test_a_watchdog_of_another_process_is_not_fed(
    usec: str | None, pid: str | None, watchdog_s: float | None
) -> None:
    named = {"WATCHDOG_USEC": usec, "WATCHDOG_PID": pid, "HOME": "/"}
    environment = {name: value for name, value in named.items() if value is not None}
    manager = Manager.of(environment, 7)
    assert manager._watchdog_s == watchdog_s
    assert manager._socket is None
    # What is started from here inherits none of it.
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1234", "/nowhere/at/all"])
async def test_who_cannot_be_told_is_left_alone(address: str) -> None:
    manager = Manager.of({"NOTIFY_SOCKET": address}, 7)
    await manager.ready()
    assert manager._socket is None


async def test_a_manager_that_takes_nothing_is_not_waited_for(
    listener: Listener, autojump_clock: trio.testing.MockClock
) -> None:
    with trio.fail_after(PATIENCE_S * 60), Manager(listener.address) as manager:
        for _ in range(100):
            await manager.ready()
        assert listener.heard()
        listener.close()
        await manager.ready()
