"""What passes through a node from one connection to another, over sockets (point2point.md 8)."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from wire import (
    Apology,
    Cancel,
    CancelReason,
    PayloadBytes,
    PayloadStart,
    Setup,
    SkipUnavailable,
    Switch,
    encode_apology,
    encode_payload_header,
    encode_switch,
)

from .histories import History, Library
from .script import GREEDY, SAFE, Speaker
from .sockets import Meeting, NodeThread

HALF = 200_000
"""A payload of twice as many bytes is not gathered in memory."""


def payload(seq: int) -> bytes:
    return b"%d" % seq * HALF + b"-" * HALF


@pytest.fixture(scope="module", params=[False, True], ids=["reactive", "proactive"])
def proactive(request: pytest.FixtureRequest) -> bool:
    """Whether the node is: it calls the scripts, or they call it."""
    return bool(request.param)


@pytest.fixture(scope="module")
def meeting(proactive: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meeting]:
    library = Library(b"r" * 32)
    path = tmp_path_factory.mktemp("relays") / "store"
    with NodeThread(path, (library.author.id,)) as node:
        yield Meeting(node, library, node_is_proactive=proactive)
        assert node.faults() == []


@dataclass
class Relay:
    """A node that fetches a log from one side and passes it on to the other."""

    history: History
    source: Speaker
    number: int
    """The source's request."""
    sink: Speaker
    wanted: int
    """The sink's request."""

    def first_half(self) -> None:
        """The source sends metadata and the first half of a payload."""
        data = self.history.payload(1)[:HALF]
        self.source.data(self.history.metadata(1), encode_payload_header(HALF) + data)

    def begin_passing(self) -> None:
        """Some of the first half has come through to the sink."""
        self.first_half()
        self.sink.expect_switch(self.wanted)
        self.sink.expect_metadata(self.history, 1)
        self.some_payload()

    def second_half(self, *, right: bool = True) -> None:
        data = self.history.payload(1)[HALF:]
        wrong = b"?" * HALF
        self.source.data(encode_payload_header(HALF) + (data if right else wrong))

    def some_payload(self) -> None:
        """The sink has got bytes of the payload."""
        found = self.sink.packet()
        while not isinstance(found, PayloadBytes):
            assert isinstance(found, PayloadStart)
            found = self.sink.packet()


@contextmanager
def relay(meeting: Meeting, setup: Setup) -> Iterator[Relay]:
    """A source that is fetched from, and a sink with this setup that waits."""
    with ExitStack() as stack:
        source = stack.enter_context(meeting.speaker(GREEDY))
        sink = stack.enter_context(meeting.speaker(setup))
        source.begin()
        sink.begin()
        history = meeting.library.fresh(payload)
        number = source.receiving(history)
        yield Relay(history, source, number, sink, sink.open(history))


@pytest.mark.rule("P2P-8.07", "P2P-8.11", socket=True)
def test_bytes_are_passed_on_as_they_arrive_in_a_greedy_direction(meeting: Meeting) -> None:
    with relay(meeting, GREEDY) as on:
        on.begin_passing()
        on.second_half()
        on.source.data(on.history.entries([2]))
        rest = b""
        while not rest.endswith(b"-" * HALF):
            found = on.sink.packet()
            rest += found.data if isinstance(found, PayloadBytes) else b""
        on.sink.expect_entries(on.history, [2])


@pytest.mark.rule("P2P-8.05", socket=True)
def test_bytes_wait_for_the_verdict_in_a_safe_direction(meeting: Meeting) -> None:
    with relay(meeting, SAFE) as on:
        on.first_half()
        on.sink.expect_switch(on.wanted)
        on.sink.expect_metadata(on.history, 1)
        heard = on.sink.data_bytes_heard
        on.source.settle()
        on.sink.mux_ping()
        assert on.sink.data_bytes_heard == heard
        on.source.data(encode_switch(on.number))
        on.second_half()
        on.sink.expect_payload(on.history, 1)


@pytest.mark.rule("P2P-8.08", "P2P-8.10", socket=True)
def test_what_was_passed_on_and_is_wrong_is_apologised_for(meeting: Meeting) -> None:
    with relay(meeting, GREEDY) as on:
        on.begin_passing()
        on.second_half(right=False)
        on.sink.expect_apology()
        on.source.data(encode_apology(), on.history.solid(1))
        on.sink.expect_payload(on.history, 1)


@pytest.mark.rule("P2P-8.08", socket=True)
def test_an_apology_comes_behind_a_switch_back_to_its_request(meeting: Meeting) -> None:
    """The node has sent something else to the sink meanwhile."""
    with relay(meeting, GREEDY) as on:
        other = meeting.library.fresh()
        on.begin_passing()
        second = on.source.open(other)
        third = on.sink.open(other)
        on.source.data(encode_switch(second), other.entries([1]), encode_switch(on.number))
        found = on.sink.packet()
        while found != Switch(third):
            assert isinstance(found, PayloadStart | PayloadBytes)
            found = on.sink.packet()
        on.sink.expect_entries(other, [1])
        on.second_half(right=False)
        assert on.sink.packet() == Switch(on.wanted)
        on.sink.expect_apology()


@pytest.mark.rule("P2P-6.24", "P2P-8.08", socket=True)
def test_a_130_waits_for_the_verdict_on_the_last_piece(meeting: Meeting) -> None:
    with relay(meeting, GREEDY) as on:
        on.begin_passing()
        # It is on its way now, so that a finite range does not skip it.
        on.sink.cancel(on.wanted)
        on.sink.expect_cancel(on.wanted)
        on.sink.end(on.wanted)
        finite = on.sink.open(on.history, 1, end=1)
        on.sink.expect_switch(finite)
        on.sink.expect_metadata(on.history, 1)
        on.some_payload()
        on.source.settle()
        on.sink.mux_ping()
        assert not [message for message in on.sink.inbox if isinstance(message, Cancel)]
        on.source.data(encode_switch(on.number))
        on.second_half(right=False)
        on.sink.expect_apology()
        # A finite range does not wait for who may never send the payload again.
        on.sink.expect_packet(SkipUnavailable())
        on.sink.expect_end(finite)
        on.sink.expect_cancel(finite, CancelReason.COMPLETE)


@pytest.mark.rule("P2P-8.09", socket=True)
def test_no_apology_follows_ones_own_cancel(meeting: Meeting) -> None:
    with relay(meeting, GREEDY) as on:
        on.begin_passing()
        on.sink.cancel(on.wanted)
        on.sink.expect_cancel(on.wanted, CancelReason.YOU_CANCELLED)
        on.second_half(right=False)
        on.source.data(encode_apology(), on.history.solid(1))
        on.source.wait_until_held(on.history, 1)
        found = on.sink.packet()
        while isinstance(found, PayloadStart | PayloadBytes):
            found = on.sink.packet()
        assert found != Apology()
        on.sink.end(on.wanted)
        on.sink.no_data()


@pytest.mark.rule("P2P-8.11", socket=True)
@pytest.mark.parametrize("setup", [GREEDY, SAFE], ids=["greedy", "safe"])
def test_metadata_with_a_wrong_signature_is_not_passed_on(meeting: Meeting, setup: Setup) -> None:
    with relay(meeting, setup) as on:
        on.source.data(on.history.bad_signature(1), encode_apology())
        on.source.settle()
        on.sink.no_data()
        on.source.data(encode_switch(on.number), on.history.entries([1]))
        on.sink.expect_switch(on.wanted)
        on.sink.expect_entries(on.history, [1])
