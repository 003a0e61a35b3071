"""A lie is told only where the other side can prove it (point2point.md 9)."""

import random

import pytest

from peer.sequence import PAYLOAD
from tests.peer.impolite import Impolite, log_of

from .lies import DATA_LIES, Liar

HELD = log_of(20, lambda seq: b"%d" % seq * 30)


@pytest.mark.parametrize(
    "lie",
    [
        "more payload than there is",
        "a payload below no minimum",
        "a payload above no maximum",
    ],
)
def test_nothing_is_said_of_a_size_in_a_request_for_payloads_alone(lie: str) -> None:
    """They may be those of other entries, as its starting hash is that of one before them."""
    peer = Impolite(HELD)
    peer.open_request(1, end=20, payloads_only=True)
    peer.engine.data_to_send(1)
    peer.run()
    assert peer.engine.data_to_send(1)
    liar = Liar(peer.engine, True, random.Random(1))
    assert liar.at(PAYLOAD) is not None
    assert DATA_LIES[lie](liar) is None
