"""Control messages as values (point2point.md 2).

Tuples: to make a frozen dataclass of fifteen fields takes as long as to read it from its bytes.
"""

from enum import IntEnum
from typing import NamedTuple

from .entry import LogKey


class Eagerness(IntEnum):
    """What is to be sent without being asked for; the numbers are those of bits 2 and 3."""

    NOTIFY = 1
    """Notifications only."""
    LIMITED = 2
    """Everything, payloads up to a size."""
    ALL = 3


class CancelReason(IntEnum):
    """Why a request is cancelled: the first byte of the message."""

    NOT_WANTED = 128
    """Do not propose this again."""
    NO_RESOURCES = 129
    """Out of resources; cancel something else and retry."""
    COMPLETE = 130
    """The finite range is complete."""
    YOU_CANCELLED = 131
    """The answer to a cancel."""
    PAYLOAD_MANDATORY = 132
    """The payload is mandatory for you, and I will not wait for it."""
    HASH_MISMATCH = 133
    """The expected starting hash did not match: here is the entry."""
    LOG_ENDED = 134
    """The log ended before the range, with this seqnum."""
    FORKED = 135
    """The log is forked before the range: here are both entries."""


class Grant(NamedTuple):
    """More request credit."""

    units: int
    """Proposals that the receiver may send on top."""


class Adjust(NamedTuple):
    """New settings of a request; None leaves a setting as it is."""

    request: int
    eagerness: Eagerness | None = None
    eager_bytes: int | None = None
    """Largest payload to send unasked, with LIMITED and only there."""
    allow_skip: bool = False
    """Payloads may be skipped from now on."""
    end: int | None = None
    """Seqnum of the last entry."""
    upper_info: int | None = None
    """Seqnum up to which metadata of the upper pool of the end follows."""
    min_bytes: int | None = None
    max_bytes: int | None = None


class Cancel(NamedTuple):
    """The end of a request."""

    request: int
    reason: CancelReason
    entries: tuple[bytes, ...] = ()
    """Whole encodings: one with HASH_MISMATCH, two with FORKED, none otherwise."""
    seq: int | None = None
    """Of the end-of-log entry, with LOG_ENDED and only there."""


class Propose(NamedTuple):
    """A new request."""

    request: int
    log: LogKey
    start: int
    """Seqnum of the first entry."""
    lower_info: int | None
    """Where in the lower pool of start metadata begins; None if the request has an offset."""
    min_bytes: int
    """Smallest payload of interest."""
    max_bytes: int
    """Largest payload of interest."""
    starting_hash: bytes | None
    """Yamf hash of the start entry if the request has an offset, else of lipmaa(lower info) if
    lower info > 1, else None."""
    eagerness: Eagerness
    eager_bytes: int | None = None
    """Largest payload to send unasked, with LIMITED and only there."""
    end: int | None = None
    """Seqnum of the last entry; None: open."""
    upper_info: int | None = None
    """With an end and only there."""
    offset: int | None = None
    """Byte of the start entry's payload to begin with; None: begin with metadata."""
    payloads_only: bool = False
    sparse: bool = False
    mandatory: bool = False
    """Payloads may not be skipped."""


ControlMessage = Grant | Adjust | Cancel | Propose
