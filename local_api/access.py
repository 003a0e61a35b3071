"""Who may ask the local API, and from where (everyday.md 3).

A browser is the attacker's foot in the door of this machine: any page that its user looks at may
have it send requests to loopback. What keeps it out are three things, each alone too little.

- `Host`: a page of evil.example may have its name lead to 127.0.0.1 (DNS rebinding), and then its
  scripts count as of the same origin. They cannot choose the header, which names evil.example.
- `Origin` and `Sec-Fetch-Site`: a form or a script of another page is sent with them, and
  refused. There is no CORS header in any answer, so that nothing is readable elsewhere either.
- The token: whatever changes something, or has payloads in its answer, needs what only its file
  says, which others of this machine cannot read. A cookie was not taken: browsers send cookies by
  themselves.

A socket in a directory needs no token: its mode says who may connect, as the file's would.
"""

import os
import secrets
from collections.abc import Collection
from hmac import compare_digest
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from peer.node import Address

if TYPE_CHECKING:
    from pathlib import Path

TOKEN_FILE: Final = "api.token"  # noqa: S105 - where it is
_TOKEN_BYTES: Final = 32
_SCHEME: Final = b"bearer "
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


class AccessDeniedError(Exception):
    """A request is refused; `status` is 401, 403 or 421, the text one line."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


def load_token(folder: "Path") -> str:
    """The token of a store, made when it is first needed. Raises OSError."""
    path = folder / TOKEN_FILE
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        pass
    token = secrets.token_hex(_TOKEN_BYTES)
    temporary = folder / f"{TOKEN_FILE}.new"
    temporary.unlink(missing_ok=True)
    # Whole or not at all: half a token would be easier to guess.
    with open(temporary, "w", opener=_private) as file:
        file.write(f"{token}\n")
    temporary.rename(path)
    return token


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL, 0o600)


class Access:
    """Judges requests that come to one address."""

    def __init__(self, address: Address, token: str, hosts: Collection[str] = ()) -> None:
        """`hosts`: other names by which the page is looked at (`--page-host`)."""
        self._token = token.encode()
        self._is_socket = bool(address.path)
        self._is_loopback = address.is_loopback
        names = {address.host, *_LOOPBACK, *hosts}
        self._hosts = frozenset(f"{name.lower()}:{address.port}" for name in names)

    def check_place(self, headers: dict[bytes, bytes]) -> None:
        """Raises AccessDeniedError for a request that a foreign page has made."""
        if self._is_socket:
            return
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if host not in self._hosts:
            raise AccessDeniedError(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"{host[:80]!r} is no name of this server (--page-host adds one)",
            )
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower() != f"http://{host}":
            raise AccessDeniedError(HTTPStatus.FORBIDDEN, "asked for by a page of another origin")
        if headers.get(b"sec-fetch-site", b"none").lower() == b"cross-site":
            raise AccessDeniedError(HTTPStatus.FORBIDDEN, "asked for by a page of another site")

    def check_token(self, headers: dict[bytes, bytes], *, always: bool) -> None:
        """Raises AccessDeniedError without the token. `always`: on loopback, too."""
        if self._is_socket or (self._is_loopback and not always):
            return
        given = headers.get(b"authorization", b"")
        is_bearer = given[: len(_SCHEME)].lower() == _SCHEME
        if not (is_bearer and compare_digest(given[len(_SCHEME) :].strip(), self._token)):
            raise AccessDeniedError(
                HTTPStatus.UNAUTHORIZED,
                "it takes the header `Authorization: Bearer TOKEN` (`paths` names its file)",
            )
