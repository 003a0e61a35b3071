"""Closing, as a table and as bymux.md states it."""

import itertools

import pytest

from bymux import Violation
from bymux.half import MAY_GRANT, MAY_WRITE, TRANSITIONS, Half, Input, advance, check_may_ping

# A half is what has been said: "After Close no Write and no second Close by that side; after
# StopRead no Credit and no second StopRead".
SAID = {
    Half.OPEN: frozenset[str](),
    Half.CLOSED: frozenset({"Close"}),
    Half.STOPPED: frozenset({"StopRead"}),
    Half.ENDED: frozenset({"Close", "StopRead"}),
}
FORBIDDEN_AFTER = {
    Input.WRITE: "Close",
    Input.CLOSE: "Close",
    Input.CREDIT: "StopRead",
    Input.STOP_READ: "StopRead",
}
SAYS = {Input.CLOSE: frozenset({"Close"}), Input.STOP_READ: frozenset({"StopRead"})}


@pytest.mark.parametrize(("half", "given"), list(itertools.product(Half, Input)))
def test_each_state_takes_exactly_the_inputs_that_the_rule_allows(half: Half, given: Input) -> None:
    if FORBIDDEN_AFTER[given] in SAID[half]:
        with pytest.raises(Violation) as caught:
            advance(half, given, 7)
        assert caught.value.rule == "bymux.md Closing"
        assert caught.value.stream == 7
    else:
        assert SAID[advance(half, given, 7)] == SAID[half] | SAYS.get(given, frozenset())


def test_half_of_the_sixteen_pairs_are_legal() -> None:
    assert len(TRANSITIONS) == 8


@pytest.mark.parametrize("half", Half)
def test_the_shortcuts_say_the_same_as_the_table(half: Half) -> None:
    assert MAY_WRITE[half] == ("Close" not in SAID[half])
    assert MAY_GRANT[half] == ("StopRead" not in SAID[half])


@pytest.mark.parametrize("half", Half)
def test_ping_and_pong_are_illegal_after_both(half: Half) -> None:
    if len(SAID[half]) == 2:
        with pytest.raises(Violation, match="global: Pong after Close and StopRead"):
            check_may_ping(half, "Pong", None)
    else:
        check_may_ping(half, "Pong", None)
