"""`HOST:PORT`, with brackets around an IPv6 host, or `unix:PATH`, as users write it.

Before the address of a peer that is called there may be who is to answer, and behind it options of
that connection: `ID@HOST:PORT,greedy=none`.
"""

import ipaddress
import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from logstore import check_name

from .greedy import Greedy, parse_greedy

DEFAULT_PORT: Final = 7007
_ID: Final = re.compile(r"[0-9A-Fa-f]{64}", re.ASCII)


UNIX: Final = "unix:"
UNIX_PATH_BYTES_MAX: Final = 107
"""What the operating system has room for, and a byte that ends it."""


class Address(NamedTuple):
    """A host, by name or number, and a TCP port; or the path of a socket of this machine."""

    host: str
    port: int
    path: str = ""
    """Of a Unix domain socket, absolute; there is no port then, and `unix` stands for the host."""

    def __str__(self) -> str:
        if self.path:
            return f"{UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        if self.path:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @classmethod
    def at_path(cls, path: str) -> "Address":
        """That of a Unix domain socket. Raises ValueError, with a message for people."""
        if not path or not path.isprintable():
            raise ValueError(f"{UNIX}{path[:100]!r}: expected the path of a socket")
        if "," in path:
            raise ValueError(f"{UNIX}{path[:100]}: a comma in the path begins options")
        whole = str(Path(path).absolute())
        if len(os.fsencode(whole)) > UNIX_PATH_BYTES_MAX:
            raise ValueError(
                f"{UNIX}{whole}: the path of a socket has {UNIX_PATH_BYTES_MAX} bytes at most"
            )
        return cls(UNIX.rstrip(":"), 0, whole)

    @classmethod
    def parse(cls, text: str, *, unix: bool = False) -> "Address":
        """`host`, `host:port`, `[::1]` or `[::1]:port`; the default port is 7007.

        And `unix:PATH` if that is of use here. Raises ValueError, with a message for people.
        """
        if text.startswith(UNIX) and unix:
            return cls.at_path(text.removeprefix(UNIX))
        if text.startswith(UNIX):
            raise ValueError(f"{text[:100]!r}: expected HOST:PORT here, and not a socket's path")
        if "," in text:
            raise ValueError(
                f"{text[:100]!r}: options stand behind the address of a peer that is called only"
            )
        host, port = text, ""
        if text.startswith("["):
            host, bracket, rest = text[1:].partition("]")
            if not bracket or (rest and not rest.startswith(":")):
                raise ValueError(f"{text[:100]!r} is no address: expected [HOST]:PORT")
            port = rest[1:]
            if rest == ":":
                raise ValueError(f"{text[:100]!r} lacks the port behind the colon")
        elif text.count(":") == 1:
            host, _, port = text.partition(":")
            if not port:
                raise ValueError(f"{text[:100]!r} lacks the port behind the colon")
        elif ":" in text:
            raise ValueError(f"{text[:100]!r}: an IPv6 address needs brackets, as in [::1]:7007")
        if _ID.fullmatch(host):
            # Longer than a part of a host's name can be: it is none in any case.
            raise ValueError(
                f"{host} is no name of a host, but the id of a peer: write ID@HOST:PORT"
            )
        if not host or any(c.isspace() for c in host):
            raise ValueError(f"{text[:100]!r} is no address: expected HOST:PORT")
        try:
            host.encode("idna")
        except UnicodeError:
            raise ValueError(f"{host[:100]!r} is no name of a host") from None
        return cls(host, _port(port, text))


class PeerAddress(NamedTuple):
    """Whom to call, and what goes for that connection only."""

    address: Address
    greedy: Greedy | None = None
    """None: as the node has it."""
    peer: str | None = None
    """Who is to answer: a peer id in hex, or a name of the store. None: whoever is allowed."""
    tls: bool | None = None
    """Whether with TLS; None: as the address and the node have it."""

    def __str__(self) -> str:
        return str(self.address)

    @property
    def written(self) -> str:
        """As `parse` takes it."""
        options = [] if self.greedy is None else [f"greedy={self.greedy}"]
        if self.tls is not None:
            options.append(f"tls={'yes' if self.tls else 'no'}")
        who = "" if self.peer is None else f"{self.peer}@"
        return ",".join([f"{who}{self.address}", *options])

    @classmethod
    def parse(cls, text: str) -> "PeerAddress":
        """`[ID@]HOST:PORT[,greedy=both|send|receive|none][,tls=yes|no]`. Raises ValueError.

        `unix:PATH` stands for `HOST:PORT` where the peer is on this machine.
        """
        place, *options = text.split(",")
        # There may be an @ in a path.
        named = "@" in place and not place.startswith(UNIX)
        who, at, rest = place.partition("@") if named else ("", "", place)
        if at and not who:
            raise ValueError(f"{text[:100]!r} lacks who is called, before the @")
        address = Address.parse(rest, unix=True)
        if address.port == 0 and not address.path:
            raise ValueError(f"{text[:100]!r}: nobody can be called at port 0")
        found: dict[str, str] = {}
        for option in options:
            name, equals, value = option.partition("=")
            if name not in ("greedy", "tls") or not equals:
                raise ValueError(
                    f"{text[:100]!r}: {option[:40]!r} is no option of a connection; there is"
                    " greedy=both, greedy=send, greedy=receive and greedy=none, tls=yes and tls=no"
                )
            if name in found:
                raise ValueError(f"{text[:100]!r}: {name!r} is said twice")
            found[name] = value
        return cls(
            address,
            _greedy(found.get("greedy"), text),
            _peer(who, text) if at else None,
            _tls(found.get("tls"), text, is_named=bool(at)),
        )


def called_at(target: Address | PeerAddress, greedy: Greedy | None = None) -> PeerAddress:
    """Whom to call; `greedy` is meant if it is said."""
    called = target if isinstance(target, PeerAddress) else PeerAddress(target)
    return called if greedy is None else called._replace(greedy=greedy)


def _greedy(word: str | None, text: str) -> Greedy | None:
    try:
        return None if word is None else parse_greedy(word)
    except ValueError as error:
        raise ValueError(f"{text[:100]!r}: greedy={error}") from None


def _peer(who: str, text: str) -> str:
    if _ID.fullmatch(who):
        return who.lower()
    try:
        return check_name(who)
    except ValueError:
        raise ValueError(
            f"{text[:100]!r}: {who[:80]!r} is neither a peer id (64 hex digits) nor a name"
        ) from None


def _tls(word: str | None, text: str, *, is_named: bool) -> bool | None:
    if word not in (None, "yes", "no"):
        raise ValueError(f"{text[:100]!r}: tls={word[:40]!r} is neither yes nor no")
    if is_named and word == "no":
        # Without TLS nobody proves who he is.
        raise ValueError(f"{text[:100]!r}: who is called by an id is called with TLS")
    return None if word is None else word == "yes"


def _port(digits: str, text: str) -> int:
    if not digits:
        return DEFAULT_PORT
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) < 1 << 16):
        raise ValueError(f"{text[:100]!r}: the port has to be a number up to 65535")
    return int(digits)
