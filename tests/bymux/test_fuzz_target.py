"""The fuzz target of bymux holds for some seeded runs, and so keeps working."""

from bymux import Connection
from fuzz import bymux_connection, harness


def test_the_invariant_holds() -> None:
    checked: list[bytes] = []

    def check(data: bytes) -> None:
        bymux_connection.fuzz_one(data)
        checked.append(data)

    harness.run_seeded(check, bymux_connection.CORPUS, runs=300, seed=1)
    assert len(set(checked)) > 200


def test_the_corpus_is_legal_to_its_end() -> None:
    """Otherwise mutations would never get deep."""
    data = bymux_connection.CORPUS[-1]
    _, violation, connection = bymux_connection._receive(
        bymux_connection._CONFIGS[data[0] & 1], data[1:], len(data)
    )
    assert isinstance(connection, Connection)
    assert violation == ""
