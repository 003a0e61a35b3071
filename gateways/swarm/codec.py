"""Messages of bzz, hive and stream/8, and the names of streams (spec sections 2.3 to 2.6).

A message is an RLP list in an envelope, which upstream has for the tracing of calls: a context,
that nobody needs, a size, and the message as bytes. Whatever breaks a rule is a CodecError whose
text says what, where and why; what is ours to send is held to the same rules before it leaves, as a
ValueError: v1.8.27 ends itself by a hash of another length.

A number that the state machines refuse, a priority or a range the wrong way round, is no broken
message: whoever asks is to be told no, and by whom its stream is known.
"""

from typing import Final, NamedTuple

from gateways.reading import CodecError
from gateways.swarm import rlp
from gateways.swarm.keys import SIGNATURE_BYTES, overlay_of
from wire import U64_MAX

ADDRESS_BYTES: Final = 32
MESSAGE_BYTES_MAX: Final = 10 << 20
"""A message without its envelope (spec section 2.3)."""
TEXT_BYTES_MAX: Final = 256
"""Names and keys of streams, and texts (spec section 7)."""
OFFERED_MAX: Final = 1024
"""Hashes in an offer (spec section 7)."""
U8_MAX: Final = 255
TOP: Final = 3
HIGH: Final = 2
MID: Final = 1
LOW: Final = 0
PRIORITIES: Final = range(4)
"""What a server takes: it refuses others by name."""
ROOT_SIZES: Final = (0, ADDRESS_BYTES)
_SIGNATURE_SIZES: Final = (0, SIGNATURE_BYTES)


# --- envelopes ------------------------------------------------------------------------------------


def encode_envelope(message: bytes) -> bytes:
    """The payload of a frame. Raises ValueError if the message is above MESSAGE_BYTES_MAX."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {len(message)} bytes, {MESSAGE_BYTES_MAX} are the limit")
    return rlp.encode((b"", len(message), message))


def decode_envelope(payload: bytes) -> bytes:
    """The message that is in it. Raises CodecError."""
    reader = rlp.Reader(payload)
    fields = reader.fields("the envelope")
    fields.data("the context")
    at = fields.at
    size = fields.integer("the size of the message", MESSAGE_BYTES_MAX)
    message = fields.data("the message")
    if len(message) != size:
        raise fields.refused("the size of the message", at, f"it is {size}, not {len(message)}")
    fields.end()
    reader.end()
    return message


# --- bzz and hive ---------------------------------------------------------------------------------

BZZ_VERSION: Final = 8
HIVE_MESSAGES: Final = 2


class Handshake(NamedTuple):
    """bzz's one message."""

    network: int
    overlay: bytes
    underlay: str
    """Where the node is said to be: an enode text."""
    is_light: bool
    version: int = BZZ_VERSION


def encode_handshake(handshake: Handshake) -> bytes:
    """Raises ValueError for what may not leave."""
    network, overlay, underlay, is_light, version = handshake
    _check_size("the overlay", overlay, ADDRESS_BYTES)
    _check_text("the underlay", underlay)
    return rlp.encode((version, network, (overlay, underlay), is_light))


def decode_handshake(message: bytes) -> Handshake:
    """Raises CodecError."""
    reader = rlp.Reader(message)
    fields = reader.fields("the handshake")
    version = fields.integer("the version")
    network = fields.integer("the network")
    address = fields.fields("the address")
    overlay = address.data("the overlay", ADDRESS_BYTES)
    underlay = address.text("the underlay", TEXT_BYTES_MAX)
    address.end()
    is_light = fields.flag("whether it is light")
    fields.end()
    reader.end()
    return Handshake(network, overlay, underlay, is_light, version)


def check_handshake(handshake: Handshake, network: int, bamboo_key: bytes | None) -> None:
    """Whether it is of our version and network, and its overlay that of its key.

    `bamboo_key` is the public key of a peer that keeps to our rules, None for any other, whose
    claim is taken: upstream's nodes may choose. Raises CodecError.
    """
    if handshake.version != BZZ_VERSION:
        raise CodecError(f"the version is {handshake.version}, ours is {BZZ_VERSION}")
    if handshake.network != network:
        raise CodecError(f"the network is {handshake.network}, ours is {network}")
    if bamboo_key is not None and handshake.overlay != overlay_of(bamboo_key):
        raise CodecError(f"the overlay {handshake.overlay.hex()} is not that of its key")


def check_hive(number: int, message: bytes) -> None:
    """Whether it is a message of hive: one list, whatever is in it. Raises CodecError.

    Nothing is made of what it lists. A list of a million peers costs what it takes to receive it.
    """
    if not 0 <= number < HIVE_MESSAGES:
        raise CodecError(f"a message of the unknown number {number} in hive")
    reader = rlp.Reader(message)
    reader.fields("the message of hive")
    reader.end()


# --- parts of messages ----------------------------------------------------------------------------


class Stream(NamedTuple):
    """A stream of a server; live and history are twins of one name and key."""

    name: str
    key: str
    live: bool

    @property
    def described(self) -> str:
        """For people, of whatever a peer has made up."""
        twin = "live" if self.live else "history"
        return f"stream {self.name[:80]!r}, key {self.key[:80]!r}, {twin}"


class Range(NamedTuple):
    """Indexes from `start` to `end`, both of them in it."""

    start: int
    end: int


class Statement(NamedTuple):
    """That the items from `start` to `end` of a stream lead to this state."""

    stream: Stream
    """Never live: the twins have one order."""
    start: int
    end: int
    root: bytes
    """32 bytes, or none where there is no item."""


class Proof(NamedTuple):
    """A statement and its signature, 65 bytes, or none."""

    signature: bytes
    statement: Statement


EMPTY_PROOF: Final = Proof(b"", Statement(Stream("", "", live=False), 0, 0, b""))
"""What upstream sends."""


def _check_size(what: str, data: bytes, *sizes: int) -> None:
    if len(data) not in sizes:
        raise ValueError(f"{what} has {len(data)} bytes, not {' or '.join(map(str, sizes))}")


def _check_text(what: str, text: str) -> None:
    size = len(text.encode())
    if size > TEXT_BYTES_MAX:
        raise ValueError(f"{what} has {size} bytes, {TEXT_BYTES_MAX} are the limit")


def _check_u8(what: str, number: int) -> None:
    if not 0 <= number <= U8_MAX:
        raise ValueError(f"{what} is {number}, {U8_MAX} is the limit")


def _stream_value(stream: Stream) -> rlp.Value:
    _check_text("the name of the stream", stream.name)
    _check_text("the key of the stream", stream.key)
    return stream


def statement_value(statement: Statement) -> rlp.Value:
    """What is encoded of a statement, alone or in a message. Raises ValueError."""
    stream, start, end, root = statement
    if stream.live:
        raise ValueError("a statement about a live stream")
    _check_size("the root", root, *ROOT_SIZES)
    return (_stream_value(stream), start, end, root)


def _proof_value(signature: bytes, statement: Statement) -> rlp.Value:
    _check_size("the signature", signature, *_SIGNATURE_SIZES)
    return (signature, statement_value(statement))


def _subscription_value(stream: Stream, range_: Range | None, priority: int) -> rlp.Value:
    _check_u8("the priority", priority)
    return (_stream_value(stream), () if range_ is None else range_, priority)


def _delivery_value(address: bytes, chunk: bytes) -> rlp.Value:
    _check_size("the address", address, ADDRESS_BYTES)
    return (address, chunk)


def _read_stream(reader: rlp.Reader) -> Stream:
    fields = reader.fields("the stream")
    stream = Stream(
        fields.text("the name of the stream", TEXT_BYTES_MAX),
        fields.text("the key of the stream", TEXT_BYTES_MAX),
        fields.flag("whether the stream is live"),
    )
    fields.end()
    return stream


def _read_range(reader: rlp.Reader) -> Range | None:
    fields = reader.fields("the range")
    if not fields.left:
        return None
    found = Range(fields.integer("the start"), fields.integer("the end"))
    fields.end()
    return found


def read_statement(reader: rlp.Reader) -> Statement:
    """Takes a statement off the front. Raises CodecError."""
    fields = reader.fields("the statement")
    at = fields.at
    stream = _read_stream(fields)
    if stream.live:
        raise fields.refused("the stream of the statement", at, "it is live")
    statement = Statement(
        stream,
        fields.integer("the start of the statement"),
        fields.integer("the end of the statement"),
        fields.data("the root", *ROOT_SIZES),
    )
    fields.end()
    return statement


def _read_proof(reader: rlp.Reader) -> Proof:
    fields = reader.fields("the proof")
    signature = fields.data("the signature", *_SIGNATURE_SIZES)
    proof = Proof(signature, read_statement(fields))
    fields.end()
    return proof


# --- messages of stream/8 -------------------------------------------------------------------------


class Unsubscribe(NamedTuple):
    """The client wants no more of it."""

    stream: Stream


class OfferedHashes(NamedTuple):
    """The server's next items."""

    stream: Stream
    start: int
    end: int
    hashes: bytes
    """32 bytes for each item."""
    proof: Proof = EMPTY_PROOF

    @property
    def addresses(self) -> list[bytes]:
        """The items one by one, 32 bytes each."""
        return split_hashes(self.hashes)


class WantedHashes(NamedTuple):
    """Which of them the client wants, and the range that it wants *next*."""

    stream: Stream
    bits: bytes
    start: int
    end: int


class TakeoverProof(NamedTuple):
    """The client has them all, to hold and to answer for."""

    signature: bytes
    statement: Statement


class Subscribe(NamedTuple):
    """The client wants it, and of a live stream's history this range."""

    stream: Stream
    range: Range | None
    priority: int


class RetrieveRequest(NamedTuple):
    """Whoever asks wants this chunk: at once, or offered first."""

    address: bytes
    skip_check: bool
    hops: int


class RetrieveDelivery(NamedTuple):
    """A chunk that was asked for by its address."""

    address: bytes
    chunk: bytes


class SubscribeError(NamedTuple):
    """Why a subscription is refused."""

    text: str


class RequestSubscription(NamedTuple):
    """The server wants the client to subscribe."""

    stream: Stream
    range: Range | None
    priority: int


class Quit(NamedTuple):
    """The server has no more of it."""

    stream: Stream


class StreamDelivery(NamedTuple):
    """A chunk that was wanted of an offer."""

    address: bytes
    chunk: bytes


Message = (
    Unsubscribe
    | OfferedHashes
    | WantedHashes
    | TakeoverProof
    | Subscribe
    | RetrieveRequest
    | RetrieveDelivery
    | SubscribeError
    | RequestSubscription
    | Quit
    | StreamDelivery
)
NUMBERS: Final[dict[type[Message], int]] = {
    Unsubscribe: 0,
    OfferedHashes: 1,
    WantedHashes: 2,
    TakeoverProof: 3,
    Subscribe: 4,
    RetrieveRequest: 5,
    RetrieveDelivery: 6,
    SubscribeError: 7,
    RequestSubscription: 8,
    Quit: 9,
    StreamDelivery: 10,
}


def encode_message(message: Message) -> tuple[int, bytes]:
    """Its number in stream/8, and the message without envelope. Raises ValueError."""
    return NUMBERS[type(message)], rlp.encode(_value_of(message))


def _value_of(message: Message) -> rlp.Value:
    match message:
        case Unsubscribe(stream) | Quit(stream):
            return (_stream_value(stream),)
        case OfferedHashes(stream, start, end, hashes, proof):
            if len(hashes) % ADDRESS_BYTES or len(hashes) > OFFERED_MAX * ADDRESS_BYTES:
                raise ValueError(f"{len(hashes)} bytes of hashes: {_OFFER_RULE}")
            return (_stream_value(stream), start, end, hashes, _proof_value(*proof))
        case WantedHashes(stream, bits, start, end):
            return (_stream_value(stream), bits, start, end)
        case TakeoverProof(signature, statement):
            return _proof_value(signature, statement)
        case Subscribe() | RequestSubscription():
            return _subscription_value(*message)
        case RetrieveRequest(address, skip_check, hops):
            _check_size("the address", address, ADDRESS_BYTES)
            _check_u8("the hop count", hops)
            return (address, skip_check, hops)
        case RetrieveDelivery() | StreamDelivery():
            return _delivery_value(*message)
        case SubscribeError(text):
            _check_text("the text", text)
            return (text,)


def decode_message(number: int, message: bytes) -> Message:
    """A message without envelope, by its number in stream/8. Raises CodecError."""
    reader = rlp.Reader(message)
    fields = reader.fields("the message")
    found = _read_message(number, fields)
    fields.end()
    reader.end()
    return found


def _read_message(number: int, fields: rlp.Reader) -> Message:
    match number:
        case 0:
            return Unsubscribe(_read_stream(fields))
        case 1:
            return _read_offer(fields)
        case 2:
            stream, bits = _read_stream(fields), fields.data("the bits")
            return WantedHashes(
                stream, bits, fields.integer("the start"), fields.integer("the end")
            )
        case 3:
            signature = fields.data("the signature", *_SIGNATURE_SIZES)
            return TakeoverProof(signature, read_statement(fields))
        case 4:
            return Subscribe(*_read_subscription(fields))
        case 5:
            address = fields.data("the address", ADDRESS_BYTES)
            skip_check = fields.flag("whether the check is skipped")
            return RetrieveRequest(address, skip_check, fields.integer("the hop count", U8_MAX))
        case 6:
            return RetrieveDelivery(*_read_delivery(fields))
        case 7:
            return SubscribeError(fields.text("the text", TEXT_BYTES_MAX))
        case 8:
            return RequestSubscription(*_read_subscription(fields))
        case 9:
            return Quit(_read_stream(fields))
        case 10:
            return StreamDelivery(*_read_delivery(fields))
        case _:
            raise CodecError(f"a message of the unknown number {number} in stream")


_OFFER_RULE: Final = f"an offer has {OFFERED_MAX} of {ADDRESS_BYTES} each at most"


def _read_offer(fields: rlp.Reader) -> OfferedHashes:
    stream = _read_stream(fields)
    start, end = fields.integer("the start"), fields.integer("the end")
    at = fields.at
    hashes = fields.data("the hashes")
    if len(hashes) % ADDRESS_BYTES or len(hashes) > OFFERED_MAX * ADDRESS_BYTES:
        raise fields.refused("the hashes", at, f"they have {len(hashes)} bytes: {_OFFER_RULE}")
    return OfferedHashes(stream, start, end, hashes, _read_proof(fields))


def _read_subscription(fields: rlp.Reader) -> tuple[Stream, Range | None, int]:
    stream, range_ = _read_stream(fields), _read_range(fields)
    return stream, range_, fields.integer("the priority", U8_MAX)


def _read_delivery(fields: rlp.Reader) -> tuple[bytes, bytes]:
    return fields.data("the address", ADDRESS_BYTES), fields.data("the chunk")


def split_hashes(hashes: bytes) -> list[bytes]:
    """Hashes that stand one behind the other, 32 bytes each."""
    return [hashes[at : at + ADDRESS_BYTES] for at in range(0, len(hashes), ADDRESS_BYTES)]


# --- bits -----------------------------------------------------------------------------------------


def encode_bits(wanted: list[bool]) -> bytes:
    """The bit vector of what is wanted, n div 8 + 1 bytes: upstream takes no shorter one."""
    bits = 0
    for at, is_wanted in enumerate(wanted):
        bits |= is_wanted << at
    return bits.to_bytes(len(wanted) // 8 + 1, "little")


def decode_bits(bits: bytes, count: int) -> list[bool]:
    """Which of `count` items are wanted; more bits are ignored. Raises CodecError for fewer."""
    if len(bits) * 8 < count:
        raise CodecError(f"{len(bits)} bytes of bits for {count} hashes")
    return [bits[at >> 3] >> (at & 7) & 1 == 1 for at in range(count)]


# --- names of streams (2.6) -----------------------------------------------------------------------

SYNC: Final = "SYNC"
RETRIEVE_REQUEST: Final = "RETRIEVE_REQUEST"
GONE: Final = "GONE"
DOC: Final = "DOC"
FEED: Final = "FEED"
BINS: Final = 17
FEED_BYTES: Final = 52
"""Topic and user."""
_DIGITS: Final = "0123456789abcdefg"
OPEN_END: Final = U64_MAX
"""The end of a range that has none. Upstream takes 0 to 0 for everything, from the start."""


def bin_key(number: int) -> str:
    """The key of a bin's stream. Raises ValueError if it is none of 0 to 16."""
    if not 0 <= number < BINS:
        raise ValueError(f"{number} is no bin")
    return _DIGITS[number]


def read_bin_key(key: str) -> int:
    """The bin. Raises CodecError; one bin has one key, since states are kept by it."""
    number = _DIGITS.find(key) if len(key) == 1 else -1
    if number < 0:
        raise CodecError(f"{key[:80]!r} is the key of no bin")
    return number


def hex_key(data: bytes) -> str:
    """The key of a file's stream, of its hash, or of a feed's, of topic and user."""
    return data.hex()


def read_hex_key(key: str, size: int) -> bytes:
    """The hash or the feed, of so many bytes. Raises CodecError; one has one key, in lower case."""
    if len(key) != 2 * size or not set(key) <= set("0123456789abcdef"):
        raise CodecError(f"{key[:80]!r} is no key of {size} bytes in hex")
    return bytes.fromhex(key)
