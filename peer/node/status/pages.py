"""The little of HTTP/1.1 (RFC 9112) that whoever reads metrics needs: one request, one answer.

Nothing of a request comes back in an answer, and no header but the end of them matters.
"""

from http import HTTPStatus
from typing import Final

from msgspec import Struct

REQUEST_BYTES_MAX: Final = 8192
"""Of a request line and its headers; what is longer is refused."""
PLAIN: Final = "text/plain; charset=utf-8"
_END: Final = b"\r\n\r\n"
_METHODS: Final = frozenset((b"GET", b"HEAD"))


class Page(Struct, frozen=True):
    """An answer."""

    status: HTTPStatus
    body: bytes
    content_type: str = PLAIN

    @classmethod
    def of(cls, status: HTTPStatus) -> "Page":
        """One that says nothing but its status."""
        return cls(status, f"{status.phrase}\n".encode())


class Request:
    """What comes of a request, piece by piece."""

    def __init__(self) -> None:
        self._received = bytearray()

    def take(self, data: bytes | bytearray) -> bool:
        """Some bytes of it; True once there is all that is needed, or too much."""
        # The end may be split between two pieces, and what is searched before is not again.
        start = max(0, len(self._received) - len(_END) + 1)
        self._received += data
        return len(self._received) > REQUEST_BYTES_MAX or _END in self._received[start:]

    def path(self) -> str | Page:
        """What is asked for, without `?` and what is behind it; or the answer to a bad request."""
        if len(self._received) > REQUEST_BYTES_MAX:
            return Page.of(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        line = bytes(self._received).partition(b"\r\n")[0].split(b" ")
        if len(line) != 3 or not line[2].startswith(b"HTTP/1."):
            return Page.of(HTTPStatus.BAD_REQUEST)
        if line[0] not in _METHODS:
            return Page.of(HTTPStatus.METHOD_NOT_ALLOWED)
        return line[1].partition(b"?")[0].decode("latin-1")

    @property
    def wants_body(self) -> bool:
        """HEAD asks for what stands above it alone."""
        return not self._received.startswith(b"HEAD ")


def encoded(page: Page, *, with_body: bool) -> bytes:
    """The bytes of an answer, behind which the connection ends."""
    lines = [
        f"HTTP/1.1 {page.status.value} {page.status.phrase}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        # No browser is to guess what it is, or to keep it.
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if page.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    head = "".join(f"{line}\r\n" for line in (*lines, "")).encode()
    return head + page.body if with_body else head
