"""The fuzz target of whole connections holds for some seeded runs, and so keeps working."""

from fuzz import harness, node_connection


def test_the_invariant_holds() -> None:
    harness.run_seeded(node_connection.check, node_connection.corpus(), runs=40, seed=1)


def test_a_recorded_conversation_is_one_that_moves_payloads() -> None:
    """Otherwise mutations would never get deep."""
    assert len(node_connection.corpus()[0]) > max(map(len, node_connection._PAYLOADS))
