"""Whom a node calls of those that the local network says to be there, and whom it only lists."""

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from peer.node import Address
from peer.node.links.neighbours import CALLED_MAX, DEFER_S, LISTED_MAX, Neighbours, Step

OWN = b"m" * 32
SMALLER, LARGER, STRANGER = b"a" * 32, b"z" * 32, b"s" * 32
HERE, THERE = Address("192.0.2.1", 7007), Address("192.0.2.2", 7007)


class Home:
    """Neighbours, and what a node would say of them."""

    def __init__(self, *allowed: bytes) -> None:
        self.neighbours = Neighbours(OWN)
        self.allowed: Collection[bytes] = set(allowed)
        self.connected: set[bytes] = set()
        self.called: set[bytes] = set()
        self.now = 100.0

    def announce(self, peer_id: bytes, address: Address = HERE, name: str = "") -> None:
        name = name or peer_id.hex()
        allowed = peer_id in self.allowed
        self.neighbours.announced(name, peer_id, address, self.now, allowed=allowed)

    def step(self) -> Step:
        return self.neighbours.step(
            self.now,
            self.allowed.__contains__,
            self.connected.__contains__,
            self.called.__contains__,
        )

    def calls(self) -> list[str]:
        return [target.written for target in self.step().call]


def test_who_is_allowed_is_called_by_his_id_once_and_the_others_are_listed() -> None:
    home = Home(LARGER)
    home.announce(LARGER)
    home.announce(STRANGER, THERE)
    home.announce(OWN)
    assert home.calls() == [f"{LARGER.hex()}@192.0.2.1:7007"]
    assert home.calls() == []
    assert [each.peer_id for each in home.neighbours.found] == [STRANGER, LARGER]
    home.allowed = {LARGER, STRANGER}
    assert home.calls() == [f"{STRANGER.hex()}@192.0.2.2:7007"]


def test_of_two_that_find_each_other_the_one_with_the_larger_id_waits_for_a_call() -> None:
    home = Home(SMALLER)
    home.announce(SMALLER)
    found = home.step()
    assert (found.call, found.again_s) == ([], home.now + DEFER_S)
    home.connected.add(SMALLER)
    home.now += DEFER_S
    assert home.step() == Step([], [], None)
    home.connected.clear()
    assert home.calls() == [f"{SMALLER.hex()}@192.0.2.1:7007"]


def test_who_is_called_otherwise_is_not_called_again() -> None:
    home = Home(LARGER)
    home.called.add(LARGER)
    home.announce(LARGER)
    assert home.calls() == []


def test_who_is_gone_or_allowed_no_more_is_called_no_more() -> None:
    for leave in (
        lambda home: home.neighbours.withdrawn(LARGER.hex()),
        lambda home: setattr(home, "allowed", set()),
    ):
        home = Home(LARGER)
        home.announce(LARGER)
        home.step()
        leave(home)
        assert home.step().hang_up == ["192.0.2.1:7007"]
        assert home.step() == Step([], [], None)


def test_a_peer_that_is_connected_is_left_where_it_is() -> None:
    home = Home(LARGER)
    home.announce(LARGER)
    home.step()
    home.connected.add(LARGER)
    home.announce(LARGER, THERE)
    assert home.step() == Step([], [], None)
    home.neighbours.withdrawn(LARGER.hex())
    assert home.step() == Step([], [], None)
    home.announce(LARGER, THERE)
    home.connected.clear()
    moved = home.step()
    assert moved.hang_up == ["192.0.2.1:7007"]
    assert [target.written for target in moved.call] == [f"{LARGER.hex()}@192.0.2.2:7007"]


def test_where_somebody_else_is_called_nobody_is() -> None:
    home = Home(LARGER)
    home.announce(LARGER)
    [target] = home.step().call
    home.neighbours.not_called(target)
    assert home.calls() == [target.written]


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans()), max_size=400))
def test_a_flood_fills_neither_memory_nor_the_table_of_calls(flood: list[tuple[int, bool]]) -> None:
    ids = {number: number.to_bytes(32, "big") for number in range(301)}
    home = Home(*[peer_id for number, peer_id in ids.items() if number % 2])
    calls: set[str] = set()
    for number, is_there in flood:
        if is_there:
            home.announce(ids[number], Address("192.0.2.1", 1 + number))
        else:
            home.neighbours.withdrawn(ids[number].hex())
        home.now += DEFER_S
        found = home.step()
        calls |= {str(target) for target in found.call}
        calls -= set(found.hang_up)
        assert len(home.neighbours.found) <= LISTED_MAX + CALLED_MAX
        assert len(calls) <= CALLED_MAX
        strangers = [each for each in home.neighbours.found if each.peer_id not in home.allowed]
        assert len(strangers) <= LISTED_MAX + CALLED_MAX
