"""A clock that is wrong by centuries: a line, no traceback, and nothing that overflows."""

import time

import pytest

from bamboo_cli import main
from local_api import rfc3339
from logstore import Store, wall_clock_us
from logstore.system import LATEST_US

BEYOND_2262_S = 10_400_000_000


def overflow() -> int:
    """What Python does from the year 2262 on."""
    raise OverflowError("timestamp too large to convert to C _PyTime_t")


def test_a_clock_beyond_what_python_counts_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(time, "time", overflow)
    assert main(["logs"]) == 1
    said = capsys.readouterr().err
    assert "beyond the year 2262" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(("seconds", "year"), [(BEYOND_2262_S, "2299"), (1e15, "9999")])
def test_a_store_whose_clock_leaps_meanwhile_goes_on(
    monkeypatch: pytest.MonkeyPatch, seconds: float, year: str
) -> None:
    with Store.memory() as store:
        monkeypatch.setattr(time, "time_ns", overflow)
        monkeypatch.setattr(time, "clock_gettime", lambda clock: seconds)
        assert wall_clock_us() <= LATEST_US
        key = store.append([b"a"])[0].key
        (entry,) = store.read(key, 1, entries_max=1, bytes_max=100, with_payload=False)
        assert rfc3339(entry.received_at).startswith(year)
