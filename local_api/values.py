"""What people type and scripts read: logs, ranges, times, 64-bit numbers."""

import math
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from wire import U64_MAX

_SEQ = re.compile(r"0*([0-9]{1,20})", re.ASCII)
_SIZE = re.compile(r"0*([0-9]{1,20}) ?(?:([kKMG])(?:iB)?|B)?", re.ASCII)
_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd])", re.ASCII)
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[Tt ].*)?", re.ASCII)
_DATE_CHARACTERS = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SeqRange(NamedTuple):
    """Sequence numbers, both ends included."""

    first: int
    last: int | None
    """None: up to the newest entry held."""


def u64(text: str) -> int:
    """A decimal number from 0 to 2^64 - 1. Raises ValueError."""
    match = _SEQ.fullmatch(text)
    if match is None or int(match[1]) > U64_MAX:
        raise ValueError(f"{text[:40]!r} is no number from 0 to 2^64 - 1")
    return int(match[1])


def seq(text: str) -> int:
    """A sequence number. Raises ValueError."""
    if not text.isdecimal():
        raise ValueError(f"{text[:40]!r} is no sequence number")
    number = u64(text)
    if number == 0:
        raise ValueError("sequence numbers count from 1")
    return number


def seq_range(text: str) -> SeqRange:
    """`N`, `A..B`, `A..`, `..B` or `..`. Raises ValueError."""
    first, dots, last = text.partition("..")
    if not all(not end or end.isdecimal() for end in (first, last)):
        raise ValueError(f"{text[:60]!r} is no range: write 7, 3..9, 3.., ..9 or ..")
    if not dots:
        number = seq(text)
        return SeqRange(number, number)
    found = SeqRange(seq(first) if first else 1, seq(last) if last else None)
    if found.last is not None and found.first > found.last:
        raise ValueError(f"{text[:60]!r} ends before it begins")
    return found


EVERYTHING = SeqRange(1, None)


def byte_size(text: str) -> int:
    """`1000`, `10k`, `4M`, `64MiB`: 1k is 1024 bytes. Raises ValueError."""
    match = _SIZE.fullmatch(text)
    if match is not None:
        count = int(match[1]) << 10 * " KMG".index((match[2] or " ").upper())
        if count <= U64_MAX:
            return count
    raise ValueError(f"{text[:40]!r} is no number of bytes, like 1000, 10k, 4M or 1G")


def seconds(text: str) -> float:
    """A number of seconds from 0 on, fractions included. Raises ValueError."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"{text[:40]!r} is no number of seconds")
    return number


def some_seconds(text: str) -> float:
    """A number of seconds above 0. Raises ValueError."""
    number = seconds(text)
    if not number:
        raise ValueError(f"{text[:40]!r} is no number of seconds above 0")
    return number


def span(text: str) -> float:
    """`90s`, `10m`, `2h`, `7d`: seconds. Raises ValueError."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is no span of time, like 90s, 10m, 2h or 7d")
    return float(match[1]) * _UNITS_S[match[2]]


def moment(text: str) -> int:
    """A time, a date (in UTC, from its beginning), or a span before now. Raises ValueError.

    In microseconds since 1970.
    """
    if _SPAN.fullmatch(text):
        now_us = int(datetime.now(UTC).timestamp() * 1e6)
        return max(0, now_us - round(span(text) * 1e6))
    is_date = len(text) == _DATE_CHARACTERS
    found: datetime | None = None
    if _TIME.fullmatch(text):
        with suppress(ValueError):
            found = datetime.fromisoformat(text)
    if found is None or (found.tzinfo is None and not is_date):
        # A time of day without its zone would be taken for another one by somebody.
        raise ValueError(
            f"{text[:60]!r} is no time: write 2026-01-31, 2026-01-31T12:00:00Z, or a span before"
            " now, like 10m, 2h or 7d"
        )
    return (found.replace(tzinfo=found.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)


def rfc3339(microseconds: int) -> str:
    """Microseconds since 1970 as a UTC time."""
    moment = _EPOCH + timedelta(microseconds=microseconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def size(count: int) -> str:
    """Bytes for people."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1023.95:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
