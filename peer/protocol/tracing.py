"""A trace of a session: one record for each message that either side sent, decoded.

A record holds plain values that JSON can hold, and nothing of a payload but its size. Whoever made
the `Tracer` stamps the records with the time and the connection, and keeps them.

What is received is recorded when it is decoded and before it is judged, so that a message which
breaks a rule is the last one. What is sent is recorded when it is made. Nothing is recorded, and
nothing is paid for it, where a session has no tracer; where it has one, entries are moved one by
one, because the fast ways through the engine do not look at messages.
"""

from collections.abc import Callable, Iterator

from wire import (
    HASH_BYTES,
    SIGNATURE_BYTES,
    Adjust,
    Apology,
    Cancel,
    ControlMessage,
    DataPacket,
    Grant,
    LogKey,
    Metadata,
    Negotiated,
    Notify,
    PayloadBytes,
    PayloadStart,
    Propose,
    RequestCancelled,
    Setup,
    SkipAbove,
    SkipBelow,
    SkipBytes,
    SkipUnavailable,
    Switch,
    decode_varu64,
    tail_fields,
)

from .plain import json_number, log_fields
from .request import Request
from .sequence import Sequence

Record = dict[str, object]

_SENT = "sent"
_RECEIVED = "received"
_TAIL_BYTES = HASH_BYTES + SIGNATURE_BYTES
"""Of metadata, behind the size: payload hash and signature."""


class Tracer:
    """Makes the records of one session and hands them to `write`, in the order of the messages."""

    def __init__(self, write: Callable[[Record], None]) -> None:
        self._write = write
        self._made: list[Record] = []

    # Setup

    def setup_sent(self, setup: Setup) -> None:
        """Ours."""
        self._write(_record(_SENT, "setup", "setup") | _setup_fields(setup))

    def setup_received(self, setup: Setup, negotiated: Negotiated) -> None:
        """The other side's, and what both come to."""
        agreed = {
            "greedy_sending": negotiated.send_greedily,
            "greedy_receiving": negotiated.receive_greedily,
            "compression_window": json_number(negotiated.compression_window),
            "decompression_window": json_number(negotiated.decompression_window),
        }
        self._write(_record(_RECEIVED, "setup", "setup") | _setup_fields(setup) | agreed)

    # The control channel

    def control_sent(self, message: ControlMessage, log: LogKey | None) -> None:
        """A control message of ours; `log` is that of its request, if known."""
        self._write(_control(_SENT, message, log))

    def control_received(self, message: ControlMessage, log: LogKey | None) -> None:
        """A control message of the other side."""
        self._write(_control(_RECEIVED, message, log))

    # The data channel

    def packet_received(self, request: Request | None, packet: DataPacket) -> None:
        """A data packet of the other side. `request`: that which it names, or is a piece of."""
        if isinstance(packet, PayloadBytes):
            return
        record = _record(_RECEIVED, "data", _NAMES[type(packet)])
        if isinstance(packet, Switch | RequestCancelled):
            record["request"] = json_number(packet.request)
        elif request is not None:
            record["request"] = json_number(request.number)
        if request is not None:
            record |= log_fields(request.log)
            incoming = request.incoming
            if not incoming.adrift and not isinstance(packet, Switch | RequestCancelled | Apology):
                count = packet.count if isinstance(packet, Notify) else 1
                record |= _piece(request.base, incoming.position, count, incoming.progress)
        self._write(record | _packet_fields(packet))

    def packets_made(self, request: Request, position: int, progress: int, data: bytes) -> None:
        """Whole data packets of ours for one request. `packets_sent` follows, or a `switch` first.

        `position` and `progress` are those of our cursor before the first of them.
        """
        for packet in _packets(data):
            record = _record(_SENT, "data", _NAMES[type(packet)])
            record["request"] = json_number(request.number)
            record |= log_fields(request.log)
            count = packet.count if isinstance(packet, Notify) else 1
            if not isinstance(packet, Apology):
                record |= _piece(request.base, position, count, progress)
            self._made.append(record | _packet_fields(packet))
            if isinstance(packet, PayloadStart):
                progress += packet.length
            elif isinstance(packet, SkipBytes):
                progress += packet.count
            elif not isinstance(packet, Apology):
                position, progress = position + count, 0

    def packets_sent(self) -> None:
        """What was made goes out now."""
        for record in self._made:
            self._write(record)
        self._made.clear()

    def switched(self, request: Request) -> None:
        """We switch to a request."""
        record = _record(_SENT, "data", "switch") | {"request": json_number(request.number)}
        self._write(record | log_fields(request.log))

    def end_sent(self, request: Request) -> None:
        """Our packet 32 of a request."""
        record = _record(_SENT, "data", "request cancelled")
        self._write(record | {"request": json_number(request.number)} | log_fields(request.log))


_NAMES: dict[type[DataPacket], str] = {
    Switch: "switch",
    Notify: "notify",
    SkipBelow: "payload skipped: below minimum",
    SkipAbove: "payload skipped: above maximum",
    SkipUnavailable: "payload skipped: not held",
    SkipBytes: "bytes skipped",
    PayloadStart: "payload bytes",
    Metadata: "metadata",
    Apology: "apology",
    RequestCancelled: "request cancelled",
}


def _record(way: str, channel: str, message: str) -> Record:
    return {"way": way, "channel": channel, "message": message}


def _setup_fields(setup: Setup) -> Record:
    return {
        "send_greedily": setup.send_greedily,
        "accept_greedily": setup.accept_greedily,
        "send_window": json_number(setup.send_window),
        "receive_window": json_number(setup.receive_window),
    }


def _control(way: str, message: ControlMessage, log: LogKey | None) -> Record:
    match message:
        case Grant():
            return _record(way, "control", "grant") | {"units": json_number(message.units)}
        case Propose():
            return _record(way, "control", "propose") | _propose_fields(message)
        case Adjust():
            record = _record(way, "control", "adjust") | {"request": json_number(message.request)}
            record |= {} if log is None else log_fields(log)
            return record | _adjust_fields(message)
        case Cancel():
            record = _record(way, "control", "cancel") | {"request": json_number(message.request)}
            record |= {} if log is None else log_fields(log)
            record["reason"] = int(message.reason)
            if message.entries:
                record["entries"] = [entry.hex() for entry in message.entries]
            if message.seq is not None:
                record["seq"] = json_number(message.seq)
            return record


def _propose_fields(message: Propose) -> Record:
    record: Record = {"request": json_number(message.request)} | log_fields(message.log)
    numbers = {
        "start": message.start,
        "end": message.end,
        "lower_info": message.lower_info,
        "upper_info": message.upper_info,
        "offset": message.offset,
    }
    record.update({name: json_number(n) for name, n in numbers.items() if n is not None})
    record["eagerness"] = message.eagerness.name.lower()
    if message.eager_bytes is not None:
        record["eager_bytes"] = json_number(message.eager_bytes)
    record["min_bytes"] = json_number(message.min_bytes)
    record["max_bytes"] = json_number(message.max_bytes)
    for flag in ("payloads_only", "sparse", "mandatory"):
        if getattr(message, flag):
            record[flag] = True
    if message.starting_hash is not None:
        record["starting_hash"] = message.starting_hash.hex()
    return record


def _adjust_fields(message: Adjust) -> Record:
    record: Record = {}
    if message.eagerness is not None:
        record["eagerness"] = message.eagerness.name.lower()
    numbers = {
        "eager_bytes": message.eager_bytes,
        "end": message.end,
        "upper_info": message.upper_info,
        "min_bytes": message.min_bytes,
        "max_bytes": message.max_bytes,
    }
    record.update({name: json_number(n) for name, n in numbers.items() if n is not None})
    if message.allow_skip:
        record["allow_skip"] = True
    return record


def _piece(base: Sequence | None, position: int, count: int, progress: int) -> Record:
    """Which pieces a packet is about: where it begins, and where it ends if they are several."""
    if base is None or position >= base.reach:
        return {}
    first = base.piece(position)
    fields: Record = {"seq": json_number(first.seq), "piece": first.kind.name.lower()}
    if progress:
        fields["offset"] = json_number(progress)
    if count > 1:
        last = base.piece(min(position + count, base.reach) - 1)
        fields["last_seq"] = json_number(last.seq)
    return fields


def _packet_fields(packet: DataPacket) -> Record:
    match packet:
        case Notify() | SkipBytes():
            return {"count": json_number(packet.count)}
        case PayloadStart():
            fields: Record = {"bytes": json_number(packet.length)}
            return fields | {"compressed": True} if packet.compressed else fields
        case Metadata():
            payload_bytes, payload_hash = tail_fields(packet.tail)
            fields = {"tag": packet.tag, "payload_bytes": json_number(payload_bytes)}
            fields["payload_hash"] = payload_hash.hex()
            if packet.backlink is not None:
                fields["backlink"] = packet.backlink.hex()
            return fields | {"signature": packet.tail[-SIGNATURE_BYTES:].hex()}
        case _:
            return {}


def _packets(data: bytes) -> Iterator[DataPacket]:
    """The packets that we made for one request; a payload's bytes are passed over."""
    offset = 0
    while offset < len(data):
        kind = data[offset]
        offset += 1
        match kind:
            case 2:
                yield Notify(1)
            case 3:
                count, offset = decode_varu64(data, offset)
                yield Notify(count)
            case 4:
                yield SkipBelow()
            case 5:
                yield SkipAbove()
            case 6:
                yield SkipUnavailable()
            case 8:
                length, offset = decode_varu64(data, offset)
                offset += length
                yield PayloadStart(length, compressed=False)
            case 9:
                length, offset = decode_varu64(data, offset)
                compressed_bytes, offset = decode_varu64(data, offset)
                offset += compressed_bytes
                yield PayloadStart(length, compressed=True)
            case 16:
                yield Apology()
            case 128 | 129:
                packet, offset = _metadata(kind, data, offset)
                yield packet
            case _:
                raise AssertionError(f"packet {kind} is not made for a request")


def _metadata(kind: int, data: bytes, offset: int) -> tuple[Metadata, int]:
    """A metadata packet; a backlink shows itself.

    It begins with 00 40, as every hash does. A size begins with another byte, or is the byte 00,
    and then the 00 of the payload hash follows.
    """
    backlink = None
    if data[offset : offset + 2] == b"\x00\x40":
        backlink = data[offset : offset + HASH_BYTES]
        offset += HASH_BYTES
    _, end = decode_varu64(data, offset)
    end += _TAIL_BYTES
    return Metadata(kind & 1, backlink, data[offset:end]), end
