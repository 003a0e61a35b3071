"""The bytes of control messages (point2point.md 2): encoders and an incremental decoder.

Only the layout is judged here. Whether a number, a range or a request makes sense at this point of
a session is the business of the layer that knows the requests.
"""

from typing import Final

from .control import Adjust, Cancel, CancelReason, ControlMessage, Eagerness, Grant, Propose
from .entry import AUTHOR_BYTES, LogKey, decode_entry, decode_entry_prefix
from .errors import EntryError, NeedMore, Violation
from .varu64 import decode_varu64, encode_varu64
from .yamf import HASH_BYTES, decode_yamf

_RULE: Final = "point2point.md 2"
_ENTRIES_OF: Final = {CancelReason.HASH_MISMATCH: 1, CancelReason.FORKED: 2}
_EAGERNESS: Final = {each.value: each for each in Eagerness}
"""To call the enumeration takes 0.7 us."""


def encode_control(message: ControlMessage) -> bytes:
    """The bytes of `message`.

    Raises Violation if it has no encoding: fields that do not go together, a hash or key of the
    wrong length, entries that do not parse. Raises ValueError at a number that is not an unsigned
    64-bit integer.
    """
    match message:
        case Propose():
            return _encode_propose(message)
        case Adjust():
            return _encode_adjust(message)
        case Cancel():
            return _encode_cancel(message)
        case Grant():
            return b"\x00" + encode_varu64(message.units)


def _require(condition: bool, detail: str) -> None:
    if not condition:
        raise Violation(_RULE, detail)


def _encode_adjust(message: Adjust) -> bytes:
    _require(
        (message.eager_bytes is not None) == (message.eagerness is Eagerness.LIMITED),
        "the size of eagerness goes with LIMITED and only with it",
    )
    optional = (message.end, message.upper_info, message.min_bytes, message.max_bytes)
    flags = (message.eagerness or 0) << 5 | message.allow_skip << 4
    body = encode_varu64(message.request)
    if message.eager_bytes is not None:
        body += encode_varu64(message.eager_bytes)
    for bit, value in zip((8, 4, 2, 1), optional, strict=True):
        if value is not None:
            flags |= bit
            body += encode_varu64(value)
    _require(flags != 0, "an adjust has to change something")
    return bytes((flags,)) + body


def _encode_cancel(message: Cancel) -> bytes:
    reason = message.reason
    _require(
        len(message.entries) == _ENTRIES_OF.get(reason, 0),
        f"cancel {reason} carries {_ENTRIES_OF.get(reason, 0)} entries, not {len(message.entries)}",
    )
    _require(
        (message.seq is not None) == (reason is CancelReason.LOG_ENDED),
        "a seqnum goes with cancel 134 and only with it",
    )
    for entry in message.entries:
        decode_entry(entry)
    seq = b"" if message.seq is None else encode_varu64(message.seq)
    return b"".join((bytes((reason,)), encode_varu64(message.request), seq, *message.entries))


def _encode_propose(message: Propose) -> bytes:
    inside = message.offset is not None
    finite = message.end is not None
    _require(
        (message.eager_bytes is not None) == (message.eagerness is Eagerness.LIMITED),
        "the size of eagerness goes with LIMITED and only with it",
    )
    _require(
        (message.lower_info is None) == inside, "lower info is left out with an offset, only then"
    )
    _require((message.upper_info is not None) == finite, "upper info goes with an end, only then")
    _require(len(message.log.author) == AUTHOR_BYTES, "an author's key has 32 bytes")
    hashed = inside or (message.lower_info or 0) > 1
    _require(
        (message.starting_hash is not None) == hashed,
        f"this proposal {'needs a' if hashed else 'has no'} starting hash",
    )
    flags = (
        128
        | message.eagerness << 5
        | finite << 4
        | inside << 3
        | message.payloads_only << 2
        | message.sparse << 1
        | message.mandatory
    )
    author, log_id = message.log
    parts = [bytes((flags,)), encode_varu64(message.request), author, encode_varu64(log_id)]
    parts.append(encode_varu64(message.start))
    if message.lower_info is not None:
        parts.append(encode_varu64(message.lower_info))
    parts += encode_varu64(message.min_bytes), encode_varu64(message.max_bytes)
    if message.starting_hash is not None:
        _require(len(message.starting_hash) == HASH_BYTES, "a yamf hash has 66 bytes")
        decode_yamf(message.starting_hash, 0, "expected starting hash")
        parts.append(message.starting_hash)
    for n in (message.eager_bytes, message.end, message.upper_info, message.offset):
        if n is not None:
            parts.append(encode_varu64(n))
    return b"".join(parts)


# 0 | V units
# 1-127 | adjust, see _decode_adjust
# 128-132 | V request
# 133 | V request, entry
# 134 | V request, V seqnum
# 135 | V request, entry, entry
# 136-159 | violation
# 160-255 | propose, see _decode_propose
def _decode_message(data: bytes, offset: int) -> tuple[ControlMessage, int]:
    """The message at `offset`, and the offset behind it; NeedMore if `data` ends first."""
    if offset >= len(data):
        raise NeedMore("message")
    first = data[offset]
    if 136 <= first < 160:
        raise Violation(_RULE, f"unused first byte {first} of a control message")
    request, offset = decode_varu64(data, offset + 1)
    if first >= 160:
        return _decode_propose(data, offset, first, request)
    if first >= 128:
        return _decode_cancel(data, offset, CancelReason(first), request)
    if first >= 1:
        return _decode_adjust(data, offset, first, request)
    return Grant(request), offset


# 0, eagerness (2 bits), skip, end, upper info, minimum, maximum | V request | V each, as flagged
def _decode_adjust(data: bytes, offset: int, flags: int, request: int) -> tuple[Adjust, int]:
    eagerness = _EAGERNESS.get(flags >> 5)
    present = (eagerness is Eagerness.LIMITED, flags & 8, flags & 4, flags & 2, flags & 1)
    values: list[int | None] = []
    for is_present in present:
        value = None
        if is_present:
            value, offset = decode_varu64(data, offset)
        values.append(value)
    eager_bytes, end, upper_info, min_bytes, max_bytes = values
    message = Adjust(
        request, eagerness, eager_bytes, bool(flags & 16), end, upper_info, min_bytes, max_bytes
    )
    return message, offset


def _decode_cancel(
    data: bytes, offset: int, reason: CancelReason, request: int
) -> tuple[Cancel, int]:
    if reason is CancelReason.LOG_ENDED:
        seq, offset = decode_varu64(data, offset)
        return Cancel(request, reason, seq=seq), offset
    entries: list[bytes] = []
    for _ in range(_ENTRIES_OF.get(reason, 0)):
        start = offset
        try:
            _, offset = decode_entry_prefix(data, start)
        except EntryError as error:
            detail = f"{error.detail}, in an entry of cancel {reason} of request {request}"
            raise EntryError(error.field, detail, error.rule) from None
        entries.append(data[start:offset])
    return Cancel(request, reason, tuple(entries)), offset


# 1, eagerness (2 bits, not 00), finite, offset, payloads only, sparse, mandatory | V request
# | author, 32 | V log id | V start | [V lower info, unless offset] | V minimum | V maximum
# | [yamf hash, 66: if offset, or lower info > 1] | [V size, if eagerness is LIMITED]
# | [V end, V upper info, if finite] | [V offset, if offset]
def _decode_propose(data: bytes, offset: int, flags: int, request: int) -> tuple[Propose, int]:
    author = data[offset : offset + AUTHOR_BYTES]
    if len(author) < AUTHOR_BYTES:
        raise NeedMore("author")
    log_id, offset = decode_varu64(data, offset + AUTHOR_BYTES)
    start, offset = decode_varu64(data, offset)
    lower_info = starting_hash = eager_bytes = end = upper_info = inside = None
    if not flags & 8:
        lower_info, offset = decode_varu64(data, offset)
    min_bytes, offset = decode_varu64(data, offset)
    max_bytes, offset = decode_varu64(data, offset)
    if lower_info is None or lower_info > 1:
        starting_hash, offset = decode_yamf(data, offset, "expected starting hash")
    eagerness = _EAGERNESS[(flags >> 5) & 3]
    if eagerness is Eagerness.LIMITED:
        eager_bytes, offset = decode_varu64(data, offset)
    if flags & 16:
        end, offset = decode_varu64(data, offset)
        upper_info, offset = decode_varu64(data, offset)
    if flags & 8:
        inside, offset = decode_varu64(data, offset)
    message = Propose(
        request,
        LogKey(author, log_id),
        start,
        lower_info,
        min_bytes,
        max_bytes,
        starting_hash,
        eagerness,
        eager_bytes,
        end,
        upper_info,
        inside,
        bool(flags & 4),
        bool(flags & 2),
        bool(flags & 1),
    )
    return message, offset


class ControlDecoder:
    """Takes the bytes of a control channel in any pieces and gives its messages in order.

    The largest message has less than 1 KiB, so the decoder keeps no more than that beyond what it
    was fed since `next_message` last returned None.
    """

    __slots__ = ("_data", "_fed", "_offset", "_violation")

    def __init__(self) -> None:
        self._data = b""
        self._offset = 0
        self._fed = bytearray()
        self._violation: Violation | None = None

    @property
    def buffered(self) -> int:
        """Bytes that were fed and belong to no message that was returned."""
        return len(self._data) - self._offset + len(self._fed)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Takes the next bytes of the channel."""
        self._fed += data

    def next_message(self) -> ControlMessage | None:
        """The next message, or None until more bytes are fed.

        Raises Violation at bytes that are no message, after all messages before them, and at
        every call after that.
        """
        if self._violation is not None:
            raise self._violation
        if self._fed:
            self._data = self._data[self._offset :] + self._fed
            self._offset = 0
            self._fed.clear()
        try:
            message, self._offset = _decode_message(self._data, self._offset)
        except NeedMore:
            return None
        except Violation as violation:
            self._violation = violation
            raise
        return message
