"""`HOST:PORT`, with brackets around an IPv6 host, as users write it."""

import ipaddress
from typing import Final, NamedTuple

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
        return cls(host, _port(port, text))


def _port(digits: str, text: str) -> int:
    if not digits:
        return DEFAULT_PORT
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) < 1 << 16):
        raise ValueError(f"{text[:100]!r}: the port has to be a number up to 65535")
    return int(digits)
