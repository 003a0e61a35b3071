"""What the engine tells observers (status screen, JSON events, traces): facts, not commands.

Nobody has to listen: the engine behaves the same whether notices are taken or not.
"""

from dataclasses import dataclass
from enum import StrEnum

from wire import CancelReason, LogKey


@dataclass(frozen=True, slots=True)
class SetUp:
    """Both setup messages are there (point2point.md 1); windows in bytes."""

    send_greedily: bool
    receive_greedily: bool
    compression_window: int
    decompression_window: int


@dataclass(frozen=True, slots=True)
class RequestConfirmed:
    """A request is active: both sides may send. `end` is None for an open range."""

    request: int
    log: LogKey
    ours: bool
    start: int
    end: int | None


@dataclass(frozen=True, slots=True)
class RequestCancelled:
    """One side cancelled a request; `by_us` says which. `ours`: we had proposed it."""

    request: int
    log: LogKey
    reason: CancelReason
    by_us: bool
    ours: bool = False


@dataclass(frozen=True, slots=True)
class RequestGivenUp:
    """We cancelled a request because we could not take in what came, for the reason given."""

    request: int
    log: LogKey
    detail: str


class Limit(StrEnum):
    """What a session may cost, by the key under which it is set (doors.md 4)."""

    OFFERED_LOGS = "offered-logs"
    PAYLOAD_BYTES = "payload-bytes"
    ANSWER_BYTES = "answer-bytes"


@dataclass(frozen=True, slots=True)
class LimitMet:
    """The other side has met a limit: something was refused, or it gets no more credit for now."""

    limit: Limit


@dataclass(frozen=True, slots=True)
class EntriesReceived:
    """Entries were verified and are durable. `payload_bytes`: of payloads that came with them."""

    log: LogKey
    newest: int
    entries: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class PayloadReceived:
    """A payload that came in pieces was verified and is durable."""

    log: LogKey
    seq: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class EntriesSent:
    log: LogKey
    newest: int
    entries: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class NewestLearned:
    """The other side said which entry of a log is its newest."""

    log: LogKey
    newest: int


@dataclass(frozen=True, slots=True)
class PeerHolds:
    """The other side said that it holds an entry that it has not sent here.

    `held`: up to which entry we hold everything, as far as this session knows.
    """

    log: LogKey
    newest: int
    held: int


@dataclass(frozen=True, slots=True)
class Arriving:
    """Bytes of a log came that are not proved yet.

    `newest`: the entry that the last of them belong to. `inside`: whether they end in the middle of
    its payload, and that is stored as it comes.
    """

    log: LogKey
    data_bytes: int
    newest: int
    inside: bool


@dataclass(frozen=True, slots=True)
class FetchEnded:
    """This session asks for no data of a log any more. `listens`: for notifications, it does."""

    log: LogKey
    listens: bool


@dataclass(frozen=True, slots=True)
class SyncFinished:
    """A one-time sync has nothing left to do in either direction (point2point.md 10)."""

    logs: int


Notice = (
    SetUp
    | RequestConfirmed
    | RequestCancelled
    | RequestGivenUp
    | LimitMet
    | EntriesReceived
    | PayloadReceived
    | EntriesSent
    | NewestLearned
    | PeerHolds
    | Arriving
    | FetchEnded
    | SyncFinished
)
