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
)
"""Kinds of things that happen; a plan has some of them."""

CALM = ("appends", "large", "ends")
"""Those of worlds in which nothing goes wrong and nobody changes his mind."""

DOORS = ("scopes", "removals", "quotas")
"""Those of who may do what, and how much of it: worlds without them are what they were before."""

CALM_SHARE = 0.08
WATCHED_SHARE = 0.25
FEW_REQUESTS_SHARE = 0.08


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
    options: tuple[str, ...] = ()
    """What made it smaller, as the command line has it."""

    @property
    def is_calm(self) -> bool:
        """Whether nothing makes anybody ask for anything twice."""
        return set(self.troubles) <= set(CALM) and not self.reconnect

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
) -> Plan:
    """The plan of a seed; the other arguments make it smaller. `only`: the troubles it has."""
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
    count = min(plan.nodes, nodes or plan.nodes)
    troubles = only or tuple(trouble for trouble in troubles if trouble not in without)
    if "quotas" in troubles:
        plan = replace(plan, config=replace(plan.config, room_first_s=5.0, room_max_s=60.0))
    return replace(
        plan,
        nodes=count,
        events=plan.events if events is None else events,
        troubles=troubles,
        links=_links(plan.rng("links"), count),
        options=_options(nodes, events, without, only),
    )


def _options(
    nodes: int | None, events: int | None, without: tuple[str, ...], only: tuple[str, ...]
) -> tuple[str, ...]:
    numbers = {"--nodes": nodes, "--events": events}
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


def _config(rng: random.Random) -> SessionConfig:
    return SessionConfig(
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


def _with_few_requests(plan: Plan) -> Plan:
    """A world in which each peer may have fewer requests than there are logs, which take turns."""
    rng = plan.rng("few requests")
    config = replace(
        plan.config, requests_max=rng.choice((1, 2, 5)), request_credit=rng.choice((1, 3))
    )
    # Each turn asks again for what was asked for at the one before.
    return replace(plan, config=config, is_watched=False)


def _links(rng: random.Random, nodes: int) -> tuple[tuple[int, int], ...]:
    """A tree over all nodes, and some links more."""
    found = {(rng.randrange(node), node) for node in range(1, nodes)}
    for _ in range(rng.choice((0, 0, 1, nodes))):
        a, b = sorted(rng.sample(range(nodes), 2))
        found.add((a, b))
    return tuple(sorted(found))
