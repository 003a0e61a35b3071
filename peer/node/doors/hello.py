"""What a caller says first in TLS: whether its ClientHello names protocols (ALPN).

The library asks which of the protocols that are offered is taken, and not where none is offered:
OpenSSL looks for the extension before it calls. Such a handshake goes on to its end, behind which
no alert of ours can be made, and the caller would never learn why it is hung up on. RFC 8446 has
all of a ClientHello in the clear, and an answer to it as well; so it is looked at here, on its way
to the library. Nothing else is judged: what is not understood, or is of an older version, is the
library's, which knows what is wrong with it.
"""

from typing import Final

_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_ALPN: Final = 16
_VERSIONS: Final = 43
_TLS_1_3: Final = 0x0304
_RECORD_HEAD: Final = 5
_MESSAGE_HEAD: Final = 4
_BEFORE_SESSION_ID: Final = 2 + 32
"""The version and the random bytes."""
HELLO_BYTES_MAX: Final = 128 * 1024
"""Larger ones are left to the library, which takes none (CLIENT_HELLO_MAX_LENGTH)."""


class _CutError(Exception):
    """It is shorter than what it holds."""


class ClientHello:
    """The beginning of what a caller sends, fed as it comes."""

    def __init__(self) -> None:
        self._offers_nothing = False
        self._is_over = False
        self._raw = bytearray()
        self._message = bytearray()

    @property
    def offers_nothing(self) -> bool:
        """Whether it came whole, speaks TLS 1.3, and names no protocol."""
        return self._offers_nothing

    def feed(self, data: bytes | bytearray) -> None:
        """The next bytes; behind the ClientHello they are not looked at."""
        if not self._is_over:
            self._raw += data
            while self._takes_record():
                self._look()

    def _takes_record(self) -> bool:
        """Takes what the next record holds, if all of it has come."""
        raw = self._raw
        if len(raw) < _RECORD_HEAD:
            return False
        end = _RECORD_HEAD + int.from_bytes(raw[3:_RECORD_HEAD], "big")
        if raw[0] != _HANDSHAKE:
            self._end()
            return False
        if len(raw) < end:
            return False
        self._message += raw[_RECORD_HEAD:end]
        del raw[:end]
        return True

    def _look(self) -> None:
        message = self._message
        if len(message) < _MESSAGE_HEAD:
            return
        size = int.from_bytes(message[1:_MESSAGE_HEAD], "big")
        if message[0] != _CLIENT_HELLO or size > HELLO_BYTES_MAX:
            self._end()
        elif len(message) >= _MESSAGE_HEAD + size:
            try:
                self._offers_nothing = _offers_nothing(bytes(message[_MESSAGE_HEAD:][:size]))
            except _CutError:
                pass
            finally:
                self._end()

    def _end(self) -> None:
        self._is_over = True
        self._raw.clear()
        self._message.clear()


def _offers_nothing(body: bytes) -> bool:
    """Whether TLS 1.3 is spoken and no protocol named. Raises _CutError."""
    at = _BEFORE_SESSION_ID
    # The session id, the cipher suites and the ways of compression.
    for head in (1, 2, 1):
        _, at = _vector(body, at, head)
    if at == len(body):
        return False
    extensions, _ = _vector(body, at, 2)
    at, is_new = 0, False
    while at < len(extensions):
        kind = int.from_bytes(extensions[at : at + 2], "big")
        content, at = _vector(extensions, at + 2, 2)
        if kind == _ALPN:
            return False
        if kind == _VERSIONS:
            versions, _ = _vector(content, 0, 1)
            is_new = _TLS_1_3.to_bytes(2, "big") in {
                versions[start : start + 2] for start in range(0, len(versions), 2)
            }
    return is_new


def _vector(data: bytes, at: int, head: int) -> tuple[bytes, int]:
    """What stands behind its own length, a number of `head` bytes, and where it ends."""
    start = at + head
    end = start + int.from_bytes(data[at:start], "big")
    if end > len(data):
        raise _CutError
    return data[start:end], end
