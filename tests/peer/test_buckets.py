"""What sessions share: how many new logs a peer may bring."""

from peer import LogBucket


def taken(bucket: LogBucket, now: float) -> int:
    """How many may come at this moment."""
    count = 0
    while bucket.take(now):
        count += 1
    return count


def test_so_many_come_at_once_and_then_so_many_a_second() -> None:
    bucket = LogBucket(100, 10.0)
    assert taken(bucket, 5.0) == 100
    assert taken(bucket, 5.05) == 0
    assert taken(bucket, 6.0) == 10
    assert taken(bucket, 1000.0) == 100


def test_another_limit_counts_from_where_it_is() -> None:
    bucket = LogBucket(10, 0.0)
    assert taken(bucket, 0.0) == 10
    bucket.change(12)
    assert taken(bucket, 0.0) == 2
    bucket.change(5)
    assert taken(bucket, 0.0) == 0
