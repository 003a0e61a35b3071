"""What the engine asks of its host: imperatives, each with at most one kind of reply.

The engine has no disk, no clock and no socket. It puts commands into a list; the host (peer.node,
or a test) carries them out and answers with the event named here. Commands are independent of each
other and their replies may arrive in any order, but for two things: what is stored is carried out
and answered in the order given (`Ingest`, and the commands about payloads among themselves), and
so are the reads of one request.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from wire import U64_MAX, LogKey

MISSING_NAMED: Final = 16
"""So many missing payloads tell what there is to do."""


class LookUp(Struct, frozen=True):
    """Say what is held of a log. Answered by `LookedUp` with the same ticket.

    `hashes_of` are the seqnums whose entry hashes are wanted (those not held are left out of the
    answer); `entry` is a seqnum whose whole entry is wanted, if any. Payloads below `min_bytes` or
    above `max_bytes` do not count as missing.
    """

    ticket: int
    log: LogKey
    hashes_of: tuple[int, ...] = ()
    entry: int | None = None
    missing_above: int = 0
    """`LogView.missing_payloads` begins behind this seqnum."""
    missing_of_newest: int | None = None
    """And it names no more than what is among so many entries up to the newest; None: all."""
    min_bytes: int = 0
    max_bytes: int = U64_MAX
    """-1: no payload counts as missing."""
    any_size: tuple[tuple[int, int], ...] = ()
    """Entries, both ends included, of which all payloads count, whatever their sizes, and whatever
    `missing_above` and `missing_of_newest` are."""
    leave_arriving: bool = False
    """And none that some session of this host is receiving, but that of the entry `height`."""
    runs_from: int = 1
    """`LogView.runs` begins with the run that ends at or behind this seqnum."""
    held: tuple[int, int] | None = None
    """`LogView.range_held` is about these entries, both ends included."""
    behind: int = 0
    """So many of the entries that follow `entry` are wanted too, payloads aside."""
    missing_max: int = MISSING_NAMED
    """`LogView.missing_payloads` names at most so many."""
    arrived_after: int | None = None
    """`LogView.arrived` is what came behind this place in the store's change feed..."""
    arrived_among: tuple[tuple[int, int], ...] = ()
    """... of these entries: ranges, ascending, both ends included."""
    tail_hashes: bool = True
    """Beside `hashes_of` those are wanted that a proposal names which goes on behind `height`."""


class ReadEntries(Struct, frozen=True):
    """Read verified entries for sending. Answered by `EntriesRead` for the same request.

    Either the consecutive entries from `first` to `last` (as many as fit; stop at the first that
    is not held), or exactly `seqs`, ascending, when that is given. `payloads` says whether inline
    payloads are wanted too.
    """

    request: int
    log: LogKey
    first: int
    last: int
    seqs: tuple[int, ...] | None
    entries_max: int
    bytes_max: int
    payloads: bool


class ReadPayload(Struct, frozen=True):
    """Read payload bytes for sending. Answered by `PayloadRead` for the same request.

    `arriving`: bytes of a payload that some session of this host is receiving will do as well, but
    for its last one, which is read only when all are verified. Then the answer comes once there are
    some at `offset`, and `PayloadWithdrawn` takes its place if there will be none. While a read
    waits, another one of the same request takes its place.
    """

    request: int
    log: LogKey
    seq: int
    offset: int
    bytes_max: int
    arriving: bool = False


class StopReading(Struct, frozen=True):
    """This request reads no more payload bytes; a read that waits is not answered any more."""

    request: int


Received = tuple[int, bytes, bytes, bytes | None]
"""A received entry: seqnum, canonical encoding, the yamf hash of that, and its payload.

That is the whole payload when it came with the entry and is small, already checked against the
entry's payload hash; None when it comes later, through a sink, or not at all.
"""

INGEST_ENTRIES_MAX: Final = 32
"""Received entries of one item: what goes by in one piece, and so what anybody waits for."""


class IngestItem(Struct, frozen=True):
    """Received entries of one request, one behind the other, up to `INGEST_ENTRIES_MAX`.

    Their links name entries that are held or came before them. `due_bytes`: of a payload that is to
    come next and goes through a sink, or 0. `is_new`: whether the entries came too, or only their
    payloads, for entries that are held or came before.

    Nearly all that is replicated goes by in runs. With an item for each entry, and a row for it in
    every book on the way, that took more than to parse them.
    """

    request: int
    log: LogKey
    entries: Sequence[Received]
    due_bytes: int = 0
    is_new: bool = True


class Ingest(Struct, frozen=True):
    """Check the signatures of these entries and store them durably, in the order given.

    Answered, per request, by `Ingested` (several items at once as they become durable) or by one
    `IngestFailed` for the first that is refused; what was before it is stored, what is behind it in
    the same log is not.
    """

    items: list[IngestItem]


class OpenPayload(Struct, frozen=True):
    """Make a sink for a payload that comes in pieces. Has no reply.

    `offset` is where the incoming bytes begin: what is held before it stays. The entry may not be
    stored yet. A sink that cannot be had for storing (another connection feeds that payload, or
    it is held already) still checks the hash and stores nothing. One whose `offset` is beyond what
    is held cannot check: its verdict is INVALID_RESUMED.
    """

    sink: int
    log: LogKey
    seq: int
    payload_bytes: int
    payload_hash: bytes
    offset: int


class WritePayload(Struct, frozen=True):
    """Append bytes to a sink. Answered by `PayloadWritten` with the number of bytes."""

    sink: int
    data: bytes | memoryview


class FinishPayload(Struct, frozen=True):
    """All bytes have been written and the entry is stored: check and pronounce.

    Answered by `PayloadFinished`, which comes earlier and unasked for a payload that was dropped or
    for which there is no room.
    """

    sink: int


class ClosePayload(Struct, frozen=True):
    """The sink ends before its payload is whole. Not answered.

    `discard`: what came is known to be wrong and must not be kept for resuming; what was held
    before it (the `offset` of `OpenPayload`) may stay.
    """

    sink: int
    discard: bool


class CheckEvidence(Struct, frozen=True):
    """A peer sent entries that may prove a fork of `log` (cancels 133 and 135). Not answered.

    The host checks the signatures itself, compares one entry against the held entry of that seqnum,
    or two with each other, and records a fork only if it is proved (bamboo.md, Verified). Of a log
    that is neither `wanted` nor held nothing is kept.
    """

    log: LogKey
    entries: tuple[bytes, ...]
    wanted: bool = True


Command = (
    LookUp
    | ReadEntries
    | ReadPayload
    | StopReading
    | Ingest
    | OpenPayload
    | WritePayload
    | FinishPayload
    | ClosePayload
    | CheckEvidence
)
