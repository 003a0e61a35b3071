"""One request: what was agreed, how far each side's cursor is, and which of its ends have come.

Four messages end a request (point2point.md 6): a cancel on the control channel and an end (packet
32) on the data channel, by each side. The flags below are these four; `Request.released` is all of
them. Requests are changed by the table (control), the inbound and the outbound half (data).
"""

from collections import deque
from typing import Any, Final, Protocol

from msgspec import Struct, field

from wire import Adjust, Cancel, CancelReason, LogKey, Propose, in_upper_pool, shortest_path

from .errors import Violation
from .events import HeldEntry, PayloadRead
from .interest import Interest
from .sequence import Sequence, sequence_of

OPEN_END = 2**64
"""Stands for the end of an open range where ranges are compared."""

NEVER = 2**66
"""A position that no sequence has."""

NOTHING: Final[deque[Any]] = deque(maxlen=0)
"""Stands for an empty deque, which would take 760 bytes, in every request. It takes nothing in."""

TRIAL_PAUSE_BYTES_MIN: Final = 64 * 1024
"""After payload bytes that did not shrink, so many go raw before the next are tried."""


class Trial(Struct):
    """What is known of how one request's payloads compress."""

    raw_bytes: int = 0
    """Payload bytes that go raw before the next ones are tried."""
    next_pause_bytes: int = TRIAL_PAUSE_BYTES_MIN
    """How many bytes that will be if the next ones do not shrink either."""


class OpenEntry(Struct):
    """The entry whose payload the other side's cursor is at.

    `begin` is the position of its metadata, -1 if that was not sent in this request.
    """

    seq: int
    encoded: bytes
    hash: bytes
    payload_bytes: int
    payload_hash: bytes
    ingested: bool = False
    """Whether the entry has been handed to the host (else it waits for its small payload)."""
    begin: int = -1
    came_at: float = 0.0
    """When its metadata came."""


class Incoming(Struct):
    """The other side's cursor, and what of it is not proved yet.

    `pending` holds the positions at which something in flight begins, in order: everything before
    the first of them is verified and durable here.
    """

    position: int = 0
    progress: int = 0
    in_piece: bool = False
    """Whether some bytes of the payload at the cursor have come, but not all."""
    entry: OpenEntry | None = None
    hashes: dict[int, bytes] = field(default_factory=dict)
    own_hashes: frozenset[int] = frozenset()
    """Those of entries in the range that they passed, and that we had to look up ourselves."""
    hashes_looked_up_for: int = 0
    looked_up: int = 0
    """The last entry that was looked up for its payload's size (0: none)."""
    gathered: bytearray = field(default_factory=bytearray)
    sink: int | None = None
    discarding: bool = False
    last_entry: OpenEntry | None = None
    """The entry whose payload is the piece before the cursor, for an apology to go back to."""
    last_was_sent: bool = False
    """Whether the piece before the cursor came as data, so that an apology may be for it."""
    last_was_checked: bool = True
    """Whether its bytes were checked; not so where some were passed over (packet 7)."""
    held_already: bool = False
    """The rest of the current payload is held and only passed over (packet 7)."""
    apologised_at: int = NEVER
    adrift: bool = False
    """What comes is thrown away and its size is not known, so that the cursor has been lost."""
    metadata_at: int = -1
    """The position of the last metadata that came as data, -1 if none did."""
    metadata_before: int = -1
    """What `metadata_at` was before that, for an apology to go back to."""
    notified_from: int = NEVER
    """The first position of metadata that they notified of before we had passed it."""
    invalid: tuple[int, str] | None = None
    """The position and the reason of a piece that did not verify and may be apologised for."""
    pending: dict[int, None] = field(default_factory=dict)
    skipped: deque[int] = field(default_factory=lambda: NOTHING)
    """Positions, ahead of our cursor, of payloads that the other side skipped: not transmitted."""

    @property
    def verified(self) -> int:
        return next(iter(self.pending), self.position)


class Outgoing(Struct):
    """Our cursor, and what was read ahead for it."""

    position: int = 0
    progress: int = 0
    in_piece: bool = False
    """Whether some bytes of the payload at the cursor have been sent, but not all."""
    known: int = 0
    """The newest seqnum that we are known to hold."""
    metadata_at: int = -1
    """The position of the last metadata that we sent as data, -1 if we sent none."""
    notified_from: int = NEVER
    """The first position of metadata that we notified of because only that was wanted."""
    absent: deque[tuple[int, bytes]] = field(default_factory=lambda: NOTHING)
    """Payloads that the other side skipped and we do not hold either: positions, and the packets
    to skip them with (empty: they are mandatory, we cannot go on behind them)."""
    rows: deque[HeldEntry] = field(default_factory=lambda: NOTHING)
    reading: bool = False
    """A read of entries is with the host."""
    read_at: int = 0
    """What came behind this place in the store's change feed the rows may not know..."""
    overtaken: bool = False
    """... and whether something of the log has come since they were asked for."""
    dry: bool = False
    """The last read found nothing; only a change of the log makes another one worth it."""
    changed: bool = False
    """The log changed while a read was with the host, which may have missed it."""
    waiting: bool = False
    """The next payload is arriving from somewhere else; the rows read ahead are out of date."""
    waiting_at: int = NEVER
    """The position where that began."""
    waited_at: int = NEVER
    """The position of the last payload that was waited for long enough."""
    chunk: PayloadRead | None = None
    """Payload bytes that are being sent..."""
    next_chunk: PayloadRead | None = None
    """... and those behind them, which were read meanwhile. Not put together: what is left of the
    first ones would be copied with each read."""
    fetching: tuple[int, int] | None = None
    """The seqnum and offset of the payload bytes that the host is to read, if it is."""
    has_read: bool = False
    """Payload bytes were read, so that the host may keep something open for more."""
    moved: frozenset[int] = frozenset()
    """Payloads that began or ceased to arrive here while entries were being read."""
    unproved: bool = False
    """What was sent of the payload at the cursor is not verified, so that we may have to apologise.
    """
    unfed: bool = False
    """The rest of it is waited for, and no session of this host is receiving it now."""
    apologised_at: int = NEVER
    """The position of the last payload that we have apologised for."""
    taken_back: tuple[int, int] = (0, 0)
    """The furthest that our cursor was, and how far inside that piece, before an apology."""
    cancel_due: CancelReason | None = None
    """Why the request has to be cancelled, as sending has found out."""
    stands_since: float | None = None
    """Since when the cursor stands before entries that are not held, although later ones are."""
    trial: Trial = field(default_factory=Trial)
    queued: bool = False
    """Whether it is in the line of those that may have something to send."""

    def wait(self) -> None:
        """The payload at the cursor is waited for."""
        self.waiting, self.waiting_at = True, self.position

    @property
    def awaits_chunk(self) -> bool:
        """Whether we are inside a payload of which nothing is at hand, and more is being read."""
        return self.in_piece and self.chunk is None and self.fetching is not None

    def shift_chunks(self) -> None:
        """What was sent of a payload is let go: kept, it would be half a megabyte for each request
        that has sent a large one."""
        self.chunk, self.next_chunk = self.next_chunk, None

    def read_anew(self) -> None:
        """The rows at hand are out of date."""
        self.rows.clear()
        self.dry = False


class Owner(Protocol):
    """Who asked for something by itself, beside the planner, and hears what becomes of that."""

    def cancelled(self, request: "Request", cancel: Cancel) -> None:
        """The other side cancelled it."""

    def lost(self, request: "Request") -> None:
        """It gave way to a proposal of the other side (section 7), and never was."""

    def released(self, request: "Request") -> None:
        """It is over."""


class Cuts(Struct):
    """How far a confirmed range was cut by adjusts (section 5). `by_us`: the end, by this side."""

    end: int | None = None
    upper: int | None = None
    by_us: bool = False


class Request(Struct, eq=False):
    """A proposal and all that followed from it. `ours`: we proposed it.

    A peer may use a `number` again; `ident` names the request in commands and events and is unique.
    """

    ident: int
    ours: bool
    proposal: Propose
    our_interest: Interest
    their_interest: Interest
    created_at: float
    base: Sequence | None = None
    cuts: Cuts = field(default_factory=Cuts)
    cancel_sent: CancelReason | None = None
    cancel_received: CancelReason | None = None
    end_due: bool = False
    """Our packet 32 has been asked for."""
    end_sent: bool = False
    end_received: bool = False
    log_end: int | None = None
    """The end-of-log entry, if we have heard of it since the request was made."""
    log_fork: int | None = None
    """The earliest fork, if we have heard of one since the request was made."""
    credit_returned: bool = False
    credit_paced: bool = True
    progress_at: float = 0.0
    incoming: Incoming = field(default_factory=Incoming)
    outgoing: Outgoing = field(default_factory=Outgoing)
    owner: Owner | None = None
    """None: the planner, or it is a proposal of the other side."""

    @property
    def number(self) -> int:
        return self.proposal.request

    @property
    def log(self) -> LogKey:
        return self.proposal.log

    @property
    def confirmed(self) -> bool:
        return self.base is not None

    @property
    def answered(self) -> bool:
        """Whether the side that did not propose has said anything about it."""
        if self.ours:
            return self.confirmed or self.cancel_received is not None
        return self.confirmed or self.cancel_sent is not None

    @property
    def active(self) -> bool:
        """Whether both sides may still send pieces."""
        return self.confirmed and self.cancel_sent is None and self.cancel_received is None

    @property
    def released(self) -> bool:
        return (
            self.cancel_sent is not None
            and self.cancel_received is not None
            and self.end_sent
            and self.end_received
        )

    @property
    def may_send_end(self) -> bool:
        """Whether our packet 32 is due (not before an own request is known to exist)."""
        if self.cancel_sent is None or self.end_due:
            return False
        # Cancelled before its answer, it may still lose against one of theirs (section 7): an end
        # of what never was would be a fault.
        return not self.ours or self.confirmed or self.cancel_received is not None

    @property
    def limit(self) -> int | None:
        """The position at which a cursor is done, cuts included; None if there is no end."""
        if self.base is None:
            raise AssertionError("only a confirmed request has a sequence")
        # A lower end leaves no upper pool (section 5).
        length = self.base.length
        if self.cuts.end is not None and (self.base.end is None or self.cuts.end < self.base.end):
            return self.base.positions_up_to(self.cuts.end)
        if self.cuts.upper is not None and length is not None:
            return length - sum(n > self.cuts.upper for n in self.base.upper)
        return length

    def overlaps(self, start: int, end: int | None) -> bool:
        """Whether its range as proposed shares a seqnum with start to end (section 7)."""
        own_end = OPEN_END if self.proposal.end is None else self.proposal.end
        return self.proposal.start <= (OPEN_END if end is None else end) and start <= own_end

    def judge_range(self, adjust: Adjust, *, confirming: bool) -> None:
        """Raise Violation if a new end or upper info breaks section 5.

        A value that is not below the old one is ignored and not checked further. A confirmation
        is judged against the proposal alone.
        """
        proposal = self.proposal
        if adjust.end == 0 or adjust.upper_info == 0:
            raise Violation("point2point.md 5", "seqnum 0", self.number)
        old_end = proposal.end if confirming else self.lowest_end()
        end = adjust.end
        if end is not None and (old_end is None or end < old_end):
            if end < proposal.start:
                raise Violation(
                    "point2point.md 5", f"end {end} below start {proposal.start}", self.number
                )
            on_path_to = self.base.end if self.base is not None else proposal.end
            # The proposer of an open sparse range may say an end before it knows the path.
            knows_path = self.ours or proposal.end is not None
            if (
                proposal.sparse
                and on_path_to is not None
                and knows_path
                and end not in shortest_path(on_path_to, proposal.start)
            ):
                raise Violation(
                    "point2point.md 3", f"end {end} is not on the sparse path", self.number
                )
        else:
            end = old_end
        old_upper = proposal.upper_info if confirming else self.lowest_upper()
        self._judge_upper(adjust.upper_info, end, old_upper)

    def _judge_upper(self, upper_info: int | None, end: int | None, old: int | None) -> None:
        if upper_info is None or (old is not None and upper_info >= old):
            return
        if end is None:
            raise Violation("point2point.md 5", "upper info without an end", self.number)
        if upper_info < end:
            raise Violation(
                "point2point.md 5", f"upper info {upper_info} below end {end}", self.number
            )
        if not in_upper_pool(upper_info, end):
            raise Violation(
                "point2point.md 5",
                f"upper info {upper_info} is not in the upper pool of {end}",
                self.number,
            )

    def lowest_end(self) -> int | None:
        """The end in force: the lowest that was ever said."""
        end, cut = self.proposal.end, self.cuts.end
        base = None if self.base is None else self.base.end
        # Written out: it is asked five times of each of thousands of requests.
        if cut is not None and (end is None or cut < end):
            end = cut
        return base if base is not None and (end is None or base < end) else end

    def lowest_upper(self) -> int | None:
        """The upper info in force: the lowest that was ever said, or the end that cut the pool."""
        end, upper = self.proposal.end, self.proposal.upper_info
        if self.base is not None:
            end = self.base.end
            upper = self.base.upper[-1] if self.base.upper else end
        uppers = [upper, self.cuts.upper]
        if end is None or (self.cuts.end is not None and self.cuts.end < end):
            uppers.append(self.cuts.end)
        return min((upper for upper in uppers if upper is not None), default=None)

    def confirm(self, end: int | None, upper_info: int | None) -> None:
        """Fix the base sequence: the proposal as changed by the confirmation alone."""
        proposal = self.proposal
        base_end, base_upper = proposal.end, proposal.upper_info
        if end is not None and (base_end is None or end < base_end):
            lowers_upper = upper_info is not None and (
                base_upper is None or upper_info < base_upper
            )
            base_end, base_upper = end, upper_info if lowers_upper else end
        elif upper_info is not None and base_upper is not None and upper_info < base_upper:
            base_upper = upper_info
        if proposal.sparse and base_end is None:
            raise Violation(
                "point2point.md 3", "confirmation of an open sparse request has no end", self.number
            )
        self.base = sequence_of(proposal, base_end, base_upper)
        self.outgoing.progress = self.incoming.progress = self.base.offset

    def cut(self, end: int | None, upper_info: int | None, *, by_us: bool) -> bool:
        """Apply a judged end or upper info that only cuts; returns whether anything changed."""
        before = (self.cuts.end, self.cuts.upper)
        lowest = self.lowest_end()
        if end is not None and (lowest is None or end < lowest):
            self.cuts.end, self.cuts.by_us = end, by_us
        if upper_info is not None and (self.cuts.upper is None or upper_info < self.cuts.upper):
            self.cuts.upper = upper_info
        return before != (self.cuts.end, self.cuts.upper)
