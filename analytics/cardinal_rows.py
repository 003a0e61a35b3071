"""Streams of blocks in an export: messages, blocks, what they change, the chain, reorganisations.

What each node held is put together by itself, and says what `bamboo-peer cardinal tail` says there.
Payloads are parsed and blocks are counted by the workers in Arrow batches; only headers of complete
blocks, and what is said of reorganisations, come together for each chain of a node.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from .cardinal_counting import (
    BLOCKS_DDL,
    KEY,
    MESSAGES,
    ORDER,
    UPDATES_DDL,
    count_blocks,
    list_updates,
)
from .cardinal_parsing import KEPT, OF_BLOCKS, OF_REORGS, PARSED_DDL, parse_batches
from .cardinal_replay import (
    CHAIN_DDL,
    DONE,
    ENDED,
    EVENTS_DDL,
    REORG,
    REORGS_DDL,
    list_chain,
    list_events,
    list_reorgs,
)
from .cardinal_state import STATE_DDL, take_new
from .cardinal_streams import GROUP, LogRow, Logs, Streams
from .declared import LOG, check_batch
from .errors import BadInput
from .reading import check_columns, latest
from .schema import local_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INT_MAX: Final = (1 << 31) - 1
_GROUP_DDL: Final = "node STRING, chain STRING, settings STRING"
_INSTEAD: Final = "use batch, or cardinal_messages and cardinal_blocks_stream"


def cardinal_messages(
    frame: "DataFrame", *, streams: Streams | None = None, declared: "DataFrame | None" = None
) -> "DataFrame":
    """One row for each message in the logs of streams of blocks, channels included (spec 6).

    Columns: `node` STRING, `chain` STRING, `author` STRING, `log_id` DECIMAL(20,0), `seq` BIGINT,
    `index` INT (its place in the payload, notes counted), `topic` STRING (null of a channel),
    `kind` STRING, `block_hash` BINARY, `key` BINARY, `value` BINARY, `reason` STRING, `ingest_seq`
    BIGINT, `received_at` TIMESTAMP. What breaks a rule is of kind `bad`, and `reason` says which;
    the rest of a payload behind the first byte that is no frame is one such row.

    `frame`: of an export, or of one that is read as a stream. `streams`: these alone, as
    `AUTHOR/LOG` of the default topic, in the order of preference; else all. `declared`: an export
    of the same nodes, read in batch, in which the first entries of logs are looked up. On a stream
    both have to be given. Raises BadInput.
    """
    rows, logs = _read(frame, streams, declared)
    return _parsed(rows, logs.frame([*logs.topics, *logs.channels])).select(
        "node",
        "chain",
        "author",
        "log_id",
        "seq",
        "index",
        "topic",
        "kind",
        "block_hash",
        "key",
        "value",
        "reason",
        "ingest_seq",
        "received_at",
    )


def cardinal_blocks(frame: "DataFrame", *, streams: Streams | None = None) -> "DataFrame":
    """One row for each block of which a node has a message, complete or not (spec 6).

    Columns: `node` STRING, `chain` STRING, `block_hash` BINARY, `number` BIGINT, `parent` BINARY,
    `weight` BINARY (32 bytes, big-endian), `weight_decimal` DECIMAL(38,0) (null above), `producers`
    ARRAY<STRING> (authors of whom a message is here, in the order of their streams), `complete`
    BOOLEAN, `missing` BIGINT (messages and parts owed, a header that is not here as one; null
    without a Batch), `updates` and `deletes` BIGINT (keys; null until it is complete), `conflict`
    BOOLEAN, `first_seen` and `completed_at` TIMESTAMP, `completed_ingest` BIGINT (of the entry
    that made it complete).

    `frame`, `streams`: see `cardinal_messages`. Batch only. Raises BadInput.
    """
    return _with_times(_Batch(frame, streams).blocks().mapInArrow(count_blocks, BLOCKS_DDL))


def cardinal_updates(frame: "DataFrame", *, streams: Streams | None = None) -> "DataFrame":
    """One row for each key that a complete block updates, and for each that it deletes (spec 6).

    Columns: `node` STRING, `chain` STRING, `block_hash` BINARY, `number` BIGINT, `op` STRING
    (`update`, `delete`), `key` STRING, `value` BINARY (null of a delete), `via` STRING (`inline`,
    `message`, `sub_batch`: by what the value that counts has come).

    `frame`, `streams`: see `cardinal_messages`. Batch only. Raises BadInput.
    """
    blocks = _Batch(frame, streams, digests=False).blocks()
    return blocks.mapInArrow(list_updates, UPDATES_DDL)


def cardinal_chain(frame: "DataFrame", *, streams: Streams | None = None) -> "DataFrame":
    """The canonical chain, a row for each block (spec 6).

    Columns: `node` STRING, `chain` STRING, `number` BIGINT, `block_hash` BINARY, `parent` BINARY,
    `weight` BINARY (32 bytes, big-endian).

    `frame`, `streams`: see `cardinal_messages`. Batch only. Raises BadInput.
    """
    return _Batch(frame, streams).events().mapInArrow(list_chain, CHAIN_DDL)


def cardinal_reorgs(frame: "DataFrame", *, streams: Streams | None = None) -> "DataFrame":
    """One row each time that blocks were taken back (spec 6).

    Columns: `node` STRING, `chain` STRING, `reorg` INT (from 1), `completed_ingest` BIGINT (of the
    entry by which it happened), `ancestor_number` BIGINT (null where its block is not here),
    `ancestor`, `old_head` and `new_head` BINARY, `removed` and `added` INT (blocks).

    `frame`, `streams`: see `cardinal_messages`. Batch only. Raises BadInput.
    """
    return _Batch(frame, streams).events().mapInArrow(list_reorgs, REORGS_DDL)


def cardinal_blocks_stream(
    frame: "DataFrame", *, streams: Streams, declared: "DataFrame"
) -> "DataFrame":
    """One row for each block, once, when it is complete: the columns of `cardinal_blocks` (spec 6).

    State is kept by node and hash: the messages of a block until it is complete, with digests of
    their values, and that it was then. So a query that begins again from its checkpoint goes on.
    Needs the output mode `append`. What comes to a block later is not told any more.

    `frame`: an export that is read as a stream. `streams`, `declared`: see `cardinal_messages`; of
    channels those count that `declared` has. Raises BadInput.
    """
    from pyspark.sql.streaming.state import GroupStateTimeout

    if not frame.isStreaming:
        raise BadInput("a batch has no state", "frame", "use cardinal_blocks")
    rows, logs = _read(frame, streams, declared)
    both = logs.frame([*logs.topics, *logs.channels])
    parsed = _timed(_parsed(rows, both, only=OF_BLOCKS, digests=True))
    key = (*GROUP, "block_hash")
    found = (
        parsed.select(*key, *MESSAGES)
        .groupBy(*key)
        .applyInPandasWithState(
            take_new, BLOCKS_DDL, STATE_DDL, "append", GroupStateTimeout.NoTimeout
        )
    )
    return _with_times(found)


def _read(
    frame: "DataFrame", streams: Streams | None, declared: "DataFrame | None" = None
) -> tuple["DataFrame", Logs]:
    """The entries that count, and the logs of streams."""
    check_columns(frame)
    if frame.isStreaming and (streams is None or declared is None):
        raise BadInput(
            "on a stream the streams of blocks have to be named",
            "streams, declared",
            "name them, streams=[...], and give an export that is read in batch, declared=...",
        )
    rows = frame if frame.isStreaming else latest(frame)
    return rows, Logs(rows if declared is None else latest(declared), streams)


def _parsed(
    rows: "DataFrame",
    logs: "DataFrame",
    *,
    only: frozenset[int] | None = None,
    digests: bool = False,
) -> "DataFrame":
    """Rows of `PARSED_DDL` from the entries of some logs."""
    from pyspark.sql import functions as f

    rows = rows.where("seq > 1 AND payload IS NOT NULL AND payload_size > 0")
    joined = rows.join(f.broadcast(logs), list(LOG)).select(*KEPT, "payload")
    return joined.mapInArrow(partial(parse_batches, only=only, digests=digests), PARSED_DDL)


def _timed(parsed: "DataFrame") -> "DataFrame":
    """With the columns of `ORDER`, and both times as numbers, which no time zone changes."""
    from pyspark.sql import functions as f

    seen = f.unix_micros("received_at")
    is_late = f.col("ingest_seq") < f.col("opened")
    return parsed.select(
        "*",
        f.when(is_late, f.col("opened")).otherwise(f.col("ingest_seq")).alias("at"),
        f.when(is_late, f.col("opened_late")).otherwise(0).alias("late"),
        seen.alias("seen_us"),
        f.when(is_late, f.col("opened_us")).otherwise(seen).alias("taken_us"),
    )


def _with_times(blocks: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    numbers = ("first_us", "completed_us", "completed_ingest")
    return blocks.select(
        *(each for each in blocks.columns if each not in numbers),
        f.timestamp_micros("first_us").alias("first_seen"),
        f.timestamp_micros("completed_us").alias("completed_at"),
        "completed_ingest",
    )


class _Batch:
    """An export, and the logs of streams in it."""

    def __init__(
        self, frame: "DataFrame", streams: Streams | None, *, digests: bool = True
    ) -> None:
        check_batch(frame, "a stream does not tell of all that there is", _INSTEAD)
        self._rows, self._logs = _read(frame, streams)
        self._digests = digests
        # Those of channels that notes name, as parts of their streams.
        self._opened = self._opened_channels() if self._logs.channels else []

    def _opened_channels(self) -> list[LogRow]:
        """The channels that notes name, and when what came in them before is taken.

        By the first note, or by entry 1 of the channel if that came later.
        """
        from pyspark.sql import functions as f

        channels = {(*each.group, each.author, each.log_id): each for each in self._logs.channels}
        authors = {key[:4] for key in channels}
        topics = [each for each in self._logs.topics if (*each.group, each.author) in authors]
        notes = _timed(_parsed(self._rows, self._logs.frame(topics), only=OF_REORGS))
        first = f.min(f.struct("at", "index", "producer", "taken_us")).alias("note")
        named = notes.where("channel IS NOT NULL").groupBy(*GROUP, "author", "channel").agg(first)
        heads = self._rows.where("seq = 1").select(
            *LOG, "ingest_seq", f.unix_micros("received_at").alias("us")
        )
        heads = heads.join(f.broadcast(self._logs.frame(self._logs.channels)), list(LOG))
        came = {
            (row["node"], row["author"], int(row["log_id"])): (row["ingest_seq"], row["us"])
            for row in heads.select(*LOG, "ingest_seq", "us").collect()
        }
        opened = []
        for row in named.collect():
            at, index, producer, us = row["note"]
            group = row["node"], row["chain"], row["settings"]
            channel = channels.get((*group, row["author"], int(row["channel"])))
            if channel is None:
                continue
            head_at, head_us = came[channel.node, channel.author, channel.log_id]
            # Of several that are named in one entry the last is taken first.
            by = (head_at, 1, head_us) if head_at > at else (at, _INT_MAX - index, us)
            opened.append(
                channel._replace(
                    producer=producer, opened=by[0], opened_late=by[1], opened_us=by[2]
                )
            )
        return opened

    def blocks(self) -> "DataFrame":
        """Messages of blocks, those of each together, in the order in which they are taken."""
        return self._sorted(self._parsed([*self._logs.topics, *self._opened], OF_BLOCKS))

    def _parsed(self, logs: list[LogRow], only: frozenset[int]) -> "DataFrame":
        frame = self._logs.frame(logs)
        return _timed(_parsed(self._rows, frame, only=only, digests=self._digests))

    @staticmethod
    def _sorted(messages: "DataFrame") -> "DataFrame":
        found = messages.select(*KEY, *MESSAGES, "kind", "number", "channel").repartition(*KEY)
        return found.sortWithinPartitions(*KEY, *ORDER)

    def events(self) -> "DataFrame":
        """What happens to each chain of a node, together and in order.

        Blocks that are complete, with all logs or in a channel alone; a Reorg in a topic; that a
        channel is done.
        """
        from pyspark.sql import functions as f

        alone = [
            each._replace(
                view=f"{each.author}/{each.log_id}",
                producer=0,
                opened=None,
                opened_late=None,
                opened_us=None,
            )
            for each in self._opened
        ]
        logs = [*self._logs.topics, *self._opened, *alone]
        messages = self._parsed(logs, OF_BLOCKS | OF_REORGS).where(
            (f.col("kind") != DONE) & ((f.col("kind") != REORG) | f.col("topic").isNotNull())
            | (f.col("kind") == DONE) & f.col("view").isNotNull()
        )
        found = self._sorted(messages).mapInArrow(list_events, EVENTS_DDL)
        found = found.unionByName(self._others(), allowMissingColumns=True)
        if alone:
            found = found.unionByName(self._ended(alone), allowMissingColumns=True)
        placed = found.join(f.broadcast(self._logs.thresholds()), list(GROUP))
        return placed.repartition(*GROUP).sortWithinPartitions(*GROUP, *ORDER)

    def _others(self) -> "DataFrame":
        """Logs of which it is known that they are no channels: nobody waits where a note names one.

        Where the first entry is not here, a consumer waits for it.
        """
        from pyspark.sql import functions as f

        spark = self._rows.sparkSession
        authors = sorted({(*each.group, each.author) for each in self._logs.topics})
        whose = f.broadcast(local_frame(spark, authors, f"{_GROUP_DDL}, author STRING"))
        opened = [(*each.group, f"{each.author}/{each.log_id}") for each in self._opened]
        channels = f.broadcast(local_frame(spark, opened, f"{_GROUP_DDL}, view STRING"))
        begun = self._rows.where("seq = 1 AND payload IS NOT NULL").join(whose, ["node", "author"])
        name = f.concat_ws("/", "author", f.col("log_id").cast("STRING"))
        found = begun.select(*GROUP, name.alias("view"), f.col("ingest_seq").alias("at"), "seq")
        return _over(found.join(channels, [*GROUP, "view"], "left_anti"))

    def _ended(self, channels: list[LogRow]) -> "DataFrame":
        """Channels of which all is here."""
        from pyspark.sql import functions as f

        logs = f.broadcast(self._logs.frame(channels))
        held = self._rows.select(*LOG, "seq", "is_end", "ingest_seq").join(logs, list(LOG))
        whole = held.groupBy(*GROUP, "view").agg(
            f.max("is_end").alias("is_ended"),
            f.max("seq").alias("seq"),
            f.count_distinct("seq").alias("count"),
            f.max("ingest_seq").alias("at"),
        )
        return _over(whole.where("is_ended AND seq = count"))


def _over(logs: "DataFrame") -> "DataFrame":
    """Events: nothing more comes in these logs. Behind all that has come."""
    from pyspark.sql import functions as f

    return logs.select(
        *GROUP,
        "view",
        "at",
        f.lit(_INT_MAX).alias("late"),
        "seq",
        f.lit(0).alias("index"),
        f.lit(ENDED).alias("kind"),
    )
