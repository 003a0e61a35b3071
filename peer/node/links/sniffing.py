"""Telling that who speaks at the other end is no peer at all, so that people get one clear line."""

import re
from typing import Final

TLS: Final = "TLS"
DENIED: Final = "denied"
"""What who is not let in is told, over TLS and instead of a setup (doors.md 2)."""

_LOOKED_AT: Final = 8
_SPEAKERS: Final = (
    (re.compile(rb"(GET|HEAD|POST|PUT|DELETE|OPTIONS|CONNECT|TRACE|PATCH|PRI) "), "HTTP"),
    (re.compile(rb"HTTP/"), "HTTP"),
    (re.compile(rb"\x16\x03[\x00-\x04]"), TLS),
    (re.compile(rb"\x15\x03[\x00-\x04]"), TLS),
    (re.compile(rb"SSH-"), "SSH"),
    (re.compile(rb"denied\n"), DENIED),
)
_HIGH_BITS: Final = 0b1111_1100


class Sniffer:
    """Looks at the first bytes that the other side sends."""

    def __init__(self) -> None:
        self._start = b""

    def feed(self, data: bytes) -> str | None:
        """The protocol that is spoken instead of ours, as soon as it shows."""
        if len(self._start) >= _LOOKED_AT:
            return None
        self._start += data[: _LOOKED_AT - len(self._start)]
        if not self.is_strange:
            return None
        for pattern, name in _SPEAKERS:
            if pattern.match(self._start):
                return name
        return None

    @property
    def has_seen_enough(self) -> bool:
        """Whether nothing that comes still could name another protocol."""
        return len(self._start) >= _LOOKED_AT

    @property
    def is_strange(self) -> bool:
        """Whether the first byte has bits that a peer writes as 0 and reads as nothing."""
        return bool(self._start) and bool(self._start[0] & _HIGH_BITS)
