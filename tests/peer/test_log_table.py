"""A table of logs does what a dict does, and gives its items in ascending order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.planner.log_table import LogTable
from wire import LogKey

LOGS = [LogKey(bytes([author]) * 32, number) for author in range(3) for number in range(3)]


@given(st.lists(st.tuples(st.sampled_from(LOGS), st.none() | st.integers())))
def test_a_table_does_what_a_dict_does(steps: list[tuple[LogKey, int | None]]) -> None:
    table, model = LogTable[int](), dict[LogKey, int]()
    for log, value in steps:
        if value is None:
            assert table.pop(log, None) == model.pop(log, None)
        else:
            table[log] = model[log] = value
    assert table == model
    assert table.pairs() == sorted(model.items())
    assert [log for log in LOGS if log in table] == sorted(model)


def test_a_log_that_is_not_there_is_a_key_error() -> None:
    table = LogTable[int]()
    table[LOGS[0]] = table[LOGS[2]] = 1
    for log in (LOGS[1], LOGS[3]):
        with pytest.raises(KeyError):
            table[log]
        with pytest.raises(KeyError):
            del table[log]
    assert len(table) == 2
