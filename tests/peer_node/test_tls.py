"""TLS with both sides' node keys: a stream like any other, and whoever shows no such key."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from nacl.signing import SigningKey
from OpenSSL import SSL, crypto

from peer.node.doors import tls as tls_module
from peer.node.doors.certificate import CertificateError, make_certificate, peer_id_of, private_key
from peer.node.doors.tls import NO_TLS_ALERT, Identity, TlsStream
from peer.node.doors.trouble import HandshakeError, Trouble

from .odd_certificates import ODD, odd_certificate

AMY, BEN = SigningKey(bytes([1]) * 32), SigningKey(bytes([2]) * 32)
AMY_IDENTITY, BEN_IDENTITY = Identity(AMY), Identity(BEN)

Pair = tuple[TlsStream, TlsStream]
Maker = Callable[[], Awaitable[tuple[trio.abc.Stream, trio.abc.Stream]]]


async def memory() -> tuple[trio.abc.Stream, trio.abc.Stream]:
    return trio.testing.memory_stream_pair()


async def lockstep() -> tuple[trio.abc.Stream, trio.abc.Stream]:
    return trio.testing.lockstep_stream_pair()


async def tcp() -> tuple[trio.abc.Stream, trio.abc.Stream]:
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    async with listener:
        one = await trio.open_tcp_stream("127.0.0.1", port)
        return one, await listener.accept()


def over(transports: tuple[trio.abc.Stream, trio.abc.Stream]) -> Pair:
    return (
        TlsStream(transports[0], BEN_IDENTITY, server=False),
        TlsStream(transports[1], AMY_IDENTITY, server=True),
    )


@asynccontextmanager
async def connected(maker: Maker = memory) -> AsyncIterator[Pair]:
    one, other = over(await maker())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.do_handshake)
        nursery.start_soon(other.do_handshake)
    try:
        yield one, other
    finally:
        await trio.aclose_forcefully(one)
        await trio.aclose_forcefully(other)


async def refused(
    ours: TlsStream, theirs: trio.abc.Stream, then: Callable[[], Awaitable[None]] | None = None
) -> HandshakeError:
    """Why we refuse the other side; each closes its stream then. `then`: what that one does."""
    found = []

    async def attempt() -> None:
        with pytest.raises(HandshakeError) as error:
            await ours.do_handshake()
        found.append(error.value)
        await ours.aclose()

    async def other() -> None:
        if then is not None:
            await then()
        await trio.aclose_forcefully(theirs)

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(attempt)
            nursery.start_soon(other)
    return found[0]


async def check_stream(maker: Maker) -> None:
    async def make() -> Pair:
        return over(await maker())

    async def make_clogged() -> Pair:
        one, other = over(trio.testing.lockstep_stream_pair())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.do_handshake)
            nursery.start_soon(other.do_handshake)
        return one, other

    clogged = make_clogged if maker is lockstep else None
    await trio.testing.check_half_closeable_stream(make, clogged)


@pytest.mark.parametrize("maker", [memory, lockstep])
async def test_it_is_a_stream_as_trio_has_them(
    maker: Maker, autojump_clock: trio.testing.MockClock
) -> None:
    await check_stream(maker)


async def test_it_is_one_over_sockets_too() -> None:
    await check_stream(tcp)


async def test_both_sides_know_whose_key_the_other_has() -> None:
    async with connected() as (one, other):
        assert (one.peer_id, other.peer_id) == (bytes(AMY.verify_key), bytes(BEN.verify_key))


async def test_much_goes_both_ways_at_once() -> None:
    data = bytes(range(256)) * 4096

    async def receive(stream: TlsStream) -> None:
        came = b""
        while part := await stream.receive_some():
            came += part
        assert came == data

    async def send(stream: TlsStream) -> None:
        await stream.send_all(data)
        await stream.send_eof()

    async with connected() as streams, trio.open_nursery() as nursery:
        for stream in streams:
            nursery.start_soon(receive, stream)
            nursery.start_soon(send, stream)


async def test_what_goes_together_comes_together() -> None:
    """Each step through Trio and Python costs as much as some records do."""
    here, there = trio.testing.memory_stream_pair()
    pass_on = here.send_stream.send_all_hook
    assert pass_on is not None
    pieces = 0

    async def count() -> None:
        nonlocal pieces
        pieces += 1
        await pass_on()

    async with connected(lambda: _given(here, there)) as (one, other):
        here.send_stream.send_all_hook = count
        data = bytes(1 << 18)
        await one.send_all(data)
        assert pieces <= 3
        assert len(await other.receive_some(1 << 18)) >= len(data) - (1 << 14)


async def _given(
    here: trio.abc.Stream, there: trio.abc.Stream
) -> tuple[trio.abc.Stream, trio.abc.Stream]:
    return here, there


async def test_an_end_that_nobody_said_is_a_cut() -> None:
    async with connected() as (one, other):
        await one.send_all(b"half of it")
        await one.transport.aclose()
        assert await other.receive_some() == b"half of it"
        with pytest.raises(trio.BrokenResourceError, match="did not say that it ends"):
            await other.receive_some()


async def test_receiving_never_writes() -> None:
    """A server owes tickets from the handshake on; they go with what it sends next."""
    async with connected() as (one, other):
        sent = []
        send = other.transport.send_all

        async def note(data: bytes | bytearray | memoryview) -> None:
            sent.append(len(data))
            await send(data)

        other.transport.send_all = note  # type: ignore[method-assign]
        await one.send_all(b"question")
        assert await other.receive_some() == b"question"
        assert sent == []
        await other.send_all(b"answer")
        assert sum(sent) > 100
        assert await one.receive_some() == b"answer"


async def test_what_is_owed_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_module, "OWED_MAX", 100)
    async with connected() as (one, other):
        await one.send_all(b"question")
        with pytest.raises(trio.BrokenResourceError, match="again and again"):
            await other.receive_some()


@pytest.mark.parametrize("which", ["rsa", "ec", "ed448"])
@pytest.mark.parametrize("server", [False, True])
async def test_another_kind_of_key_is_named(which: str, server: bool) -> None:
    key: Any = {
        "rsa": lambda: rsa.generate_private_key(65537, 2048),
        "ec": lambda: ec.generate_private_key(ec.SECP256R1()),
        "ed448": ed448.Ed448PrivateKey.generate,
    }[which]()
    stranger = Identity(BEN)
    context = stranger.context = SSL.Context(SSL.TLS_METHOD)
    context.use_privatekey(key)
    context.use_certificate(certificate_of(key))
    context.set_alpn_protos([tls_module.PROTOCOL])
    context.set_alpn_select_callback(lambda connection, offered: tls_module.PROTOCOL)
    context.set_verify(SSL.VERIFY_PEER, lambda *_: True)
    left, right = trio.testing.memory_stream_pair()
    ours = TlsStream(left, AMY_IDENTITY, server=server)
    theirs = TlsStream(right, stranger, server=not server)

    async def go_on() -> None:
        # A client believes in a connection that the server has refused.
        with pytest.raises(trio.BrokenResourceError, match="certificate"):
            await theirs.receive_some()

    mine = await refused(ours, theirs, go_on)
    name = {"rsa": "RSA", "ec": "an elliptic curve's", "ed448": "Ed448"}[which]
    assert str(mine) == f"the certificate's key is {name}, not Ed25519"
    assert mine.kind is Trouble.CERTIFICATE


async def test_who_shows_no_certificate_is_refused() -> None:
    stranger = Identity(BEN)
    context = stranger.context = SSL.Context(SSL.TLS_METHOD)
    context.set_alpn_protos([tls_module.PROTOCOL])
    left, right = trio.testing.memory_stream_pair()
    ours = TlsStream(left, AMY_IDENTITY, server=True)
    theirs = TlsStream(right, stranger, server=False)

    async def go_on() -> None:
        # A client believes in a connection that the server has refused.
        await theirs.do_handshake()
        with pytest.raises(trio.BrokenResourceError, match="wants a certificate"):
            await theirs.receive_some()

    mine = await refused(ours, theirs, go_on)
    assert (str(mine), mine.kind) == ("no certificate", Trouble.CERTIFICATE)


@pytest.mark.parametrize("offered", [None, ["http/1.1"]])
async def test_something_else_inside_of_tls_is_refused(offered: list[str] | None) -> None:
    stranger = Identity(BEN)
    context = stranger.context = SSL.Context(SSL.TLS_METHOD)
    context.use_privatekey(private_key(BEN))
    context.use_certificate(make_certificate(private_key(BEN)))
    if offered is not None:
        context.set_alpn_protos([each.encode() for each in offered])
    left, right = trio.testing.memory_stream_pair()
    ours = TlsStream(left, AMY_IDENTITY, server=True)
    theirs = TlsStream(right, stranger, server=False)

    async def go_on() -> None:
        with pytest.raises(HandshakeError, match="not bamboo in it"):
            await theirs.do_handshake()

    mine = await refused(ours, theirs, go_on)
    assert str(mine) == "the caller speaks TLS, and not bamboo in it"
    assert mine.kind is Trouble.OTHER


async def test_an_other_side_that_chooses_no_protocol_is_hung_up_on() -> None:
    stranger = Identity(BEN)
    context = stranger.context = SSL.Context(SSL.TLS_METHOD)
    context.use_privatekey(private_key(BEN))
    context.use_certificate(make_certificate(private_key(BEN)))
    left, right = trio.testing.memory_stream_pair()
    ours = TlsStream(left, AMY_IDENTITY, server=False)
    theirs = TlsStream(right, stranger, server=True)

    async def go_on() -> None:
        with pytest.raises(HandshakeError):
            await theirs.do_handshake()

    mine = await refused(ours, theirs, go_on)
    assert str(mine) == "the other side speaks TLS, and not bamboo in it"


async def test_a_caller_without_tls_is_told_so() -> None:
    left, right = trio.testing.memory_stream_pair()
    ours = TlsStream(left, AMY_IDENTITY, server=True)
    await right.send_all(b"\x03\x00\x00")
    with pytest.raises(HandshakeError, match="does not speak TLS") as error:
        await ours.do_handshake()
    assert error.value.kind is Trouble.NO_TLS
    assert await right.receive_some() == NO_TLS_ALERT == bytes.fromhex("1503030002020a")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"\x03\x00\x00\x00\x00\x00\x00\x00", "does not speak TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak TLS"),
        (NO_TLS_ALERT, "does not speak TLS"),
        (b"", "hung up in the TLS handshake"),
    ],
)
async def test_what_is_called_and_speaks_no_tls_is_named(answer: bytes, said: str) -> None:
    left, right = trio.testing.memory_stream_pair()
    ours = TlsStream(left, AMY_IDENTITY, server=False)
    if answer:
        await right.send_all(answer)
    await right.send_eof()
    with pytest.raises(HandshakeError, match=said):
        await ours.do_handshake()


async def test_a_handshake_that_was_interrupted_is_not_taken_up_again() -> None:
    left, _ = trio.testing.memory_stream_pair()
    ours = TlsStream(left, AMY_IDENTITY, server=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.do_handshake)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    with pytest.raises(trio.BrokenResourceError, match="not finished"):
        await ours.send_all(b"x")


async def test_older_tls_is_refused() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    left, right = trio.testing.memory_stream_pair()
    ours = TlsStream(left, AMY_IDENTITY, server=True)
    theirs = trio.SSLStream(right, context)

    async def shake() -> None:
        with pytest.raises(trio.BrokenResourceError):
            await theirs.do_handshake()

    assert str(await refused(ours, theirs, shake)) == "the other side does not speak TLS 1.3"


def certificate_of(key: CertificateIssuerPrivateKeyTypes) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "somebody")])
    at = datetime(2020, 1, 1, tzinfo=UTC)
    is_edwards = isinstance(key, ed448.Ed448PrivateKey | ed25519.Ed25519PrivateKey)
    return x509.CertificateBuilder(name, name, key.public_key(), 7, at, at.replace(year=2021)).sign(
        key, None if is_edwards else hashes.SHA256()
    )


def test_only_the_key_of_a_certificate_counts() -> None:
    key = private_key(AMY)
    for certificate in (certificate_of(key), make_certificate(key)):
        assert peer_id_of(crypto.X509.from_cryptography(certificate)) == bytes(AMY.verify_key)
    other = certificate_of(rsa.generate_private_key(65537, 2048))
    with pytest.raises(CertificateError, match="RSA, not Ed25519"):
        peer_id_of(crypto.X509.from_cryptography(other))


def showing(certificate: bytes, folder: Path) -> Identity:
    """Ben, with another certificate than he would make."""
    identity, file = Identity(BEN), folder / "certificate"
    file.write_bytes(certificate)
    # From a file: what the library does not understand it does not take as an object.
    identity.context.use_certificate_file(str(file), crypto.FILETYPE_ASN1)
    return identity


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("server", [False, True])
async def test_of_an_odd_certificate_the_key_counts_alone(
    odd: str, tmp_path: Path, *, server: bool
) -> None:
    """A parser that looks at all of it has ended nodes over some of these."""
    left, right = trio.testing.memory_stream_pair()
    ours = TlsStream(left, AMY_IDENTITY, server=server)
    shown = showing(odd_certificate(BEN, **ODD[odd]), tmp_path)
    theirs = TlsStream(right, shown, server=not server)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.do_handshake)
        nursery.start_soon(theirs.do_handshake)
    assert ours.peer_id == bytes(BEN.verify_key)


@pytest.mark.parametrize("server", [False, True])
async def test_what_a_library_raises_over_a_certificate_ends_this_handshake_alone(
    monkeypatch: pytest.MonkeyPatch, *, server: bool
) -> None:
    def fail(_: crypto.X509) -> bytes:
        raise RuntimeError("nobody foresaw this")

    left, right = trio.testing.memory_stream_pair()
    ours = TlsStream(left, AMY_IDENTITY, server=server)
    theirs = TlsStream(right, BEN_IDENTITY, server=not server)
    looks = ours._look
    monkeypatch.setattr(type(looks), "at", lambda look, shown: look is not looks or fail(shown))

    async def go_on() -> None:
        with pytest.raises((HandshakeError, trio.BrokenResourceError)):
            await theirs.receive_some()

    assert str(await refused(ours, theirs, go_on)) == "TLS failed: RuntimeError"


def test_a_certificate_says_nothing_of_the_secret_key() -> None:
    secret = bytes(AMY)
    assert secret not in make_certificate(private_key(AMY)).public_bytes(serialization.Encoding.DER)
