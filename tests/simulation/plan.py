"""What a seed makes of a world: its size, its limits, and which faults exist in it at all.

A seed that has everything finds less than many that each have something, so each draws what there
is, and then how often. Every part of a world draws from a generator of its own, so that switching
one kind of trouble off changes the others as little as possible.
"""

import random
from dataclasses import dataclass

from peer import SessionConfig
from tests.records import replace
from wire import Setup

TROUBLES = (
    "appends",
    "large",
    "ends",
    "forks",
    "cuts",
    "partitions",
    "kills",
    "power",
    "writes",
    "syncs",
    "full",
    "follows",
    "drops",
    "cancels",
    "slow",
    "lies",
    "fetches",
    "subscriptions",
    "once",
    "reads",
    "sizes",
    "adjusts",
    "scopes",
    "removals",
    "quotas",
    "forgets",
    "keeps",
    "pauses",
)
"""Kinds of things that happen; a plan has some of them."""

CALM = ("appends", "large", "ends")
"""Those of worlds in which nothing goes wrong and nobody changes his mind."""

DOORS = ("scopes", "removals", "quotas")
"""Those of who may do what, and how much of it."""

WISHES = ("forgets", "keeps", "pauses")
"""Those of what people no longer want, or not now. Worlds without them, and without `DOORS`, are
what they were before there were any."""

CALM_SHARE = 0.08
WATCHED_SHARE = 0.25
FEW_REQUESTS_SHARE = 0.08

HOUR_S = 3600.0
BUSY_S = 3000.0
"""Of each hour of a long life, the first part, in which all happens that happens."""
EVENTS_PER_HOUR = 20
STRANGERS_PER_EVENT = 5
LOGS_S = 6 * HOUR_S
"""How long authors go on with the same logs: each ends some time, and in a day many do."""
LONG_PAUSE_S = 1200.0
"""How long a node is down, or a link, in a long life now and then."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A world before it begins. Times are seconds of its own clock.

    `events`: how many things happen to it. `split`: control and data are two streams that know
    nothing of each other; otherwise there is one, with setup and multiplexing.
    """

    seed: int
    nodes: int
    events: int
    duration_s: float
    troubles: tuple[str, ...]
    links: tuple[tuple[int, int], ...]
    split: bool
    delay_s: float
    chunk_bytes: int
    host_delay_s: float
    reconnect: bool
    """Whether all connections are made anew when the faults stop."""
    is_watched: bool
    """Whether it is watched for some minutes once it is at rest."""
    config: SessionConfig
    hours: int = 0
    """How long it lives, if that is hours: with quiet at the end of each, and strangers."""
    partial_s: float = 0.0
    """After how long without progress a part of a payload is given up; in a life of hours."""
    options: tuple[str, ...] = ()
    """What made it smaller, as the command line has it."""

    @property
    def is_calm(self) -> bool:
        """Whether nothing makes anybody ask for anything twice."""
        is_quiet = set(self.troubles) <= set(CALM) and not self.reconnect
        return is_quiet and not self.hours

    @property
    def strangers(self) -> int:
        """How many come and go."""
        return STRANGERS_PER_EVENT * self.events if self.hours else 0

    def moment(self, rng: random.Random) -> float:
        """When something happens."""
        if not self.hours:
            return rng.uniform(0, self.duration_s)
        return HOUR_S * rng.randrange(self.hours) + rng.uniform(0, BUSY_S)

    def rng(self, part: str) -> random.Random:
        """The generator of one part of the world."""
        return random.Random(f"{self.seed}/{part}")


def draw_plan(
    seed: int,
    *,
    nodes: int | None = None,
    events: int | None = None,
    without: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    hours: int = 0,
) -> Plan:
    """The plan of a seed; the other arguments make it smaller. `only`: the troubles it has.

    `hours`: it lives for so many hours.
    """
    rng = random.Random(f"{seed}/plan")
    count = rng.choice((2, 2, 2, 3, 3, 4, 5, 6, 8))
    happenings = rng.choice((5, 10, 20, 40))
    troubles = _troubles(random.Random(f"{seed}/troubles"))
    calm = random.Random(f"{seed}/calm").random() < CALM_SHARE
    if calm:
        troubles = tuple(trouble for trouble in troubles if trouble in CALM)
    plan = Plan(
        seed=seed,
        nodes=count,
        events=happenings,
        duration_s=rng.choice((1.0, 5.0, 30.0)),
        troubles=troubles,
        links=(),
        split=rng.random() < 0.6,
        delay_s=rng.choice((0.0, 0.001, 0.02, 0.2)),
        chunk_bytes=rng.choice((7, 100, 1500, 1 << 20)),
        host_delay_s=rng.choice((0.0, 0.001, 0.01, 0.1)),
        reconnect=rng.random() < 0.3 and not (calm or only),
        is_watched=random.Random(f"{seed}/watched").random() < WATCHED_SHARE,
        config=_config(rng),
    )
    if random.Random(f"{seed}/taking turns").random() < FEW_REQUESTS_SHARE:
        plan = _with_few_requests(plan)
    if hours:
        plan = _for_hours(plan, hours)
        troubles = plan.troubles
    count = min(plan.nodes, nodes or plan.nodes)
    troubles = only or tuple(trouble for trouble in troubles if trouble not in without)
    if "quotas" in troubles:
        first_s, most_s = (30.0, 300.0) if hours else (5.0, 60.0)
        config = replace(plan.config, room_first_s=first_s, room_max_s=most_s)
        plan = replace(plan, config=config)
    return replace(
        plan,
        nodes=count,
        events=plan.events if events is None else events,
        troubles=troubles,
        links=_links(plan.rng("links"), count),
        options=_options(nodes, events, without, only, hours),
    )


def _options(
    nodes: int | None,
    events: int | None,
    without: tuple[str, ...],
    only: tuple[str, ...],
    hours: int,
) -> tuple[str, ...]:
    numbers = {"--nodes": nodes, "--events": events, "--hours": hours or None}
    given = [f"{name} {number}" for name, number in numbers.items() if number is not None]
    given += [f"--without {trouble}" for trouble in without]
    return (*given, *(f"--only {trouble}" for trouble in only))


def draw_setup(rng: random.Random) -> Setup:
    """What one side says first."""
    windows = (0, 17, 1024, 65_536)
    return Setup(
        send_greedily=rng.random() < 0.6,
        accept_greedily=rng.random() < 0.6,
        send_window=rng.choice(windows),
        receive_window=rng.choice(windows),
    )


def _troubles(rng: random.Random) -> tuple[str, ...]:
    share = rng.choice((0.2, 0.4, 0.7, 1.0))
    return tuple(t for t in TROUBLES if t == "appends" or rng.random() < share)


CREDIT_MAX = {1: 1, 3: 3, 64: 512}
"""Few proposals stay few: who may make one at a time is what some worlds are about."""


def _config(rng: random.Random) -> SessionConfig:
    config = SessionConfig(
        small_payload_bytes_max=rng.choice((0, 64, 1000, 65_536)),
        data_credit_bytes=rng.choice((700, 5_000, 100_000, 1 << 20)),
        quantum_bytes=rng.choice((100, 2_000, 65_536)),
        write_ahead_bytes=rng.choice((500, 20_000, 262_144)),
        read_entries_max=rng.choice((2, 16, 512)),
        read_bytes_max=rng.choice((500, 20_000, 262_144)),
        request_credit=rng.choice((1, 3, 64)),
        inside_payloads_max=rng.choice((1, 16)),
        sinks_max=rng.choice((2, 64)),
    )
    return replace(config, request_credit_max=CREDIT_MAX[config.request_credit])


def _with_few_requests(plan: Plan) -> Plan:
    """A world in which each peer may have fewer requests than there are logs, which take turns."""
    rng = plan.rng("few requests")
    config = replace(
        plan.config, requests_max=rng.choice((1, 2, 5)), request_credit=rng.choice((1, 3))
    )
    config = replace(config, request_credit_max=config.request_credit)
    # Each turn asks again for what was asked for at the one before.
    return replace(plan, config=config, is_watched=False)


def _for_hours(plan: Plan, hours: int) -> Plan:
    """A world that lives for hours: few nodes, fast links, and what age may bring to light."""
    rng = plan.rng("hours")
    troubles = {*plan.troubles, "kills", "partitions", "cuts", "large", *DOORS}
    return replace(
        plan,
        hours=hours,
        nodes=min(plan.nodes, 4),
        events=EVENTS_PER_HOUR * hours,
        duration_s=HOUR_S * hours,
        troubles=tuple(trouble for trouble in TROUBLES if trouble in troubles),
        delay_s=min(plan.delay_s, 0.02),
        chunk_bytes=max(plan.chunk_bytes, 1500),
        config=replace(plan.config, data_credit_bytes=max(plan.config.data_credit_bytes, 20_000)),
        partial_s=HOUR_S * rng.choice((1, 6, 24)),
    )


def _links(rng: random.Random, nodes: int) -> tuple[tuple[int, int], ...]:
    """A tree over all nodes, and some links more."""
    found = {(rng.randrange(node), node) for node in range(1, nodes)}
    for _ in range(rng.choice((0, 0, 1, nodes))):
        a, b = sorted(rng.sample(range(nodes), 2))
        found.add((a, b))
    return tuple(sorted(found))
