"""`serve` ends in good order however early it is told to."""

import signal

import pytest

from peer.cli.serve import ended_early


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_node_runs_is_no_failure(number: signal.Signals) -> None:
    before, reached = signal.getsignal(signal.SIGTERM), False
    with ended_early():
        signal.raise_signal(number)
        reached = True
    assert not reached
    assert signal.getsignal(signal.SIGTERM) is before
