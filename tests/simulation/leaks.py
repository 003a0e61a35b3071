"""Reads what one end of a connection makes, and knows what may not be in it (doors.md 3).

The bytes are decoded here once more, from the wire alone: which request a packet is of says the
control channel, and all packets say how long they are. Whatever was made before a scope changed is
under way, and may arrive; nothing may be made afterwards that the scope does not cover:

    may read, write
    yes, yes         anything
    yes, no          no request for more than notifications, but to compare an own log
    no, yes          no entry, payload, notification, skip or proof, nor an offer
    no, no           a request that is there may be ended, and nothing else
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logstore import PeerRule
from peer import InterestsChanged
from peer.engine import Engine
from peer.protocol.commands import Command, Ingest, OpenPayload, WritePayload
from wire import (
    HASH_BYTES,
    SIGNATURE_BYTES,
    Adjust,
    Cancel,
    CancelReason,
    ControlDecoder,
    ControlMessage,
    Eagerness,
    LogKey,
    NeedMore,
    Propose,
    decode_varu64,
    encode_control,
)

from .doors import CLOSED, may_read, may_write
from .truth import Broken, short

if TYPE_CHECKING:
    from .node import SimNode

_SAYS_NOTHING = {CancelReason.NOT_WANTED, CancelReason.COMPLETE, CancelReason.YOU_CANCELLED}
_COUNTED = {3: "a notify", 7: "a skip of bytes"}
_BARE = {2: "a notify", 4: "a skip", 5: "a skip", 6: "a skip"}
_LENGTH, _COMPRESSED, _SWITCH, _APOLOGY, _END = 8, 9, 0, 16, 32
_METADATA = (128, 129)


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet of the data channel. `kind`: what of a log it shows, if it does; else None."""

    at: int
    """Where it begins in all that was sent."""
    kind: str | None
    switch: int | None = None


class Packets:
    """Cuts the data channel into packets, from whatever pieces come."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._at = 0
        self._skip = 0
        """Bytes of a payload that are still to come."""

    def feed(self, data: bytes) -> Iterator[Packet]:
        """The packets that begin in these bytes, once their headers are there."""
        self._bytes += data
        while True:
            passed = min(self._skip, len(self._bytes))
            self._take(passed)
            self._skip -= passed
            if self._skip or not self._bytes:
                return
            try:
                packet, size = self._packet()
            except NeedMore:
                return
            if size > len(self._bytes):
                return
            yield packet
            self._take(size)

    def _take(self, count: int) -> None:
        del self._bytes[:count]
        self._at += count

    def _packet(self) -> tuple[Packet, int]:
        """The next packet, or the header of a payload, and its size."""
        kind, data = self._bytes[0], bytes(self._bytes[:400])
        if kind in _BARE:
            return Packet(self._at, _BARE[kind]), 1
        if kind == _APOLOGY:
            # For what has been sent before: it says nothing of what is held.
            return Packet(self._at, None), 1
        if kind in _METADATA:
            return Packet(self._at, "an entry"), _metadata_bytes(data)
        number, end = decode_varu64(data, 1)
        if kind in _COUNTED:
            return Packet(self._at, _COUNTED[kind]), end
        if kind in (_SWITCH, _END):
            return Packet(self._at, None, number if kind == _SWITCH else None), end
        if kind == _COMPRESSED:
            number, end = decode_varu64(data, end)
        elif kind != _LENGTH:
            raise Broken(f"packet {kind} is none")
        self._skip = number
        return Packet(self._at, "a payload"), end


def _metadata_bytes(data: bytes) -> int:
    """How long a packet with an entry is. A backlink begins as no size with its hash does."""
    at = 1
    if len(data) < at + 2:
        raise NeedMore
    if data[at : at + 2] == b"\x00\x40":
        at += HASH_BYTES
    _, end = decode_varu64(data, at)
    return end + HASH_BYTES + SIGNATURE_BYTES


class Watch:
    """Looks at everything that one end makes. `names`: the logs of requests, of both ends."""

    def __init__(self, node: "SimNode", peer: bytes, names: dict[int, LogKey]) -> None:
        self._node = node
        self._peer = peer
        self._names = names
        self._control = ControlDecoder()
        self._control_at = self._data_at = 0
        self._packets = Packets()
        self._current: LogKey | None = None
        self._engine: Engine | None = None
        self._rule = CLOSED
        self._wants: Callable[[LogKey], bool] = lambda log: False
        self._made = (0, 0)
        """How much was made of either channel when the rule changed, or what is wanted."""
        self._sinks: dict[int, LogKey] = {}

    def attach(self, engine: Engine | None) -> None:
        """Sees what an engine makes, from when it is there."""
        if engine is None or self._engine is not None:
            return
        self._engine = engine
        control_to_send, data_to_send = engine.control_to_send, engine.data_to_send

        def control() -> bytes:
            data = control_to_send()
            self._see_control(data)
            return data

        def data(bytes_max: int) -> list[bytes | memoryview]:
            found = data_to_send(bytes_max)
            self._see_data(b"".join(found))
            return found

        engine.control_to_send = control  # type: ignore[method-assign]
        engine.data_to_send = data  # type: ignore[method-assign]

    def told(self, rule: PeerRule | None, event: InterestsChanged) -> None:
        """The session is told of this now: what is made from now on is judged by it."""
        self._rule = rule or CLOSED
        self._wants = event.interests.wants
        engine = self._engine
        if engine is not None:
            control = self._control_at + sum(map(len, engine._table._out))
            self._made = (control, self._data_at + engine._outbound._out_bytes)

    # What may be done with a log

    def _may_read(self, log: LogKey) -> bool:
        return may_read(self._rule, log)

    def _may_write(self, log: LogKey) -> bool:
        return may_write(self._rule, log, own=self._node.store.author, peer=self._peer)

    def _is_own(self, log: LogKey) -> bool:
        return log.author == self._node.store.author

    # What leaves

    def _see_control(self, data: bytes) -> None:
        self._control.feed(data)
        while (message := self._control.next_message()) is not None:
            if isinstance(message, Propose):
                self._names[message.request] = message.log
            self._control_at += len(encode_control(message))
            if self._control_at > self._made[0]:
                self._judge(message)

    def _judge(self, message: ControlMessage) -> None:
        if not isinstance(message, Propose | Adjust | Cancel):
            return
        log = self._names.get(message.request)
        if log is None:
            # The answer to a lie.
            return
        reads, takes = self._may_read(log), self._may_write(log)
        if reads and takes:
            return
        what = None
        match message:
            case Cancel() if not reads:
                silent = not (takes and self._wants(log))
                allowed = _SAYS_NOTHING | (set() if silent else {CancelReason.NO_RESOURCES})
                if message.entries or message.seq is not None or message.reason not in allowed:
                    what = f"cancel {message.reason}"
            case Propose() | Adjust() if not reads and not (takes and self._wants(log)):
                what = f"a mention ({type(message).__name__})"
            case Propose() if not reads and _is_offer(message):
                what = "an offer"
            case Propose() | Adjust() if not takes and not self._is_own(log):
                if message.eagerness not in (None, Eagerness.NOTIFY):
                    what = "a request for more than notifications"
            case _:
                pass
        if what is not None:
            raise Broken(
                f"{what} of {short(log)} leaves {self._node.name}: {message}, {self._rule}"
            )

    def _see_data(self, data: bytes) -> None:
        for packet in self._packets.feed(data):
            if packet.switch is not None:
                self._current = self._names.get(packet.switch)
            log = self._current
            if packet.kind is None or packet.at < self._made[1]:
                continue
            if log is not None and not self._may_read(log):
                raise Broken(f"{packet.kind} of {short(log)} leaves {self._node.name}")
        self._data_at += len(data)

    # What is taken in

    def check_commands(self, commands: Sequence[Command]) -> None:
        """Nothing is given to the store of what may not be written. Raises Broken."""
        for command in commands:
            logs: list[LogKey] = []
            match command:
                case Ingest():
                    logs = [item.log for item in command.items]
                case OpenPayload():
                    self._sinks[command.sink] = command.log
                    logs = [command.log]
                case WritePayload():
                    logs = [self._sinks[command.sink]]
                case _:
                    pass
            for log in logs:
                compares = self._is_own(log) and self._may_read(log)
                if not (compares or self._may_write(log)):
                    what = type(command).__name__
                    raise Broken(f"{self._node.name} takes in {short(log)}: {what}, {self._rule}")


def _is_offer(proposal: Propose) -> bool:
    """Whether it asks for nothing, and only says what is held: a rest of a payload is asked for."""
    finite = proposal.end is not None and not proposal.sparse and proposal.offset is None
    return finite and proposal.eagerness is Eagerness.NOTIFY
