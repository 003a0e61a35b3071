"""Keccak with its original padding."""

from gateways.swarm.keccak import keccak, running


def test_it_is_not_sha3() -> None:
    empty = "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    assert keccak().hex() == keccak(b"").hex() == empty


def test_a_state_goes_on_from_where_it_was() -> None:
    state = running(b"one")
    other = state.copy()
    state.update(b"two")
    assert state.digest() == keccak(b"onetwo") == keccak(b"one", b"two")
    assert other.digest() == keccak(b"one")
