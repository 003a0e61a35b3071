"""Rules that need a look inside, a clock, or two connections: in memory, in both roles."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bymux import Config, Connection, InitialStream, RemoteProtocolError, Role, StreamOpened
from peer import Ingest, LogChanged, SessionTimeout
from tests.bymux.factory import CREDIT, PING, PONG, WRITE, everything_from, packet
from tests.peer.impolite import GREEDY, LOG, Impolite, entry_packets, log_of, propose
from wire import (
    U64_MAX,
    Adjust,
    Cancel,
    CancelReason,
    Eagerness,
    Grant,
    Propose,
    encode_control,
    encode_notify,
    encode_payload_header,
    encode_request_cancelled,
    encode_switch,
)

from .histories import History, Library
from .memory import MemoryLink
from .page import ROOT
from .phrases import LARGE, large
from .script import Speaker

LIBRARY = Library()
ROLES = pytest.mark.parametrize("proactive", [False, True])
HELD = log_of(40)
Meet = Callable[..., tuple[MemoryLink, Speaker]]


@pytest.fixture
def meet(proactive: bool) -> Meet:
    """Makes a session and a speaker that have begun."""

    def begin(**options: object) -> tuple[MemoryLink, Speaker]:
        role = Role.PROACTIVE if proactive else Role.REACTIVE
        link = MemoryLink(role, LIBRARY, **options)  # type: ignore[arg-type]
        speaker = Speaker(link, LIBRARY, proactive=not proactive)
        speaker.begin()
        return link, speaker

    return begin


def own_proposal(peer: Impolite) -> Propose:
    peer.control(Grant(8))
    [own] = [message for message in peer.messages() if isinstance(message, Propose)]
    return own


@ROLES
@pytest.mark.rule("P2P-1.19", "P2P-8.22")
def test_a_lost_connection_keeps_what_was_verified_and_nothing_else(meet: Meet) -> None:
    link, p = meet()
    history = LIBRARY.fresh(large)
    p.receiving(history)
    p.data(history.entries([1, 2]), history.metadata(3), b"\x08\x64" + b"3" * 100)
    link.lose()
    held = link.store.logs[history.log]
    assert [seq for seq in sorted(held) if held[seq].payload is not None] == [1, 2]
    assert held[3].encoded == history.entry(3).encoded
    assert link.session.closed


@ROLES
@pytest.mark.rule("P2P-1.21")
def test_control_messages_are_not_kept(meet: Meet) -> None:
    """However many come, and however far the last one has come, less than one stays."""
    link, p = meet()
    number = p.open(LIBRARY.shared, 1, end=5)
    for size in range(300, 0, -1):
        p.control(Adjust(number, max_bytes=size))
    proposal = encode_control(LIBRARY.fresh().propose(p.number, 5))
    p.control(proposal[:-1])
    engine = link.session._engine
    assert engine is not None
    assert engine._control.buffered == len(proposal) - 1 < 1024
    p.control(proposal[-1:])
    assert isinstance(p.expect_answer(p.number), Cancel)


@ROLES
@pytest.mark.rule("P2P-8.04")
def test_data_that_waits_for_an_answer_may_wait_30_s(meet: Meet) -> None:
    link, p = meet()
    history = LIBRARY.fresh()
    own = p.asked(history)
    p.data(encode_switch(own.request), history.entries([1]))
    link.wait(29.9)
    with pytest.raises(SessionTimeout, match="more than 30 s"):
        link.wait(0.2)


@ROLES
@pytest.mark.rule("BYMUX-3.03", "P2P-1.14")
def test_a_ping_is_answered_before_what_came_earlier_is_processed(meet: Meet) -> None:
    link, p = meet()
    history = LIBRARY.fresh()
    p.receiving(history)
    link.is_idle = True
    p.data(history.entries(range(1, 9)))
    p.mux(packet(PING, None))
    p.expect_said(PONG, None)
    assert not link.store.logs[history.log]


@ROLES
@pytest.mark.rule("P2P-8.21", "P2P-8.22")
def test_a_broken_connection_resumes_inside_the_payload(meet: Meet) -> None:
    link, p = meet()
    history = LIBRARY.fresh(large)
    p.receiving(history)
    p.data(history.metadata(1), b"\x08\x64" + b"1" * 100)
    link.lose()
    again, p = meet(store=link.store)
    own = offset_proposal(p, history)
    assert (own.start, own.offset) == (1, 100)
    assert own.starting_hash == history.hash(1)
    p.control(Adjust(own.request, eagerness=Eagerness.ALL))
    p.data(encode_switch(own.request), encode_payload_header(100) + b"1" * 100)
    p.mux_ping()
    assert again.store.logs[history.log][1].payload == b"1" * LARGE


def offset_proposal(p: Speaker, history: History) -> Propose:
    """What the endpoint asks for once it hears that there is more of a log."""
    number = p.propose(history, 5)
    p.expect_cancel(number)
    p.cancel(number, CancelReason.YOU_CANCELLED)
    p.end(number)
    p.grant(1000)
    return p.expect(Propose, lambda found: found.log == history.log)


@ROLES
@pytest.mark.rule("P2P-8.23")
def test_a_payload_with_a_wrong_prefix_blames_nobody_and_is_asked_for_anew(meet: Meet) -> None:
    link, p = meet()
    history = LIBRARY.fresh(large)
    p.receiving(history)
    p.data(history.metadata(1), encode_payload_header(100) + b"?" * 100)
    link.lose()
    again, p = meet(store=link.store)
    own = offset_proposal(p, history)
    assert own.offset == 100
    p.control(Adjust(own.request, eagerness=Eagerness.ALL))
    p.data(encode_switch(own.request), encode_payload_header(100) + b"1" * 100)
    p.expect_cancel(own.request, CancelReason.NO_RESOURCES)
    p.cancel(own.request, CancelReason.YOU_CANCELLED)
    p.end(own.request)
    again.wait(5.0)
    own = p.expect(Propose, lambda found: found.log == history.log)
    assert (own.start, own.offset) == (1, 0)
    p.control(Adjust(own.request, eagerness=Eagerness.ALL))
    p.data(encode_switch(own.request), history.solid(1))
    p.mux_ping()
    assert again.store.logs[history.log][1].payload == b"1" * LARGE


def unproved(peer: Impolite, *packets: bytes) -> list[Ingest]:
    """Data arrives, and everything is done but storing it; the commands that would do that."""
    peer.engine.receive_data(b"".join(packets))
    waiting = []
    while commands := peer.engine.commands():
        for command in commands:
            if isinstance(command, Ingest):
                waiting.append(command)
                continue
            for event in peer.host._replies(command):
                peer.engine.handle(event)
    return waiting


@ROLES
@pytest.mark.rule("P2P-4.20", "P2P-4.18")
def test_what_has_not_verified_here_is_not_passed_with_a_notify(proactive: bool) -> None:
    """Another session brings entry 4 meanwhile, so that there is something to send."""
    peer = Impolite(proactive=proactive, setup=GREEDY)
    number = peer.open_request()
    waiting = unproved(peer, encode_switch(number), entry_packets(HELD, [1, 2, 3]))
    peer.store.logs[LOG].update({seq: HELD[seq] for seq in range(1, 5)})
    peer.engine.handle(LogChanged(LOG, 4, 4))
    for _ in range(3):
        assert not peer.engine.data_to_send(1 << 16)
        assert not unproved(peer)
    for command in waiting:
        for event in peer.host._ingest(command):
            peer.engine.handle(event)
    expected = encode_switch(number) + encode_notify(6) + entry_packets(HELD, [4])
    assert peer.sent() == expected


@ROLES
@pytest.mark.rule("P2P-5.15")
def test_nothing_is_lowered_before_the_confirmation(proactive: bool) -> None:
    """The log turns out to have ended while the proposal has no answer."""
    peer = Impolite({1: HELD[1]}, proactive=proactive)
    own = own_proposal(peer)
    peer.host.todo.append(LogChanged(LOG, 2, 2, end=2))
    assert not [message for message in peer.messages() if isinstance(message, Adjust)]
    peer.control(Adjust(own.request, eagerness=Eagerness.ALL))
    assert Adjust(own.request, end=2) in peer.messages()


@ROLES
@pytest.mark.rule("P2P-7.03", "P2P-6.06")
def test_a_cancelled_proposal_without_an_answer_still_counts(proactive: bool) -> None:
    peer = Impolite({1: HELD[1]}, proactive=proactive)
    own = own_proposal(peer)
    [request] = peer.engine.actor.requests_of(LOG)
    peer.engine.actor.cancel(request, Cancel(own.request, CancelReason.NOT_WANTED))
    peer.messages()
    peer.control(propose(peer.number, own.start + 1, lower_info=1))
    assert peer.messages() == []
    assert peer.engine.actor.requests_of(LOG) == [request]
    assert peer.sent() == b""
    peer.control(Cancel(own.request, CancelReason.YOU_CANCELLED))
    assert peer.sent() == encode_request_cancelled(own.request)


@ROLES
@pytest.mark.rule("P2P-7.08")
def test_nothing_is_proposed_that_overlaps_a_proposal_without_an_answer(proactive: bool) -> None:
    """The look-up for its answer takes a while; credit to propose comes meanwhile."""
    peer = Impolite({1: HELD[1]}, proactive=proactive)
    peer.run()
    peer.engine.receive_control(encode_control(propose(peer.number, 1)))
    lookups = peer.engine.commands()
    peer.engine.receive_control(encode_control(Grant(5)))
    peer.run()
    assert not [message for message in peer.messages() if isinstance(message, Propose)]
    for command in lookups:
        for event in peer.host._replies(command):
            peer.engine.handle(event)
    assert [message for message in peer.messages() if isinstance(message, Adjust)]


@ROLES
@pytest.mark.rule("P2P-5.01")
def test_data_is_judged_against_the_loosest_setting_that_ever_was(proactive: bool) -> None:
    """It asks for notifications only, and for less and smaller ones; data was under way."""
    peer = Impolite(proactive=proactive)
    number = peer.open_request()
    [request] = peer.engine.actor.requests_of(LOG)
    peer.data(encode_switch(number), entry_packets(HELD, [1]))
    peer.engine._table.adjust(
        request, Adjust(number, eagerness=Eagerness.NOTIFY, min_bytes=100, max_bytes=200)
    )
    peer.data(entry_packets(HELD, [2, 3]), encode_notify(2))
    assert set(peer.store.logs[LOG]) == {1, 2, 3}


@ROLES
@pytest.mark.rule("P2P-8.20")
def test_for_want_of_a_link_the_request_is_given_up_and_read_past(proactive: bool) -> None:
    """What it confirmed by has gone meanwhile; that is not the sender's fault."""
    peer = Impolite({seq: HELD[seq] for seq in range(1, 9)}, proactive=proactive)
    number = peer.open_request(9, lower_info=9)
    peer.store.logs[LOG].clear()
    peer.data(encode_switch(number), entry_packets(HELD, range(9, 12), first=9))
    assert Cancel(number, CancelReason.NO_RESOURCES) in peer.messages()
    peer.data(entry_packets(HELD, range(12, 20)), encode_request_cancelled(number))
    peer.control(Cancel(number, CancelReason.YOU_CANCELLED))
    peer.sent()
    assert peer.engine.requests == 0
    assert not peer.store.logs[LOG]


@pytest.mark.rule("P2P-4.21")
def test_the_packet_that_skips_bytes_is_not_made_anywhere() -> None:
    users = [
        path.name
        for path in (ROOT / "peer").rglob("*.py")
        if "encode_skip_bytes" in path.read_text("utf-8")
    ]
    assert users == []
    assert "def encode_skip_bytes" in Path(ROOT / "wire" / "data.py").read_text("utf-8")


# Creating streams, which two peers never do


ENDPOINTS = pytest.mark.parametrize("role", list(Role))


def creating(role: Role) -> Connection:
    """An endpoint that has let the other side create two streams."""
    streams = (InitialStream(4, 9, 9), InitialStream(5, 9, 9))
    connection = Connection(role, Config(initial_streams=streams))
    connection.grant_streams(2)
    everything_from(connection)
    return connection


@ENDPOINTS
@pytest.mark.rule("BYMUX-5.01", "BYMUX-2.09")
def test_the_other_side_creates_streams_of_its_parity(role: Role) -> None:
    theirs = 1 - role.parity
    connection = creating(role)
    events = connection.receive_data(packet(WRITE, None, 10 + theirs))
    assert events == [StreamOpened(10 + theirs)]
    connection.receive_data(packet(CREDIT, None, 1))
    assert connection.open_stream() % 2 == role.parity


@ENDPOINTS
@pytest.mark.rule("BYMUX-5.02")
def test_an_id_of_the_wrong_parity_ends_the_connection(role: Role) -> None:
    with pytest.raises(RemoteProtocolError, match="parity") as caught:
        creating(role).receive_data(packet(WRITE, None, 10 + role.parity))
    assert (caught.value.rule, caught.value.value) == (
        "bymux.md Creating streams",
        10 + role.parity,
    )


@ENDPOINTS
@pytest.mark.rule("BYMUX-5.03")
def test_an_id_in_use_ends_the_connection(role: Role) -> None:
    with pytest.raises(RemoteProtocolError, match="in use") as caught:
        creating(role).receive_data(packet(WRITE, None, 5 - role.parity))
    assert caught.value.rule == "bymux.md Creating streams"


@ENDPOINTS
@pytest.mark.rule("BYMUX-5.04")
def test_creating_without_global_credit_ends_the_connection(role: Role) -> None:
    theirs = 1 - role.parity
    connection = creating(role)
    connection.receive_data(packet(WRITE, None, 10 + theirs) + packet(WRITE, None, 12 + theirs))
    with pytest.raises(RemoteProtocolError, match="without global credit") as caught:
        connection.receive_data(packet(WRITE, None, 14 + theirs))
    assert caught.value.rule == "bymux.md Creating streams"


@ENDPOINTS
@pytest.mark.rule("BYMUX-2.10")
def test_global_credit_above_2_64_minus_1_ends_the_connection(role: Role) -> None:
    connection = creating(role)
    connection.receive_data(packet(CREDIT, None, U64_MAX))
    with pytest.raises(RemoteProtocolError, match="exceeds") as caught:
        connection.receive_data(packet(CREDIT, None, 1))
    assert (caught.value.rule, caught.value.value) == ("bymux.md Credit", 1)
