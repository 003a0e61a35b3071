"""Ockam streams in Spark, of a hub's own store: its rows are what the command line prints."""

from pathlib import Path

from pyspark.sql import SparkSession

from analytics import ockam_lag, ockam_messages, read_export, write_ockam_messages
from tests.cli.conftest import cli, own  # noqa: F401 - fixtures
from tests.cli.harness import CommandLine
from tests.gateways.hubs import hub

STREAMS = {"orders": 2, "bills": 1}
LAG = ("author", "stream", "partition", "client", "index", "next", "lag")


def number(value: object) -> int | None:
    """JSON has large numbers as text, Spark as decimals."""
    return None if value is None else int(str(value))


def test_rows_equal_what_pull_and_lag_print(
    spark: SparkSession,
    tmp_path: Path,
    own: CommandLine,  # noqa: F811
) -> None:
    out, table = tmp_path / "out", tmp_path / "table"
    printed = []
    with hub(own.store) as (where, _):
        for name, partitions in STREAMS.items():
            own("ockam", "create", where, name, "--partitions", partitions)
            for partition in range(partitions):
                at = (where, name, "--partition", partition)
                lines = b"".join(b"%s %d\n" % (name.encode(), each) for each in range(5))
                own("ockam", "push", *at, "--lines", stdin=lines)
                own("ockam", "pull", *at, "--client", "billing", "--limit", 2 + partition)
        own("ockam", "position", where, "orders", "--client", "ahead", "--save", 9)
        own("ockam", "position", where, "nowhere", "--client", "billing", "--save", 1)
        own("ockam", "rewind", "bills", "--client", "billing", "--to", 1)
        own("ockam", "trim", "orders", "--before", 2)
        for name, partitions in STREAMS.items():
            for partition in range(partitions):
                at = (where, name, "--partition", partition)
                printed += own("--json", "ockam", "pull", *at).records
        lag = own("--json", "ockam", "lag").records
        own("export", out)
    frame = read_export(spark, [out])
    rows = ockam_messages(frame).where("state = 'present'")
    wanted = sorted(
        (each["stream"], each["partition"], each["index"], bytes.fromhex(each["data"]))
        for each in printed
    )
    assert len(wanted) == 13
    query = write_ockam_messages(spark, out, table, tmp_path / "checkpoint", available_now=True)
    query.awaitTermination(120)
    for found in (rows, spark.read.parquet(str(table))):
        assert wanted == sorted(
            (row["stream"], row["partition"], row["index"], bytes(row["data"]))
            for row in found.collect()
        )
    text, numbers = LAG[:2] + LAG[3:4], LAG[2:3] + LAG[4:]
    assert len(lag) == 5
    assert sorted(
        [*(each[name] for name in text), *(number(each[name]) for name in numbers)] for each in lag
    ) == sorted(
        [*(row[name] for name in text), *(number(row[name]) for name in numbers)]
        for row in ockam_lag(frame).collect()
    )
