"""A connection with another node, from its first byte to messages of stream/8 (spec 2.2 to 2.4).

Three things are agreed on before anything is said: the keys of the connection (RLPx), what both
sides speak (devp2p's hello) and of which network they are (bzz). Each has a time: a stranger may
hold a place among the unfinished for as long as they take together, and no longer.

Sans-io: bytes and times come in, messages of stream/8 and bytes come out.
"""

from typing import Final, NamedTuple

from gateways.reading import CodecError
from gateways.swarm.codec import (
    Handshake,
    Message,
    check_handshake,
    check_hive,
    decode_envelope,
    decode_handshake,
    decode_message,
    encode_envelope,
    encode_handshake,
)
from gateways.swarm.devp2p import (
    BAMBOO,
    BASE_CODES,
    BZZ,
    CAPABILITIES,
    HIVE,
    PING_S,
    SILENCE_S,
    STREAM,
    Disconnect,
    Hello,
    Ping,
    Pong,
    Reason,
    RefusedError,
    Shared,
    agree,
    breach,
    decode_body,
    describe,
    encode_body,
)
from gateways.swarm.devp2p import Message as BaseMessage
from gateways.swarm.devp2p import decode_message as decode_base
from gateways.swarm.devp2p import encode_message as encode_base
from gateways.swarm.keys import Key
from gateways.swarm.rlpx import FRAME_BYTES_MAX, Connection, Draws, FrameTooLargeError

HANDSHAKES_S: Final = 5.0
"""For RLPx's handshake and devp2p's hello together."""
BZZ_S: Final = 3.0
EARLY_BYTES_MAX: Final = 4_096
"""The body of a frame before both are known to be of one network."""


class EndedError(Exception):
    """The other side has said farewell; the text is its reason."""


_NAMED: Final = tuple(each for each in CAPABILITIES if each.name != BAMBOO)
"""`bamboo` is not: what it promises, proofs and what leaves, is not here yet."""


class Identity(NamedTuple):
    """Who we are on a connection."""

    key: Key
    client: str
    """`bamboo-peer/<version>`."""
    network: int
    overlay: bytes
    underlay: str
    """Our enode."""
    is_light: bool


class Link:
    """One end of a connection: who names a `remote`, 64 bytes, calls it; who names none is called.

    `receive` is given what comes, and `take` gives what is to be sent. Raises CodecError if
    `remote` is no point of the curve.
    """

    def __init__(
        self, identity: Identity, draws: Draws, now: float, remote: bytes | None = None
    ) -> None:
        self._identity = identity
        self._connection = Connection(identity.key, draws, remote)
        # A stranger makes us hold no more than a hello takes.
        self._connection.allow(EARLY_BYTES_MAX)
        self._is_caller = remote is not None
        self._shared: Shared | None = None
        self._has_said_hello = False
        self._due = now + HANDSHAKES_S
        self._heard = now
        self._has_pinged = False
        self._owes_pong = False
        self.peer: Handshake | None = None
        """Who the other side is by bzz; with this the link is open."""

    @property
    def public(self) -> bytes:
        """The other side's key, once it has shaken hands."""
        assert self._connection.remote is not None
        return self._connection.remote

    @property
    def is_open(self) -> bool:
        """Whether messages of stream/8 may be sent."""
        return self.peer is not None

    @property
    def has_bamboo(self) -> bool:
        """Whether both sides keep to our rules."""
        names_it = any(each.name == BAMBOO for each in _NAMED)
        return names_it and self._shared is not None and self._shared.has_bamboo

    # In ------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> list[Message]:
        """The messages that are whole with these bytes.

        Raises RefusedError for what the other side is to be told, by `farewell`; EndedError where
        it has told us; CodecError where nobody is there who would understand. Messages before it
        in the same bytes are lost with the connection.
        """
        self._heard, self._has_pinged = now, False
        self._connection.feed(data)
        found: list[Message] = []
        try:
            while (body := self._connection.next_frame()) is not None:
                self._say_hello()
                message = self._take_body(body, now)
                if message is not None:
                    found.append(message)
        except FrameTooLargeError as error:
            raise RefusedError(Reason.BREACH_OF_PROTOCOL, str(error)) from error
        self._say_hello()
        return found

    def _say_hello(self) -> None:
        if self._has_said_hello or not self._connection.is_established:
            return
        self._has_said_hello = True
        who = self._identity
        self._send_base(Hello(who.client, _NAMED, who.key.public))

    def _take_body(self, body: bytes, now: float) -> Message | None:
        try:
            code, payload = decode_body(body)
            if code < BASE_CODES:
                self._take_base(code, payload, now)
                return None
            return self._take_protocol(code, payload)
        except CodecError as error:
            raise breach(str(error)) from error

    def _take_protocol(self, code: int, payload: bytes) -> Message | None:
        if self._shared is None:
            raise CodecError(f"a message of code {code} before the hello")
        name, number = self._shared.find(code)
        message = decode_envelope(payload)
        if name == BZZ:
            self._take_bzz(message)
            return None
        if self.peer is None:
            raise CodecError(f"a message of {name} before the handshake of bzz")
        if name == HIVE:
            check_hive(number, message)
            return None
        return decode_message(number, message)

    def _take_base(self, code: int, payload: bytes, now: float) -> None:
        match decode_base(code, payload):
            case Hello() as hello:
                if self._shared is not None:
                    raise CodecError("a second hello")
                self._shared = agree(hello, self.public)
                self._due = now + BZZ_S
                if self._is_caller:
                    self._send_bzz()
            case Disconnect(reason):
                raise EndedError(describe(reason))
            case Ping():
                # One answer for as many as have come: who sends them need not read.
                self._owes_pong = True
            case _:
                pass

    def _take_bzz(self, message: bytes) -> None:
        if self.peer is not None:
            raise CodecError("a second handshake of bzz")
        handshake = decode_handshake(message)
        key = self.public if self.has_bamboo else None
        check_handshake(handshake, self._identity.network, key)
        if not self._is_caller:
            self._send_bzz()
        self.peer = handshake
        self._connection.allow(FRAME_BYTES_MAX)

    # Out -----------------------------------------------------------------------------------------

    def take(self) -> bytes:
        """The bytes that are to be sent, once."""
        if self._owes_pong:
            self._owes_pong = False
            self._send_base(Pong())
        return self._connection.take()

    def hold(self, now: float) -> None:
        """Nothing can be received for a while, which is no silence of the other side's."""
        self._heard = now

    def send(self, number: int, message: bytes) -> None:
        """Puts a message of stream/8, of `encode_message`, behind what is to be sent."""
        self._send_protocol(STREAM, number, message)

    def farewell(self, reason: int) -> None:
        """The last message, if the other side could read one."""
        if self._connection.is_established:
            self._send_base(Disconnect(reason))

    def _send_base(self, message: BaseMessage) -> None:
        self._connection.send(encode_base(message))

    def _send_bzz(self) -> None:
        who = self._identity
        handshake = Handshake(who.network, who.overlay, who.underlay, who.is_light)
        self._send_protocol(BZZ, 0, encode_handshake(handshake))

    def _send_protocol(self, name: str, number: int, message: bytes) -> None:
        assert self._shared is not None
        code = self._shared.code_of(name, number)
        self._connection.send(encode_body(code, encode_envelope(message)))

    # Time ----------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> float:
        """When `advance` is to be called at the latest."""
        if self.peer is None:
            return self._due
        return self._heard + (SILENCE_S if self._has_pinged else PING_S)

    def advance(self, now: float) -> None:
        """Raises RefusedError where the other side was silent for too long."""
        if now < self.next_deadline:
            return
        if self.peer is None:
            step = "the handshake of bzz" if self._shared is not None else "the handshakes"
            raise RefusedError(Reason.TIMEOUT, f"{step} took too long")
        if self._has_pinged:
            raise RefusedError(Reason.TIMEOUT, f"nothing came for {SILENCE_S:.0f} s")
        self._has_pinged = True
        self._send_base(Ping())
