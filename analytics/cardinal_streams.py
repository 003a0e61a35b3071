"""Which logs of an export are streams of blocks: topics, chains, and who is read together.

A stream is what entry 1 of its default topic's log declares (spec 4.1), as each node has it. Those
of one chain whose declarations agree are one *group*: their producers are counted together.
Declarations are few and small beside an export, and are looked up once, before anything else: what
comes of them is a part of the query's plan.
"""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from wire import LogKey

from .cardinal_parsing import DECLARED_DDL, read_stream
from .declared import check_batch, declared
from .errors import BadInput
from .schema import local_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUP: Final = ("node", "chain", "settings")
"""The columns of a group. `settings` stands for the default topic and the patterns."""
_PRODUCERS_MAX: Final = 1 << 16
"""Of a group; assembly tells no more of them apart. Those behind them are left out."""
_LOGS_DDL: Final = (
    "node STRING, chain STRING, settings STRING, author STRING, log_id DECIMAL(20,0), topic STRING,"
    " producer INT, view STRING, opened BIGINT, opened_late INT, opened_us BIGINT"
)
_THRESHOLDS_DDL: Final = "node STRING, chain STRING, settings STRING, threshold BIGINT"

Streams = Sequence[LogKey | str]
Group = tuple[str, str, str]


class LogRow(NamedTuple):
    """A log in which messages are, with the columns of `_LOGS_DDL`."""

    node: str
    chain: str
    settings: str
    author: str
    log_id: int
    topic: str | None
    """None of a channel."""
    producer: int
    view: str | None = None
    """A name, if it is read alone."""
    opened: int | None = None
    """By the entry with which ingest number a channel was opened, its place among what that entry
    opened, and when it came. What is in the channel before is taken then.
    """
    opened_late: int | None = None
    opened_us: int | None = None

    @property
    def group(self) -> Group:
        return self.node, self.chain, self.settings


class Logs:
    """The logs of streams.

    `source`: an export, read in batch, in which their first entries are. `streams`: by their
    default topics' logs, in the order of preference; all that there are, unless given, in the order
    of their names. Raises BadInput: named ones that no node has, or that cannot be read together.
    """

    def __init__(self, source: "DataFrame", streams: Streams | None) -> None:
        check_batch(source, "declarations are read in batch", "give an export, read in batch")
        self._spark: SparkSession = source.sparkSession
        heads = declared(source, read_stream, DECLARED_DDL)
        keys = None if streams is None else [_key(each) for each in streams]
        if keys is not None:
            heads = heads.where(heads["author"].isin(sorted({each.author.hex() for each in keys})))
        # Of a log that is forked there may be several; one is read.
        rows = {
            (row["node"], row["author"], row["log_id"]): row for row in heads.collect()
        }.values()
        mains = [row for row in rows if row["main"] == row["log_id"]]
        mains = _in_order(mains) if keys is None else _chosen(mains, keys)
        self.topics: list[LogRow] = []
        self._thresholds: dict[Group, int] = {}
        self._add_topics(mains)
        self.channels = [*self._channels(row for row in rows if row["settings"] is None)]
        """Those that the authors of these streams have declared, whether or not a note names them;
        each of the first stream of its author."""

    def _add_topics(self, mains: "Iterable[Any]") -> None:
        count: dict[Group, int] = {}
        claimed: set[tuple[Group, str, int]] = set()
        for row in mains:
            group = row["node"], row["chain"], row["settings"]
            producer = count.get(group, 0)
            if producer == _PRODUCERS_MAX:
                continue
            count[group] = producer + 1
            self._thresholds.setdefault(group, row["threshold"])
            for topic, log_id in json.loads(row["topics"]).items():
                # Two streams of one author may both claim a log: it is the first one's.
                if (group, row["author"], int(log_id)) not in claimed:
                    claimed.add((group, row["author"], int(log_id)))
                    self.topics.append(LogRow(*group, row["author"], int(log_id), topic, producer))

    def _channels(self, rows: "Iterable[Any]") -> "Iterable[LogRow]":
        firsts: dict[tuple[str, str, str], dict[Group, int]] = {}
        claimed = set()
        for each in self.topics:
            of_author = firsts.setdefault((each.node, each.author, each.chain), {})
            of_author.setdefault(each.group, each.producer)
            claimed.add((each.group, each.author, each.log_id))
        for row in rows:
            author, log_id = row["author"], int(row["log_id"])
            of_author = firsts.get((row["node"], author, row["chain"]), {})
            for group, producer in of_author.items():
                if (group, author, log_id) not in claimed:
                    yield LogRow(*group, author, log_id, None, producer)

    def frame(self, rows: "Iterable[LogRow]") -> "DataFrame":
        """Some of them, to be joined."""
        return local_frame(self._spark, [*rows], _LOGS_DDL)

    def thresholds(self) -> "DataFrame":
        """A row for each group: `threshold`, that of its first stream."""
        rows = [(*group, threshold) for group, threshold in self._thresholds.items()]
        return local_frame(self._spark, rows, _THRESHOLDS_DDL)


def _key(stream: LogKey | str) -> LogKey:
    return LogKey.parse(stream) if isinstance(stream, str) else stream


def _key_of(row: Any) -> LogKey:  # noqa: ANN401 - a Row
    return LogKey(bytes.fromhex(row["author"]), int(row["log_id"]))


def _in_order(mains: "list[Any]") -> "list[Any]":
    return sorted(mains, key=_key_of)


def _chosen(mains: "list[Any]", keys: list[LogKey]) -> "list[Any]":
    """Those that are named, in that order. Raises BadInput."""
    order = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    found = [row for row in mains if _key_of(row) in order]
    missing = order.keys() - {_key_of(row) for row in found}
    if missing:
        raise BadInput("no stream of blocks is declared", str(min(missing)), "name another log")
    found.sort(key=lambda row: order[_key_of(row)])
    firsts: dict[str, Any] = {}
    for row in found:
        first = firsts.setdefault(row["node"], row)
        if (first["chain"], first["settings"]) != (row["chain"], row["settings"]):
            raise BadInput(
                "streams that are declared with another chain, default topic or patterns",
                f"{_key_of(first)} and {_key_of(row)}",
                "read each alone",
            )
    return found
