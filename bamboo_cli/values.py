"""What people type and scripts read: logs, ranges, times, 64-bit numbers."""

import math
import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from wire import U64_MAX, LogKey

_SEQ = re.compile(r"0*([0-9]{1,20})", re.ASCII)
_SIZE = re.compile(r"0*([0-9]{1,20}) ?(?:([kKMG])(?:iB)?|B)?", re.ASCII)
_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhd])", re.ASCII)
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
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


LOG_HELP = "AUTHOR/LOGID, or AUTHOR alone for that author's log 0"


def log_key(text: str) -> LogKey:
    """`AUTHOR` or `AUTHOR/LOGID`. Raises ValueError."""
    log, _, number = text.rpartition("/")
    if text.count("/") == 2 and number.isdigit():
        raise ValueError(
            f"{text[:100]!r} is an entry: write the log and the number apart, {log} {number}"
        )
    return LogKey.parse(text)


def follow_target(text: str) -> LogKey | bytes:
    """`AUTHOR/LOGID` is one log, `AUTHOR` alone all of that author's. Raises ValueError."""
    return log_key(text) if "/" in text else LogKey.parse(text).author


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
