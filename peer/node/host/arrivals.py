"""Payloads that sessions are receiving, and the reads of other sessions behind them.

A payload is read from the file that its sink writes, as far as it has been written, by any number
of sessions at once: nothing is kept in memory for them. A read that is ahead of the writing waits,
and the next write wakes it. When the session that brings a payload is lost, those who read wait for
another one to go on with the same file; when the file turns out wrong, is given up, or goes on from
before what was read of it, they are told so at once (point2point.md 8).

All of this happens in the event loop, and only the reading itself in threads, so that what readers
are told comes in the order in which it happened.
"""

from collections.abc import Callable
from itertools import islice

from msgspec import Struct, field

from logstore import ArrivingFile, PayloadHandle
from peer import PayloadRead, PayloadWithdrawn, ReadPayload
from wire import LogKey

from .port import Port
from .sinks import Sink

Place = tuple[LogKey, int]
"""The log and the sequence number of a payload's entry."""


class Arrival(Struct, eq=False):
    """A payload in one file, which stays the same when another session goes on with it.

    `file` is None for a small one, which cannot be read before it is whole. `written`: how many
    bytes are in the file. `right`: whether all are, and verified.
    """

    place: Place
    payload_bytes: int
    file: ArrivingFile | None
    written: int = 0
    right: bool = False
    feeder: Sink | None = None
    readings: "set[Reading]" = field(default_factory=set)

    @property
    def readable_bytes(self) -> int:
        """Where reading ends now. The last byte is not given away before all are verified."""
        if self.file is None:
            return 0
        return self.payload_bytes if self.right else min(self.written, self.payload_bytes - 1)


class Reading(Struct, eq=False):
    """One request of a session that reads a payload which is arriving, or was.

    `reached`: no byte from here on was read. `waiting`: a read that is to be carried out as soon as
    there is something for it. `busy`: a thread is reading, and nobody else touches the handle.
    """

    port: Port
    request: int
    arrival: Arrival
    handle: PayloadHandle | None = None
    reached: int = 0
    waiting: ReadPayload | None = None
    busy: bool = False
    over: bool = False

    def read(self, offset: int, count: int) -> bytes:
        """In a thread: bytes that have been written; fewer, or none, if the file is going away."""
        if self.handle is None and self.arrival.file is not None:
            self.handle = self.arrival.file.open()
        return b"" if self.handle is None else self.handle.read(count, offset)

    def read_now(self, offset: int, count: int) -> bytes:
        """In the event loop: what was written just now is in memory; none if it is not."""
        return b"" if self.handle is None else self.handle.read_cached(count, offset)

    def close(self) -> None:
        """Nothing is read any more."""
        if self.handle is not None and not self.busy:
            self.handle.close()
            self.handle = None


class Arrivals:
    """Which payloads are arriving, how far they are, and who reads them.

    `read` begins to read so many bytes in a thread; `was_read` is called with them, or
    `cannot_read`. `changed` is told of payloads that begin to arrive or do so no more.
    """

    def __init__(
        self,
        read: Callable[[Reading, ReadPayload, int], None],
        changed: Callable[[LogKey, int], None],
    ) -> None:
        self._read = read
        self._changed = changed
        self._arrivals: dict[Place, Arrival] = {}
        self._readings: dict[tuple[Port, int], Reading] = {}

    def __contains__(self, place: object) -> bool:
        """Whether some session is receiving and storing this payload; from any thread."""
        arrival = self._arrivals.get(place)  # type: ignore[call-overload]
        return arrival is not None and arrival.feeder is not None

    @property
    def readings(self) -> int:
        """How many requests read payloads that are arriving, or have been."""
        return len(self._readings)

    def fed(self, count_max: int) -> list[tuple[Arrival, Sink]]:
        """The payloads that some session is receiving, the first of them."""
        fed = ((each, each.feeder) for each in self._arrivals.values())
        return list(islice(((each, sink) for each, sink in fed if sink is not None), count_max))

    # What becomes of a payload

    def opened(self, sink: Sink, file: ArrivingFile | None, stored: int) -> None:
        """A session begins to receive a payload, or goes on with one behind `stored` bytes."""
        place = (sink.log, sink.seq)
        arrival = self._arrivals.get(place)
        void: list[Reading] = []
        if arrival is not None and arrival.file != file:
            void += arrival.readings
            arrival = None
        if arrival is None:
            arrival = Arrival(place, sink.command.payload_bytes, file)
            self._arrivals[place] = arrival
        void += (reading for reading in arrival.readings if reading.reached > stored)
        arrival.feeder = sink
        arrival.written = stored
        self._withdraw(void)
        self._changed(*place)
        self._go_on(arrival)

    def grew(self, sink: Sink, stored: int) -> None:
        """So many bytes are in the file now."""
        arrival = self._fed_by(sink)
        if arrival is not None:
            arrival.written = stored
            self._go_on(arrival)

    def proved(self, sink: Sink) -> None:
        """All bytes are there, and right."""
        arrival = self._fed_by(sink)
        if arrival is not None:
            arrival.right = True
            self._go_on(arrival)

    def is_read(self, sink: Sink) -> bool:
        """Whether somebody reads behind what a session receives."""
        arrival = self._fed_by(sink)
        return arrival is not None and bool(arrival.readings)

    def left(self, sink: Sink) -> None:
        """The session receives it no more; what came stays, and another one may go on."""
        arrival = self._fed_by(sink)
        if arrival is not None:
            arrival.feeder = None
            self._tidy(arrival)
            self._changed(*arrival.place)

    def spoiled(self, sink: Sink) -> None:
        """What came is wrong, or not kept."""
        arrival = self._fed_by(sink)
        if arrival is not None:
            del self._arrivals[arrival.place]
            self._withdraw(list(arrival.readings))
            self._changed(*arrival.place)

    def completed(self, sink: Sink) -> None:
        """The payload is its entry's, and read as such from now on; who is at it goes on."""
        arrival = self._fed_by(sink)
        if arrival is not None:
            del self._arrivals[arrival.place]
            if arrival.file is None:
                self._withdraw(list(arrival.readings))
            self._changed(*arrival.place)

    def _fed_by(self, sink: Sink) -> Arrival | None:
        arrival = self._arrivals.get((sink.log, sink.seq))
        return arrival if arrival is not None and arrival.feeder is sink else None

    # Reading

    def join(self, port: Port, command: ReadPayload) -> bool:
        """Carries out a read if it is of a payload that is arriving; False if it is not."""
        place, key = (command.log, command.seq), (port, command.request)
        reading = self._readings.get(key)
        if reading is not None and reading.arrival.place != place:
            self._leave(reading)
            reading = None
        if reading is not None and not command.arriving and not reading.arrival.right:
            # It is held by now, but perhaps other bytes were read than those that are held.
            self._withdraw([reading])
            return True
        if reading is None:
            arrival = self._arrivals.get(place) if command.arriving else None
            if arrival is None:
                return False
            reading = self._readings[key] = Reading(port, command.request, arrival)
            arrival.readings.add(reading)
        reading.waiting = command
        self._serve(reading)
        return True

    def stop(self, port: Port, request: int) -> None:
        """This request reads no more."""
        reading = self._readings.get((port, request))
        if reading is not None:
            self._leave(reading)

    def forget(self, port: Port) -> None:
        """A session has ended."""
        for reading in [each for each in self._readings.values() if each.port is port]:
            self._leave(reading)

    def was_read(self, reading: Reading, command: ReadPayload, data: bytes) -> None:
        """What a thread has read."""
        reading.busy = False
        arrival = reading.arrival
        if reading.over:
            reading.close()
            return
        if not data and not arrival.right:
            # The file is going away, and whoever removes it will say so here.
            reading.waiting = reading.waiting or command
            return
        if reading.waiting is None:
            if not data or command.offset + len(data) == arrival.payload_bytes:
                self._leave(reading)
        elif not data:
            # Whoever has asked again meanwhile would wait for ever: it begins anew.
            self._withdraw([reading])
            return
        reading.port.deliver(
            PayloadRead(command.request, command.seq, command.offset, data, arrival.right)
        )
        self._serve(reading)

    def cannot_read(self, reading: Reading) -> None:
        """Reading has failed; the request is told by whoever calls this."""
        reading.busy = False
        if reading.over:
            reading.close()
        else:
            self._leave(reading)

    def _go_on(self, arrival: Arrival) -> None:
        for reading in list(arrival.readings):
            self._serve(reading, at_once=True)

    def _serve(self, reading: Reading, *, at_once: bool = False) -> None:
        """Carry out a read that waits. `at_once`: it may be answered before this returns."""
        command = reading.waiting
        if command is None or reading.busy or reading.over:
            return
        count = min(command.bytes_max, reading.arrival.readable_bytes - command.offset)
        if count <= 0:
            return
        reading.waiting = None
        reading.reached = max(reading.reached, command.offset + count)
        data = reading.read_now(command.offset, count) if at_once else b""
        if data:
            self.was_read(reading, command, data)
        else:
            reading.busy = True
            self._read(reading, command, count)

    def _withdraw(self, readings: list[Reading]) -> None:
        for reading in readings:
            if not reading.over:
                self._leave(reading)
                seq = reading.arrival.place[1]
                reading.port.deliver(PayloadWithdrawn(reading.request, seq))

    def _leave(self, reading: Reading) -> None:
        reading.over = True
        reading.waiting = None
        reading.close()
        del self._readings[reading.port, reading.request]
        reading.arrival.readings.discard(reading)
        self._tidy(reading.arrival)

    def _tidy(self, arrival: Arrival) -> None:
        """Nobody has to remember a payload that nobody brings and nobody reads."""
        idle = arrival.feeder is None and not arrival.readings
        if idle and self._arrivals.get(arrival.place) is arrival:
            del self._arrivals[arrival.place]
