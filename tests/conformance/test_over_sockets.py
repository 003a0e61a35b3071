"""Every violation against a real node over TCP, in both of its roles (point2point.md 9).

One node, one store on disk, and one honest connection that is open all the time.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from .cases import Case, Need, Offence
from .exchanges import CASES
from .histories import Library
from .marks import parameters
from .offences import OFFENCES
from .script import Speaker
from .settings import settings_can_be_chosen
from .sockets import Bystander, Meeting, NodeThread, bring_shared
from .test_offences import check_reason


@dataclass
class Stage:
    """A node that goes on whatever is done to it, and who watches that it does."""

    node: NodeThread
    meeting: Meeting
    bystander: Bystander


@pytest.fixture(scope="module", params=[False, True], ids=["reactive", "proactive"])
def proactive(request: pytest.FixtureRequest) -> bool:
    """Whether the node is: it calls the script, or the script calls it."""
    return bool(request.param)


@pytest.fixture(scope="module")
def stage(proactive: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    # Each with a key of its own, since both sign their own logs on this machine.
    library = Library((b"p" if proactive else b"r") * 32)
    path = tmp_path_factory.mktemp("conformance") / "store"
    with ExitStack() as stack:
        stack.enter_context(settings_can_be_chosen())
        key = library.endpoint.key
        node = stack.enter_context(NodeThread(path, (library.author.id,), signing_key=key))
        meeting = Meeting(node, library, node_is_proactive=proactive)
        honest = stack.enter_context(meeting.speaker())
        honest.begin()
        bring_shared(honest)
        yield Stage(node, meeting, Bystander(honest))
        assert node.faults() == []


def offend(speaker: Speaker, offence: Offence) -> None:
    """Run a script, and then read until the node has hung up."""
    speaker.begin()
    offence.play(speaker)
    while speaker.hear():
        pass


@pytest.mark.parametrize(
    "offence", parameters((each for each in OFFENCES if not each.in_memory_only), socket=True)
)
@pytest.mark.rule("P2P-9.01", "P2P-9.02", "P2P-9.03", "P2P-9.04", "P2P-1.01")
def test_an_offence_over_tcp_ends_that_connection_and_harms_nothing(
    stage: Stage, offence: Offence, proactive: bool
) -> None:
    syncs = Need.SYNC in offence.needs
    if syncs and not proactive:
        pytest.skip("a one-time sync is made by who connects")
    before = len(stage.node.events)
    with stage.meeting.speaker(offence.setup, one_time_sync=syncs) as speaker:
        offend(speaker, offence)
        assert speaker.offended
    if syncs:
        reason = stage.meeting.sync_error
    else:
        event = stage.node.wait_for(lambda found: found["event"] == "violation", before)
        assert event["direction"] == ("outgoing" if proactive else "incoming")
        reason = str(event["reason"])
    check_reason(offence, speaker, reason)
    stage.bystander.goes_on()
    assert stage.node.faults(stage.meeting.library.shared.log) == []


@pytest.mark.parametrize(
    "case", parameters((each for each in CASES if Need.CLOCK not in each.needs), socket=True)
)
def test_an_exchange_over_tcp_goes_as_it_should(stage: Stage, case: Case, proactive: bool) -> None:
    before = len(stage.node.events)
    with stage.meeting.speaker(case.setup) as speaker:
        if not case.begins_itself:
            speaker.begin()
        case.play(speaker)
        for history, seq in speaker.kept:
            info = stage.node.store.log(history.log)
            assert info is not None
            assert info.height == seq
        if case.ends:
            while speaker.hear():
                pass
    ended = stage.node.wait_for(
        lambda event: event["event"] in {"disconnected", "violation"}, before
    )
    assert (ended["event"], ended["kind"]) == ("disconnected", "closed" if case.ends else "lost")
    assert stage.node.faults(stage.meeting.library.shared.log) == []
