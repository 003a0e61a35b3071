"""What goes out, and in which order (bymux.md Fairness).

Two queues of channels, none of packets. `_urgent` holds the channels that owe anything but data,
each at most once: they are served first, so nobody's Credit or Pong waits behind more data than one
call of `data_to_send` has taken. `_ready` holds the streams with data, which take turns of one
Write packet each.
"""

from collections import deque

from .channel import Channel, Creation, Stream
from .config import Config
from .packets import HEADER_BYTES_MAX, Kind, encode_create, encode_credit, encode_signal
from .registry import Registry

BYTES_MAX_LEAST = HEADER_BYTES_MAX + 1
"""The least room that every packet fits into, a Write with one byte."""

Parts = list[bytes | memoryview]


class Outbox:
    """Turns what is owed and queued into packets."""

    def __init__(self, registry: Registry, config: Config) -> None:
        self._registry = registry
        self._write_bytes_max = config.write_bytes_max
        self._urgent: dict[Channel, None] = {}
        self._ready: deque[Stream] = deque()
        self.packets = 0
        """Packets sent."""

    @property
    def has_work(self) -> bool:
        """Whether there is anything to send."""
        return bool(self._urgent or self._ready)

    def hurry(self, channel: Channel) -> None:
        """The channel owes a packet that is not data."""
        self._urgent[channel] = None

    def queue(self, stream: Stream, pieces: Parts, count: int) -> None:
        """Takes data, `count` bytes and at least one, that the credit of the stream allows."""
        if not stream.queue:
            self._ready.append(stream)
        stream.queue.extend(pieces)
        stream.send.take(count)

    def close(self, channel: Channel) -> None:
        """Owes Close, behind what is queued."""
        channel.close_owed = True
        if not (isinstance(channel, Stream) and channel.queue):
            self.hurry(channel)

    def stop_read(self, channel: Channel) -> None:
        """Owes StopRead; grants that were not sent yet are moot."""
        channel.stop_owed = True
        if isinstance(channel, Stream):
            channel.receive.forfeit()
        elif isinstance(channel, Creation):
            channel.credit_due = 0
        self.hurry(channel)

    def collect(self, bytes_max: int) -> bytes:
        """The next packets, as many as fit; none is cut. `bytes_max` >= BYTES_MAX_LEAST."""
        parts: Parts = []
        # Where not all that is urgent fits, the room that is left is too small for data too. So a
        # stream's Pong or Credit is never left behind by the Close that follows its data.
        room = self._collect_urgent(parts, bytes_max)
        self._collect_data(parts, room)
        return b"".join(parts)

    def _collect_urgent(self, parts: Parts, room: int) -> int:
        urgent = self._urgent
        while urgent:
            channel = next(iter(urgent))
            room = self._collect_signals(channel, parts, room)
            if _owes(channel):
                break
            self._settle(channel)
        return room

    def _settle(self, channel: Channel) -> None:
        """Nothing urgent is left to send for the channel."""
        del self._urgent[channel]
        if isinstance(channel, Stream) and channel.is_over:
            self._registry.release(channel)

    def _collect_signals(self, channel: Channel, parts: Parts, room: int) -> int:
        """All that is owed, in an order in which nothing makes the rest illegal."""
        if channel.pongs_owed:
            count = min(channel.pongs_owed, room // len(channel.pong))
            channel.pongs_owed -= count
            room = self._repeat(channel.pong, count, parts, room)
        if channel.pings_due:
            count = min(channel.pings_due, room // len(channel.ping))
            channel.pings_due -= count
            channel.pings_unanswered += count
            room = self._repeat(channel.ping, count, parts, room)
        while room >= HEADER_BYTES_MAX:
            packet = self._next_signal(channel)
            if not packet:
                break
            parts.append(packet)
            room -= len(packet)
            self.packets += 1
        return room

    def _repeat(self, packet: bytes, count: int, parts: Parts, room: int) -> int:
        parts.append(packet * count)
        self.packets += count
        return room - len(packet) * count

    def _next_signal(self, channel: Channel) -> bytes:
        """The next packet that is neither Ping nor Pong nor data, or nothing."""
        if isinstance(channel, Stream):
            if channel.receive.due:
                return encode_credit(channel.id, channel.receive.sent())
        elif isinstance(channel, Creation):
            if channel.credit_due:
                amount, channel.credit_due = channel.credit_due, 0
                channel.receive_credit += amount
                return encode_credit(None, amount)
            if channel.created:
                return encode_create(channel.created.popleft())
        if channel.stop_owed:
            channel.stop_owed = False
            return encode_signal(Kind.STOP_READ, channel.id)
        if channel.close_owed and not (isinstance(channel, Stream) and channel.queue):
            channel.close_owed = False
            return encode_signal(Kind.CLOSE, channel.id)
        return b""

    def _collect_data(self, parts: Parts, room: int) -> None:
        ready = self._ready
        while ready and room >= BYTES_MAX_LEAST:
            stream = ready.popleft()
            count = min(self._write_bytes_max, room - HEADER_BYTES_MAX, stream.send.queued)
            header = stream.headers.encode(count)
            parts.append(header)
            stream.take(count, parts)
            stream.send.credits_free += 1
            room -= len(header) + count
            self.packets += 1
            if stream.queue:
                ready.append(stream)
            elif stream.close_owed:
                self.hurry(stream)
                room = self._collect_urgent(parts, room)


def _owes(channel: Channel) -> bool:
    """Whether anything urgent is left, for want of room."""
    if channel.pongs_owed or channel.pings_due or channel.stop_owed:
        return True
    if isinstance(channel, Stream):
        return bool(channel.receive.due) or (channel.close_owed and not channel.queue)
    return channel.close_owed or (
        isinstance(channel, Creation) and bool(channel.credit_due or channel.created)
    )
