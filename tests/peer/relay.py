"""Nodes with several sessions: payloads that one of them receives are read by the others.

A node is a store and one host for each of its links. Links are pairs of engines as in rig.py; what
is written into a store by one host wakes the reads of the other ones.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from peer.engine import Engine
from peer.protocol.commands import (
    ClosePayload,
    Command,
    FinishPayload,
    OpenPayload,
    ReadEntries,
    ReadPayload,
    StopReading,
    WritePayload,
)
from peer.protocol.config import SessionConfig
from peer.protocol.errors import RemoteViolation
from peer.protocol.events import (
    ArrivalChanged,
    EntriesRead,
    Event,
    Interests,
    InterestsChanged,
    PayloadFinished,
    PayloadRead,
    PayloadWithdrawn,
    PayloadWritten,
    Verdict,
)
from wire import LogKey, Setup, negotiate, yamf_hash

from .rig import SETUP, Host, Pair, Sink, Store, _row

Place = tuple[LogKey, int]
SAFE = Setup(send_greedily=False, accept_greedily=False, send_window=1024, receive_window=1024)


@dataclass(eq=False)
class Arrival:
    """A payload as far as it has come; `reached`: how far each request of each host has read."""

    data: bytearray
    feeder: object = None
    reached: dict[tuple["RelayHost", int], int] = field(default_factory=dict)
    waiting: dict[tuple["RelayHost", int], ReadPayload] = field(default_factory=dict)


@dataclass
class RelayStore(Store):
    """A store whose arriving payloads can be read by any of its hosts."""

    arrivals: dict[Place, Arrival] = field(default_factory=dict)
    watchers: list["RelayHost"] = field(default_factory=list)  # type: ignore[assignment]

    def tell(self, log: LogKey, seq: int) -> None:
        for host in self.watchers:
            host.deliver(ArrivalChanged(log, seq))

    def begin(self, place: Place, feeder: object, offset: int) -> Arrival:
        """Somebody feeds a payload from `offset` on; what was held behind that is forgotten."""
        arrival = self.arrivals.get(place)
        kept = self.partial.pop(place, b"")[:offset]
        if arrival is None:
            arrival = self.arrivals[place] = Arrival(bytearray(kept))
        arrival.data[:] = kept
        arrival.feeder = feeder
        self.withdraw(place, [key for key, reached in arrival.reached.items() if reached > offset])
        self.tell(*place)
        return arrival

    def feed(self, place: Place, data: bytes) -> None:
        self.arrivals[place].data += data
        self.serve(place)

    def serve(self, place: Place) -> None:
        """Those who wait try again."""
        arrival = self.arrivals[place]
        waiting, arrival.waiting = arrival.waiting, {}
        for (host, _), command in waiting.items():
            host.todo.append(command)

    def leave(self, place: Place) -> None:
        """The connection that fed it is lost: what came is kept, and who reads waits."""
        arrival = self.arrivals[place]
        arrival.feeder = None
        self.partial[place] = bytes(arrival.data)
        if not arrival.reached:
            del self.arrivals[place]
        self.tell(*place)

    def spoil(self, place: Place) -> None:
        """What came is wrong."""
        self.withdraw(place, list(self.arrivals[place].reached))
        del self.arrivals[place]
        self.tell(*place)

    def complete(self, place: Place) -> None:
        """All has come and is right."""
        log, seq = place
        arrival = self.arrivals[place]
        self.logs[log][seq].payload = bytes(arrival.data)
        self.serve(place)
        del self.arrivals[place]
        self.tell(log, seq)
        self.changed(log)

    def withdraw(self, place: Place, readers: Iterable[tuple["RelayHost", int]]) -> None:
        arrival = self.arrivals[place]
        for host, request in readers:
            arrival.reached.pop((host, request), None)
            arrival.waiting.pop((host, request), None)
            host.forget_reads(request)
            host.deliver(PayloadWithdrawn(request, place[1]))


class RelayHost(Host):
    """A host of a relay store."""

    store: RelayStore
    violation: RemoteViolation | None = None
    """What the other side did, found out while another link was served."""

    def deliver(self, event: Event) -> None:
        """Tell the engine at once, as the node does."""
        if self.engine is not None and self.violation is None:
            try:
                self.engine.handle(event)
            except RemoteViolation as violation:
                self.violation = violation

    def forget_reads(self, request: int) -> None:
        for item in [each for each in self.todo if isinstance(each, ReadPayload)]:
            if item.request == request:
                self.todo.remove(item)

    def stop_reading(self, request: int | None = None) -> None:
        """A request, or all of them, reads no more."""
        for arrival in self.store.arrivals.values():
            for key in [key for key in arrival.reached if key[0] is self]:
                if request in (None, key[1]):
                    del arrival.reached[key]
                    arrival.waiting.pop(key, None)
        for place in [p for p, a in self.store.arrivals.items() if not a.reached and not a.feeder]:
            del self.store.arrivals[place]

    def _replies(self, item: Command | Event) -> list[Event]:
        match item:
            case ReadPayload():
                return self._read(item)
            case StopReading():
                self.stop_reading(item.request)
                self.forget_reads(item.request)
                return []
            case ReadEntries():
                arriving = {
                    seq
                    for (log, seq), arrival in self.store.arrivals.items()
                    if log == item.log and arrival.feeder is not None
                }
                held = self.store.logs[item.log]
                rows = self._rows(item)
                return [
                    EntriesRead(
                        item.request,
                        tuple(
                            _row(
                                row.seq,
                                held[row.seq],
                                arriving=row.seq in arriving and not row.payload_held,
                            )
                            for row in rows
                        ),
                    )
                ]
            case WritePayload():
                sink = self.sinks[item.sink]
                sink.data += item.data
                place = (sink.command.log, sink.command.seq)
                if self._feeds(item.sink):
                    self.store.feed(place, bytes(item.data))
                return [PayloadWritten(item.sink, len(item.data))]
            case _:
                return super()._replies(item)

    def _read(self, item: ReadPayload) -> list[Event]:
        place = (item.log, item.seq)
        held = self.store.logs[item.log].get(item.seq)
        arrival = self.store.arrivals.get(place)
        if held is not None and held.payload is not None:
            chunk = held.payload[item.offset : item.offset + item.bytes_max]
            return [PayloadRead(item.request, item.seq, item.offset, chunk)]
        if arrival is None or held is None or not item.arriving:
            return [PayloadRead(item.request, item.seq, item.offset, b"")]
        key = (self, item.request)
        readable = min(len(arrival.data), held.entry.payload_bytes - 1)
        chunk = bytes(arrival.data[item.offset : min(readable, item.offset + item.bytes_max)])
        arrival.reached[key] = max(arrival.reached.get(key, 0), item.offset + len(chunk))
        if not chunk:
            arrival.waiting[key] = item
            return []
        return [PayloadRead(item.request, item.seq, item.offset, chunk, verified=False)]

    def _feeds(self, sink: int) -> bool:
        command = self.sinks[sink].command
        arrival = self.store.arrivals.get((command.log, command.seq))
        return arrival is not None and arrival.feeder == (id(self), sink)

    def _open(self, item: OpenPayload) -> None:
        place = (item.log, item.seq)
        held = self.store.logs[item.log].get(item.seq)
        arrival = self.store.arrivals.get(place)
        taken = arrival is not None and arrival.feeder is not None
        whole = held is not None and held.payload is not None
        prefix = self.store.partial.get(place, b"")[: item.offset]
        if whole and held is not None and held.payload is not None:
            prefix = held.payload[: item.offset]
        storing = not taken and not whole and len(prefix) == item.offset
        self.sinks[item.sink] = Sink(item, bytearray(prefix), resumed=item.offset > 0)
        if storing:
            self.store.begin(place, (id(self), item.sink), item.offset)

    def _close(self, item: ClosePayload) -> None:
        feeds = self._feeds(item.sink)
        command = self.sinks.pop(item.sink).command
        if feeds:
            place = (command.log, command.seq)
            (self.store.spoil if item.discard else self.store.leave)(place)

    def _finish(self, item: FinishPayload) -> list[Event]:
        feeds = self._feeds(item.sink)
        sink = self.sinks.pop(item.sink)
        place = (sink.command.log, sink.command.seq)
        right = yamf_hash(bytes(sink.data)) == sink.command.payload_hash
        if feeds and right:
            assert self.store.arrivals[place].data == sink.data
            self.store.complete(place)
        elif feeds:
            self.store.spoil(place)
        if right:
            return [PayloadFinished(item.sink, Verdict.VALID)]
        wrong = Verdict.INVALID_RESUMED if sink.resumed else Verdict.INVALID
        return [PayloadFinished(item.sink, wrong, "wrong hash")]


class Link(Pair):
    """A connection between two relay stores."""

    hosts: tuple[RelayHost, RelayHost]

    def __init__(
        self,
        left: RelayStore,
        right: RelayStore,
        *,
        config: SessionConfig | None = None,
        credit: int = 4096,
        setups: tuple[Setup, Setup] = (SETUP, SETUP),
    ) -> None:
        super().__init__(config, credit=credit, stores=(left, right))
        for host, store in zip(self.hosts, (left, right), strict=True):
            store.watchers.remove(host)
        self.hosts = (RelayHost(left), RelayHost(right))
        self.setups = setups
        self.violation: RemoteViolation | None = None
        """Why one side ended the connection."""

    def open(self, *logs: LogKey) -> None:
        """Both sides follow these logs."""
        interests = Interests(logs=frozenset(logs))
        for side, host in enumerate(self.hosts):
            negotiated = negotiate(self.setups[side], self.setups[1 - side])
            host.engine = Engine(negotiated, self.config, proactive=side == 0, now=self.now)
            host.todo.append(InterestsChanged(interests, tuple(sorted(logs))))

    def close(self) -> None:
        """The connection is lost; as in a session, nothing is handed to the engines any more."""
        for host in self.hosts:
            if host.engine is not None:
                host.engine.ended()
                host.collect()
                host.engine = None
            while host.step():
                pass
        self.disconnect()
        for host in self.hosts:
            host.stop_reading()
            host.violation = None

    def act(self, action: str, side: int, size: int) -> None:
        """One step of what Hypothesis chose for an open link; what is no step changes nothing."""
        match action:
            case "host":
                self.do(lambda: [self.hosts[side].step(size) for _ in range(1 + size // 100)])
            case "pump":
                self.data_credit[1 - side] += self.engine(side).data_credit_to_release()
                self.do(lambda: self.pump(side, data_max=size))
            case "control":
                self.do(lambda: self.deliver_control(side, len(self.control[side])))
            case "data":
                self.do(lambda: self.deliver_data(side, size))
            case _:
                pass

    def do(self, action: Callable[[], object]) -> object:
        """Do something to one of the engines; a broken rule ends the connection."""
        try:
            done = action()
            for host in self.hosts:
                if host.violation is not None:
                    raise host.violation
        except RemoteViolation as violation:
            self.violation = violation
            self.close()
            return True
        return done

    @property
    def is_open(self) -> bool:
        return self.hosts[0].engine is not None


def run_all(
    links: Iterable[Link], *, until: Callable[[], bool] = lambda: False, bytes_max: int = 1 << 20
) -> None:
    """Let everything happen on all links, a little at a time, until nothing is left to do."""
    every = list(links)
    for _ in range(20_000):
        if until():
            return
        busy = [step(link, bytes_max=bytes_max) for link in every if link.is_open]
        if not any(busy):
            return
    raise AssertionError("still busy")


def step(link: Link, *, bytes_max: int = 1 << 20) -> bool:
    """One round of one link; False if nothing happened."""
    return bool(link.do(lambda: _step(link, bytes_max)))


def _step(link: Link, bytes_max: int) -> bool:
    busy = False
    for side in (0, 1):
        while link.hosts[side].step():
            busy = True
        link.data_credit[1 - side] += link.engine(side).data_credit_to_release()
        link.pump(side, data_max=bytes_max)
        if link.control[side]:
            busy = True
            link.deliver_control(side, len(link.control[side]))
        if link.data[side]:
            busy = True
            link.deliver_data(side, min(bytes_max, len(link.data[side])))
    return busy
