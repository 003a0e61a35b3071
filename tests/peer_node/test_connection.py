"""A connection: reading never waits for writing, timers fire, and whatever ends it is one line."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock, wait_all_tasks_blocked

from logstore import Store, StoreFull
from peer import (
    Command,
    Event,
    IngestFailed,
    Interests,
    InterestsChanged,
    LogChanged,
    LogView,
    LookedUp,
    LookUp,
    Notice,
    PayloadFinished,
    Refusal,
    RemoteViolation,
    Session,
    SessionTimeout,
    SetUp,
    Verdict,
)
from peer.node import MemoryStream, memory_link
from peer.node.fairness import HALF_LIFE_S
from peer.node.links.connection import CLOSE_TIMEOUT_S, Connection, Ending, EndKind, close_stream

from .support import PATIENCE_S, Author, running_host

INTERESTS = InterestsChanged(Interests(), ())


@dataclass
class FakeSession:
    """Does what a test tells it to, and remembers what it was told."""

    to_send: list[bytes] = field(default_factory=list)
    to_do: list[Command] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    handled: list[Event] = field(default_factory=list)
    advanced: list[float] = field(default_factory=list)
    deadline: float | None = None
    established: bool = True
    closing: bool = False
    both_closed: bool = False
    gave_up: bool = False
    held: list[int] = field(default_factory=list)
    ended: bool = False
    has_unread: bool = False
    stirred: bool = True
    asked: int = 0
    """How often it was asked for bytes to send."""
    on_bytes: Callable[[bytes], None] = lambda _: None
    on_event: Callable[[Event], None] = lambda _: None
    on_advance: Callable[[], None] = lambda: None

    def receive_bytes(self, data: bytes, now: float, packets_max: int | None = None) -> None:
        self.received.append(data)
        self.on_bytes(data)

    def receive_eof(self, now: float) -> None:
        self.ended = True

    def handle_all(self, events: Sequence[Event], now: float) -> None:
        for event in events:
            self.handled.append(event)
            self.on_event(event)

    def advance(self, now: float) -> None:
        self.advanced.append(now)
        self.on_advance()

    def next_deadline(self) -> float | None:
        return self.deadline

    def take_stirred(self) -> bool:
        return self.stirred

    @property
    def may_be_due(self) -> bool:
        return self.stirred

    def commands(self) -> list[Command]:
        taken, self.to_do = self.to_do, []
        return taken

    def notices(self) -> list[Notice]:
        return []

    def bytes_to_send(self, bytes_max: int, now: float, *, waited_s: float) -> bytes:
        self.asked += 1
        return self.to_send.pop(0) if self.to_send else b""

    def close(self, now: float) -> None:
        self.closing = self.both_closed = True

    @property
    def closed(self) -> bool:
        return self.both_closed or self.gave_up

    def transport_holds(self, count: int, now: float) -> None:
        self.held.append(count)


@dataclass
class Bench:
    session: FakeSession
    connection: Connection
    there: MemoryStream
    endings: list[Ending]

    async def ending(self) -> Ending:
        with trio.fail_after(PATIENCE_S):
            while not self.endings:
                await wait_all_tasks_blocked()
        return self.endings[0]

    async def answer(self) -> Event:
        """What the session is told behind the interests."""
        with trio.fail_after(PATIENCE_S):
            while len(self.session.handled) < 2:
                await wait_all_tasks_blocked()
        return self.session.handled[1]


@asynccontextmanager
async def running(session: FakeSession, buffer_bytes: int = 65_536) -> AsyncIterator[Bench]:
    here, there = memory_link(buffer_bytes)
    with Store.memory() as store:
        async with running_host(store, poll_s=1e9) as host:
            connection = Connection(
                cast(Session, session),
                here,
                host,
                source="a peer",
                interests=INTERESTS,
                noticed=lambda _, __: None,
            )
            bench = Bench(session, connection, there, [])

            async def run() -> None:
                bench.endings.append(await connection.run())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                await wait_all_tasks_blocked()
                yield bench
                nursery.cancel_scope.cancel()


async def test_a_session_is_told_the_interests_first() -> None:
    async with running(FakeSession()) as bench:
        assert bench.session.handled == [INTERESTS]


@pytest.mark.rule("BYMUX-7.04")
async def test_bytes_go_in_while_nobody_takes_what_goes_out() -> None:
    session = FakeSession(to_send=[bytes(100_000)])
    async with running(session, buffer_bytes=1000) as bench:
        for number in range(5):
            await bench.there.send_all(bytes([number]) * 1000)
            await wait_all_tasks_blocked()
        assert b"".join(session.received) == b"".join(bytes([n]) * 1000 for n in range(5))


async def test_what_a_session_says_later_is_sent_when_it_says_it() -> None:
    session = FakeSession()
    async with running(session) as bench:
        session.on_bytes = session.to_send.append
        await bench.there.send_all(b"ping")
        assert await bench.there.receive_some() == b"ping"


async def test_commands_are_carried_out_and_answered() -> None:
    session = FakeSession()
    async with running(session) as bench:
        session.on_bytes = lambda data: session.to_do.append(LookUp(5, Author().log))
        await bench.there.send_all(b"x")
        assert await bench.answer() == LookedUp(5, LogView(Author().log))


async def test_commands_that_come_of_looking_for_bytes_are_carried_out() -> None:
    session = FakeSession()
    asked: list[int] = []

    def ask(bytes_max: int, now: float, *, waited_s: float) -> bytes:
        if not asked:
            asked.append(bytes_max)
            session.to_do.append(LookUp(5, Author().log))
        return b""

    session.bytes_to_send = ask  # type: ignore[method-assign]
    async with running(session) as bench:
        assert await bench.answer() == LookedUp(5, LogView(Author().log))
        assert len(asked) == 1


async def test_news_of_logs_reach_a_session_before_its_setup() -> None:
    """What is new by then may be in no list of what is offered."""
    session, news = FakeSession(established=False), LogChanged(Author().log, 1, 1)
    async with running(session) as bench:
        bench.connection.tell(news)
        assert session.handled == [INTERESTS, news]


async def test_what_a_deadline_brings_about_takes_a_turn_and_is_paid_for(
    autojump_clock: MockClock,
) -> None:
    """What came in a few bytes is read on when it is time, a piece after the other."""
    session = FakeSession(deadline=1.0)
    async with running(session) as bench:
        account = bench.connection._seat.account
        account.own_rest_until_s = 5.0
        spent, began = account.spent_s(trio.current_time()), trio.current_time()

        def read_on() -> None:
            session.deadline = trio.current_time() if len(session.advanced) < 3 else None

        session.on_advance = read_on
        bench.connection._set_timer()
        await trio.sleep(4.9)
        assert session.advanced == []
        await trio.sleep(0.2)
        assert len(session.advanced) == 3
        assert session.advanced[0] >= 5.0
        now = trio.current_time()
        assert account.spent_s(now) > spent * 0.5 ** ((now - began) / HALF_LIFE_S)


@pytest.mark.parametrize(
    ("verdict", "waits"),
    [
        (IngestFailed(4, 1, Refusal.INVALID, "the signature is wrong", 1), False),
        (PayloadFinished(1, Verdict.INVALID), False),
        (IngestFailed(4, 1, Refusal.NO_ROOM, "no room", 1), True),
        (PayloadFinished(1, Verdict.VALID), True),
    ],
)
async def test_what_shows_an_offence_waits_for_no_turn(
    verdict: Event, waits: bool, mock_clock: MockClock
) -> None:
    """Else whoever has wasted most would stay longest after it."""
    session, news = FakeSession(), LogChanged(Author().log, 1, 1)
    async with running(session) as bench:
        bench.connection._seat.account.own_rest_until_s = mock_clock.current_time() + 5.0
        bench.connection.tell(news)
        bench.connection.tell(verdict)
        assert session.handled == ([INTERESTS] if waits else [INTERESTS, news, verdict])


async def test_time_passes_for_a_session_at_its_deadline(mock_clock: MockClock) -> None:
    session = FakeSession(deadline=10.0)
    async with running(session) as bench:
        mock_clock.jump(9.5)
        await wait_all_tasks_blocked()
        assert session.advanced == []

        def later() -> None:
            session.deadline = 20.0

        session.on_advance = later
        mock_clock.jump(1)
        await wait_all_tasks_blocked()
        assert session.advanced == [10.5]
        session.deadline = 12.0
        await bench.there.send_all(b"x")
        await wait_all_tasks_blocked()
        mock_clock.jump(2)
        await wait_all_tasks_blocked()
        assert session.advanced == [10.5, 12.5]


def raising(error: Exception) -> Callable[..., None]:
    def raise_it(*_: object) -> None:
        raise error

    return raise_it


DISK_FULL = "the disk is full: here; make room"
ENDINGS = [
    (RemoteViolation("rule 1", "bad thing", 3), EndKind.VIOLATION, "request 3: bad thing (rule 1)"),
    (SessionTimeout("no sign of life"), EndKind.TIMEOUT, "no sign of life"),
    (StoreFull("the disk is full", "here", "make room"), EndKind.STORAGE, DISK_FULL),
    (ZeroDivisionError("oh"), EndKind.INTERNAL, "internal error: ZeroDivisionError('oh')"),
]


@pytest.mark.parametrize(("error", "kind", "reason"), ENDINGS)
async def test_what_bytes_bring_about_ends_the_connection(
    error: Exception, kind: EndKind, reason: str
) -> None:
    session = FakeSession(on_bytes=raising(error))
    async with running(session) as bench:
        await bench.there.send_all(b"\x03")
        assert await bench.ending() == Ending(kind, reason)
        assert session.ended
        assert await bench.there.receive_some() == b""


async def test_a_store_that_fails_is_told_of_and_leaves_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[str] = []
    session = FakeSession(on_bytes=raising(StoreFull("the disk is full", "here", "make room")))
    async with running(session) as bench:
        bench.connection._failures.tell = told.append
        await bench.there.send_all(b"\x03")
        await bench.ending()
        assert bench.connection.not_given == DISK_FULL
    assert told == [DISK_FULL]
    assert caplog.text == ""


async def test_the_same_fault_is_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    async with running(FakeSession()) as bench:
        for number in range(3):
            for error in (StoreFull("full", "here", "make room"), ZeroDivisionError(number)):
                bench.connection._host.faults.tell("somewhere", error)
    assert [(each.levelname, each.exc_info is not None) for each in caplog.records] == [
        ("WARNING", False),
        ("ERROR", True),
    ]


@pytest.mark.parametrize(("error", "kind", "reason"), ENDINGS)
async def test_what_an_event_brings_about_ends_the_connection(
    error: Exception, kind: EndKind, reason: str
) -> None:
    async with running(FakeSession()) as bench:
        bench.session.on_event = raising(error)
        bench.connection.tell(INTERESTS)
        assert await bench.ending() == Ending(kind, reason)


@pytest.mark.parametrize(("error", "kind", "reason"), ENDINGS)
async def test_what_a_deadline_brings_about_ends_the_connection(
    error: Exception, kind: EndKind, reason: str, mock_clock: MockClock
) -> None:
    session = FakeSession(deadline=1.0, on_advance=raising(error))
    async with running(session) as bench:
        mock_clock.jump(1)
        assert await bench.ending() == Ending(kind, reason)


async def test_what_has_failed_is_not_closed_in_good_order_as_well() -> None:
    """Its session is over, and whoever hangs up at that moment gets no error of it."""
    session = FakeSession(on_bytes=raising(RemoteViolation("rule 1", "bad thing")))
    async with running(session) as bench:
        await bench.there.send_all(b"\x03")
        ending = await bench.ending()
        bench.connection.close()
        assert not session.closed
        assert bench.endings == [ending]


async def test_an_error_while_ending_is_logged_and_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = FakeSession(on_bytes=raising(SessionTimeout("late")))
    session.receive_eof = raising(ZeroDivisionError())  # type: ignore[method-assign]
    async with running(session) as bench:
        await bench.there.send_all(b"x")
        assert (await bench.ending()).kind is EndKind.TIMEOUT
    assert "ZeroDivisionError" in caplog.text


async def test_a_violation_by_strange_bytes_says_that_it_is_no_peer() -> None:
    session = FakeSession(on_bytes=raising(RemoteViolation("rule 1", "bad thing")))
    async with running(session) as bench:
        await bench.there.send_all(b"\xff\xff")
        reason = "not a bamboo peer: bad thing (rule 1)"
        assert await bench.ending() == Ending(EndKind.NOT_A_PEER, reason)


async def test_http_never_reaches_the_session() -> None:
    async with running(FakeSession()) as bench:
        await bench.there.send_all(b"GET / HTTP/1.1\r\n\r\n")
        assert (await bench.ending()).reason == "not a bamboo peer: it speaks HTTP"
        assert bench.session.received == []


@pytest.mark.parametrize("established", [True, False])
async def test_the_end_of_the_stream_is_a_lost_connection(established: bool) -> None:
    async with running(FakeSession(established=established)) as bench:
        await bench.there.send_eof()
        assert (await bench.ending()).kind is EndKind.LOST
        assert bench.session.ended


async def test_a_good_end_sends_everything_and_waits_for_the_other_sides_end() -> None:
    session = FakeSession(to_send=[b"last words"])
    async with running(session) as bench:
        bench.connection.close()
        await wait_all_tasks_blocked()
        assert await bench.there.receive_some() == b"last words"
        assert await bench.there.receive_some() == b""
        assert not bench.endings
        await bench.there.send_eof()
        assert await bench.ending() == Ending(EndKind.CLOSED, "closed")


async def test_a_good_end_does_not_wait_for_ever(mock_clock: MockClock) -> None:
    session = FakeSession(to_send=[bytes(1000)])
    async with running(session, buffer_bytes=10) as bench:
        bench.connection.close()
        await wait_all_tasks_blocked()
        mock_clock.jump(CLOSE_TIMEOUT_S)
        ending = await bench.ending()
        assert ending.kind is EndKind.CLOSED
        assert "without waiting" in ending.reason


async def test_who_is_not_waited_for_gets_nothing_more(mock_clock: MockClock) -> None:
    session = FakeSession(to_send=[bytes(1000), b"last words"], deadline=1.0)

    def give_up() -> None:
        session.gave_up, session.deadline = True, None

    session.on_advance = give_up
    async with running(session, buffer_bytes=10) as bench:
        session.closing = True
        await wait_all_tasks_blocked()
        mock_clock.jump(1.0)
        ending = await bench.ending()
        assert ending.kind is EndKind.CLOSED
        assert "without waiting" in ending.reason
    assert trio.current_time() == 1.0
    assert session.held == []  # nobody knows what is under way in memory


async def test_where_nothing_is_stirred_nothing_is_looked_for_to_send() -> None:
    session = FakeSession()
    async with running(session) as bench:
        await wait_all_tasks_blocked()
        asked, session.stirred, session.deadline = session.asked, False, 0.0
        session.on_advance = lambda: setattr(session, "deadline", None)
        session.on_bytes = lambda data: session.to_do.append(LookUp(5, Author().log))
        await bench.there.send_all(b"inside")
        await bench.answer()
        await wait_all_tasks_blocked()
        assert (session.received, session.asked, session.advanced) == ([b"inside"], asked, [])
        session.stirred = True
        await bench.there.send_all(b"more")
        await wait_all_tasks_blocked()
        assert session.asked > asked
        assert session.advanced


async def test_notices_are_passed_on() -> None:
    found: list[Notice] = []
    notices: list[Notice] = [SetUp(True, True, 0, 0)]
    session = FakeSession()

    def take() -> list[Notice]:
        taken = notices[:]
        notices.clear()
        return taken

    session.notices = take  # type: ignore[method-assign]
    async with running(session) as bench:
        assert notices == []
        bench.connection._noticed = lambda notices, _: found.extend(notices)
        notices.append(SetUp(False, True, 0, 0))
        bench.connection.tell(INTERESTS)
        assert found == [SetUp(False, True, 0, 0)]


class HangingStream(trio.abc.AsyncResource):
    """Closing it takes for ever, unless it is done by force."""

    def __init__(self) -> None:
        self.forced = False

    async def aclose(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.forced = True


@pytest.mark.parametrize("cancelled", [True, False])
async def test_closing_never_hangs(cancelled: bool, autojump_clock: MockClock) -> None:
    stream = HangingStream()
    with trio.CancelScope() as scope:
        if cancelled:
            scope.cancel()
        await close_stream(stream)
    assert stream.forced
    assert trio.current_time() == CLOSE_TIMEOUT_S
