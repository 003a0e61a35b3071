"""Every limit of a session in one place, with where its number is from."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from wire import Setup

MIB = 1024 * 1024

DEFAULT_WINDOW_BYTES = 65_536

HEADERS_BYTES_MAX = 64
"""By how much a turn of the data channel may be longer than what was asked for: a switch and the
header of a payload packet, and that of the bymux packet around them. Cut off where a turn is full,
they took a turn of their own here and a read over there, for a few bytes of each 512 KiB."""

WRITE_BYTES_MAX = 256 * 1024 + HEADERS_BYTES_MAX
"""The largest bymux packet of data: what the transport is given at once. What comes of one is
handed on as it came, so that smaller ones cost both sides more work for each byte. A message of
control waits for no more of it than for what the transport has been given already."""

WINDOW_BYTES_MAX = 16 * MIB
"""point2point.md 1: the largest compression window that may be asked for; each connection may have
to hold one for each direction."""

Compression = Literal["auto", "always", "never"]
"""What is compressed of what this side sends, if the other side takes it (peer/data/packing.py)."""


def default_setup() -> Setup:
    """Greedy wanted and accepted, windows of 65,536 bytes both ways (point2point.md 1)."""
    return Setup(
        send_greedily=True,
        accept_greedily=True,
        send_window=DEFAULT_WINDOW_BYTES,
        receive_window=DEFAULT_WINDOW_BYTES,
    )


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """How a session behaves. Times in seconds, sizes in bytes.

    Raises ValueError for a window above `WINDOW_BYTES_MAX` and an unknown `compression`.

    `policy`: "follow" keeps all wanted logs in step for as long as the connection lasts, "sync"
    brings both sides to what they have now and reports `SyncFinished` (point2point.md 10).
    """

    policy: Literal["follow", "sync"] = "follow"
    setup: Setup = field(default_factory=default_setup)
    compression: Compression = "auto"

    setup_timeout_s: float = 10.0
    """point2point.md 1: from accept or connect to the end of the other side's setup."""
    ping_after_s: float = 30.0
    """Silence after which we ask whether the other side is alive."""
    idle_timeout_s: float = 60.0
    """Silence after which the connection is taken for dead: one that is cut without a word, as by a
    laptop that sleeps, looks alive for as long as nothing is sent."""
    close_timeout_s: float = 5.0
    """point2point.md 1: how long the closer waits for the other side's Close at most..."""
    close_step_s: float = 1.0
    """... and how long for the next step to it at least (peer/goodbye.py)."""

    data_credit_bytes: int = 4 * MIB
    """point2point.md 1: what we are ready to buffer on the data channel. Three times what a pipe of
    100 ms and 100 Mbit/s holds, and enough for a few large payloads to be written at once."""
    write_ahead_bytes: int = 256 * 1024
    """Encoded data waiting for the transport; bounds how late an urgent change can be."""
    quantum_bytes: int = 64 * 1024
    """How much one request sends before the next one gets its turn."""
    read_entries_max: int = 512
    read_bytes_max: int = 256 * 1024
    read_ahead_bytes_max: int = 4 * MIB
    """Rows of all requests of a session that were read, or are being read, and not sent."""
    read_payloads_bytes_max: int = MIB
    """Bytes of large payloads that are read at once, divided among those sent side by side..."""
    read_bytes_min: int = 128 * 1024
    """... but no less than this of each."""
    small_payload_bytes_max: int = 64 * 1024
    """Payloads up to this size are gathered in memory and stored together with their entry: in one
    row, where larger ones are files of the store."""
    entry_alone_s: float = 1.0
    """How long an entry waits for its small payload, to be stored with it; then it is checked."""
    apology_timeout_s: float = 10.0
    """point2point.md 8: who passes on greedily what is invalid finds that out as soon as we do, and
    says so at once. Without an end to waiting a forged entry would keep its connection."""
    skipped_max: int = 100_000
    """Skipped payloads ahead of our own cursors that are remembered in one session. Each is a byte
    for the other side, and a number here for as long as our cursor is behind."""
    inside_payloads_max: int = 16
    """Large payloads that we send side by side; the other side needs a file for each."""
    unfed_timeout_s: float = 30.0
    """A payload that was sent in part, unverified, and that nobody brings any more, is given up
    after so long if something waits behind it."""
    sinks_max: int = 64
    """Payloads that one peer may have under way in pieces; each holds a file."""

    turn_packets: int | None = None
    """bymux packets that are read in one go, of who runs many sessions; None: all that came."""
    answer_bytes_max: int = 2 * MIB
    """What the other side may leave unread of our control messages before it gets no more credit to
    have us say more."""
    grants_free: int = 64
    """Grants of request credit that are no idle work, beside one for each proposal of ours."""
    request_credit: int = 64
    """point2point.md 2: proposals that may be unanswered at first..."""
    request_credit_max: int = 512
    """... and at most, for who has made as many that came to something (earned.py)."""
    requests_max: int = 65_536
    """point2point.md 2: active requests of the other side for which credit is given back."""
    refused_credit_max: float = 2048.0
    """Credit for refused proposals that a node gives back at once, to all its peers together..."""
    refused_credit_per_s: float = 500.0
    """... and the pace at which it does when that is used up (Rapid Reset)."""
    unpaced_refusals_max: int = 512
    """How many refusals in a row, faded likewise, do not delay credit, where we propose what we
    need ourselves. They cost us a look-up each and may be all that an honest peer has to get.
    """
    dropped_max: int = 4096
    """Proposals that gave way to ours (point2point.md 7) whose numbers have to be remembered. They
    earn no credit and cost none, so that nothing else bounds them."""
    requests_per_log_max: int = 64
    """Requests of the other side about one log; more are refused with 129. A log in parts takes
    some; each is gone through whenever something of the log comes."""
    hasty_cancel_s: float = 1.0
    """A request that its proposer cancels sooner, and that moved nothing, is idle work."""
    idle_work_max: float = 1000.0
    idle_work_per_s: float = 33.0
    """Bucket for packets that cost us work and move nothing."""
    read_work_bytes_max: int = 4 * MIB
    """Payload bytes, decompressed, and packets, that are read in one go before other work gets its
    turn."""
    payload_bytes_max: int = 2**63
    """Larger payloads are not taken in: the request is cancelled with 129."""

    unanswered_timeout_s: float = 60.0
    """An own proposal without an answer for so long ends the connection: its log waits for that,
    and whoever owes the answer may propose nothing that overlaps it (point2point.md 7)."""
    silence_s: float = 3.0
    """Who has not said what it holds of an own log of ours so long after the question came there is
    taken for somebody who only reads (peer/planner/withholding.py)."""
    held_data_timeout_s: float = 30.0
    """point2point.md 8: data waiting for the answer to an own proposal."""
    complete_timeout_s: float = 5.0
    """point2point.md 6: a finite request in which nothing moves is ended by its proposer."""
    retry_first_s: float = 1.0
    retry_max_s: float = 60.0
    """Back-off after a cancel 129."""
    keep_again_s: float = 0.25
    """The first delay after what came could not be stored. Less than `sync_settle_s`: the other
    side does not know of it and may leave."""
    room_first_s: float = 60.0
    room_max_s: float = 600.0
    """Back-off after there was no room for what came. Each try costs the other side a payload's
    beginning; there is room once somebody drops something or allows more."""
    look_again_s: float = 1.0
    """The least time between two look-ups of a log that only changes somewhere else bring about."""
    stalled_after_s: float = 5.0
    """How long a gap that another session may fill is left to it before it is asked for here."""
    payload_wait_s: float = 10.0
    """How long the newest entry of a log is kept back, for one that may want its payload, while
    the payload is not here and nobody brings it."""
    sync_settle_s: float = 0.5
    """How long a sync waits for further proposals when all else is done and the peer answers; a
    peer that took long to answer is given more time, at most ten times as much."""
    offered_logs_max: int = 10_000
    """Logs that are new and taken in from one peer because it offered them, not because they are
    followed by name, at once. Of what grows with what a peer names, so many are remembered."""
    offered_logs_per_s: float = 10.0
    """How many more it may bring a second, once it has brought these."""

    def __post_init__(self) -> None:
        if self.compression not in get_args(Compression):
            raise ValueError(f"{self.compression!r:.40} is neither auto, always nor never")
        largest = max(self.setup.send_window, self.setup.receive_window)
        if largest > WINDOW_BYTES_MAX:
            raise ValueError(
                f"a compression window of {largest} bytes, {WINDOW_BYTES_MAX} are allowed at most"
            )
