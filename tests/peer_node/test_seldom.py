"""A reason is said once in a while, and not too many of them."""

from peer.node.host.seldom import EVERY_S, REASONS_MAX, Seldom


def test_a_reason_is_said_again_only_after_a_while() -> None:
    seldom = Seldom()
    assert seldom.may_say("full", 0.0)
    assert not seldom.may_say("full", EVERY_S - 1)
    assert seldom.may_say("failed", EVERY_S - 1)
    assert seldom.may_say("full", EVERY_S)
    assert not seldom.may_say("failed", EVERY_S)


def test_of_ever_new_reasons_some_are_said() -> None:
    seldom = Seldom()
    said = [seldom.may_say(f"payload {number}", 0.0) for number in range(50)]
    assert said == [number < REASONS_MAX for number in range(50)]
    assert seldom.may_say("payload 50", EVERY_S)
