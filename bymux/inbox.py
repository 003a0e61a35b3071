"""What comes in: cuts bytes into packets, judges each, and says what it caused.

Bytes are read in place. A header that the end of the bytes cuts off is kept (at most 16 bytes) and
completed by the next ones. A body is never waited for: a Write is judged whole by its header, and
what is there of its body is handed on at once.
"""

from typing import Final

from .channel import Channel, Stream
from .config import INFINITE, Config
from .credit import CREDIT
from .errors import Violation
from .events import (
    CloseReceived,
    CreditReceived,
    DataReceived,
    Event,
    PongReceived,
    StopReadReceived,
    StreamEnded,
    StreamOpened,
)
from .half import MAY_WRITE, Half, Input, advance, check_may_ping, place
from .idle import IdleWork
from .outbox import Outbox
from .packets import LAYOUTS, Kind, Layout
from .registry import CREATING, PACKETS, Registry

_from_bytes = int.from_bytes

VIEW_BYTES_MIN: Final = 64 * 1024
"""A body of which so much is here is handed on as a view of what came, and not copied. Of less a
view would keep many times as much in memory as the credit counts: the whole of what came at once,
which is four of these where a transport reads 256 KiB."""


class Inbox:
    """Turns the peer's packets into events and into what is owed for them."""

    def __init__(self, registry: Registry, outbox: Outbox, config: Config) -> None:
        self._registry = registry
        self._outbox = outbox
        self._config = config
        self.idle = IdleWork(config.limits)
        self.packets = 0
        """Packets received, as far as their headers are complete."""
        self.small_writes = 0
        """Of them, Writes of a few bytes, since somebody asked."""
        self._data = b""
        """What is being read, from `_position` on: not all is in one turn."""
        self._position = 0
        self.events: list[Event] = []
        self._header = b""
        """The first bytes of a header that is not complete yet."""
        self._body_left = 0
        """How much of a Write's body is still to come."""
        self._body_stream: Stream | None = None
        self._credited: set[int | None] = set()
        """Streams whose CreditReceived is among the events already."""

    def take_events(self) -> list[Event]:
        """The events so far; the next ones go to a new list."""
        events, self.events = self.events, []
        self._credited.clear()
        return events

    def report_ended(self) -> None:
        """Reports the streams that our own packets ended."""
        self.events.extend(map(StreamEnded, self._registry.take_ended()))

    @property
    def has_unread(self) -> bool:
        """Whether a turn has ended before all was read."""
        return self._position < len(self._data)

    def receive(self, data: bytes, packets_max: int | None) -> None:
        """Takes the next bytes, and reads so many packets of them and of those that were left.

        Raises Violation at a packet that breaks a rule.
        """
        position = self._position
        if position < len(self._data):
            data = self._data[position:] + data if data else self._data
            position = 0 if data is not self._data else position
        else:
            position = self._complete_header(data) if self._header else 0
        size = len(data)
        last = None if packets_max is None else self.packets + packets_max
        while position < size and (last is None or self.packets < last or self._body_left):
            if self._body_left:
                position = self._take_body(data, position, size)
                continue
            layout = _layout(data[position])
            end = position + layout.header_bytes
            if end > size:
                self._header = data[position:]
                position = size
                break
            self._take_packet(layout, data, position, end)
            position = end
        # Where it was cut stands beside it: a copy for each turn would be work for nothing.
        self._data, self._position = (data, position) if position < size else (b"", 0)

    def _complete_header(self, data: bytes) -> int:
        """Goes on with a header that was cut off. Returns how many bytes of `data` it took."""
        layout = _layout(self._header[0])
        missing = layout.header_bytes - len(self._header)
        header = self._header + data[:missing]
        if len(data) < missing:
            self._header = header
        else:
            self._header = b""
            self._take_packet(layout, header, 0, layout.header_bytes)
        return missing

    def _take_body(self, data: bytes, position: int, size: int) -> int:
        """Hands on what is there of a body. Returns where the rest of the bytes begins."""
        count = min(self._body_left, size - position)
        stream = self._body_stream
        assert stream is not None
        end = position + count
        source: bytes | memoryview = data if count < VIEW_BYTES_MIN else memoryview(data)
        self.events.append(DataReceived(stream.number, source[position:end]))
        self._body_left -= count
        stream.receive.unconsumed += count
        if self.idle.used:
            self.idle.useful(count)
        return end

    def _take_packet(self, layout: Layout, data: bytes, position: int, end: int) -> None:
        """Judges a packet whose header stands in `data` from `position` to `end`."""
        kind, is_global, amount_at, _ = layout
        self.packets += 1
        amount_at += position
        # Nearly all ids are of one byte, which an index reads in a fifth of the time of a slice.
        position += 1
        if amount_at - position == 1:
            number = data[position]
        else:
            number = _from_bytes(data[position:amount_at], "big")
        if end - amount_at == 1:
            amount = data[amount_at]
        else:
            amount = _from_bytes(data[amount_at:end], "big")
        if is_global:
            self._take_global(kind, number, amount)
            return
        stream = self._registry.streams.get(number)
        if stream is None:
            raise Violation(
                PACKETS,
                f"{_NAMES[kind]} of stream {number}, which is not active",
                stream=number,
                value=number,
            )
        if kind is Kind.WRITE:
            self._take_write(stream, amount)
        elif kind is Kind.CREDIT:
            self._take_credit(stream, amount)
        else:
            self._take_signal(kind, stream)

    def _take_global(self, kind: Kind, number: int, amount: int) -> None:
        if kind is Kind.WRITE:
            self._take_create(number)
        elif kind is Kind.CREDIT:
            self._take_global_credit(amount)
        else:
            self._take_signal(kind, self._registry.creation)

    def _take_write(self, stream: Stream, amount: int) -> None:
        if not MAY_WRITE[stream.theirs]:
            advance(stream.theirs, Input.WRITE, stream.id)
        receive = stream.receive
        receive.announce(amount, stream.number)
        if amount == 0:
            self.idle.spend("Write of 0 bytes", stream.id)
            return
        # Who has nothing left was given no more than that: while most of a small window is kept for
        # data that wait, the rest goes to and fro, and by the rule of restoring it has to.
        if amount < self._config.limits.small_write_bytes and receive.left:
            self.small_writes += 1
        self._body_left = amount
        self._body_stream = stream
        if receive.restorable and receive.restore():
            self._outbox.hurry(stream)

    def _take_credit(self, stream: Stream, amount: int) -> None:
        stream.theirs = advance(stream.theirs, Input.CREDIT, stream.id)
        send = stream.send
        if not send.add(amount, stream.number):
            self.idle.spend("Credit of 0", stream.id)
            return
        if send.credits_free:
            send.credits_free -= 1
        else:
            self.idle.spend("Credit for which nothing was written", stream.id)
        self._report_credit(stream)

    def _take_global_credit(self, amount: int) -> None:
        creation = self._registry.creation
        creation.theirs = advance(creation.theirs, Input.CREDIT, None)
        if creation.send_credit + amount > INFINITE:
            detail = f"global: Credit of {amount} on top of {creation.send_credit} exceeds 2^64 - 1"
            raise Violation(CREDIT, detail, value=amount)
        if amount == 0:
            self.idle.spend("Credit of 0", None)
            return
        creation.send_credit += amount
        self._report_credit(creation)

    def _report_credit(self, channel: Channel) -> None:
        # Who cannot write any more has no use for it.
        if MAY_WRITE[channel.ours] and channel.id not in self._credited:
            self._credited.add(channel.id)
            self.events.append(CreditReceived(channel.id))

    def _take_create(self, number: int) -> None:
        creation = self._registry.creation
        creation.theirs = advance(creation.theirs, Input.WRITE, None)
        if creation.receive_credit == 0:
            detail = f"global: Write creates stream {number} without global credit"
            raise Violation(CREATING, detail, stream=number, value=number)
        self._registry.create_theirs(number)
        creation.receive_credit -= 1
        self.events.append(StreamOpened(number))

    def _take_signal(self, kind: Kind, channel: Channel) -> None:
        if kind is Kind.PING:
            self._take_ping(channel)
        elif kind is Kind.PONG:
            self._take_pong(channel)
        elif kind is Kind.CLOSE:
            self._take_close(channel)
        else:
            self._take_stop_read(channel)

    def _take_ping(self, channel: Channel) -> None:
        if not channel.ping_always:
            check_may_ping(channel.theirs, "Ping", channel.id)
        self.idle.spend("Ping", channel.id)
        if channel.over_for_us and not channel.ping_always:
            return  # our half has no Pong to give any more
        limit = self._config.limits.pongs_owed_max
        if channel.pongs_owed >= limit:
            detail = f"{place(channel.id)}: one Ping more than the {limit} Pongs owed already"
            raise Violation("bymux.md Ping, Pong", detail, stream=channel.id)
        channel.pongs_owed += 1
        self._outbox.hurry(channel)

    def _take_pong(self, channel: Channel) -> None:
        if not channel.ping_always:
            check_may_ping(channel.theirs, "Pong", channel.id)
        if channel.pings_unanswered:
            channel.pings_unanswered -= 1
            self.events.append(PongReceived(channel.id))
        else:
            self.idle.spend("Pong", channel.id)

    def _take_close(self, channel: Channel) -> None:
        channel.theirs = advance(channel.theirs, Input.CLOSE, channel.id)
        self.events.append(CloseReceived(channel.id))
        answered = channel.ours in {Half.STOPPED, Half.ENDED}
        # Creating streams has nothing that the application would first have to store.
        if not answered and (self._config.answer_close or channel.id is None):
            channel.ours = advance(channel.ours, Input.STOP_READ, channel.id)
            self._outbox.stop_read(channel)
        self._end_if_over(channel)

    def _take_stop_read(self, channel: Channel) -> None:
        channel.theirs = advance(channel.theirs, Input.STOP_READ, channel.id)
        self.events.append(StopReadReceived(channel.id))
        if MAY_WRITE[channel.ours]:
            channel.ours = advance(channel.ours, Input.CLOSE, channel.id)
            self._outbox.close(channel)
        self._end_if_over(channel)

    def _end_if_over(self, channel: Channel) -> None:
        if isinstance(channel, Stream) and channel.is_over:
            self._registry.release(channel)
            self.report_ended()


_NAMES = {
    Kind.CREDIT: "Credit",
    Kind.WRITE: "Write",
    Kind.PING: "Ping",
    Kind.PONG: "Pong",
    Kind.CLOSE: "Close",
    Kind.STOP_READ: "StopRead",
}


def _layout(first: int) -> Layout:
    layout = LAYOUTS[first]
    if layout is None:
        detail = f"first byte {first:#04x}: no packet has type {first >> 5:03b}"
        raise Violation(PACKETS, detail, value=first)
    return layout
