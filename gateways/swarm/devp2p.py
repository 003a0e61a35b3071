"""devp2p's base protocol, which runs in the frames of a connection (spec sections 2.2.5 and 2.3).

A frame's body is a message code and a payload. Codes 0 to 15 are the base protocol's: who is here
and what it speaks, farewells, and signs of life. The codes above are dealt out to the sub-protocols
that both sides have, in order of name, so that neither has to say which code is whose; a mistake
in this order would have each side read the other's messages as something else.

The version that we tell is 4: from 5 on both sides would compress.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from gateways.reading import CodecError
from gateways.swarm import rlp
from gateways.swarm.keys import PUBLIC_BYTES

VERSION: Final = 4
BASE_CODES: Final = 16
HELLO: Final = 0
DISCONNECT: Final = 1
PING: Final = 2
PONG: Final = 3
PING_S: Final = 15.0
"""After so much silence the other side is asked whether it is there."""
SILENCE_S: Final = 30.0
"""After so much silence it is not."""
BASE_BYTES_MAX: Final = 2048
"""A payload of the base protocol, as upstream has it: who is not known yet sends one of them."""
TEXT_BYTES_MAX: Final = 256
"""The client's name and the names of capabilities (spec section 7)."""


class Reason(IntEnum):
    """Why a connection ends, by devp2p's numbers."""

    REQUESTED = 0
    NETWORK_ERROR = 1
    BREACH_OF_PROTOCOL = 2
    USELESS_PEER = 3
    TOO_MANY_PEERS = 4
    ALREADY_CONNECTED = 5
    INCOMPATIBLE_VERSION = 6
    NO_IDENTITY = 7
    QUITTING = 8
    UNEXPECTED_IDENTITY = 9
    SELF = 10
    TIMEOUT = 11
    SUBPROTOCOL_ERROR = 16


class RefusedError(Exception):
    """The other side cannot be talked with; `reason` is what it is told."""

    def __init__(self, reason: Reason, why: str) -> None:
        super().__init__(why)
        self.reason = reason


def breach(why: str) -> RefusedError:
    """A peer has broken a rule of stream/8 (spec section 7)."""
    return RefusedError(Reason.SUBPROTOCOL_ERROR, why)


class Capability(NamedTuple):
    """A sub-protocol that a side has."""

    name: str
    version: int


class Hello(NamedTuple):
    """Who is here."""

    client: str
    """`bamboo-peer/<version>` is ours."""
    capabilities: tuple[Capability, ...]
    public: bytes
    """64 bytes."""
    version: int = VERSION
    port: int = 0


class Disconnect(NamedTuple):
    """The last message; the reason is a `Reason`, or a number that we do not know."""

    reason: int


class Ping(NamedTuple):
    """Is somebody there?"""


class Pong(NamedTuple):
    """Yes."""


Message = Hello | Disconnect | Ping | Pong


def describe(reason: int) -> str:
    """A reason for people."""
    try:
        return Reason(reason).name.lower().replace("_", " ")
    except ValueError:
        return f"reason {reason}"


def encode_body(code: int, payload: bytes) -> bytes:
    """The body of a frame. Raises ValueError if the code is no unsigned 64-bit integer."""
    return rlp.encode(code) + payload


def decode_body(body: bytes) -> tuple[int, bytes]:
    """Code and payload. Raises CodecError."""
    reader = rlp.Reader(body)
    code = reader.integer("the code of a message")
    return code, body[reader.at :]


def encode_message(message: Message) -> bytes:
    """The body of a frame. Raises ValueError for what has no encoding."""
    match message:
        case Hello(client, capabilities, public, version, port):
            fields = (version, client, capabilities, port, public)
            return encode_body(HELLO, rlp.encode(fields))
        case Disconnect(reason):
            return encode_body(DISCONNECT, rlp.encode((reason,)))
        case Ping():
            return encode_body(PING, rlp.encode(()))
        case Pong():
            return encode_body(PONG, rlp.encode(()))


def decode_message(code: int, payload: bytes) -> Message | None:
    """A message of the base protocol, None for one that is not known. Raises CodecError."""
    if code > PONG:
        return None
    if len(payload) > BASE_BYTES_MAX:
        why = f"a payload of {len(payload)} bytes, {BASE_BYTES_MAX} are the limit"
        raise CodecError(f"the message of code {code}: {why}")
    reader = rlp.Reader(payload)
    match code:
        case 0:
            message: Message = _decode_hello(reader)
        case 1:
            message = _decode_disconnect(reader)
        case 2:
            reader.fields("the ping").end()
            message = Ping()
        case _:
            reader.fields("the pong").end()
            message = Pong()
    reader.end()
    return message


def _decode_hello(reader: rlp.Reader) -> Hello:
    fields = reader.fields("the hello")
    version = fields.integer("the version of the hello")
    client = fields.text("the name of the client", TEXT_BYTES_MAX)
    listed = fields.fields("the capabilities")
    capabilities = []
    while listed.left:
        capability = listed.fields("a capability")
        name = capability.text("the name of a capability", TEXT_BYTES_MAX)
        capabilities.append(Capability(name, capability.integer("the version of a capability")))
        capability.end()
    port = fields.integer("the port of the hello")
    public = fields.data("the public key of the hello", PUBLIC_BYTES)
    fields.end()
    return Hello(client, tuple(capabilities), public, version, port)


def _decode_disconnect(reader: rlp.Reader) -> Disconnect:
    """In a list, or bare as some of upstream's releases send it."""
    if reader.has_bytes:
        return Disconnect(reader.integer("the reason"))
    fields = reader.fields("the disconnect")
    reason = fields.integer("the reason")
    fields.end()
    return Disconnect(reason)


# --- sub-protocols --------------------------------------------------------------------------------

BAMBOO: Final = "bamboo"
BZZ: Final = "bzz"
HIVE: Final = "hive"
STREAM: Final = "stream"
MESSAGES: Final = {
    Capability(BAMBOO, 1): 0,
    Capability(BZZ, 8): 1,
    Capability(HIVE, 8): 2,
    Capability(STREAM, 8): 11,
}
"""What we have, in order of name, and how many messages each has."""
CAPABILITIES: Final = tuple(MESSAGES)


@dataclass(frozen=True, slots=True)
class Shared:
    """The sub-protocols that both sides have."""

    first_codes: Mapping[str, int]
    """By name, the code of its message 0."""

    @property
    def has_bamboo(self) -> bool:
        """Whether the other side keeps to the rules that are marked so."""
        return BAMBOO in self.first_codes

    def code_of(self, name: str, number: int) -> int:
        """The code of a sub-protocol's message. Raises KeyError if the other side has it not."""
        return self.first_codes[name] + number

    def find(self, code: int) -> tuple[str, int]:
        """A code's sub-protocol, and the message's number in it. Raises CodecError."""
        for (name, _), count in MESSAGES.items():
            number = code - self.first_codes.get(name, code + 1)
            if 0 <= number < count:
                return name, number
        raise CodecError(f"a message of the unknown code {code}")


def share(theirs: Iterable[Capability]) -> Shared:
    """The sub-protocols that the other side has in our version too; its order says nothing."""
    known = frozenset(theirs)
    first_codes = {}
    code = BASE_CODES
    for capability, count in MESSAGES.items():
        if capability in known:
            first_codes[capability.name] = code
            code += count
    return Shared(first_codes)


def agree(hello: Hello, remote: bytes) -> Shared:
    """What is spoken with who has said this hello and has the key `remote` by the handshake.

    Raises RefusedError: it names another key, or lacks `bzz` or `stream`.
    """
    if hello.public != remote:
        raise RefusedError(Reason.UNEXPECTED_IDENTITY, "its hello names a key that is not its own")
    shared = share(hello.capabilities)
    if BZZ not in shared.first_codes or STREAM not in shared.first_codes:
        raise RefusedError(Reason.USELESS_PEER, "it speaks no bzz/8 or no stream/8")
    return shared
