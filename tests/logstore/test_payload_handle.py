"""What is written of a payload's file is given to the disk as it comes: logstore/system.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logstore import PayloadHandle, System

STEP = 256 * 1024


@pytest.fixture
def handle(tmp_path: Path) -> Iterator[PayloadHandle]:
    with System().open_file(tmp_path / "payload", create=True) as opened:
        yield opened


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Where the disk was told to begin, and with how much."""
    found: list[tuple[int, int]] = []

    def begin(_fd: int, offset: int, length: int, flags: int) -> int:
        # To begin, and not to wait: that would take the outcome away from who syncs.
        assert flags == 2
        found.append((offset, length))
        return -1

    monkeypatch.setattr("logstore.system._sync_file_range", begin)
    monkeypatch.setattr("logstore.system._BEGIN_BYTES", STEP)
    return found


@given(sizes=st.lists(st.integers(1, 3 * STEP), min_size=1, max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_comes_in_order_is_begun_with_once(
    handle: PayloadHandle, begun: list[tuple[int, int]], sizes: list[int]
) -> None:
    begun.clear()
    offset = 0
    for size in sizes:
        assert handle.write(bytes(size), offset) == size
        offset += size
    end = 0
    for start, length in begun:
        # Each where the one before ended, the first at the start, whatever was written before.
        assert start == end
        assert length >= STEP
        end += length
    assert 0 <= offset - end < STEP


def test_elsewhere_it_begins_anew(handle: PayloadHandle, begun: list[tuple[int, int]]) -> None:
    handle.write(bytes(STEP - 1), 0)
    handle.write(bytes(STEP), 10 * STEP)
    handle.write(bytes(10), 5)
    handle.write(bytes(STEP), 15)
    assert begun == [(10 * STEP, STEP), (5, STEP + 10)]


def test_where_the_system_cannot_do_that_it_is_written_all_the_same(
    handle: PayloadHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logstore.system._sync_file_range", None)
    assert handle.write(b"x" * STEP, 0) == STEP
    handle.sync()
    assert handle.read(STEP, 0) == b"x" * STEP
