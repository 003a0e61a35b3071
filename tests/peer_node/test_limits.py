"""What is above a limit is refused, and gets in once others have left."""

import pytest

from peer.node.links.limits import BUCKETS_MAX, Gate, Limits, TooManyConnectionsError, is_loopback

FAR = "192.0.2.1"


def refused(gate: Gate, address: str, now: float = 0.0) -> str:
    with pytest.raises(TooManyConnectionsError) as caught:
        gate.enter(address, now)
    return str(caught.value)


def test_all_connections_together_have_a_limit_that_outgoing_ones_count_against() -> None:
    gate = Gate(Limits(connections_max=10, outgoing_reserved=4, unestablished_max=100))
    slots = [gate.enter("127.0.0.1", 0.0) for _ in range(6)]
    assert "6 connections" in refused(gate, "127.0.0.1")
    slots.pop().leave()
    gate.outgoing = 5
    assert "5 connections" in refused(gate, "127.0.0.1")
    gate.outgoing = 0
    gate.enter("127.0.0.1", 0.0)
    assert (gate.incoming, gate.refused) == (6, 2)


def test_those_without_setup_have_a_limit_of_their_own() -> None:
    gate = Gate(Limits(unestablished_max=2))
    first = gate.enter("127.0.0.1", 0.0)
    second = gate.enter("127.0.0.1", 0.0)
    assert "setup" in refused(gate, "127.0.0.1")
    first.established()
    first.established()
    gate.enter("127.0.0.1", 0.0)
    assert "setup" in refused(gate, "127.0.0.1")
    second.leave()
    gate.enter("127.0.0.1", 0.0)
    first.leave()
    assert "setup" in refused(gate, "127.0.0.1")


def test_an_address_has_a_limit_unless_it_is_of_this_machine() -> None:
    gate = Gate(Limits(per_address_max=3))
    slots = [gate.enter(FAR, 0.0) for _ in range(3)]
    assert "from this address" in refused(gate, FAR)
    gate.enter("192.0.2.2", 0.0)
    slots[0].leave()
    gate.enter(FAR, 0.0)
    for _ in range(10):
        gate.enter("::1", 0.0)


def test_an_address_may_not_come_too_often() -> None:
    gate = Gate(Limits(accepts_per_s=10, accepts_burst=40))
    for _ in range(40):
        gate.enter(FAR, 100.0).leave()
    assert "a second" in refused(gate, FAR, 100.05)
    gate.enter(FAR, 100.11).leave()
    assert "a second" in refused(gate, FAR, 100.12)
    for _ in range(40):
        gate.enter("127.0.0.1", 100.0).leave()
        gate.enter("127.0.0.1", 100.0).leave()


def test_addresses_are_not_remembered_without_end() -> None:
    gate = Gate(Limits())
    for number in range(3 * BUCKETS_MAX):
        gate.enter(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0).leave()
        assert len(gate._buckets) <= BUCKETS_MAX + 1
    assert gate.incoming == 0


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("stream", True),
        ("192.0.2.1", False),
        ("0.0.0.0", False),
        ("fe80::1%eth0", False),
    ],
)
def test_loopback_is_told_from_other_addresses(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected
