"""Two request tables under all interleavings of a small depth (point2point.md 6, 7).

Both sides are honest: each does only what the specification allows it at that moment. Four channels
deliver independently. After every path everything is delivered and answered; then no side may have
seen a violation, every request that was cancelled is released, and credit is as at the start.

The search is a walk over choices: a run is a list of choices, replayed from the start; states that
were met before, by what can be seen of them, are not entered again.
"""

from collections import deque
from dataclasses import dataclass, field

import pytest

from peer.protocol.config import SessionConfig
from peer.protocol.request import Request
from peer.protocol.table import RequestTable
from wire import (
    U64_MAX,
    Adjust,
    Cancel,
    CancelReason,
    ControlDecoder,
    ControlMessage,
    Eagerness,
    LogKey,
    Propose,
    encode_control,
    lipmaa,
)

LOG = LogKey(b"l" * 32, 0)
HASH = b"\x00\x40" + b"h" * 64
CONFIG = SessionConfig(request_credit=4, request_credit_max=4)

Range = tuple[int, int | None]
Choice = tuple[str, int, int]


@dataclass
class Side:
    """An honest endpoint: a table, the ends it has to write, and what is under way to the other."""

    proactive: bool
    plan: list[Range]
    reuses: bool
    """Whether it takes the lowest number that is free, as another implementation may."""
    table: RequestTable = field(init=False)
    control: deque[ControlMessage] = field(default_factory=deque)
    data: deque[int] = field(default_factory=deque)
    ends: deque[Request] = field(default_factory=deque)
    unanswered: list[Request] = field(default_factory=list)
    dropped: set[int] = field(default_factory=set)
    """Numbers that gave way and are not to be used before the winner is answered."""

    def __post_init__(self) -> None:
        self.table = RequestTable(proactive=self.proactive, config=CONFIG, listener=self)
        self.table.open_credit()
        self.decoder = ControlDecoder()

    def flush(self) -> None:
        self.decoder.feed(self.table.take_bytes())
        self.control.extend(iter(self.decoder.next_message, None))

    # The table's listener

    def request_proposed(self, request: Request) -> None:
        self.unanswered.append(request)

    def request_confirmed(self, request: Request) -> None:
        pass

    def request_adjusted(self, request: Request) -> None:
        pass

    def request_cancelled(self, request: Request, cancel: Cancel) -> None:
        self._drop(request)

    def request_lost(self, request: Request) -> None:
        self.dropped.add(request.number)

    def request_released(self, request: Request) -> None:
        pass

    def end_due(self, request: Request) -> None:
        self._drop(request)
        self.ends.append(request)

    def granted(self, units: int, *, proposals: int) -> None:
        pass

    def idle_work(self) -> None:
        pass

    def _drop(self, request: Request) -> None:
        if request in self.unanswered:
            self.unanswered.remove(request)
        if not self.unanswered:
            self.dropped.clear()

    # What it may do now

    def propose(self) -> None:
        start, end = self.plan.pop(0)
        if self.reuses:
            number = 0 if self.proactive else 1
            while self.table.get(number) is not None or number in self.dropped:
                number += 2
            self.table._next_number = number
        self.table.propose(_proposal(self.table.next_number(), start, end))
        self.flush()

    @property
    def may_propose(self) -> bool:
        return bool(
            self.plan and self.table.credit > 0 and self.table.may_propose(LOG, *self.plan[0])
        )

    def confirm(self) -> None:
        request = self.unanswered[0]
        self._drop(request)
        self.table.confirm(request, Adjust(request.number, eagerness=Eagerness.ALL))
        self.flush()

    def cancel(self, request: Request) -> None:
        self._drop(request)
        self.table.cancel(request, Cancel(request.number, CancelReason.NOT_WANTED), paced=False)
        self.flush()

    def write_end(self) -> None:
        request = self.ends.popleft()
        self.data.append(request.number)
        self.table.end_sent(request)
        self.flush()


def _proposal(number: int, start: int, end: int | None) -> Propose:
    return Propose(
        request=number,
        log=LOG,
        start=start,
        lower_info=start,
        min_bytes=0,
        max_bytes=U64_MAX,
        starting_hash=HASH if lipmaa(start) else None,
        eagerness=Eagerness.ALL,
        end=end,
        upper_info=end,
    )


class World:
    def __init__(self, plans: tuple[list[Range], list[Range]], *, reuses: bool) -> None:
        self.sides = (Side(True, list(plans[0]), reuses), Side(False, list(plans[1]), reuses))
        for side in self.sides:
            side.flush()
        self.deliver_all()

    def choices(self, cancels: int) -> list[Choice]:
        found: list[Choice] = []
        for number, side in enumerate(self.sides):
            found += [("control", number, 0)] * bool(side.control)
            found += [("data", number, 0)] * bool(side.data)
            found += [("propose", number, 0)] * side.may_propose
            found += [("confirm", number, 0)] * bool(side.unanswered)
            found += [("end", number, 0)] * bool(side.ends)
            if cancels > 0:
                found += [
                    ("cancel", number, request.ident)
                    for request in side.table.all()
                    if request.cancel_sent is None
                ]
        return found

    def take(self, choice: Choice) -> None:
        kind, number, ident = choice
        side, other = self.sides[number], self.sides[1 - number]
        match kind:
            case "control":
                other.table.receive(side.control.popleft())
                other.flush()
            case "data":
                other.table.receive_end(side.data.popleft())
                other.flush()
            case "propose":
                side.propose()
            case "confirm":
                side.confirm()
            case "end":
                side.write_end()
            case _:
                side.cancel(next(r for r in side.table.all() if r.ident == ident))

    def deliver_all(self) -> None:
        """Answer and deliver until nothing is left to do; what is active is cancelled."""
        while True:
            found = [c for c in self.choices(0) if c[0] != "propose"]
            if not found:
                return
            self.take(found[0])

    def finish(self) -> None:
        self.deliver_all()
        while any(side.may_propose for side in self.sides):
            for side in self.sides:
                if side.may_propose:
                    side.propose()
                self.deliver_all()
        for side in self.sides:
            for request in side.table.all():
                if request.cancel_sent is None:
                    side.cancel(request)
        self.deliver_all()

    def fingerprint(self) -> tuple[object, ...]:
        """All that can matter for what follows."""
        return tuple(
            (
                tuple(encode_control(message) for message in side.control),
                tuple(side.data),
                tuple(request.number for request in side.ends),
                tuple(request.number for request in side.unanswered),
                tuple(side.plan),
                tuple(sorted(side.dropped)),
                side.table.credit,
                side.table.their_credit,
                tuple(sorted(side.table._ignored.items())),
                tuple(sorted(_state(request) for request in side.table.all())),
                tuple(sorted(_state(request) for request in side.table._held.values())),
            )
            for side in self.sides
        )


def _state(request: Request) -> tuple[object, ...]:
    return (
        request.number,
        request.proposal.start,
        request.confirmed,
        request.cancel_sent or 0,
        request.cancel_received or 0,
        request.end_due,
        request.end_sent,
        request.end_received,
    )


def explore(
    plans: tuple[list[Range], list[Range]], cancels: int, states_max: int, *, reuses: bool
) -> int:
    """Walk all runs; returns how many different states were met."""
    seen: set[tuple[object, ...]] = set()
    line: deque[tuple[list[Choice], int]] = deque([([], cancels)])
    while line and len(seen) < states_max:
        run, cancels_left = line.pop()
        world = World(plans, reuses=reuses)
        for choice in run:
            world.take(choice)
        mark = (*world.fingerprint(), cancels_left)
        if mark in seen:
            continue
        seen.add(mark)
        choices = world.choices(cancels_left)
        line.extend(([*run, choice], cancels_left - (choice[0] == "cancel")) for choice in choices)
        if len(choices) <= 1 or len(seen) % 7 == 0:
            check_end(world)
    return len(seen)


def check_end(world: World) -> None:
    world.finish()
    for side, other in (world.sides, world.sides[::-1]):
        assert len(side.table) == 0
        assert side.table.credit + other.table.credit_owed == CONFIG.request_credit
        assert other.table.their_credit == side.table.credit
        assert not side.plan


OPEN: Range = (1, None)


@pytest.mark.parametrize("reuses", [False, True])
@pytest.mark.parametrize(
    "plans",
    [
        ([OPEN], [OPEN]),
        ([OPEN, OPEN], [(2, 3)]),
        ([(5, None)], [(3, 6)]),
        ([(1, 4), (6, 9)], [(2, 8)]),
        ([(3, 4)], [(1, 2), (2, 6)]),
        ([(1, 9)], [(2, 3), (5, 6)]),
    ],
)
@pytest.mark.rule("P2P-7.05", "P2P-7.06", "P2P-7.11", roles="both")
def test_no_interleaving_of_honest_sides_breaks_a_rule(
    plans: tuple[list[Range], list[Range]], reuses: bool
) -> None:
    """With one cancel anywhere; see the long test for two."""
    assert explore(plans, 1, 600, reuses=reuses) > 50


@pytest.mark.long
@pytest.mark.parametrize("reuses", [False, True])
@pytest.mark.parametrize(
    "plans",
    [
        ([OPEN], [OPEN]),
        ([OPEN, OPEN], [OPEN]),
        ([(5, None)], [(3, 6), (7, 9)]),
        ([(1, 4), (6, 9)], [(2, 8), (3, 3)]),
        ([(3, 4), (1, 9)], [(1, 2), (2, 6)]),
    ],
)
def test_no_deep_interleaving_of_honest_sides_breaks_a_rule(
    plans: tuple[list[Range], list[Range]], reuses: bool
) -> None:
    assert explore(plans, 2, 30_000, reuses=reuses) > 600
