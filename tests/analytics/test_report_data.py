"""The figures of the page are those of the rows."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from analytics import logs, read_export
from analytics.describe import entries
from analytics.report_data import collect_report
from analytics.summaries import FaultSummary, LogSummary
from logstore import PayloadState, StoredEntry
from tests.analytics.faulty import stored, write_rows
from tests.analytics.makers import NOON
from tests.logstore.authors import AuthorLog

HOUR_US = 3_600_000_000


def hourly(log: AuthorLog, count: int, first: int, size: int) -> list[StoredEntry]:
    """Entries that arrived two in an hour, with payloads of a size."""
    made = [log.add(seq, b"x" * size) for seq in range(1, count + 1)]
    times = [NOON + (n // 2) * HOUR_US for n in range(count)]
    return [
        stored(log, each, first + n, at)
        for n, (each, at) in enumerate(zip(made, times, strict=True))
    ]


def test_charts_add_up_to_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    large, small = AuthorLog(1), AuthorLog(2, log_id=2**64 - 1)
    rows = [*hourly(large, 6, 1, 300), *hourly(small, 1, 7, 0)]
    assert {row.payload_state for row in rows} == {PayloadState.PRESENT}
    write_rows(tmp_path / "out", rows)
    frame = read_export(spark, [tmp_path / "out"])
    found = LogSummary()
    found.take(logs(frame).toArrow())
    data = collect_report(entries(frame), FaultSummary(), found)
    noon = datetime.fromtimestamp(NOON / 1e6, UTC)
    assert (data.first, data.last) == (noon, noon + timedelta(hours=2))
    assert data.totals["entries"] == 7
    assert data.totals["payloads"] == 7
    assert (data.totals["logs"], data.totals["faults"], data.nodes) == (2, 0, ["ab" * 32])
    assert data.step_s == 60
    hours = [noon + timedelta(hours=n) for n in range(3)]
    assert data.arrivals == [(hours[0], 3.0), (hours[1], 2.0), (hours[2], 2.0)]
    minute = timedelta(minutes=1)
    assert data.growth[f"{large.key.author.hex()[:8]}/0"] == [
        (noon, 0.0),
        *((at + minute, 2.0 * n) for n, at in enumerate(hours, 1)),
    ]
    assert data.growth[f"{small.key.author.hex()[:8]}/{2**64 - 1}"] == [
        (noon, 0.0),
        (noon + minute, 1.0),
    ]
    sizes = dict(data.sizes)
    assert (sizes["0"], sizes["1"], sizes["256"], sum(sizes.values())) == (1, 0, 6, 7)


def test_no_rows_have_no_charts(spark: SparkSession, tmp_path: Path) -> None:
    write_rows(tmp_path / "out", hourly(AuthorLog(1), 1, 1, 5))
    frame = read_export(spark, [tmp_path / "out"]).where("seq > 1")
    found = LogSummary()
    found.take(logs(frame).toArrow())
    data = collect_report(entries(frame), FaultSummary(), found)
    assert (data.first, data.arrivals, data.totals["entries"]) == (None, [], 0)
