"""The fuzz targets of connections and of whole nodes hold for some seeded runs."""

import pytest

from fuzz import harness, swarm_link, swarm_peers


def test_connections_hold() -> None:
    harness.run_seeded(swarm_link.check, swarm_link.CORPUS, runs=60, seed=1)


def test_nodes_hold() -> None:
    harness.run_seeded(swarm_peers.check, swarm_peers.CORPUS, runs=120, seed=1)


@pytest.mark.long
def test_connections_hold_for_long() -> None:
    harness.run_seeded(swarm_link.check, swarm_link.CORPUS, runs=5_000, seed=2)


@pytest.mark.long
def test_nodes_hold_for_long() -> None:
    harness.run_seeded(swarm_peers.check, swarm_peers.CORPUS, runs=5_000, seed=2)
