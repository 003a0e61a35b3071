"""What the engine tells observers (status screen, JSON events, traces): facts, not commands.

Nobody has to listen: the engine behaves the same whether notices are taken or not.
"""

from enum import StrEnum

from msgspec import Struct

from wire import CancelReason, LogKey


class SetUp(Struct, frozen=True):
    """Both setup messages are there (point2point.md 1); windows in bytes."""

    send_greedily: bool
    receive_greedily: bool
    compression_window: int
    decompression_window: int


class RequestConfirmed(Struct, frozen=True):
    """A request is active: both sides may send. `end` is None for an open range."""

    request: int
    log: LogKey
    ours: bool
    start: int
    end: int | None


class RequestCancelled(Struct, frozen=True):
    """One side cancelled a request; `by_us` says which. `ours`: we had proposed it."""

    request: int
    log: LogKey
    reason: CancelReason
    by_us: bool
    ours: bool = False


class RequestGivenUp(Struct, frozen=True):
    """We cancelled a request because we could not take in what came, for the reason given."""

    request: int
    log: LogKey
    detail: str


class Limit(StrEnum):
    """What a session may cost, by the key under which it is set (doors.md 4)."""

    OFFERED_LOGS = "offered-logs"
    PAYLOAD_BYTES = "payload-bytes"
    ANSWER_BYTES = "answer-bytes"


class LimitMet(Struct, frozen=True):
    """The other side has met a limit: something was refused, or it gets no more credit for now."""

    limit: Limit


class EntriesReceived(Struct, frozen=True):
    """Entries were verified and are durable. `payload_bytes`: of payloads that came with them."""

    log: LogKey
    newest: int
    entries: int
    payload_bytes: int


class PayloadsReceived(Struct, frozen=True):
    """Payloads that came behind their entries, or in pieces, were verified and are durable.

    `newest`: the entry of the last one. `payload_bytes`: how many of their bytes came here; of one
    that was gone on with, the rest.
    """

    log: LogKey
    newest: int
    payload_bytes: int


class EntriesSent(Struct, frozen=True):
    log: LogKey
    newest: int
    entries: int
    payload_bytes: int


class NewestLearned(Struct, frozen=True):
    """The other side said which entry of a log is its newest."""

    log: LogKey
    newest: int


class PeerHolds(Struct, frozen=True):
    """The other side said that it holds an entry that it has not sent here.

    `held`: up to which entry we hold everything, as far as this session knows.
    """

    log: LogKey
    newest: int
    held: int


class Arriving(Struct, frozen=True):
    """Bytes of a log came that are not proved yet.

    `newest`: the entry that the last of them belong to. `inside`: whether they end in the middle of
    its payload, and that is stored as it comes.
    """

    log: LogKey
    data_bytes: int
    newest: int
    inside: bool


class FetchEnded(Struct, frozen=True):
    """This session asks for no data of a log any more."""

    log: LogKey


class SyncFinished(Struct, frozen=True):
    """A one-time sync has nothing left to do in either direction (point2point.md 10)."""

    logs: int


Notice = (
    SetUp
    | RequestConfirmed
    | RequestCancelled
    | RequestGivenUp
    | LimitMet
    | EntriesReceived
    | PayloadsReceived
    | EntriesSent
    | NewestLearned
    | PeerHolds
    | Arriving
    | FetchEnded
    | SyncFinished
)


def note_sent(
    notices: list[Notice], log: LogKey, newest: int, entries: int, payload_bytes: int
) -> None:
    """Adds `EntriesSent`: to the last one, if nothing else has happened since.

    A payload sent by itself is a notice of its own, and each is heard of in five places.
    """
    last = notices[-1] if notices else None
    if isinstance(last, EntriesSent) and last.log == log:
        newest = max(newest, last.newest)
        entries += last.entries
        payload_bytes += last.payload_bytes
        notices.pop()
    notices.append(EntriesSent(log, newest, entries, payload_bytes))
