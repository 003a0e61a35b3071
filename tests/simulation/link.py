"""Connections between nodes: byte streams with delays that are cut anywhere, and their two ends.

A link is either one stream that carries whole sessions, or *split*: the control and the data
channel of two engines run over streams that know nothing of each other, as point2point.md 1 wants
the logic of a session to be able to.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from bymux import Role
from logstore import StoreError
from peer import (
    Event,
    RemoteViolation,
    Session,
    SessionConfig,
    SessionTimeout,
    SyncFinished,
    claim_all,
)
from peer.engine import Engine
from peer.node.host.port import Port
from peer.node.links.backoff import Backoff
from peer.node.links.scoping import scoped
from peer.node.links.sources import Place
from peer.protocol.commands import LookUp
from peer.protocol.notices import Arriving, Notice
from tests.records import replace
from wire import ControlDecoder, ControlMessage, Grant, LogKey, Setup, encode_control, negotiate

from .clock import Clock, Life
from .doors import connect
from .due import Due
from .leaks import Watch
from .lies import Liar, lies
from .once import CLOSED, OneTimeSync
from .pipe import CAPACITY_BYTES, Pipe
from .plan import Plan, draw_setup
from .truth import Broken, notice_line

if TYPE_CHECKING:
    from .node import SimNode


FLIPPED = "a bit that was flipped"

LOOK_S = 0.05
"""How often a connection that is to end looks whether it can."""

ROOM_BYTES_MIN = 64
"""What a writer asks a session for at least."""


class End(ABC):
    """One side of a connection: as peer.node.links.connection is one, in virtual time."""

    def __init__(self, link: "Link", node: "SimNode", side: int, policy: str) -> None:
        source = f"peer {link.nodes[1 - side].name}"
        self.link = link
        self.node = node
        self.side = side
        self.life = Life()
        self.ending: str | None = None
        self.lie: str | None = None
        """What was said here against the rules."""
        self.notices: list[Notice] = []
        self._clock = link.clock
        self._rng = link.rng
        self._due = Due(self._clock, lambda: self.core.next_deadline())  # noqa: PLW0108 - made below
        self._writing = False
        self.peer = link.nodes[1 - side].store.author
        self.port: Port = node.host.open_port(source, self.deliver, self._failed, self.peer)
        self.watch = Watch(node, self.peer, link.names)
        self.place: Place | None = None
        if policy == "follow":
            self.place = node.sources.join(
                source,
                lambda event: self.deliver((event,)),
                lambda: None if self.engine is None else self.engine.reads,
            )
        self.claim = claim_all if self.place is None else self.place.claim

    @property
    def other(self) -> "End":
        return self.link.ends[1 - self.side]

    @property
    def at_rest(self) -> bool:
        """Whether the session waits for nothing of its own node."""
        engine = self.engine
        return engine is not None and engine.drained and not engine._tickets

    # The session inside

    @property
    @abstractmethod
    def engine(self) -> Engine | None:
        """What decides, once it is there."""

    @abstractmethod
    def _handle(self, event: Event) -> None: ...

    @abstractmethod
    def _advance(self) -> None: ...

    @property
    @abstractmethod
    def core(self) -> Engine | Session:
        """What is asked for commands and notices, and when something is due."""

    @abstractmethod
    def _send_some(self) -> bool:
        """Sends something; False if there is nothing."""

    @abstractmethod
    def _eof(self) -> None: ...

    @abstractmethod
    def begin_to_lie(self) -> None:
        """Says something against the rules, if there is something to say now."""

    @abstractmethod
    def lose_what_comes(self) -> None:
        """What is on its way to here never arrives."""

    def finish(self) -> None:
        """Ends it, in good order where that is possible."""
        self.end(CLOSED)

    # What drives it

    def tell_interests(self) -> None:
        """What is wanted here, and what the other side may do, is another matter now."""
        rule, event = self.node.rule_of(self.peer), self.node.book.current
        self.watch.told(rule, event)
        self.deliver((scoped(event, self.peer, rule),))

    def deliver(self, events: Sequence[Event], payer: object = None) -> None:
        """Events of the host, whoever pays for them."""

        def handle() -> None:
            for event in events:
                self._handle(event)

        self.guarded(handle)

    def guarded(self, do: Callable[[], None], *, stirs: bool = False) -> None:
        """Anything that may prove the other side wrong. `stirs`: done to an engine by hand."""
        if self.ending is not None or self.lie is not None:
            return
        try:
            do()
        except RemoteViolation as violation:
            self.link.violated(self, violation)
            self.end(f"violation: {violation}")
        except SessionTimeout as timeout:
            self.link.timed_out(self, timeout)
            self.end(f"timeout: {timeout}")
        else:
            self._turn(stirs=stirs)

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, StoreError):
            raise error
        self.end(f"the store failed: {type(error).__name__}")

    def _turn(self, *, stirs: bool = False) -> None:
        core = self.core
        taken = core.take_stirred() if isinstance(core, Session) else core.stirs.take()
        stirs = stirs or taken
        self._due.told()
        self._pass_on()
        if not stirs:
            self._check_told()
            return
        # What was asked for may have been answered, in a turn of its own, before this one is over.
        self._due.told()
        if not self._writing:
            self._writing = True
            self._clock.after(0.0, self._write, self.life)

    def _pass_on(self) -> None:
        self.watch.attach(self.engine)
        commands = self.core.commands()
        if commands:
            self.watch.check_commands(commands)
            self.node.host.submit(self.port, commands)
            self.node.world.figures.look_ups += sum(isinstance(each, LookUp) for each in commands)
        for notice in self.core.notices():
            self._noticed(notice)
        self._due.look(self._on_timer, self.life)
        self.node.world.touch(self)

    def _noticed(self, notice: Notice) -> None:
        self.notices.append(notice)
        if isinstance(notice, Arriving):
            self.node.world.figures.payload_bytes += notice.data_bytes
            if notice.inside:
                self.node.world.moved_at = self._clock.now
        self.node.world.note(f"{self} {notice_line(notice)}")
        if self.place is not None:
            self.place.take(notice, self._clock.now)
        if isinstance(notice, SyncFinished):
            if self.link.once is not None:
                self.link.once.finished(self)
            self._clock.after(0.0, self.finish, self.life)

    def _write(self) -> None:
        self._writing = False
        if self.lie is not None:
            return
        if self._send_some():
            self._writing = True
            # Not at once: the stream may be full, and emptied by nobody any more.
            delay_s = self._rng.uniform(0, self.link.plan.delay_s) + 0.000_01
            self._clock.after(delay_s, self._write, self.life)
        core = self.core
        stirs = core.may_be_due if isinstance(core, Session) else core.stirs.may_be_due
        self._pass_on()
        if stirs:
            self._due.told()
        self._check_told()

    def _check_told(self) -> None:
        """As a connection of a node, which looks again only where something is stirred."""
        if self._due.is_late:
            raise AssertionError(f"{self}: something is due sooner than anybody was told")

    def _on_timer(self) -> None:
        if self._due.came():
            self.guarded(self._advance)
        else:
            self._due.look(self._on_timer, self.life)

    def end(self, why: str) -> None:
        """The connection is over on this side: keep what is whole, and tell the other one."""
        if self.ending is not None:
            return
        self.ending = why
        self.node.world.note(f"{self} ends: {why}")
        self._eof()
        commands = self.core.commands()
        if commands:
            self.node.host.submit(self.port, commands)
        self.forget()
        self.node.host.close_port(self.port)
        if self.place is not None:
            self.place.leave()
        self.link.cut(self, "the other side is gone")

    def forget(self) -> None:
        """The process has gone: nothing happens here any more."""
        self.count_proposals()
        self.life.over = True
        self.ending = self.ending or "crashed"
        self.node.ends.discard(self)

    def count_proposals(self) -> None:
        """Adds what this end has proposed to the world's figures, once."""
        if self.engine is not None and not self.life.over:
            self.node.world.figures.proposals += self.engine._table.next_number() // 2

    def __str__(self) -> str:
        return f"{self.node.name}>{self.link.nodes[1 - self.side].name}"


class SplitEnd(End):
    """An engine whose two channels are two streams."""

    def __init__(
        self, link: "Link", node: "SimNode", side: int, setups: tuple[Setup, Setup], policy: str
    ) -> None:
        super().__init__(link, node, side, policy)
        config = link.config_of(policy)
        negotiated = negotiate(setups[side], setups[1 - side])
        self._engine = Engine(
            negotiated,
            config,
            proactive=side == 0,
            now=self._clock.now,
            tracer=node.tracer(self.place),
            claim=self.claim,
            buckets=node.buckets,
        )
        self.credit = config.data_credit_bytes
        """What may still be sent."""
        self.credit_in_flight = 0
        """Credit on its way to here."""
        self.received = 0
        self._sent_messages = ControlDecoder()
        self.messages: deque[tuple[int, ControlMessage]] = deque()
        """Control messages on their way to here, and where in the stream each ends."""
        self._control_sent = 0
        self._pong_due = False
        self._receipt_due = False
        self.control = Pipe(self._clock, self._rng, link.plan, self._control_arrived)
        self.data = Pipe(self._clock, self._rng, link.plan, self._data_arrived)

    @property
    def engine(self) -> Engine:
        return self._engine

    def _handle(self, event: Event) -> None:
        self._engine.now = self._clock.now
        self._engine.handle(event)

    def _advance(self) -> None:
        self._engine.now = self._clock.now
        self._engine.advance()

    @property
    def core(self) -> Engine:
        return self._engine

    def _eof(self) -> None:
        self._engine.ended()

    def _pass_on(self) -> None:
        super()._pass_on()
        if self.lie is not None:
            return
        other = self.other
        assert isinstance(other, SplitEnd)
        self._send_control(other)
        released = self._engine.data_credit_to_release()
        if released:
            other.credit_in_flight += released
            delay_s = self._rng.uniform(0, self.link.plan.delay_s)
            self._clock.after(delay_s, partial(other._credit_arrived, released), other.life)
        if self._engine.wants_pong and not self._pong_due:
            self._pong_due = True
            self._engine.ping_sent()
            self._clock.after(2.5 * self.link.plan.delay_s, self._pong, self.life)
        if self._engine.wants_receipt and not self._receipt_due:
            self._receipt_due = True
            self._engine.receipt_asked()
            self._clock.after(2.5 * self.link.plan.delay_s, self._receipt, self.life)
            self._due.look(self._on_timer, self.life)

    def _pong(self) -> None:
        """A pong comes behind everything that was sent before it."""
        other = self.other
        assert isinstance(other, SplitEnd)
        if any(pipe.in_flight for pipe in (self.control, self.data, other.control, other.data)):
            self._clock.after(LOOK_S, self._pong, self.life)
        else:
            self._pong_due = False
            self.guarded(self._engine.pong_arrived)

    def _receipt(self) -> None:
        """The same, of control messages alone: data may wait for credit."""
        other = self.other
        assert isinstance(other, SplitEnd)
        if any(pipe.in_flight for pipe in (self.control, other.control)):
            self._clock.after(LOOK_S, self._receipt, self.life)
        else:
            self._receipt_due = False
            self.guarded(self._engine.receipt_came)

    def finish(self) -> None:
        """What a session does with its Close: the other side keeps what has come before it."""
        other = self.other
        assert isinstance(other, SplitEnd)
        stored = other._engine.drained and other.node.host.at_rest
        if other.ending is None and not (stored and not other.node.host.open_sinks):
            self._clock.after(LOOK_S, self.finish, self.life)
        else:
            self.end(CLOSED)

    def _send_control(self, other: "SplitEnd") -> None:
        data = self._engine.control_to_send()
        if data:
            self._sent_messages.feed(data)
            while (message := self._sent_messages.next_message()) is not None:
                self._control_sent += len(encode_control(message))
                other.messages.append((self._control_sent, message))
            other.control.send(data)

    def _send_some(self) -> bool:
        other = self.other
        assert isinstance(other, SplitEnd)
        room = min(self.credit, CAPACITY_BYTES - other.data.in_flight)
        if room <= 0:
            return self.credit > 0
        data = b"".join(self._engine.data_to_send(self._rng.randint(1, room)))
        self.credit -= len(data)
        other.data.send(data)
        return bool(data)

    def _credit_arrived(self, units: int) -> None:
        self.credit_in_flight -= units
        self.credit += units
        self._turn(stirs=True)

    def _control_arrived(self, data: bytes) -> None:
        self._engine.now = self._clock.now
        self.guarded(partial(self._engine.receive_control, data))
        while self.messages and self.messages[0][0] <= self.control.delivered:
            self.messages.popleft()

    def _data_arrived(self, data: bytes) -> None:
        self._engine.now = self._clock.now
        self.received += len(data)
        self.guarded(partial(self._engine.receive_data, data))

    def grants_in_flight(self) -> int:
        """Request credit on its way to here."""
        return sum(m.units for _, m in self.messages if isinstance(m, Grant))

    def begin_to_lie(self) -> None:
        other = self.other
        assert isinstance(other, SplitEnd)
        self._send_control(other)
        liar = Liar(self._engine, self.side == 0, self._rng)
        for channel, name, lie in lies(self._rng):
            said = lie(liar)
            if said is None:
                continue
            if channel == "control":
                other.control.send(said)
            elif not self._engine._outbound._out and len(said) <= self.credit:
                self.credit -= len(said)
                other.data.send(said)
            else:
                continue
            self.lie = name
            self.node.world.lied(self)
            return

    def lose_what_comes(self) -> None:
        self.control.life.over = self.data.life.over = True

    def forget(self) -> None:
        super().forget()
        self.lose_what_comes()


class SessionEnd(End):
    """A whole session over one stream."""

    def __init__(
        self, link: "Link", node: "SimNode", side: int, setups: tuple[Setup, Setup], policy: str
    ) -> None:
        super().__init__(link, node, side, policy)
        role = Role.PROACTIVE if side == 0 else Role.REACTIVE
        config = replace(link.config_of(policy), setup=setups[side])
        self.session = Session(
            role,
            config,
            self._clock.now,
            tracer=node.tracer(self.place),
            claim=self.claim,
            buckets=node.buckets,
        )
        self.stream = Pipe(self._clock, self._rng, link.plan, self._arrived)

    @property
    def engine(self) -> Engine | None:
        return self.session._engine

    def _handle(self, event: Event) -> None:
        self.session.handle(event, self._clock.now)

    def _advance(self) -> None:
        self.session.advance(self._clock.now)

    @property
    def core(self) -> Session:
        return self.session

    def _eof(self) -> None:
        self.session.receive_eof(self._clock.now)

    def finish(self) -> None:
        self.session.close(self._clock.now)
        self._turn()

    def _send_some(self) -> bool:
        other = self.other
        assert isinstance(other, SessionEnd)
        room = CAPACITY_BYTES - other.stream.in_flight
        if room < ROOM_BYTES_MIN:
            return True
        data = self.session.bytes_to_send(self._rng.randint(ROOM_BYTES_MIN, room), self._clock.now)
        other.stream.send(data)
        if not data and self.session.closed:
            how = CLOSED if self.session.both_closed else "closed alone"
            self._clock.after(self.link.plan.delay_s, partial(self.end, how), self.life)
        return bool(data)

    def _arrived(self, data: bytes) -> None:
        self.guarded(partial(self.session.receive_bytes, data, self._clock.now))

    def begin_to_lie(self) -> None:
        """One bit of what is under way is another one; what that does, nobody knows."""
        other = self.other
        assert isinstance(other, SessionEnd)
        if other.stream.flip_bit():
            self.lie = FLIPPED
            self.node.world.lied(self)

    def lose_what_comes(self) -> None:
        self.stream.life.over = True

    def forget(self) -> None:
        super().forget()
        self.lose_what_comes()


class Link:
    """Two nodes that are connected again and again; the first one calls."""

    def __init__(self, clock: Clock, plan: Plan, nodes: "tuple[SimNode, SimNode]") -> None:
        self.clock = clock
        self.plan = plan
        self.nodes = nodes
        self.rng = plan.rng(f"link {nodes[0].name} {nodes[1].name}")
        self.ends: tuple[End, ...] = ()
        self.blocked_until = 0.0
        self.connections = 0
        self.policies = ("follow", "follow")
        """What the next connection is for, on either side."""
        self.once: OneTimeSync | None = None
        """If this one is a one-time sync of either side, what it has to bring."""
        self.names: dict[int, LogKey] = {}
        """The logs of this connection's requests, by their numbers."""
        self._backoff = Backoff(self.rng)
        self._since = 0.0
        self._calling = False

    @property
    def is_up(self) -> bool:
        return bool(self.ends) and all(end.ending is None for end in self.ends)

    def config_of(self, policy: str) -> SessionConfig:
        return replace(self.plan.config, policy="sync") if policy == "sync" else self.plan.config

    def call_soon(self) -> None:
        """Calls again after a while, unless there is a connection."""
        if not self._calling:
            self._calling = True
            self.clock.after(self._backoff.next_delay_s(), self._call)

    def _call(self) -> None:
        self._calling = False
        if any(end.ending is None for end in self.ends):
            return
        if self.clock.now < self.blocked_until or not connect(*self.nodes):
            self.call_soon()
            return
        self.connections += 1
        self._since = self.clock.now
        setups = (draw_setup(self.rng), draw_setup(self.rng))
        self.names = {}
        kind = SplitEnd if self.plan.split else SessionEnd
        self.ends = tuple(
            kind(self, node, side, setups, self.policies[side])
            for side, node in enumerate(self.nodes)
        )
        self.once = OneTimeSync(self) if "sync" in self.policies else None
        self.policies = ("follow", "follow")
        for end in self.ends:
            end.node.ends.add(end)
            end.tell_interests()

    def cut(self, by: End | None, why: str) -> None:
        """The connection is lost: each side notices at a time of its own."""
        for end in self.ends:
            if end.ending is None and end is not by:
                delay_s = self.rng.uniform(0, self.plan.delay_s + 0.01)
                self.clock.after(delay_s, partial(end.end, why), end.life)
        if self.ends and all(end.ending is not None for end in self.ends):
            self._backoff.connected_for(self.clock.now - self._since)
            self.call_soon()

    def cut_now(self) -> None:
        """Somebody pulls the plug: what is under way is lost, perhaps."""
        for end in self.ends:
            if self.rng.random() < 0.5:
                end.lose_what_comes()
        self.cut(None, "connection lost")

    def violated(self, end: End, violation: RemoteViolation) -> None:
        """One side says that the other one broke a rule; honest ones never do."""
        lie = end.other.lie
        if lie is not None:
            end.node.world.found_out(lie, violation)
            return
        raise Broken(f"{end} says that an honest peer broke a rule: {violation}")

    def timed_out(self, end: End, timeout: SessionTimeout) -> None:
        """One side has waited too long for the other."""
        if end.other.lie is not None:
            return
        raise Broken(f"{end} gave up waiting for an honest peer: {timeout}")
