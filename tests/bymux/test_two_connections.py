"""Two honest connections, driven at random over links that deliver whenever they like."""

from collections import defaultdict
from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bymux import (
    INFINITE,
    CloseReceived,
    Config,
    Connection,
    CreditReceived,
    DataReceived,
    Event,
    InitialStream,
    PongReceived,
    Role,
    StopReadReceived,
    StreamEnded,
    StreamOpened,
)

from .factory import everything_from

Life = tuple[int, int]
"""A stream: its id, and how often that id was used before."""


@dataclass
class Side:
    """A connection, the link that leads away from it, and the model of what it did and saw."""

    connection: Connection
    link: bytearray = field(default_factory=bytearray)
    uses: dict[int, int] = field(default_factory=lambda: {0: 1, 1: 1})
    sent: dict[Life, bytes] = field(default_factory=lambda: defaultdict(bytes))
    received: dict[Life, bytes] = field(default_factory=lambda: defaultdict(bytes))
    unconsumed: dict[Life, int] = field(default_factory=lambda: defaultdict(int))
    window: dict[Life, int] = field(default_factory=lambda: defaultdict(int))
    """All that was granted; INFINITE if it is."""
    closed: set[Life] = field(default_factory=set)
    stopped: set[Life] = field(default_factory=set)
    peer_closed: set[Life] = field(default_factory=set)
    peer_stopped: set[Life] = field(default_factory=set)
    pings: int = 0
    pongs: int = 0
    creation_closed: bool = False
    creation_stopped: bool = False

    def life(self, number: int) -> Life:
        return number, self.uses[number]

    def living(self) -> list[Life]:
        return [self.life(number) for number in self.connection.active_streams]

    def started(self, number: int) -> None:
        self.uses[number] = self.uses.get(number, 0) + 1

    def take(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case DataReceived(stream, data):
                    self.received[self.life(stream)] += data
                    self.unconsumed[self.life(stream)] += len(data)
                case StreamOpened(stream):
                    self.started(stream)
                case CloseReceived(None):
                    self.creation_stopped = True  # by way of answer
                case StopReadReceived(None):
                    self.creation_closed = True
                case CloseReceived(int() as stream):
                    assert self.life(stream) not in self.peer_closed
                    self.peer_closed.add(self.life(stream))
                    self.stopped.add(self.life(stream))
                case StopReadReceived(int() as stream):
                    assert self.life(stream) not in self.peer_stopped
                    self.peer_stopped.add(self.life(stream))
                    self.closed.add(self.life(stream))
                case StreamEnded(stream):
                    life = self.life(stream)
                    assert life in self.peer_closed & self.peer_stopped
                    assert life in self.closed & self.stopped
                case PongReceived():
                    self.pongs += 1
                case CreditReceived(None):
                    assert self.connection.streams_openable or self.creation_closed
                case _:  # CreditReceived of a stream
                    pass  # what it brought may be used up by the end of the call


WHO = st.sampled_from((0, 1))


class TwoConnections(RuleBasedStateMachine):
    """No call here is misuse, so nothing may raise at all."""

    @initialize(write_bytes_max=st.integers(1, 40), credit=st.sampled_from([0, 9]))
    def connect(self, write_bytes_max: int, credit: int) -> None:
        initial = (InitialStream(0, INFINITE, INFINITE), InitialStream(1, credit, credit))
        config = Config(write_bytes_max=write_bytes_max, initial_streams=initial)
        self.sides = [Side(Connection(role, config)) for role in Role]
        for side in self.sides:
            side.window.update({(0, 1): INFINITE, (1, 1): credit})

    # What the applications do.

    @rule(who=WHO, data=st.data())
    def send(self, who: int, data: st.DataObject) -> None:
        side = self.sides[who]
        writable = [life for life in side.living() if life not in side.closed]
        if writable:
            life = data.draw(st.sampled_from(writable))
            most = min(100, side.connection.sendable(life[0]))
            body = data.draw(st.binary(max_size=most))
            side.connection.send(life[0], body)
            side.sent[life] += body

    @rule(who=WHO, data=st.data())
    def consume(self, who: int, data: st.DataObject) -> None:
        side = self.sides[who]
        living = [life for life in side.living() if side.unconsumed[life]]
        if living:
            life = data.draw(st.sampled_from(living))
            count = data.draw(st.integers(0, side.unconsumed[life]))
            side.connection.consumed(life[0], count)
            side.unconsumed[life] -= count

    @rule(who=WHO, amount=st.integers(1, 200) | st.just(INFINITE), data=st.data())
    def grant(self, who: int, amount: int, data: st.DataObject) -> None:
        side = self.sides[who]
        open_lives = [
            life
            for life in side.living()
            if life not in side.stopped and (amount == INFINITE or side.window[life] != INFINITE)
        ]
        if open_lives:
            life = data.draw(st.sampled_from(open_lives))
            side.connection.grant(life[0], amount)
            side.window[life] = INFINITE if amount == INFINITE else side.window[life] + amount

    @precondition(lambda self: sum(side.pings for side in self.sides) < 100)
    @rule(who=WHO)
    def ping(self, who: int) -> None:
        side = self.sides[who]
        if not (side.creation_closed and side.creation_stopped):
            side.connection.ping()
            side.pings += 1

    @rule(who=WHO, data=st.data(), is_close=st.booleans())
    def end(self, who: int, data: st.DataObject, is_close: bool) -> None:
        side = self.sides[who]
        said = side.closed if is_close else side.stopped
        lives = [life for life in side.living() if life not in said]
        if lives:
            life = data.draw(st.sampled_from(lives))
            command = side.connection.close if is_close else side.connection.stop_read
            command(life[0])
            said.add(life)

    @rule(who=WHO, count=st.integers(1, 3))
    def grant_streams(self, who: int, count: int) -> None:
        side = self.sides[who]
        if not side.creation_stopped:
            side.connection.grant_streams(count)

    @rule(who=WHO)
    def open_stream(self, who: int) -> None:
        side = self.sides[who]
        if side.connection.streams_openable:
            side.started(side.connection.open_stream())

    # What the links do.

    @rule(who=WHO, bytes_max=st.integers(18, 300))
    def collect(self, who: int, bytes_max: int) -> None:
        side = self.sides[who]
        side.link += side.connection.data_to_send(bytes_max)

    @rule(who=WHO, bytes_max=st.integers(1, 300))
    def deliver(self, who: int, bytes_max: int) -> None:
        side = self.sides[who]
        data, side.link[:bytes_max] = bytes(side.link[:bytes_max]), b""
        target = self.sides[1 - who]
        target.take(target.connection.receive_data(data))

    @rule()
    def exchange(self) -> None:
        """Everything under way arrives, which gets a run deeper in the same number of steps."""
        self.settle()

    # What always holds.

    @invariant()
    def what_arrives_is_a_prefix_of_what_was_sent(self) -> None:
        for side, other in (self.sides, self.sides[::-1]):
            for life, received in side.received.items():
                assert other.sent[life].startswith(received)

    @invariant()
    def credit_is_conserved(self) -> None:
        """Nothing of what was granted is lost or granted twice, until someone stops."""
        for side in self.sides:
            for life in side.living():
                if life in side.stopped or side.window[life] == INFINITE:
                    continue
                receive = side.connection._registry.streams[life[0]].receive
                inside = receive.left + receive.due + receive.restorable
                announced = side.connection._inbox._body_left
                if side.connection._inbox._body_stream is not None and announced:
                    is_here = side.connection._inbox._body_stream.number == life[0]
                    inside += announced if is_here else 0
                assert inside + side.unconsumed[life] == side.window[life]

    def settle(self) -> None:
        for _ in range(10):
            for side, target in (self.sides, self.sides[::-1]):
                data = bytes(side.link) + everything_from(side.connection)
                side.link.clear()
                side.take(side.connection.receive_data(b""))
                target.take(target.connection.receive_data(data))

    def teardown(self) -> None:
        self.settle()
        for side, other in (self.sides, self.sides[::-1]):
            assert not side.connection.wants_to_send
            if not (side.creation_closed or side.creation_stopped):
                assert side.pongs == side.pings
            for life in side.living():
                # With nothing under way both sides know the same credit.
                here = side.connection._registry.streams[life[0]].receive.left
                there = other.connection._registry.streams[life[0]].send.left
                assert here == there
        for side in self.sides:
            for life in side.living():
                if life not in side.closed:
                    side.connection.close(life[0])
                    side.closed.add(life)
                if life not in side.stopped:
                    side.connection.stop_read(life[0])
                    side.stopped.add(life)
            if not side.creation_closed:
                side.connection.close_creation()
                side.creation_closed = True
            if not side.creation_stopped:
                side.connection.stop_creation()
                side.creation_stopped = True
        self.settle()
        for side, other in (self.sides, self.sides[::-1]):
            assert side.connection.active_streams == ()
            assert side.connection.is_finished
            for life, sent in side.sent.items():
                assert other.received[life] == sent


TestTwoConnections = TwoConnections.TestCase
