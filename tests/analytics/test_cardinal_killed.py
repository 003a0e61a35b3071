"""A streaming query over blocks that is killed in the middle of its batches, and begun again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from analytics import cardinal_blocks, read_export
from logstore import Store
from tests.analytics.makers import export
from tests.analytics.sink import committed
from tests.gateways.cardinal.chains import Producer, Replica, block, hash_of

TOP = Path(__file__).resolve().parents[2]
GENESIS = bytes(32)
PATIENCE_S = 120.0
STREAM = """
import sys
from analytics import (
    cardinal_blocks_stream, read_export, read_export_stream, start_spark, write_stream
)
out, table, checkpoint, stream, once = sys.argv[1:]
with start_spark("local[1]", "stream", {"spark.driver.memory": "512m"}) as spark:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    frame = cardinal_blocks_stream(
        read_export_stream(spark, out, files_per_trigger_max=1),
        streams=[stream],
        declared=read_export(spark, [out]),
    )
    query = write_stream(
        frame, table, checkpoint, available_now=once == "once", every="0 seconds"
    )
    query.awaitTermination()
"""


def planned(checkpoint: Path, what: str) -> set[str]:
    return {each.name for each in (checkpoint / what).glob("[0-9]*")}


@pytest.mark.long
@pytest.mark.jvm
def test_blocks_come_once_on_a_stream_that_is_killed_in_the_middle_of_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    out, table, checkpoint = (tmp_path / name for name in ("out", "table", "checkpoint"))
    producer = Producer()
    environment = os.environ | {"PYTHONPATH": str(TOP)}
    command = [sys.executable, "-c", STREAM, out, table, checkpoint, str(producer.stream.key)]
    parent, number = GENESIS, 0
    cut = 0
    with Store.create(tmp_path / "node") as store:
        replica = Replica(store)
        for round_ in range(4):
            for _ in range(6):
                # Each has a sub-batch that comes two files later, in another batch of the query.
                number += 1
                name, id_ = f"block{number}", hash_of(("id", number))
                producer.add(block(number, name, parent, number, batches={"s/sub": id_}))
                if number > 2:
                    before = number - 2
                    producer.send(
                        hash_of(f"block{before}"), hash_of(("id", before)), **{"s/sub/1": b"part"}
                    )
                parent = hash_of(name)
                replica.take_all(producer.store)
                export(store, out)
            stream = subprocess.Popen(
                [*map(str, command), "on"], env=environment, start_new_session=True
            )
            until, done = time.monotonic() + PATIENCE_S, planned(checkpoint, "commits")
            # Some batches are whole, and one has begun: at another place in it in each round.
            while len(planned(checkpoint, "commits")) < len(done) + 2 or not (
                planned(checkpoint, "offsets") - planned(checkpoint, "commits")
            ):
                assert time.monotonic() < until
                assert stream.poll() is None
                time.sleep(0.01)
            time.sleep(0.05 * round_)
            os.killpg(stream.pid, signal.SIGKILL)
            stream.wait()
            cut += bool(planned(checkpoint, "offsets") - planned(checkpoint, "commits"))
    assert cut >= 2
    subprocess.run([*map(str, command), "once"], env=environment, check=True)
    rows = ds.dataset(committed(table)).to_table().sort_by("number").to_pylist()
    # The two last ones wait for their sub-batches.
    assert [row["number"] for row in rows] == list(range(1, number - 1))
    whole = cardinal_blocks(read_export(spark, [out])).where("complete").orderBy("number").collect()
    assert [(row["number"], row["block_hash"], row["completed_ingest"]) for row in rows] == [
        (row["number"], bytes(row["block_hash"]), row["completed_ingest"]) for row in whole
    ]
    producer.close()
