"""A lie is told only where the other side can prove it (point2point.md 9)."""

import random

import pytest

from peer.protocol.sequence import PAYLOAD
from tests.peer.impolite import Impolite, log_of

from .lies import DATA_LIES, Liar

HELD = log_of(20, lambda seq: b"%d" % seq * 30)


def at_a_payload(**fields: object) -> Liar:
    """Somebody who has sent some of a request, and of whom a payload is due next."""
    peer = Impolite(HELD)
    peer.open_request(1, end=20, **fields)
    peer.engine.data_to_send(1)
    peer.run()
    assert peer.engine.data_to_send(1)
    liar = Liar(peer.engine, True, random.Random(1))
    assert liar.at(PAYLOAD) is not None
    return liar


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
    assert DATA_LIES[lie](at_a_payload(payloads_only=True)) is None


@pytest.mark.parametrize("sizes", [{"min_bytes": 9}, {"max_bytes": 99}])
@pytest.mark.parametrize("lie", ["a payload below no minimum", "a payload above no maximum"])
def test_no_payload_is_skipped_for_its_size_where_that_may_be_right(
    lie: str, sizes: dict[str, int]
) -> None:
    assert DATA_LIES[lie](at_a_payload(**sizes)) is None
