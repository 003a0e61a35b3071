"""The simulation finds bugs: each of these is planted, and one of a few seeds falls over it."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from peer.inbound import Inbound
from peer.outbound import Outbound
from peer.proving import Prover
from peer.receiving import Receiver
from peer.request import OpenEntry, Request
from peer.table import RequestTable

from .plan import draw_plan
from .run import SEEDS, SimulationFailed, run_world

Plant = Callable[[Callable[..., Any]], Callable[..., Any]]


def lose_a_grant(grant: Callable[..., Any]) -> Callable[..., Any]:
    """Some units of request credit are counted and never sent."""
    calls = 0

    def lossy(table: RequestTable, units: int) -> None:
        nonlocal calls
        calls += 1
        grant(table, units)
        if calls % 10 == 0:
            table._out.pop()

    return lossy


def keep_data_credit(release: Callable[..., Any]) -> Callable[..., Any]:
    """Bytes that were taken in are given back one short, now and then."""

    def short(inbound: Inbound) -> int:
        units: int = release(inbound)
        return units - 1 if units > 50 else units

    return short


def never_wake(wake: Callable[..., Any]) -> Callable[..., Any]:
    """New entries of a log do not wake the request that could send them."""

    def asleep(outbound: Outbound, request: Request, newest: int) -> None:
        request.outgoing.known = max(request.outgoing.known, newest)

    return asleep


def forget_nothing(forget: Callable[..., Any]) -> Callable[..., Any]:
    """Requests that are over stay where they are found by their number."""
    return lambda engine, request: engine._timers.answered(request)


def skip_a_piece(whole: Callable[..., Any]) -> Callable[..., Any]:
    """The cursor moves by one too many behind a payload that came in pieces."""

    def ahead(receiver: Receiver, request: Request, entry: OpenEntry) -> None:
        whole(receiver, request, entry)
        request.incoming.position += 1

    return ahead


def drop_the_memory(settle: Callable[..., Any]) -> Callable[..., Any]:
    """Memory of what has become durable stays counted."""

    def forgetful(prover: Prover, ident: int, items: int, *, proved: bool) -> Request | None:
        before = prover.in_flight_bytes
        request: Request | None = settle(prover, ident, items, proved=proved)
        prover.in_flight_bytes = before
        return request

    return forgetful


def acknowledge_before_disk(sync: Callable[..., Any]) -> Callable[..., Any]:
    """The disk says that all is written, and has written nothing."""
    return lambda file: None


def run_all() -> None:
    for seed in SEEDS:
        run_world(draw_plan(seed))


CANARIES: dict[str, Plant] = {
    "peer.table.RequestTable._grant": lose_a_grant,
    "peer.inbound.Inbound.credit_to_release": keep_data_credit,
    "peer.outbound.Outbound.log_changed": never_wake,
    "peer.engine.Engine._forget": forget_nothing,
    "peer.receiving.Receiver._payload_whole": skip_a_piece,
    "peer.proving.Prover._settle": drop_the_memory,
    "tests.logstore.disk.SimFile.sync": acknowledge_before_disk,
}


@pytest.mark.parametrize("target", CANARIES)
def test_a_planted_bug_is_found(target: str) -> None:
    owner, _, name = target.rpartition(".")
    module, _, class_name = owner.rpartition(".")
    holder = getattr(__import__(module, fromlist=[class_name]), class_name)
    planted = CANARIES[target](getattr(holder, name))
    with (
        mock.patch.object(holder, name, planted),
        pytest.raises(SimulationFailed, match=r"again: .*--seed \d+"),
    ):
        run_all()
