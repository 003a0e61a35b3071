"""What is kept of tables that pass through the driver: figures, and the rows that are shown.

All of it is of a size that the rows have no part in, but for the names of forked logs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from .chains import FORK, ROWS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

FAULTS_KEPT: Final = 100
LOGS_KEPT: Final = 25
DISTINCT_MAX: Final = 100_000

Row = dict[str, Any]
Order = Sequence[tuple[str, str]]

_FAULTS_ORDER: Final = tuple(
    (name, "ascending") for name in ("later", "author", "log_id", "seq", "kind")
)
_LOGS_ORDER: Final = (
    ("entries", "descending"),
    *((name, "ascending") for name in ("author", "log_id", "node")),
)


class FirstRows:
    """The first rows of a table in some order, whatever the order in which its parts come."""

    def __init__(self, order: Order, most: int) -> None:
        self._order = list(order)
        self._most = most
        self._kept: pa.Table | None = None

    def take(self, part: "pa.Table") -> None:
        """Takes a part in."""
        import pyarrow as pa

        some = part if self._kept is None else pa.concat_tables([self._kept, part])
        # A copy: a slice would keep all that it is of.
        self._kept = some.take(pa.array(self._places(some), pa.int64()))

    def _places(self, table: "pa.Table") -> list[int]:
        import pyarrow.compute as pc

        found: list[int] = pc.sort_indices(table, sort_keys=self._order)[: self._most].to_pylist()
        return found

    @property
    def rows(self) -> list[Row]:
        """They, in order."""
        return [] if self._kept is None else self._kept.to_pylist()


@dataclass(slots=True)
class FaultSummary:
    """Of what an audit found."""

    rows: int = 0
    """That were checked."""
    by_kind: Counter[str] = field(default_factory=Counter)
    forked: set[str] = field(default_factory=set)
    """Logs with a fork, as `author/log_id`."""
    _first: FirstRows = field(default_factory=lambda: FirstRows(_FAULTS_ORDER, FAULTS_KEPT))

    def take(self, found: "pa.Table") -> "pa.Table":
        """Takes a part of `Audit.found` in; the faults of it, which the counts of rows are not."""
        import pyarrow.compute as pc

        # A count has no node, nor anything else, and a fault of this kind has no number.
        is_count = pc.and_(pc.equal(found["kind"], ROWS), pc.is_valid(found["seq"]))
        self.rows += pc.sum(found.filter(is_count)["seq"]).as_py() or 0
        faults = found.filter(pc.invert(is_count))
        self.by_kind.update(faults["kind"].to_pylist())
        is_fork = pc.equal(faults["kind"], FORK)
        for row in faults.filter(is_fork).select(["author", "log_id"]).to_pylist():
            self.forked.add(f"{row['author']}/{row['log_id']}")
        # Forks first: nothing after one counts.
        self._first.take(faults.append_column("later", pc.invert(is_fork)))
        return faults

    @property
    def counts(self) -> dict[str, int]:
        """How many there are of each kind, by name."""
        return dict(sorted(self.by_kind.items()))

    @property
    def first(self) -> list[Row]:
        """The first FAULTS_KEPT: forks, then the others log by log."""
        return self._first.rows


def fault_place(row: Mapping[str, Any]) -> str:
    """`author/log_id/seq`, as far as the fault has a place."""
    names = ("author", "log_id", "seq")
    return "/".join(str(row[name]) for name in names if row[name] is not None)


@dataclass(slots=True)
class LogSummary:
    """Of the table `logs`."""

    logs: int = 0
    entries: int = 0
    payloads: int = 0
    bytes: int = 0
    nodes: set[str] = field(default_factory=set)
    first: datetime | None = None
    last: datetime | None = None
    _largest: FirstRows = field(default_factory=lambda: FirstRows(_LOGS_ORDER, LOGS_KEPT))

    def take(self, logs: "pa.Table") -> "pa.Table":
        """Takes a part in, and gives it back."""
        import pyarrow.compute as pc

        self.logs += len(logs)
        self.entries += pc.sum(logs["entries"]).as_py() or 0
        self.payloads += pc.sum(logs["payloads"]).as_py() or 0
        self.bytes += pc.sum(logs["bytes"]).as_py() or 0
        self.nodes.update(logs["node"].unique().to_pylist())
        if len(logs):
            first, last = pc.min(logs["first_arrival"]), pc.max(logs["last_arrival"])
            self.first = min(first.as_py(), self.first or first.as_py())
            self.last = max(last.as_py(), self.last or last.as_py())
        self._largest.take(logs)
        return logs

    @property
    def figures(self) -> dict[str, int]:
        """Entries, payloads and bytes of all logs."""
        return {"entries": self.entries, "payloads": self.payloads, "bytes": self.bytes}

    @property
    def largest(self) -> list[Row]:
        """The LOGS_KEPT with most entries."""
        return self._largest.rows


@dataclass(slots=True)
class DelaySummary:
    """Of the table `delay`: what goes for each pair of nodes, over all logs."""

    pairs: dict[tuple[str, str], Row] = field(default_factory=dict)
    """By nodes, from and to."""

    def take(self, delay: "pa.Table") -> "pa.Table":
        """Takes a part in, and gives back what of it is of single logs."""
        import pyarrow.compute as pc

        is_pair = pc.is_null(delay["author"])
        for row in delay.filter(is_pair).to_pylist():
            self.pairs[row["from_node"], row["to_node"]] = row
        return delay.filter(pc.invert(is_pair))


class DistinctCounts:
    """How many different values columns have."""

    def __init__(self, *names: str) -> None:
        self._values: dict[str, set[object]] = {name: set() for name in names}

    def take(self, part: "pa.Table") -> "pa.Table":
        """Takes a part in, and gives it back."""
        for name, values in self._values.items():
            if len(values) <= DISTINCT_MAX:
                values.update(part[name].unique().to_pylist())
        return part

    def counts(self, frame: "DataFrame") -> list[int]:
        """Of each column, `frame` being the whole: Spark counts what was too much to keep."""
        from pyspark.sql import functions as f

        if all(len(values) <= DISTINCT_MAX for values in self._values.values()):
            return [len(values) for values in self._values.values()]
        row = frame.agg(*(f.count_distinct(name) for name in self._values)).first()
        assert row is not None
        return [*map(int, row)]
