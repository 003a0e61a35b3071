"""Credit sums are exact up to their borders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bymux import INFINITE, Violation
from bymux.credit import ReceiveCredit, SendCredit

LARGEST = 2**64 - 2


@pytest.mark.parametrize("held", [0, 1, 2**63, LARGEST])
def test_sent_credit_may_reach_two_to_64_minus_2(held: int) -> None:
    credit = SendCredit(0, 64)
    if held:
        credit.add(held, 1)
    if held < LARGEST:
        assert credit.add(LARGEST - held, 1)
    assert credit.left == LARGEST


@pytest.mark.parametrize("held", [0, 1, 2**63, LARGEST])
@pytest.mark.rule("BYMUX-2.03")
def test_a_sum_of_two_to_64_minus_1_is_infinite(held: int) -> None:
    credit = SendCredit(held, 64)
    assert credit.add(INFINITE - held, 1)
    credit.take(10**6)
    assert credit.left == INFINITE


@pytest.mark.parametrize("held", [1, 2, 2**63, LARGEST])
def test_a_sum_of_two_to_64_is_a_violation_and_changes_nothing(held: int) -> None:
    credit = SendCredit(held, 64)
    with pytest.raises(Violation, match=str(INFINITE + 1 - held)) as caught:
        credit.add(INFINITE + 1 - held, 1)
    assert (caught.value.rule, caught.value.value) == ("bymux.md Credit", INFINITE + 1 - held)
    assert credit.left == held


def test_what_is_queued_still_counts_as_credit() -> None:
    credit = SendCredit(10, 64)
    credit.take(10)
    with pytest.raises(Violation):
        credit.add(INFINITE - 9, 1)
    assert credit.add(INFINITE - 10, 1)
    assert credit.left == INFINITE


@pytest.mark.rule("BYMUX-2.05")
def test_credit_of_0_makes_infinite_once_and_then_nothing_may_be_added() -> None:
    credit = SendCredit(5, 64)
    assert credit.add(0, 1)
    assert not credit.add(0, 1)
    with pytest.raises(Violation, match="infinite already"):
        credit.add(1, 1)


@pytest.mark.parametrize("left", [0, 1, LARGEST])
def test_a_write_may_use_all_the_credit_and_not_one_byte_more(left: int) -> None:
    credit = ReceiveCredit(left)
    with pytest.raises(Violation, match=f"{left + 1} bytes with a credit of {left}"):
        credit.announce(left + 1, 1)
    assert credit.left == left
    credit.announce(left, 1)
    assert credit.left == 0


def test_infinite_credit_is_not_used_up() -> None:
    credit = ReceiveCredit(INFINITE)
    credit.announce(INFINITE, 1)
    credit.announce(INFINITE, 1)
    assert credit.left == INFINITE


@pytest.mark.parametrize("amount", [0, -1, LARGEST - 99, INFINITE + 1])
def test_a_grant_beyond_two_to_64_minus_2_in_sum_is_refused(amount: int) -> None:
    credit = ReceiveCredit(100)
    with pytest.raises(Violation):
        credit.grant(amount, 1)
    assert (credit.left, credit.due) == (100, 0)
    credit.grant(LARGEST - 100, 1)


def test_a_grant_counts_from_when_it_is_sent() -> None:
    credit = ReceiveCredit(0)
    credit.grant(5, 1)
    credit.grant(6, 1)
    with pytest.raises(Violation):
        credit.announce(1, 1)
    assert credit.sent() == 11
    credit.announce(11, 1)


def test_an_infinite_grant_is_a_credit_of_0_and_swallows_the_others() -> None:
    credit = ReceiveCredit(3)
    credit.grant(5, 1)
    assert credit.grant(INFINITE, 1)
    assert not credit.grant(INFINITE, 1)
    with pytest.raises(Violation, match="infinite already"):
        credit.grant(1, 1)
    assert credit.sent() == 0
    assert credit.left == INFINITE
    assert not credit.grant(INFINITE, 1)


@given(
    window=st.integers(1, 50),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=40),
)
@pytest.mark.rule("BYMUX-2.11")
def test_credit_is_restored_by_the_rule_and_never_lost(
    window: int, steps: list[tuple[bool, int]]
) -> None:
    """Granted as soon as it is at least what the other side has, and at least one; not before."""
    credit = ReceiveCredit(window)
    for is_write, count in steps:
        if is_write:
            count = min(count, credit.left)  # noqa: PLW2901 - as much as the rule lets pass
            credit.announce(count, 1)
            credit.unconsumed += count
        else:
            credit.consume(min(count, credit.unconsumed), 1)
        restorable, left = credit.restorable, credit.left
        if credit.restore():
            assert restorable >= max(left, 1)
            assert credit.sent() == restorable
        else:
            assert restorable < max(left, 1)
        assert credit.left + credit.unconsumed + credit.restorable == window


def test_what_is_granted_and_not_sent_counts_as_what_the_other_side_has() -> None:
    credit = ReceiveCredit(10)
    credit.announce(10, 1)
    credit.unconsumed = 10
    credit.grant(5, 1)
    credit.consume(4, 1)
    assert not credit.restore()
    credit.consume(1, 1)
    assert credit.restore()
    assert credit.sent() == 10


def test_no_more_is_consumed_than_was_received() -> None:
    credit = ReceiveCredit(10)
    credit.unconsumed = 4
    for count in (5, -1):
        with pytest.raises(Violation):
            credit.consume(count, 1)
    credit.consume(4, 1)
