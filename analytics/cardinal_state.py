"""Blocks on a stream: what is remembered of each from one batch to the next, in the workers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from .cardinal_counting import BLOCKS_DDL, MESSAGES, ORDER, ORDER_DDL, Block
from .schema import arrow_of_ddl

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

STATE_DDL: Final = "messages BINARY"
"""As an Arrow stream, those that came; empty: nothing of the block counts any more."""
MESSAGES_DDL: Final = (
    f"producer INT, author STRING, {ORDER_DDL}, seen_us BIGINT, taken_us BIGINT, key BINARY,"
    " value BINARY"
)
"""Of the columns of `MESSAGES`."""


def take_new(
    key: tuple[object, ...], frames: Iterator["pd.DataFrame"], state: "GroupState"
) -> Iterator["pd.DataFrame"]:
    """A row of `BLOCKS_DDL` if the block is complete now, and was not before.

    All that came of it is counted anew, in the order of its arrival: what is remembered are
    messages, and so whatever version of this goes on reads it.
    """
    import pandas as pd
    import pyarrow as pa

    schema = arrow_of_ddl(MESSAGES_DDL)
    (remembered,) = state.get if state.exists else (None,)
    new = [
        pa.Table.from_pandas(frame[[*MESSAGES]], schema, preserve_index=False) for frame in frames
    ]
    if remembered is not None and not remembered:
        return
    if remembered is not None:
        new.insert(0, pa.ipc.open_stream(remembered).read_all())
    table = pa.concat_tables(new).sort_by([(name, "ascending") for name in ORDER])
    hash_ = key[-1]
    assert isinstance(hash_, bytes)
    block = Block(hash_)
    for rows in table.to_batches():
        block.take(rows)
    if block.completed_by is None and not block.is_given_up():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_table(table)
        state.update((sink.getvalue().to_pybytes(),))
        return
    state.update((b"",))
    if block.completed_by is not None:
        names = [column.split()[0] for column in BLOCKS_DDL.split(", ")]
        yield pd.DataFrame([[*key[:2], *block.row()]], columns=names)
