"""Every violation against a session in memory: both roles, and byte by byte."""

from collections.abc import Iterator
from typing import Literal

import pytest

from bymux import Role
from peer import RemoteViolation
from tests.records import replace

from .cases import Need, Offence
from .histories import SHARED_COUNT, Library
from .marks import parameters
from .memory import CONFIG, MemoryLink
from .offences import OFFENCES
from .script import Speaker
from .settings import settings_can_be_chosen

LIBRARY = Library()
WAYS = [(False, False), (True, False), (True, True)]
"""Both roles; byte by byte in one of them, since what reads bytes does not know which it is."""


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    with settings_can_be_chosen():
        yield


def play(offence: Offence, *, proactive: bool, byte_by_byte: bool) -> MemoryLink:
    """Run the script; the violation comes out."""
    role = Role.PROACTIVE if proactive else Role.REACTIVE
    policy: Literal["follow", "sync"] = "sync" if Need.SYNC in offence.needs else "follow"
    link = MemoryLink(
        role, LIBRARY, byte_by_byte=byte_by_byte, config=replace(CONFIG, policy=policy)
    )
    before = dict(link.store.logs[LIBRARY.shared.log])
    speaker = Speaker(link, LIBRARY, proactive=not proactive, setup=offence.setup)
    with pytest.raises(RemoteViolation) as caught:
        _until_refused(speaker, offence)
    assert speaker.offended, f"too early: {caught.value}"
    check_reason(offence, speaker, str(caught.value))
    assert caught.value.rule.startswith(offence.section)
    if link.session.established:
        link.session.receive_eof(link.now)
    assert link.store.logs[LIBRARY.shared.log] == before == LIBRARY.shared.upto(SHARED_COUNT)
    return link


def _until_refused(speaker: Speaker, offence: Offence) -> None:
    speaker.begin()
    offence.play(speaker)


def check_reason(offence: Offence, speaker: Speaker, reason: str) -> None:
    """A reason names the rule's section, the request and the offending value."""
    assert f"({offence.section}" in reason or not offence.section, reason
    if speaker.blamed is not None:
        assert f"request {speaker.blamed}" in reason
    for word in offence.words:
        assert word in reason


@pytest.mark.parametrize(("proactive", "byte_by_byte"), WAYS)
@pytest.mark.parametrize("offence", parameters(OFFENCES))
def test_an_offence_ends_the_session_with_its_reason(
    offence: Offence, proactive: bool, byte_by_byte: bool
) -> None:
    if byte_by_byte and Need.TOGETHER in offence.needs:
        pytest.skip("what is read byte by byte is answered in between")
    play(offence, proactive=proactive, byte_by_byte=byte_by_byte)
