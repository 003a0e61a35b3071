"""How a payload becomes part of an entry's row, checked against what the entry says of it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from wire import LogKey, tail_fields, tail_offset, yamf_hash

from .errors import PayloadUnavailable
from .files import Staged, attach_file, set_file_state
from .missing import is_missing, remove_missing
from .proofs import store_wrong_size
from .records import PayloadFile
from .rows import LogRow, entry_tag, pack_u64
from .schema import (
    FILE_GARBAGE,
    FILE_PARTIAL,
    FILE_STAGING,
    FILE_WHOLE,
    PAYLOAD_DELETED,
    PAYLOAD_FILE,
    PAYLOAD_INLINE,
    PAYLOAD_MISSING,
)

if TYPE_CHECKING:
    import apsw

    from .database import Transaction

GivenPayload = bytes | PayloadFile | Staged
"""A small payload, one that a sink has finished, or one that was brought to disk just now."""


FILL_ROW: Final = (
    "UPDATE entries SET ingest = ?, payload_state = ?, payload = ?, tag = ? WHERE ingest = ?"
)
"""Gives the row of an entry its payload, and with it a number of its own in the change feed."""


@dataclass(slots=True)
class ReadyEntry:
    """A `NewEntry` whose payload, if it is large, has been brought to disk."""

    seq: int
    encoded: bytes
    hash: bytes
    payload: GivenPayload | None
    due_bytes: int = 0


class Column(NamedTuple):
    """What goes into an entry's row."""

    state: int
    payload: bytes


class WrongPayloadError(Exception):
    """The payload given is not the one that the entry names; the text says how."""


class PayloadGoneError(WrongPayloadError):
    """What was received has been dropped since."""


class PayloadDeletedError(PayloadGoneError):
    """The payload was deleted here, and nobody has asked for it since."""


class WrongSizeError(WrongPayloadError):
    """The payload's hash is right and its size is not: the log is invalid from there on."""

    payload: bytes | Staged

    def __init__(self, payload: bytes | Staged, given: int, said: int) -> None:
        super().__init__(
            f"the payload has the right hash and {given} bytes where the entry says {said}:"
            " the log is invalid from here on"
        )
        self.payload = payload


def check_payload(
    db: "apsw.Connection",
    key: LogKey,
    seq: int,
    given: GivenPayload,
    size: int,
    payload_hash: bytes,
) -> Column:
    """The column for a payload, of which a file is the entry's from now on.

    Raises WrongPayloadError or WrongSizeError.
    """
    if isinstance(given, bytes):
        if yamf_hash(given) != payload_hash:
            raise WrongPayloadError("the payload is not the one that the entry names")
        if len(given) != size:
            raise WrongSizeError(given, len(given), size)
        return Column(PAYLOAD_INLINE, given)
    if given.payload_hash != payload_hash:
        raise WrongPayloadError("the payload is not the one that the entry names")
    if isinstance(given, Staged):
        if given.payload_bytes != size:
            raise WrongSizeError(given, given.payload_bytes, size)
        if given.inline is not None:
            return Column(PAYLOAD_INLINE, given.inline)
    _check_file(db, key, seq, given)
    attach_file(db, key, seq, given)
    return Column(PAYLOAD_FILE, given.id)


def _check_file(db: "apsw.Connection", key: LogKey, seq: int, given: PayloadFile | Staged) -> None:
    if isinstance(given, PayloadFile) and (given.key, given.seq) != (key, seq):
        raise WrongPayloadError(f"the payload file was received for {given.key}/{given.seq}")
    state = db.execute("SELECT state FROM files WHERE id = ?", (given.id,)).get
    # A file in parts is the sink's that holds its lock: what that has sealed is whole.
    ready = (FILE_STAGING, FILE_PARTIAL) if isinstance(given, Staged) else (FILE_WHOLE,)
    if state not in ready:
        raise PayloadGoneError("the payload file is gone")


def let_go(db: "apsw.Connection", given: GivenPayload) -> None:
    """Marks a payload file that is not needed as garbage."""
    if isinstance(given, PayloadFile | Staged) and given.id:
        state = db.execute("SELECT state FROM files WHERE id = ?", (given.id,)).get
        if state in (FILE_WHOLE, FILE_PARTIAL):
            set_file_state(db, given.id, FILE_GARBAGE)


def fill_payload(
    transaction: "Transaction",
    row: LogRow,
    seq: int,
    given: GivenPayload,
    *,
    undeletes: bool = True,
) -> bool:
    """Adds the payload to an entry that is held; False if it has it. The caller saves `row`.

    `undeletes`: also one that was deleted; else only if that is fetched again. Raises
    PayloadUnavailable if the entry is not held, PayloadDeletedError for one that was,
    WrongPayloadError, and WrongSizeError after the evidence has been stored.
    """
    db = transaction.db
    found = db.execute(
        "SELECT ingest, received_at, payload_state, encoded FROM entries WHERE log = ? AND seq = ?",
        (row.id, pack_u64(seq)),
    ).fetchone()
    if found is None:
        raise PayloadUnavailable("the entry is not held", f"{row.key}/{seq}", "store it first")
    ingest, received_at, state, encoded = found
    if state in (PAYLOAD_INLINE, PAYLOAD_FILE):
        let_go(db, given)
        return False
    if state == PAYLOAD_DELETED and not undeletes and not is_missing(db, row, seq, seq):
        # Somebody sends it who was asked before it went, or unasked: it would come and go for ever.
        let_go(db, given)
        raise PayloadDeletedError("the payload was deleted here")
    size, payload_hash = tail_fields(encoded[tail_offset(row.key.log_id, seq) :])
    try:
        column = check_payload(db, row.key, seq, given, size, payload_hash)
    except WrongSizeError as wrong:
        keep_wrong_size(transaction, row, seq, encoded, wrong)
        raise
    new = transaction.take_ingest()
    db.execute(
        FILL_ROW,
        (
            new,
            column.state,
            column.payload,
            entry_tag(new, row.id, received_at, column.state),
            ingest,
        ),
    )
    if state == PAYLOAD_MISSING:
        row.missing -= 1
    remove_missing(db, row, seq, seq)
    row.payloads += 1
    row.bytes += size
    row.changed = new
    return True


def keep_wrong_size(
    transaction: "Transaction", row: LogRow, seq: int, encoded: bytes, wrong: WrongSizeError
) -> None:
    """Stores the evidence that invalidates a log; the caller saves `row`."""
    if isinstance(wrong.payload, bytes):
        store_wrong_size(transaction, row, seq, encoded, wrong.payload, in_file=False)
        return
    staged = wrong.payload
    if staged.inline is not None:
        store_wrong_size(transaction, row, seq, encoded, staged.inline, in_file=False)
        return
    if store_wrong_size(transaction, row, seq, encoded, staged.id, in_file=True):
        attach_file(transaction.db, row.key, seq, staged)
