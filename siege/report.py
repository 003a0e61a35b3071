"""What an attack came to: figures, verdicts, and how they are printed."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

RATIO_MIN: Final = 0.8
"""doors.md 4: a hostile peer costs others at most a fifth of their rate."""
RECOVERY_MAX_S: Final = 2.0
BUSY_OTHERS: Final = 0.1
"""Of all cores: above it the figures tell of the machine as well."""


@dataclass(slots=True)
class Phase:
    """An honest peer before, during or after an attack."""

    rounds: int = 0
    got_in: int = 0
    """Of these, those that were served within ten seconds."""
    entries: int = 0
    seconds: float = 0.0
    round_s: list[float] = field(default_factory=list)
    ping_ms: tuple[float, float] = (0.0, 0.0)
    """Median and the largest."""
    live_ms: tuple[float, float] = (0.0, 0.0)
    """From `append` on the node to arrival: median and the largest."""
    lost: int = 0
    """Connections of the pulse that the node ended."""
    node_cpu_s: float = 0.0
    wall_s: float = 0.0
    others_cores: float = 0.0
    """Share of all cores that went to programs that are no part of this."""

    @property
    def per_s(self) -> float:
        """Entries a second, over all rounds."""
        return self.entries / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class Row:
    """One attack, once it is over."""

    name: str
    what: str
    before: Phase
    during: Phase
    after: Phase
    recovery_s: float | None
    """None: not within the time that was looked."""
    counts: dict[str, int]
    said: dict[str, int]
    """How its connections ended, in the node's words, or as the hostile side saw it if it said
    nothing."""
    gone_s: float | None
    """How long a connection lasted that the node ended: the median."""
    node_read_bytes: int
    attacker_cores: float
    """Cores that the hostile process used."""
    rss_mb: tuple[float, float, float]
    """Of the node: before, at most, after."""
    rss_allowed_mb: int
    disk_bytes: int
    entries_stored: int
    """Of the attack, that the node has taken in."""
    sigterm_s: float | None
    """None: it was not obeyed."""
    broken: list[str]
    """Promises that were broken."""
    idle: list[str]
    """What was missing for this to have been an attack."""
    held_back: list[str]
    """What of it the node has held back beside honest syncs, and let through where there were none.
    Empty where it was no less alone."""
    control: Phase | None = None
    """Honest peers beside a process that took of the machine what the attacker took. None: it took
    next to nothing."""

    @property
    def without(self) -> Phase:
        """What the time of the attack is compared with."""
        return self.control or self.before

    @property
    def ratio(self) -> float | None:
        """Of the honest rate, with the attack against without."""
        return self.during.per_s / self.without.per_s if self.without.per_s else None

    @property
    def was_none(self) -> bool:
        """Whether it was no attack: it sent too little, and that was not the node's doing."""
        return bool(self.idle) and not self.held_back

    @property
    def sent_mb(self) -> float:
        """What the attack has sent, in MB."""
        return self.counts.get("sent_bytes", 0) / 1e6

    @property
    def attack_cpu_s(self) -> float:
        """Of the node while it lasted, without what its honest entries cost before."""
        if not self.before.entries:
            return 0.0
        honest = self.before.node_cpu_s / self.before.entries * self.during.entries
        return max(0.0, self.during.node_cpu_s - honest)

    @property
    def taken_cores(self) -> float:
        """Cores that the attack made the node use, which others' programs hardly change."""
        return self.attack_cpu_s / self.during.wall_s if self.during.wall_s else 0.0

    @property
    def cpu_s_per_mb(self) -> float | None:
        """Of the node, for each MB of the attack."""
        return self.attack_cpu_s / self.sent_mb if self.sent_mb else None

    @property
    def was_busy(self) -> bool:
        """Whether other programs had so much of the machine that the rates tell of them too."""
        return max(self.before.others_cores, self.during.others_cores) > BUSY_OTHERS

    @property
    def is_good(self) -> bool:
        """Whether it was an attack, and every promise was kept."""
        return not (self.broken or self.was_none)

    def as_json(self) -> dict[str, Any]:
        """All of it, with what follows from it."""
        return {
            **asdict(self),
            "ratio": self.ratio,
            "sent_mb": self.sent_mb,
            "cpu_s_per_mb": self.cpu_s_per_mb,
            "taken_cores": self.taken_cores,
            "was_busy": self.was_busy,
            "is_good": self.is_good,
            "was_none": self.was_none,
            "per_s": [phase.per_s for phase in (self.before, self.during, self.after)],
        }


def judge(row: Row, *, within: bool) -> list[str]:
    """Which promises that hold for every attack it has broken."""
    found = []
    ratio = row.ratio
    if ratio is None:
        found.append("nobody was served before the attack")
    elif within and row.during.per_s < RATIO_MIN * min(row.without.per_s, row.after.per_s):
        # Against the lower of the two: the machine may be another one than it was before.
        found.append(f"rate: {ratio:.0%} of what it is, {RATIO_MIN:.0%} are promised")
    if row.recovery_s is None:
        found.append("recovery: not seen")
    elif row.recovery_s > RECOVERY_MAX_S:
        found.append(f"recovery: {row.recovery_s:.1f} s, {RECOVERY_MAX_S:.0f} are promised")
    if row.during.got_in < row.during.rounds:
        missed = row.during.rounds - row.during.got_in
        found.append(f"{missed} of {row.during.rounds} honest syncs did not get through in 10 s")
    if row.sigterm_s is None:
        found.append("SIGTERM: not obeyed within 10 s")
    grown = row.rss_mb[1] - row.rss_mb[0]
    if grown > row.rss_allowed_mb:
        found.append(f"memory: {grown:.0f} MiB more, {row.rss_allowed_mb} are allowed")
    return found


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Columns as wide as what is in them; the first ones are to the left, others to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]

    def show(line: Sequence[str]) -> str:
        cells = (
            cell.rjust(width) if at >= left else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    return "\n".join(map(show, lines))


HEAD: Final = (
    "attack",
    "before/s",
    "during/s",
    "after/s",
    "control/s",
    "ratio",
    "got in",
    "recov s",
    "ping ms",
    "live ms",
    "sent MB",
    "read MB",
    "CPU s/MB",
    "takes",
    "attacker",
    "others",
    "RSS MiB",
    "TERM s",
    "verdict",
)


def cells(row: Row) -> list[str]:
    """One line of the table."""
    during = row.during
    phases = (row.before, row.during, row.after)
    return [
        row.name,
        *(f"{phase.per_s:.0f}" for phase in phases),
        _or_dash(None if row.control is None else row.control.per_s, ".0f"),
        _or_dash(row.ratio, ".0%"),
        f"{during.got_in}/{during.rounds}",
        _or_dash(row.recovery_s, ".1f"),
        "/".join(f"{phase.ping_ms[0]:.0f}" for phase in phases),
        "/".join(f"{phase.live_ms[0]:.0f}" for phase in phases),
        f"{row.sent_mb:.2f}",
        f"{row.node_read_bytes / 1e6:.2f}",
        _or_dash(row.cpu_s_per_mb, ".2f"),
        f"{row.taken_cores:.0%}",
        f"{row.attacker_cores:.0%}",
        f"{during.others_cores:.0%}",
        "/".join(f"{each:.0f}" for each in row.rss_mb),
        _or_dash(row.sigterm_s, ".1f"),
        verdict(row),
    ]


def verdict(row: Row) -> str:
    """One or two words."""
    if row.was_none:
        return "no attack"
    if not row.broken:
        return "held back" if row.idle else "kept"
    return "BROKEN, busy" if row.was_busy else "BROKEN"


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def details(row: Row) -> str:
    """What does not fit into the table: what was played, how it ended, what was broken."""
    during = row.during
    lines = [f"{row.name}: {row.what}"]
    times = ", ".join(f"{each:.1f}" for each in during.round_s[:12])
    lines.append(
        f"  honest: {during.got_in} of {during.rounds} syncs, each {times} s;"
        f" ping up to {during.ping_ms[1]:.0f} ms, live up to {during.live_ms[1]:.0f} ms,"
        f" {during.lost} connections lost"
    )
    told = ", ".join(f"{name} {count}" for name, count in sorted(row.counts.items())[:14])
    lines.append(f"  attack: {told or 'no connections'}")
    if row.gone_s is not None:
        lines.append(f"  a connection that the node ended lasted {row.gone_s:.2f} s (median)")
    for reason, count in list(row.said.items())[:3]:
        lines.append(f"  ended {count} times: {reason}")
    if row.disk_bytes > 1 << 20:
        lines.append(f"  disk: {row.disk_bytes / 1e6:.0f} MB more at its largest")
    if row.was_busy:
        lines.append("  other programs kept the machine busy: the rates tell of them too")
    lines += [f"  BROKEN {reason}" for reason in row.broken]
    if row.held_back:
        lines.append(f"  held back, against alone: {', '.join(row.held_back)}")
    else:
        lines += [f"  NO ATTACK {reason}" for reason in row.idle]
    return "\n".join(lines)
