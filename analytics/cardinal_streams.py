"""Which logs of an export are streams of blocks: topics, chains, and who is read together.

A stream is what entry 1 of its default topic's log declares (spec 4.1), as each node has it. Those
of one chain whose declarations agree are one *group*: their producers are counted together.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gateways.cardinal.declared import ReorgDeclared, read_declared
from gateways.declaration import DeclarationError
from wire import LogKey

from .declared import LOG, check_batch, declared, named
from .errors import BadInput
from .schema import local_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP: Final = ("node", "chain", "settings")
"""The columns of a group. `settings` stands for the default topic and the patterns."""
_PRODUCERS_MAX: Final = 1 << 16
"""Of a group; assembly tells no more of them apart. Those behind them are left out."""
_DECLARED_DDL: Final = (
    "chain STRING, settings STRING, topics STRING, main DECIMAL(20,0), threshold BIGINT"
)
"""`settings` and what is behind it are null of a channel."""
_STREAMS_DDL: Final = (
    "node STRING, author STRING, log_id DECIMAL(20,0), chain STRING, settings STRING,"
    " topics STRING, threshold BIGINT, producer INT"
)

Streams = Sequence[LogKey | str]


class Logs:
    """The logs of streams.

    `source`: an export, read in batch, in which their first entries are. `streams`: by their
    default topics' logs, in the order of preference; all that there are, unless given, in the order
    of their names. Raises BadInput: named ones that no node has, or that cannot be read together.
    """

    def __init__(self, source: "DataFrame", streams: Streams | None) -> None:
        from pyspark.sql import functions as f

        check_batch(source, "declarations are read in batch", "give an export, read in batch")
        heads = declared(source, _declared, _DECLARED_DDL)
        mains = heads.where("main = log_id").drop("main")
        self._streams = _all_of(mains) if streams is None else _chosen(mains, streams)
        found = self._streams.select(
            *GROUP,
            "author",
            "producer",
            f.explode(f.from_json("topics", "MAP<STRING, STRING>")).alias("topic", "log_id"),
        ).withColumn("log_id", f.col("log_id").cast("DECIMAL(20,0)"))
        # Two streams of one author may both claim a log: it is the first one's.
        first = f.min(f.struct("producer", "topic")).alias("first")
        self.topics = (
            found.groupBy(*GROUP, "author", "log_id")
            .agg(first)
            .select(*GROUP, "author", "log_id", "first.producer", "first.topic")
        )
        """A row for each log of a topic: group, author, log_id, producer, topic."""
        authors = self._streams.groupBy(*GROUP, "author").agg(f.min("producer").alias("producer"))
        channels = heads.where("settings IS NULL").select(*LOG, "chain")
        self.channels = (
            authors.join(channels, ["node", "chain", "author"])
            .join(self.topics, [*GROUP, "author", "log_id"], "left_anti")
            .select(*self.topics.columns[:-1], f.lit(None).cast("STRING").alias("topic"))
        )
        """The same for each channel of a reorganisation, whether or not a note names it."""

    def all(self) -> "DataFrame":
        """Both."""
        return self.topics.unionByName(self.channels)

    def thresholds(self) -> "DataFrame":
        """A row for each group: `threshold`, that of its first stream."""
        return self._streams.where("producer = 0").select(*GROUP, "threshold")


def _all_of(mains: "DataFrame") -> "DataFrame":
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy(*GROUP).orderBy("author", "log_id")
    ranked = mains.withColumn("producer", f.row_number().over(order) - 1)
    return ranked.where(f.col("producer") < _PRODUCERS_MAX)


def _chosen(mains: "DataFrame", streams: Streams) -> "DataFrame":
    keys = [LogKey.parse(each) if isinstance(each, str) else each for each in streams]
    order = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    rows = [
        (LogKey(bytes.fromhex(row["author"]), int(row["log_id"])), row)
        for row in mains.where(named(keys)).collect()
    ]
    missing = order.keys() - {key for key, _ in rows}
    if missing:
        raise BadInput("no stream of blocks is declared", str(min(missing)), "name another log")
    rows.sort(key=lambda each: order[each[0]])
    firsts: dict[str, tuple[LogKey, tuple[str, str]]] = {}
    places: dict[str, int] = {}
    made = []
    for key, row in rows:
        other, settings = firsts.setdefault(row["node"], (key, (row["chain"], row["settings"])))
        if settings != (row["chain"], row["settings"]):
            raise BadInput(
                "streams that are declared with another chain, default topic or patterns",
                f"{other} and {key}",
                "read each alone",
            )
        producer = places[row["node"]] = places.get(row["node"], -1) + 1
        made.append([*row, producer])
    return local_frame(mains.sparkSession, made, _STREAMS_DDL)


# In the workers


def _declared(payload: bytes) -> tuple[object, ...] | None:
    try:
        found = read_declared(payload)
    except DeclarationError:
        return None
    if isinstance(found, ReorgDeclared):
        return found.chain, None, None, None, None
    if found.topic != found.default:
        return None
    settings = hashlib.sha256(json.dumps([found.default, found.patterns]).encode()).hexdigest()
    topics = json.dumps({topic: str(log_id) for topic, log_id in found.log_ids.items()})
    return found.chain, settings, topics, found.log_ids[found.default], found.threshold
