"""Why there is no TLS connection; apart from TLS itself, which takes long to load."""

from enum import StrEnum

import trio


class Trouble(StrEnum):
    """Why there is no TLS connection; the `kind` of events."""

    BLOCKED = "blocked"
    WRONG_PEER = "wrong peer"
    CERTIFICATE = "certificate"
    NO_TLS = "no tls"
    OTHER = "tls"


class HandshakeError(trio.BrokenResourceError):
    """No TLS connection came of a stream; the text is one line for people."""

    def __init__(self, kind: Trouble, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
