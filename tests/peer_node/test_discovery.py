"""Nodes find each other by multicast DNS over loopback, and whom nobody has allowed is listed."""

import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
import trio

from peer.node import Address, Discovery, Node
from peer.node.links.discovery import SERVICE, read_info

from .support import PATIENCE_S
from .test_entrance import AMY, AMY_ID, BEN, BEN_ID, HERE, Told, node

zeroconf = pytest.importorskip("zeroconf")


LOOPBACK = ["127.0.0.1"]


async def listed(running: Node, peer_id: bytes) -> Address:
    with trio.fail_after(PATIENCE_S):
        while True:
            for each in running.entrance.neighbours:
                if each.peer_id == peer_id:
                    return each.address
            await trio.sleep(0.02)


def has_multicast() -> bool:
    """Whether what is sent to a group on loopback comes back there, as some containers keep it."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taking,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending,
    ):
        group, here = socket.inet_aton("224.0.0.251"), socket.inet_aton("127.0.0.1")
        try:
            taking.bind(("", 0))
            taking.settimeout(2)
            taking.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + here)
            sending.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, here)
            sending.sendto(b"here", ("224.0.0.251", taking.getsockname()[1]))
            return taking.recv(16) == b"here"
        except OSError:
            return False


@pytest.mark.skipif(not has_multicast(), reason="there is no multicast on loopback here")
async def test_who_is_found_is_listed_and_called_once_he_is_allowed() -> None:
    amys, bens = Told(), Told()
    async with (
        node(AMY, told=amys) as amy,
        node(BEN, told=bens) as ben,
        trio.open_nursery() as nursery,
    ):
        [address] = await amy.listen(HERE)
        nursery.start_soon(Discovery(amy, LOOPBACK).run)
        nursery.start_soon(Discovery(ben, LOOPBACK).run)
        assert await listed(ben, AMY_ID) == address
        # Ben does not listen, and so nobody finds him.
        assert amy.entrance.neighbours == []
        assert not any(event["event"] == "connected" for event in bens.all)
        amy.host.store.peers.allow(BEN_ID)
        ben.host.store.peers.allow(AMY_ID)
        connected = await bens.wait_for("connected")
        assert (connected["peer_id"], connected["address"]) == (AMY_ID.hex(), str(address))
        nursery.cancel_scope.cancel()
    assert ben.entrance.neighbours == []


async def test_nothing_is_announced_of_a_node_that_only_this_machine_reaches() -> None:
    async with node(AMY) as amy:
        await amy.listen(HERE)
        assert Discovery(amy)._info() is None
        announced = Discovery(amy, LOOPBACK)._info()
        assert announced is not None
        assert announced.name == f"{AMY_ID.hex()[:16]}.{SERVICE}"
        assert announced.properties == {b"v": b"1", b"id": AMY_ID.hex().encode()}
        assert announced.parsed_addresses() == ["127.0.0.1"]
        assert announced.port == amy.addresses[0].port


async def test_all_interfaces_are_announced_by_their_numbers() -> None:
    async with node(AMY) as amy:
        amy.addresses.append(Address("0.0.0.0", 7007))
        announced = Discovery(amy)._info()
        assert announced is not None
        assert announced.port == 7007
        numbers = announced.parsed_addresses()
        assert not any(number.startswith("127.") for number in numbers)
        assert all("." in number for number in numbers)


@pytest.mark.parametrize(
    ("properties", "addresses", "port"),
    [
        ({}, ["192.0.2.1"], 7007),
        ({b"v": b"2", b"id": AMY_ID.hex().encode()}, ["192.0.2.1"], 7007),
        ({b"v": b"1", b"id": b"zz" * 32}, ["192.0.2.1"], 7007),
        ({b"v": b"1", b"id": b"\xff" * 64}, ["192.0.2.1"], 7007),
        ({b"v": b"1", b"id": None}, ["192.0.2.1"], 7007),
        ({b"v": b"1", b"id": AMY_ID.hex().encode()}, [], 7007),
        ({b"v": b"1", b"id": AMY_ID.hex().encode()}, ["192.0.2.1"], 0),
    ],
)
def test_what_says_no_id_and_address_is_none_of_ours(
    properties: dict[bytes, bytes | None], addresses: list[str], port: int
) -> None:
    info = SimpleNamespace(
        properties=properties, parsed_scoped_addresses=lambda: addresses, port=port
    )
    assert read_info(info) is None  # type: ignore[arg-type]


def test_an_address_that_all_reach_is_taken_before_others() -> None:
    info = SimpleNamespace(
        properties={b"v": b"1", b"id": AMY_ID.hex().encode()},
        parsed_scoped_addresses=lambda: ["fe80::1%2", "2001:db8::1", "192.0.2.1"],
        port=7007,
    )
    assert read_info(info) == (AMY_ID, Address("192.0.2.1", 7007))  # type: ignore[arg-type]


def test_without_the_library_a_line_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['zeroconf'] = None\n"
        "from peer.node.links.discovery import library\n"
        "try: library()\n"
        "except Exception as error: print(error)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    assert "pip install 'bamboo-peer[discover]'" in done.stdout
