"""Every exchange with a session in memory: both roles, and byte by byte."""

from collections.abc import Iterator
from typing import Literal

import pytest

from bymux import Role
from tests.records import replace

from .cases import Case, Need
from .exchanges import CASES
from .histories import Library
from .marks import parameters
from .memory import CONFIG, MemoryLink
from .script import Speaker
from .settings import settings_can_be_chosen

LIBRARY = Library()
WAYS = [(False, False), (True, False), (True, True)]
"""Both roles; byte by byte in one of them, since what reads bytes does not know which it is."""


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    with settings_can_be_chosen():
        yield


@pytest.mark.parametrize(("proactive", "byte_by_byte"), WAYS)
@pytest.mark.parametrize("case", parameters(CASES))
def test_a_session_does_what_the_exchange_asks(
    case: Case, proactive: bool, byte_by_byte: bool
) -> None:
    if byte_by_byte and (case.is_long or Need.TOGETHER in case.needs):
        pytest.skip("too much, or something else, byte by byte")
    role = Role.PROACTIVE if proactive else Role.REACTIVE
    policy: Literal["follow", "sync"] = "sync" if Need.SYNC in case.needs else "follow"
    link = MemoryLink(
        role, LIBRARY, byte_by_byte=byte_by_byte, config=replace(CONFIG, policy=policy)
    )
    speaker = Speaker(link, LIBRARY, proactive=not proactive, setup=case.setup)
    if not case.begins_itself:
        speaker.begin()
    case.play(speaker)
    for history, seq in speaker.kept:
        assert link.store.height(history.log) == seq
    if case.ends:
        assert link.session.closed
    else:
        link.session.receive_eof(link.now)
