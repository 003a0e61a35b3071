"""Outgoing data follows the newest setting, incoming data the loosest one (point2point.md 5)."""

import pytest

from peer.protocol.errors import Violation
from peer.protocol.interest import Interest
from wire import U64_MAX, Adjust, Eagerness


def test_the_confirming_side_begins_with_everything_mandatory() -> None:
    """point2point.md 2."""
    interest = Interest()
    assert interest.eagerness is None
    assert (interest.min_bytes, interest.max_bytes) == (0, U64_MAX)
    assert interest.mandatory


def test_data_is_judged_against_the_loosest_setting() -> None:
    interest = Interest()
    interest.set_eagerness(Eagerness.LIMITED, 100)
    interest.set_eagerness(Eagerness.LIMITED, 10)
    assert interest.data_up_to == 100
    assert interest.notify_above == 10
    assert not interest.wants_payload_data(50)
    interest.set_eagerness(Eagerness.ALL, None)
    assert interest.data_up_to == U64_MAX
    assert interest.wants_payload_data(50)
    interest.set_eagerness(Eagerness.NOTIFY, None)
    assert interest.metadata_ever
    assert interest.notify_only_ever
    assert not interest.wants_payload_data(0)


def test_an_adjust_says_whether_it_changed_anything() -> None:
    interest = Interest()
    assert interest.apply(Adjust(0, Eagerness.ALL))
    assert not interest.apply(Adjust(0, Eagerness.ALL))
    assert interest.apply(Adjust(0, allow_skip=True))
    assert not interest.apply(Adjust(0, allow_skip=True))
    assert interest.apply(Adjust(0, min_bytes=3, max_bytes=9))
    assert (interest.min_bytes, interest.max_bytes, interest.mandatory) == (3, 9, False)


@pytest.mark.parametrize(
    "adjust",
    [Adjust(7, Eagerness.ALL), Adjust(7, min_bytes=4), Adjust(7, max_bytes=10)],
)
def test_what_section_5_forbids_is_a_violation(adjust: Adjust) -> None:
    interest = Interest(min_bytes=5, max_bytes=9)
    interest.set_eagerness(Eagerness.NOTIFY, None)
    with pytest.raises(Violation) as caught:
        interest.judge_adjust(adjust)
    assert (caught.value.rule, caught.value.request) == ("point2point.md 5", 7)


def test_the_same_values_again_are_no_violation() -> None:
    interest = Interest(min_bytes=5, max_bytes=9)
    interest.set_eagerness(Eagerness.NOTIFY, None)
    same = Adjust(7, Eagerness.NOTIFY, min_bytes=5, max_bytes=9)
    interest.judge_adjust(same)
    assert not interest.apply(same)
    assert (interest.min_bytes, interest.max_bytes, interest.notify_only_ever) == (5, 9, True)
