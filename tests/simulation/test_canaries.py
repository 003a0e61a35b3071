"""The simulation finds bugs: each of these is planted, and one of a few seeds falls over it."""

import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any
from unittest import mock

import pytest

from logstore import PeerRule
from logstore.payloads import WrongSizeError
from peer.data.inbound import Inbound
from peer.data.outbound import Outbound
from peer.data.proving import Prover
from peer.data.receiving import Receiver
from peer.planner.asks import Ask
from peer.planner.peer_log import PeerLog
from peer.planner.proposals import Decider, Decision
from peer.planner.rests import Kind, Outcome, Rests
from peer.planner.shared import Shared
from peer.planner.wanting import Wants
from peer.protocol.events import LogView
from peer.protocol.request import OpenEntry, Request
from peer.protocol.table import RequestTable
from tests.records import replace
from wire import LogKey

from .plan import Plan, draw_plan
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


def fill_no_gaps(plan: Callable[..., Any]) -> Callable[..., Any]:
    """Only what is behind the newest entry is asked for, never a range before it."""

    def open_only(*args: object, **how: object) -> list[Ask]:
        return [ask for ask in plan(*args, **how) if ask.end is None]

    return open_only


def move_nothing(decide: Callable[..., Any]) -> Callable[..., Any]:
    """A one-time sync looks what there is, and says that it is done."""

    def idle(decider: Decider, view: LogView, state: PeerLog, *how: object) -> Decision:
        if not decider._once or state.newest is None:
            found: Decision = decide(decider, view, state, *how)
            return found
        return Decision([])

    return idle


def keep_what_failed(give_up: Callable[..., Any]) -> Callable[..., Any]:
    """Requests of which the store could not read stay in force, and nobody tries again."""
    return lambda engine, request, detail, **options: None


def fetch_nothing(wants_of: Callable[..., Any]) -> Callable[..., Any]:
    """Sessions do not know of what is fetched once."""

    def followed(shared: Shared, log: LogKey) -> Wants:
        wants: Wants = wants_of(shared, log)
        return replace(wants, fetches=())

    return followed


def fetch_everywhere(claim: Callable[..., Any]) -> Callable[..., Any]:
    """Every session fetches every log."""
    return lambda place, log, brought=0: True


def take_any_size(check: Callable[..., Any]) -> Callable[..., Any]:
    """A payload of the right hash counts as complete, whatever size its author signed."""

    def lenient(db: object, key: LogKey, seq: int, payload: bytes, size: int, hash_: bytes) -> Any:  # noqa: ANN401
        try:
            return check(db, key, seq, payload, size, hash_)
        except WrongSizeError:
            return check(db, key, seq, payload, len(payload), hash_)

    return lenient


def end_nothing(end_due: Callable[..., Any]) -> Callable[..., Any]:
    """A finite range in which nothing moves any more is never ended."""
    return lambda outbound, request: None


def never_tire(due: Callable[..., Any]) -> Callable[..., Any]:
    """What did not come is asked for again after the same time always."""

    def tireless(rests: Rests, now: float) -> list[LogKey]:
        found: list[LogKey] = due(rests, now)
        for log in found:
            for row in rests._rows.get(log, {}).values():
                row.tries = 0
        return found

    return tireless


def rest_for_ever(due: Callable[..., Any]) -> Callable[..., Any]:
    """What rests is never tried again unless something else happens to its log."""
    return lambda rests, now: []


def believe_old_views(coming: Callable[..., Any]) -> Callable[..., Any]:
    """What has come since a look-up was asked for is asked for again."""
    return lambda progress, log, since: ()


def raise_at_times(decide: Callable[..., Any]) -> Callable[..., Any]:
    """A plan fails, one time in fifty."""
    calls = 0

    def failing(*args: object) -> Any:  # noqa: ANN401
        nonlocal calls
        calls += 1
        if calls % 50 == 0:
            raise RuntimeError("the plan of a log failed")
        return decide(*args)

    return failing


def close_nothing(is_closed: Callable[..., Any]) -> Callable[..., Any]:
    """What a peer may not read is sent all the same."""
    return lambda leaving, request: False


def end_no_request(uncovered: Callable[..., Any]) -> Callable[..., Any]:
    """A new scope goes for new requests alone."""
    return lambda actor: []


def mention_everything(is_silent: Callable[..., Any]) -> Callable[..., Any]:
    """The other side hears of logs that it may neither read nor write."""
    return lambda interests, log: False


def keep_closed(kept: Callable[..., Any]) -> Callable[..., Any]:
    """What was asked for in vain is not told of once it may be read."""
    return lambda *known: None


def let_everybody_in(rule_for: Callable[..., Any]) -> Callable[..., Any]:
    """Who is blocked, or was removed, comes in as before."""

    def lenient(admission: object, peer: bytes, *, expected: bool) -> PeerRule:
        rule: PeerRule | None = rule_for(admission, peer, expected=expected)
        return rule or PeerRule(allowed=True)

    return lenient


def have_room(admit: Callable[..., Any]) -> Callable[..., Any]:
    """Entries have no quota."""
    return lambda ledger, key, entries: (entries, None)


def begin_anything(declare: Callable[..., Any]) -> Callable[..., Any]:
    """Large payloads have no quota."""
    return lambda ledger, payload: None


def have_no_room_for_ever(note: Callable[..., Any]) -> Callable[..., Any]:
    """A log that there was no room for is never tried again."""

    def stubborn(rests: Rests, log: LogKey, kind: Kind, outcome: Outcome, *how: object) -> None:
        note(rests, log, kind, outcome, *how)
        if outcome is Outcome.NO_ROOM:
            rests._rows[log][kind, outcome].until = inf
            rests._retries.drop(log)

    return stubborn


def delete_one_more(boundary: Callable[..., Any]) -> Callable[..., Any]:
    """Where the last N are kept, the first of them goes as well."""
    return lambda rule, row: boundary(rule, row) + (rule.last is not None)


def undelete(is_missing: Callable[..., Any]) -> Callable[..., Any]:
    """What has been deleted meanwhile is stored when it comes."""
    return lambda db, row, first, last: True


def pause_for_ever(end: Callable[..., Any]) -> Callable[..., Any]:
    """What is paused is not resumed."""
    return lambda db, peer, now_us: False


def run_all(plans: Iterable[Plan]) -> None:
    for plan in plans:
        run_world(plan)


@dataclass(frozen=True, slots=True)
class Worlds:
    """A bug, and worlds of one kind of trouble of which one has to fall over it.

    Worlds of few events, for they are run twice: some take a hundred times as long as these.
    """

    target: str
    planted: Plant
    trouble: str
    seeds: tuple[int, ...]
    says: str
    also: tuple[str, ...] = ()
    """What else there is in these worlds beside entries that are appended."""

    def run(self) -> None:
        for seed in self.seeds:
            run_world(draw_plan(seed, only=("appends", *self.also, self.trouble)))


KINDS = (
    Worlds("peer.planner.proposals.plan", fill_no_gaps, "subscriptions", (3, 12), "has not got"),
    Worlds("peer.planner.proposals.Decider.decide", move_nothing, "once", (5, 8), "has synced"),
    Worlds("peer.engine.Engine._give_up", keep_what_failed, "reads", (7, 17), "not settled"),
    Worlds(
        "peer.planner.shared.Shared.wants_of",
        fetch_nothing,
        "fetches",
        (7, 12),
        "has not got",
    ),
    Worlds(
        "peer.node.links.sources.Place.claim",
        fetch_everywhere,
        "large",
        (13,),
        "payload bytes",
    ),
    Worlds("logstore.payloads.check_payload", take_any_size, "sizes", (7, 17), "lied about"),
    Worlds("peer.planner.rests.Rests.due", never_tire, "subscriptions", (2,), "30 times"),
    Worlds("peer.data.outbound.Outbound.end_due", end_nothing, "adjusts", (8, 12), "not settled"),
    Worlds("peer.planner.leaving.Leaving.is_closed", close_nothing, "scopes", (21,), "leaves"),
    Worlds("peer.planner.acting.Actor.uncovered", end_no_request, "scopes", (26,), "takes"),
    Worlds(
        "peer.protocol.events.Interests.is_silent",
        mention_everything,
        "scopes",
        (5,),
        "a mention",
    ),
    Worlds(
        "peer.planner.fitting.Changes.reading_changed",
        keep_closed,
        "scopes",
        (9,),
        "has not got",
    ),
    Worlds(
        "peer.node.doors.admission.Admission.rule_for",
        let_everybody_in,
        "removals",
        (3,),
        "may not be",
    ),
    Worlds("logstore.quotas.Ledger.admit", have_room, "quotas", (7,), "bytes"),
    Worlds("logstore.quotas.Ledger.declare", begin_anything, "quotas", (1,), "bytes"),
    Worlds("peer.planner.rests.Rests.note", have_no_room_for_ever, "quotas", (5,), "got"),
    Worlds("logstore.tidying.boundary_of", delete_one_more, "keeps", (1, 9), "no rule says"),
    # Payloads that take a while are there to be deleted while they come.
    Worlds("logstore.payloads.is_missing", undelete, "keeps", (42,), "has come back", ("large",)),
    Worlds("logstore.pauses.end_pause", pause_for_ever, "pauses", (3, 8), "not connected"),
)
"""One for each check that only worlds with some kind of trouble put to the test."""


CANARIES: dict[str, Plant] = {
    "peer.protocol.table.RequestTable._grant": lose_a_grant,
    "peer.data.inbound.Inbound.credit_to_release": keep_data_credit,
    "peer.data.outbound.Outbound.log_changed": never_wake,
    "peer.engine.Engine._forget": forget_nothing,
    "peer.data.receiving.Receiver._payload_whole": skip_a_piece,
    "peer.data.proving.Prover._settle": drop_the_memory,
    "peer.planner.rests.Rests.due": rest_for_ever,
    "peer.planner.proposals.Decider.decide": raise_at_times,
    "peer.planner.progress.Progress.coming": believe_old_views,
    "tests.logstore.disk.SimFile.sync": acknowledge_before_disk,
}


ENOUGH = {
    "peer.planner.progress.Progress.coming": draw_plan(1, only=("appends", "large")),
    "peer.data.outbound.Outbound.log_changed": draw_plan(10, only=("appends", "reads")),
    "tests.logstore.disk.SimFile.sync": draw_plan(7, only=("appends", "power")),
}
"""One world each for bugs that the others find after twenty virtual minutes only, or by luck: what
is lost with the power has to be missed by somebody."""


@pytest.mark.parametrize("target", CANARIES)
def test_a_planted_bug_is_found(target: str) -> None:
    plans = [draw_plan(seed) for seed in SEEDS]
    if target in ENOUGH:
        plans = [ENOUGH[target]]
        # Without the bug all is well there, as it is in the worlds of test_simulation.py.
        run_all(plans)
    owner, _, name = target.rpartition(".")
    holder = pkgutil.resolve_name(owner)
    planted = CANARIES[target](getattr(holder, name))
    with (
        mock.patch.object(holder, name, planted),
        pytest.raises(SimulationFailed, match=r"again: .*--seed \d+"),
    ):
        run_all(plans)


@pytest.mark.parametrize("worlds", KINDS, ids=lambda worlds: worlds.trouble)
def test_each_kind_of_trouble_finds_a_planted_bug(worlds: Worlds) -> None:
    owner, _, name = worlds.target.rpartition(".")
    holder = pkgutil.resolve_name(owner)
    planted = worlds.planted(getattr(holder, name))
    with (
        mock.patch.object(holder, name, planted),
        pytest.raises(SimulationFailed, match=worlds.says),
    ):
        worlds.run()


@pytest.mark.long
@pytest.mark.parametrize("worlds", KINDS, ids=lambda worlds: worlds.trouble)
def test_without_the_bug_the_same_worlds_settle(worlds: Worlds) -> None:
    """That each of them says what its bug is known by shows it too."""
    worlds.run()
