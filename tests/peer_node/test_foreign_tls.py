"""TLS with another implementation at the other end: OpenSSL's own command line (doors.md 2)."""

import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from peer.api import CannotConnectError
from peer.node import Address

from .support import PATIENCE_S
from .test_entrance import AMY, BEN_ID, HERE, Told, called, node

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here")
ALPN = ("-alpn", "bamboo-p2p/1")


class Certificate:
    """A certificate that OpenSSL has made, of any kind of key."""

    def __init__(self, folder: Path, *kind: str) -> None:
        self.key, self.certificate = folder / "key.pem", folder / "certificate.pem"
        files = ("-keyout", str(self.key), "-out", str(self.certificate))
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", *kind, "-nodes", *files, "-subj", "/CN=any"],
            check=True,
            capture_output=True,
        )
        self.files = ("-cert", str(self.certificate), "-key", str(self.key))

    @property
    def peer_id(self) -> bytes:
        key = load_pem_private_key(self.key.read_bytes(), None).public_key()
        return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


@pytest.fixture
def ed25519(tmp_path: Path) -> Certificate:
    return Certificate(tmp_path, "ed25519")


@pytest.fixture
def rsa(tmp_path: Path) -> Certificate:
    return Certificate(tmp_path, "rsa:2048")


class Server:
    """`openssl s_server`, which shows what it receives and sends what it is told."""

    def __init__(self, process: trio.Process, address: Address) -> None:
        self.process = process
        self.address = address
        self.shown = b""

    async def until_shown(self, pattern: bytes) -> None:
        assert self.process.stdout is not None
        with trio.fail_after(PATIENCE_S):
            while not re.search(pattern, self.shown):
                data = await self.process.stdout.receive_some()
                assert data, self.shown.decode(errors="replace")
                self.shown += data

    async def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(data)


@asynccontextmanager
async def serving(certificate: Certificate, *options: str) -> AsyncIterator[Server]:
    command = ["openssl", "s_server", "-accept", "127.0.0.1:0", *certificate.files, *options]
    pipe = subprocess.PIPE
    process = await trio.lowlevel.open_process(command, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        server = Server(process, HERE)
        await server.until_shown(rb"ACCEPT 127\.0\.0\.1:\d+\n")
        port = int(re.findall(rb"ACCEPT 127\.0\.0\.1:(\d+)", server.shown)[0])
        server.address = Address("127.0.0.1", port)
        yield server
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            for end in (process.stdin, process.stdout, process.stderr):
                if end is not None:
                    await end.aclose()


async def client(address: Address, *options: str) -> bytes:
    """What `openssl s_client` shows until the other side has closed."""
    command = ["openssl", "s_client", "-connect", str(address), "-ign_eof", *options]
    with trio.fail_after(PATIENCE_S):
        found = await trio.run_process(
            command, stdin=b"", capture_stdout=True, stderr=subprocess.STDOUT, check=False
        )
    return bytes(found.stdout)


async def test_a_foreign_client_without_a_certificate_is_refused_by_an_alert() -> None:
    amys = Told()
    async with node(AMY, told=amys) as amy:
        [address] = await amy.listen(HERE)
        assert b"ed25519" in (await client(address, *ALPN)).lower()
        assert (await amys.of_kind("refused", "certificate"))["reason"] == "no certificate"


async def test_a_foreign_client_with_another_kind_of_key_is_told_of(rsa: Certificate) -> None:
    amys = Told()
    async with node(AMY, told=amys) as amy:
        [address] = await amy.listen(HERE)
        assert b"alert" in await client(address, *ALPN, *rsa.files)
        refused = await amys.of_kind("refused", "certificate")
        assert refused["reason"] == "the certificate's key is RSA, not Ed25519"


async def test_a_foreign_client_that_nobody_allowed_is_named_and_told_so(
    ed25519: Certificate,
) -> None:
    amys = Told()
    async with node(AMY, told=amys) as amy:
        [address] = await amy.listen(HERE)
        assert b"denied\n" in await client(address, *ALPN, *ed25519.files)
        assert (await amys.of_kind("refused", "unknown"))["peer_id"] == ed25519.peer_id.hex()


@pytest.mark.parametrize("options", [("-tls1_2", *ALPN), ("-alpn", "h2")])
async def test_another_version_or_protocol_gets_an_alert(
    ed25519: Certificate, options: tuple[str, ...]
) -> None:
    amys = Told()
    async with node(AMY, told=amys) as amy:
        [address] = await amy.listen(HERE)
        assert b"alert" in await client(address, *options, *ed25519.files)
        await amys.of_kind("refused", "no tls")


@pytest.mark.parametrize("options", [(), ("-alpn", "h2")])
async def test_who_does_not_ask_for_bamboo_gets_alert_120(
    ed25519: Certificate, options: tuple[str, ...]
) -> None:
    amys = Told()
    async with node(AMY, told=amys) as amy:
        [address] = await amy.listen(HERE)
        assert b"SSL alert number 120" in await client(address, *options, *ed25519.files)
        refused = await amys.of_kind("refused", "no tls")
        assert refused["reason"] == "the caller speaks TLS, and not bamboo in it"


async def test_a_foreign_server_proves_its_key_and_sees_ours(ed25519: Certificate) -> None:
    bens = Told()
    async with (
        node(AMY, told=bens) as ours,
        serving(ed25519, "-tls1_3", "-Verify", "1", *ALPN) as server,
    ):
        ours.connect(called(server.address, ed25519.peer_id))
        # Ours is shown, as its own certificate; then comes the setup, of which this end knows
        # nothing.
        await server.until_shown(b"BEGIN CERTIFICATE")
        await server.until_shown(b"ALPN protocols selected: bamboo-p2p/1")
        await server.send(b"denied\n")
        failed = await bens.of_kind("connect_failed", "denied")
        assert failed["peer_id"] == ed25519.peer_id.hex()


async def test_a_foreign_server_with_another_key_is_no_peer(
    ed25519: Certificate, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rsa = Certificate(tmp_path_factory.mktemp("rsa"), "rsa:2048")
    async with node(AMY) as ours:
        async with serving(ed25519, "-tls1_3", "-Verify", "1", *ALPN) as server:
            wanted = called(server.address, BEN_ID)
            with pytest.raises(CannotConnectError) as caught:
                await ours.entrance.call(wanted)
            assert ed25519.peer_id.hex() in str(caught.value)
            assert BEN_ID.hex() in str(caught.value)
        async with serving(rsa, "-tls1_3", "-Verify", "1", *ALPN) as server:
            with pytest.raises(CannotConnectError, match="key is RSA, not Ed25519"):
                await ours.entrance.call(called(server.address, BEN_ID))
