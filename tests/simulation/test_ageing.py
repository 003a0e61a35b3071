"""Worlds that live for hours, with strangers that come and go, and what is left of those."""

from collections.abc import Callable
from unittest import mock

import pytest

from peer.node.host.port import Port
from peer.node.host.store_host import StoreHost
from peer.node.links.sources import Place

from .plan import draw_plan
from .run import SimulationFailed, run_world

DAY_HOURS = 24

SHORT_SEED = 8
DAYS = (6, 8)
"""Seeds of whole days, each of some minutes."""


def test_an_hour_with_strangers_leaves_nothing_of_them() -> None:
    outcome = run_world(draw_plan(SHORT_SEED, hours=1, events=8, nodes=2))
    age = outcome.age
    assert age is not None
    assert outcome.virtual_s > 3600
    assert age.strangers >= age.let_in > 20
    assert len(age.held) == 1


def keep_port(host: StoreHost, port: Port) -> None:
    """The host's list of ports only grows."""
    port.close()
    host._reads.forget(port)
    host._payloads.suspend(port)


def keep_place(place: Place) -> None:
    """The book of sources forgets its seat, and those who run it do not."""
    place._sources.book.leave(place._seat, 0.0)


@pytest.mark.parametrize(
    ("of", "name", "planted"),
    [(StoreHost, "close_port", keep_port), (Place, "leave", keep_place)],
)
def test_what_is_kept_of_a_connection_that_is_gone_is_found(
    of: type, name: str, planted: Callable[..., None]
) -> None:
    with (
        mock.patch.object(of, name, planted),
        pytest.raises(SimulationFailed, match=r"\d connections, and \d+ (Port|SourceSeat)"),
    ):
        run_world(draw_plan(SHORT_SEED, hours=1, events=8, nodes=2))


@pytest.mark.long
@pytest.mark.parametrize("seed", DAYS)
def test_a_day_with_thousands_of_strangers(seed: int) -> None:
    age = run_world(draw_plan(seed, hours=DAY_HOURS, nodes=2)).age
    assert age is not None
    assert age.strangers > 1500
    assert len(age.held) == DAY_HOURS
