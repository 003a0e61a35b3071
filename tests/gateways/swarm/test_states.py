"""States: roots of an independent program, appended in any pieces, kept and restored."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.swarm.bmt import content_chunk
from gateways.swarm.keccak import keccak
from gateways.swarm.states import State

from .trees import tree
from .vectors import VECTORS

STATES = VECTORS["states"]
COUNT_MAX = max(each["count"] for each in STATES)
ITEM = b"x" * 32


@cache
def items() -> bytes:
    return b"".join(keccak(f"item 0 {i}".encode()) for i in range(1, COUNT_MAX + 1))


@cache
def full(level: int) -> bytes:
    """The address of the full tree of that level, all of whose items are the same."""
    return content_chunk(32 * 128**level, full(level - 1) * 128).address if level else ITEM


def root_of(count: int) -> bytes:
    """From the root down, where the state is made from the items up."""
    if count <= 128:
        return content_chunk(32 * count, ITEM * count).address
    level = 1
    while 128 ** (level + 1) < count:
        level += 1
    whole = (count - 1) // 128**level
    rest = root_of(count - whole * 128**level)
    return content_chunk(32 * count, full(level) * whole + rest).address


@pytest.mark.parametrize("vector", STATES, ids=lambda each: f"{each['index']}-{each['count']}")
def test_roots_by_appending(vector: dict[str, Any]) -> None:
    state = State()
    state.append(items()[: 32 * vector["count"]])
    assert state.root().hex() == vector["root"]
    assert state.count == vector["count"]
    at = 32 * vector["index"]
    assert items()[at - 32 : at].hex() == vector["hash"]


def test_roots_on_the_way() -> None:
    state, at = State(), 0
    for count in sorted({each["count"] for each in STATES}):
        state.append(items()[32 * at : 32 * count])
        at = count
        roots = {each["root"] for each in STATES if each["count"] == count}
        assert roots == {state.root().hex()}


def test_there_is_no_root_of_nothing() -> None:
    assert State().root() == b""
    assert State().rows() == b""
    assert State(0, b"").count == 0


@given(st.lists(st.integers(0, 300), max_size=8))
def test_a_state_is_the_hash_of_a_file_however_it_was_appended(counts: list[int]) -> None:
    state, at = State(), 0
    for count in counts:
        state.append(items()[32 * at : 32 * (at + count)])
        at += count
        kept = state.count, state.rows()
        state = State(*kept)
        assert (state.count, state.rows()) == kept
    assert state.count == at
    assert len(state.rows()) == 32 * (at % 128 + at // 128)
    assert state.root() == (tree(items()[: 32 * at]).root if at else b"")


@given(
    st.integers(0, 1 << 14) | st.integers(0, 1 << 58),
    st.lists(st.integers(0, 300), min_size=1, max_size=3),
)
def test_a_state_of_any_count_goes_on(count: int, more: list[int]) -> None:
    digits = [count // 128**level % 128 for level in range(9)]
    state = State(count, b"".join(full(level) * digit for level, digit in enumerate(digits)))
    for each in more:
        assert state.root() == (root_of(count) if count else b"")
        state.append(ITEM * each)
        count += each
    assert state.root() == root_of(count) if count else state.root() == b""
    assert state.count == count


@pytest.mark.parametrize(
    ("count", "rows"),
    [(-1, b""), (1, b""), (0, ITEM), (128, ITEM * 2), (129, ITEM), (5, bytes(161))],
)
def test_rows_of_another_count_are_refused(count: int, rows: bytes) -> None:
    with pytest.raises(ValueError, match="items"):
        State(count, rows)


def test_pieces_of_items_are_refused_and_change_nothing() -> None:
    state = State()
    with pytest.raises(ValueError, match="33 bytes of items: each has 32"):
        state.append(bytes(33))
    assert (state.count, state.root()) == (0, b"")
