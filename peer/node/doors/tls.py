"""TLS 1.3 over any stream of Trio's, with a certificate of either side (doors.md 2).

The library works on buffers in memory, and this moves them. Two rules keep it from waiting where
nobody expects it: *receiving never writes*, so that what TLS owes by itself (answers to key
updates) waits for the next send; and the handshake is made by whoever needs the stream first.

The standard library's TLS asks no stranger for a certificate: it refuses what no authority has
signed before anybody can look at the key. Here the key is all that counts.
"""

import ipaddress
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import trio
from nacl.signing import SigningKey
from OpenSSL import SSL, crypto

from .admission import ProvedStream
from .certificate import CertificateError, make_certificate, peer_id_of, private_key
from .hello import ClientHello
from .trouble import HandshakeError, Trouble

PROTOCOL: Final = b"bamboo-p2p/1"
"""What both sides name (ALPN)."""
HANDSHAKE_S: Final = 10.0
CLOSE_S: Final = 2.0
OWED_MAX: Final = 16 * 1024
"""What TLS may owe to an other side that makes us owe it and to which nothing is sent."""
NO_TLS_ALERT: Final = bytes.fromhex("15 03 03 00 02 02 0a")
"""`unexpected_message`: the answer of a listener to who does not begin with a ClientHello."""
NO_PROTOCOL_ALERT: Final = bytes.fromhex("15 03 03 00 02 02 78")
"""`no_application_protocol`: the answer of a listener to a ClientHello that names none."""
Blocks = Callable[[bytes], bool]
_HANDSHAKE_BYTE: Final = 22
_RECORD: Final = 16 * 1024
"""What a record holds at most, and one call of the library returns."""
_SENT: Final = 7 * _RECORD
"""So much is given to TLS, and then to the other stream, at once: the way through Python and Trio
costs the same for little and for much. Encrypted it is less than the 128 KiB from which on the
C library may fetch memory from the system for each buffer, and give it back behind it."""
_RECEIVED: Final = 256 * 1024
"""So much is taken from the other stream at once: as much as without TLS, since whoever reads works
on what comes together."""
_RECORD_EXTRA: Final = 64
"""More than encryption adds to a record."""
_SOME: Final = 4 * 1024
"""More than is owed where nothing was written, but for who asks for new keys in a flood."""
_PARTIAL_WRITES: Final = 1
"""OpenSSL's SSL_MODE_ENABLE_PARTIAL_WRITE, which the library sets: a record for each call. Where
the buffers are in memory there is room for all of them."""
_OTHER_PROTOCOL: Final = "the caller speaks TLS, and not bamboo in it"
_NOT_CLOSED_WELL: Final = "the other side's stream was cut: it did not say that it ends"


class _WrongProtocolError(Exception):
    """The other side speaks TLS, and something else inside of it."""


class Identity:
    """A node key, as TLS needs it, for all connections of a node."""

    def __init__(self, key: SigningKey) -> None:
        self.peer_id: bytes = bytes(key.verify_key)
        private = private_key(key)
        certificate = make_certificate(private)
        context = self.context = SSL.Context(SSL.TLS_METHOD)
        context.set_min_proto_version(SSL.TLS1_3_VERSION)
        context.set_max_proto_version(SSL.TLS1_3_VERSION)
        # No resumption: who was removed has no way back. Without stateless tickets those that are
        # sent all the same name what nobody keeps.
        context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        context.set_options(SSL.OP_NO_TICKET)
        context.clear_mode(_PARTIAL_WRITES)
        context.use_privatekey(private)
        context.use_certificate(certificate)
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _look_at_key)
        context.set_alpn_protos([PROTOCOL])
        context.set_alpn_select_callback(_select_protocol)


class _Look:
    """What one connection thinks of the certificate that it is shown."""

    def __init__(self, blocks: "Blocks", expects: bytes | None) -> None:
        self.blocks = blocks
        self.expects = expects
        self.found: tuple[Trouble, str] | None = None
        """Why it is not good enough."""

    def at(self, certificate: crypto.X509) -> bool:
        """Whether the handshake may go on."""
        try:
            peer_id = peer_id_of(certificate)
        except CertificateError as error:
            self.found = Trouble.CERTIFICATE, str(error)
        else:
            if self.expects is not None and peer_id != self.expects:
                reason = (
                    f"{peer_id.hex()} answers, and not {self.expects.hex()}, who was called:"
                    " somebody may sit between, or the node has another key now"
                )
                self.found = Trouble.WRONG_PEER, reason
            elif self.blocks(peer_id):
                # Whoever shows it has not proved yet that it is his. He is told no more than that
                # he comes no further, which whoever has the key is told as well.
                self.found = Trouble.BLOCKED, f"{peer_id.hex()} is blocked"
        return self.found is None


def _look_at_key(
    connection: SSL.Connection, certificate: crypto.X509, _: int, depth: int, __: int
) -> bool:
    """Whether a certificate may be shown: any, if its key is a node's. Depth 0 is the key's own."""
    look = connection.get_app_data()
    return bool(depth) or (isinstance(look, _Look) and look.at(certificate))


def _select_protocol(_: SSL.Connection, offered: list[bytes]) -> bytes:
    if PROTOCOL not in offered:
        # Raised here, it becomes alert 120.
        raise _WrongProtocolError
    return PROTOCOL


class TlsStream(ProvedStream):
    """A TLS connection over another stream, which it closes with itself.

    An end of the other stream without close_notify is a cut: BrokenResourceError. `expects`: whose
    key the other side has to have. `blocks`: whether a peer id gets no further than the handshake.
    """

    def __init__(
        self,
        transport: trio.abc.Stream,
        identity: Identity,
        *,
        server: bool,
        expects: bytes | None = None,
        blocks: Blocks = lambda _: False,
    ) -> None:
        self.transport = transport
        self.expects = expects
        self._server = server
        self._look = _Look(blocks, expects)
        tls = self._tls = SSL.Connection(identity.context, None)
        tls.set_app_data(self._look)
        if server:
            tls.set_accept_state()
        else:
            tls.set_connect_state()
        self._hello = ClientHello()
        self._handshake = trio.Lock()
        self._peer_id: bytes | None = None
        self._broken: str | None = None
        self._owed = b""
        self._has_received = self._has_read = False
        self._is_read_up = False
        """Whether all that came whole has been read."""
        self._sending = self._receiving = False
        self._eof_sent = self._eof_received = False
        self._closed = False

    @property
    def peer_id(self) -> bytes:
        """Whose key the other side has proved to have. Only once the handshake is done."""
        assert self._peer_id is not None
        return self._peer_id

    # The handshake

    async def do_handshake(self) -> None:
        """Returns once both sides have shown their keys.

        As a caller that is before the other side has looked at ours. Raises HandshakeError.
        """
        async with self._handshake:
            if self._peer_id is not None:
                return
            self._check_usable()
            # Whatever interrupts it, what was on the way is lost.
            self._broken = "the TLS handshake was not finished"
            try:
                await self._shake_hands()
            except HandshakeError as error:
                self._broken = str(error)
                raise
            except trio.BrokenResourceError as error:
                raise HandshakeError(
                    Trouble.OTHER, _cut_in_handshake(server=self._server)
                ) from error
            self._broken = None

    async def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except SSL.WantReadError:
                await self._send_owed()
                await self._feed_handshake()
            except Exception as error:  # noqa: BLE001 - a library reads what a stranger has written
                with suppress(trio.BrokenResourceError):
                    await self._send_owed()  # the alert, by which the other side knows
                raise self._reason_of(error) from None
            else:
                break
        if self._tls.get_alpn_proto_negotiated() != PROTOCOL:
            raise HandshakeError(Trouble.OTHER, "the other side speaks TLS, and not bamboo in it")
        certificate = self._tls.get_peer_certificate()
        if certificate is None:
            raise HandshakeError(Trouble.CERTIFICATE, "no certificate")
        self._peer_id = peer_id_of(certificate)
        if not self._server:
            await self._send_owed()
        # What a server still owes are tickets. Were they sent now, two sides of which each waits
        # for the other to read would wait for ever.

    async def _feed_handshake(self) -> None:
        data = await self.transport.receive_some(_RECEIVED)
        if not data:
            raise HandshakeError(Trouble.OTHER, _cut_in_handshake(server=self._server))
        if self._server and not self._has_received and data[0] != _HANDSHAKE_BYTE:
            with suppress(trio.BrokenResourceError):
                await self.transport.send_all(NO_TLS_ALERT)
            raise HandshakeError(Trouble.NO_TLS, "the caller does not speak TLS")
        self._has_received = True
        if self._server:
            self._hello.feed(data)
            if self._hello.offers_nothing:
                with suppress(trio.BrokenResourceError):
                    await self.transport.send_all(NO_PROTOCOL_ALERT)
                raise HandshakeError(Trouble.OTHER, _OTHER_PROTOCOL)
        self._tls.bio_write(data)

    @property
    def _is_loopback(self) -> bool:
        """Whether the other side is on this machine, where nodes speak no TLS unless told to."""
        if not isinstance(self.transport, trio.SocketStream):
            return False
        try:
            host = self.transport.socket.getpeername()[0]
            return ipaddress.ip_address(host).is_loopback
        except (OSError, ValueError, TypeError, IndexError):  # gone, or a socket that has a path
            return False

    def _reason_of(self, error: Exception) -> HandshakeError:
        if self._look.found is not None:
            return HandshakeError(*self._look.found)
        if isinstance(error, _WrongProtocolError):
            return HandshakeError(Trouble.OTHER, _OTHER_PROTOCOL)
        if not isinstance(error, SSL.Error):
            return HandshakeError(Trouble.OTHER, f"TLS failed: {type(error).__name__}")
        words = _words_of(error)
        for part, kind, reason in _REASONS:
            if part in words:
                advice = _ON_LOOPBACK if reason == _NO_TLS and self._is_loopback else ""
                return HandshakeError(kind, f"{reason}{advice}")
        return HandshakeError(Trouble.OTHER, f"TLS failed: {words}")

    # Sending

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See trio.abc.SendStream."""
        with self._alone("_sending"):
            await self.do_handshake()
            self._check_sendable()
            left = memoryview(data)
            if not left:
                await trio.lowlevel.checkpoint()
            while left:
                written = self._write(left[:_SENT])
                left = left[written:]
                await self._send_owed(written)

    async def wait_send_all_might_not_block(self) -> None:
        """See trio.abc.SendStream."""
        with self._alone("_sending"):
            self._check_sendable()
            await self.transport.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """Ends our direction (close_notify); receiving goes on."""
        with self._alone("_sending"):
            await self.do_handshake()
            if self._eof_sent:
                await trio.lowlevel.checkpoint()
                return
            self._check_usable()
            self._end_sending()
            await self._send_owed()

    def _write(self, data: memoryview) -> int:
        """Gives it to TLS; how much of it that has taken."""
        try:
            return self._tls.send(data)
        except SSL.Error as error:
            self._broken = f"TLS failed: {_words_of(error)}"
            raise trio.BrokenResourceError(self._broken) from None

    def _end_sending(self) -> None:
        self._eof_sent = True
        with suppress(SSL.Error):
            self._tls.shutdown()

    async def _send_owed(self, written: int = 0) -> None:
        """Sends what TLS has made for the other side. Nobody else sends at the same time.

        `written`: how many bytes were given to it since it was asked last.
        """
        self._take_owed(written + _RECORD_EXTRA * (written // _RECORD + 1) + _SOME)
        if not self._owed:
            return
        data, self._owed = self._owed, b""
        before, self._broken = self._broken, "sending was interrupted in the middle of TLS's bytes"
        await self.transport.send_all(data)
        self._broken = before

    def _take_owed(self, expected: int) -> None:
        """Takes what TLS has made; it is cheapest where that is less than what is expected."""
        with suppress(SSL.WantReadError):
            while True:
                part = self._tls.bio_read(expected)
                # Nothing is copied where nothing is left from before.
                self._owed = self._owed + part if self._owed else part
                if len(part) < expected:
                    return

    # Receiving

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """See trio.abc.ReceiveStream."""
        if max_bytes is not None:
            # As Trio's own streams have it.
            if not isinstance(max_bytes, int):
                raise TypeError("max_bytes must be integer >= 1")
            if max_bytes < 1:
                raise ValueError("max_bytes must be integer >= 1")
        with self._alone("_receiving"):
            await self.do_handshake()
            while True:
                if self._closed:
                    raise trio.ClosedResourceError
                data = self._read(max_bytes or _RECEIVED)
                if data or self._eof_received:
                    await trio.lowlevel.checkpoint()
                    return data
                came = await self.transport.receive_some(_RECEIVED)
                if not came:
                    raise trio.BrokenResourceError(_NOT_CLOSED_WELL)
                self._tls.bio_write(came)
                self._is_read_up = False

    def _read(self, bytes_max: int) -> bytes:
        """What has come whole; b"" if nothing has."""
        if self._is_read_up:
            return b""
        parts, size = [], 0
        while size < bytes_max and not self._eof_received:
            try:
                part = self._tls.recv(min(bytes_max - size, _RECORD))
            except SSL.WantReadError:
                self._is_read_up = True
                break
            except SSL.ZeroReturnError:
                self._eof_received = True
            except SSL.Error as error:
                # A caller believes in a connection that was refused, until he reads.
                if not self._has_read:
                    raise self._reason_of(error) from None
                raise trio.BrokenResourceError(f"TLS failed: {_words_of(error)}") from None
            else:
                self._has_read = True
                parts.append(part)
                size += len(part)
        self._take_owed(_SOME)
        if len(self._owed) > OWED_MAX:
            raise trio.BrokenResourceError("the other side asks for new keys again and again")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # The end

    async def aclose(self) -> None:
        """Closes both streams; says so to the other side, if that takes no longer than 2 s."""
        if self._closed:
            await trio.lowlevel.checkpoint()
            return
        self._closed = True
        try:
            if self._peer_id is not None and not self._eof_sent and self._broken is None:
                self._end_sending()
                # Somebody who still sends is told so by the other stream.
                with suppress(trio.BrokenResourceError, trio.BusyResourceError):
                    with trio.move_on_after(CLOSE_S):
                        await self._send_owed()
        finally:
            await self.transport.aclose()

    def _check_sendable(self) -> None:
        if self._eof_sent:
            raise trio.ClosedResourceError("our direction has ended")
        self._check_usable()

    def _check_usable(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError
        if self._broken is not None:
            raise trio.BrokenResourceError(self._broken)

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        if getattr(self, name):
            raise trio.BusyResourceError("another task uses this direction of the stream")
        setattr(self, name, True)
        try:
            yield
        finally:
            setattr(self, name, False)


_NO_TLS: Final = "the other side does not speak TLS"
_ON_LOOPBACK: Final = (
    "; on loopback call it without `ID@` and --tls, or start it there with `serve --tls`"
)
_REASONS: Final = (
    ("peer did not return a certificate", Trouble.CERTIFICATE, "no certificate"),
    ("certificate required", Trouble.CERTIFICATE, "the other side wants a certificate"),
    ("wrong version number", Trouble.NO_TLS, _NO_TLS),
    ("http request", Trouble.NO_TLS, "the other side does not speak TLS: it speaks HTTP"),
    ("packet length too long", Trouble.NO_TLS, _NO_TLS),
    ("no application protocol", Trouble.OTHER, "the other side speaks TLS, and not bamboo in it"),
    ("unsupported protocol", Trouble.OTHER, "the other side does not speak TLS 1.3"),
    ("alert protocol version", Trouble.OTHER, "the other side does not speak TLS 1.3"),
    ("unexpected message", Trouble.NO_TLS, _NO_TLS),
    ("alert", Trouble.CERTIFICATE, "perhaps your certificate was refused"),
)
"""What OpenSSL says, and what that means for people; the first that is in it counts."""


def _cut_in_handshake(*, server: bool) -> str:
    who = "caller" if server else "other side"
    return f"the {who} hung up in the TLS handshake"


def _words_of(error: BaseException) -> str:
    """The reason of an error of OpenSSL's: it has library, function and reason for each."""
    first = error.args[0] if error.args else ""
    if isinstance(first, list) and first:
        return str(first[0][-1])
    return " ".join(map(str, error.args)) or type(error).__name__
