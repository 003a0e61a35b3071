"""`HOST:PORT`, with brackets around an IPv6 host, as users write it.

Behind the address of a peer that is called there may be options of that connection:
`HOST:PORT,greedy=none`.
"""

import ipaddress
from typing import Final, NamedTuple

from .greedy import Greedy, parse_greedy

DEFAULT_PORT: Final = 7007


class Address(NamedTuple):
    """A host, by name or number, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """`host`, `host:port`, `[::1]` or `[::1]:port`; the default port is 7007.

        Raises ValueError, with a message for people.
        """
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

    def __str__(self) -> str:
        return str(self.address)

    @classmethod
    def parse(cls, text: str) -> "PeerAddress":
        """`HOST:PORT[,greedy=both|send|receive|none]`. Raises ValueError."""
        place, *options = text.split(",")
        address = Address.parse(place)
        if address.port == 0:
            raise ValueError(f"{text[:100]!r}: nobody can be called at port 0")
        greedy: Greedy | None = None
        for option in options:
            name, equals, value = option.partition("=")
            where = f"{text[:100]!r}: "
            if name != "greedy" or not equals:
                raise ValueError(
                    f"{where}{option[:40]!r} is no option of a connection; there is"
                    " greedy=both, greedy=send, greedy=receive and greedy=none"
                )
            if greedy is not None:
                raise ValueError(f"{where}'greedy' is said twice")
            try:
                greedy = parse_greedy(value)
            except ValueError as error:
                raise ValueError(f"{where}greedy={error}") from None
        return cls(address, greedy)


def _port(digits: str, text: str) -> int:
    if not digits:
        return DEFAULT_PORT
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) < 1 << 16):
        raise ValueError(f"{text[:100]!r}: the port has to be a number up to 65535")
    return int(digits)
