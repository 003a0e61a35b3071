"""The bucket of idle work."""

import pytest

from bymux import Limits, Violation
from bymux.idle import IdleWork


def filled(limits: Limits) -> IdleWork:
    bucket = IdleWork(limits)
    for _ in range(limits.idle_work_max):
        bucket.spend("Ping", None)
    return bucket


def test_it_takes_as_much_as_its_limit_and_not_one_packet_more() -> None:
    bucket = filled(Limits())
    with pytest.raises(Violation, match="too much idle work: this Pong") as caught:
        bucket.spend("Pong", 3)
    assert (caught.value.rule, caught.value.stream) == ("bymux.md Idle work", 3)


def test_time_gives_back_33_a_second() -> None:
    bucket = filled(Limits())
    bucket.pass_time(1.0)
    for _ in range(33):
        bucket.spend("Ping", None)
    with pytest.raises(Violation):
        bucket.spend("Ping", None)


def test_a_useful_byte_gives_back_one() -> None:
    bucket = filled(Limits())
    bucket.useful(2)
    bucket.spend("Ping", None)
    bucket.spend("Ping", None)
    with pytest.raises(Violation):
        bucket.spend("Ping", None)


def test_it_never_saves_up_more_than_its_limit() -> None:
    bucket = IdleWork(Limits())
    bucket.useful(10**9)
    bucket.pass_time(10**9)
    assert bucket.used == 0.0


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = IdleWork(Limits())
    bucket.pass_time(100.0)
    bucket.spend("Ping", None)
    bucket.pass_time(50.0)
    bucket.pass_time(100.0)
    assert bucket.used == 1.0
