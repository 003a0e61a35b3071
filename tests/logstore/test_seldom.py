"""A reason is said once in a while, and not too many of them."""

import logging

import pytest

from logstore.seldom import REASONS_MAX, SAID_EVERY_S, Seldom


def test_a_reason_is_said_again_only_after_a_while() -> None:
    now = 0.0
    seldom = Seldom(lambda: now)
    assert seldom.may_say("full")
    now = SAID_EVERY_S - 1
    assert not seldom.may_say("full")
    assert seldom.may_say("failed")
    now = SAID_EVERY_S
    assert seldom.may_say("full")
    assert not seldom.may_say("failed")


def test_of_ever_new_reasons_some_are_said() -> None:
    now = 0.0
    seldom = Seldom(lambda: now)
    said = [seldom.may_say(f"payload {number}") for number in range(50)]
    assert said == [number < REASONS_MAX for number in range(50)]
    now = SAID_EVERY_S
    assert seldom.may_say("payload 50")


def test_a_text_is_logged_as_seldom(caplog: pytest.LogCaptureFixture) -> None:
    seldom, log = Seldom(), logging.getLogger("somewhere")
    assert [seldom.warn(log, "full", f"the disk is full: {n} %") for n in (1, 2)] == [True, False]
    assert [(each.name, each.message) for each in caplog.records] == [
        ("somewhere", "the disk is full: 1 %")
    ]
