"""How much of one's own logs others have, and entries of theirs that contradict the rest.

An own entry that has reached nobody can still be kept from spreading. So the store remembers up to
which entry each own log is *shared*: others hold it, or may. A different entry of one's own author
above that is not recorded as a fork, whose proof would be passed on and end the log for everybody:
the log is *contested* here instead, and whoever holds the other entries notices nothing.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from wire import LogKey, decode_entry

from .errors import LogClosed, OwnLogsReadOnly
from .records import Contested, ForkProof
from .rows import LogRow, pack_u64, unpack_u64
from .upkeep import recall, recall_all, remember

if TYPE_CHECKING:
    import apsw

_SHARED: Final = "shared/"
_CONTESTED: Final = "contested/"
_CONFIRMED: Final = b"\x01"
_OPEN: Final = b"\x00"


def load_shared(db: "apsw.Connection", log_id: int) -> int:
    """Up to which entry an own log is shared; 0: not at all, as far as is known."""
    value = recall(db, f"{_SHARED}{log_id}")
    return 0 if value is None else unpack_u64(value)


def load_all_shared(db: "apsw.Connection", author: bytes) -> dict[LogKey, int]:
    """The same for every own log of which others have anything."""
    found = recall_all(db, _SHARED)
    return {LogKey(author, int(name[len(_SHARED) :])): unpack_u64(v) for name, v in found.items()}


def note_shared(db: "apsw.Connection", log_id: int, seq: int) -> None:
    """Others have an own log up to this entry, or may have it."""
    if seq > load_shared(db, log_id):
        remember(db, f"{_SHARED}{log_id}", pack_u64(seq))


def contest(db: "apsw.Connection", key: LogKey, encoded: bytes, source: str) -> None:
    """Keeps an entry that the author has signed elsewhere, unless an earlier one is known."""
    known = recall(db, f"{_CONTESTED}{key.log_id}")
    new = Contested(key, decode_entry(encoded).seq, encoded, source, confirmed=False)
    if known is None or _unpack(key, known).seq > new.seq:
        remember(db, f"{_CONTESTED}{key.log_id}", _pack(new))


def contest_by_proof(db: "apsw.Connection", row: LogRow, proof: ForkProof, source: str) -> bool:
    """Contests a log instead of taking it as forked, if one half of the proof is only here.

    False if others may have both.
    """
    held = db.execute(
        "SELECT encoded FROM entries WHERE log = ? AND seq = ?", (row.id, pack_u64(proof.seq))
    ).get
    pair = (proof.first, proof.second)
    if held not in pair or proof.seq <= load_shared(db, row.key.log_id):
        return False
    contest(db, row.key, pair[held == proof.first], source)
    return True


def load_contested(db: "apsw.Connection", author: bytes) -> list[Contested]:
    """The own logs that are contested, in the order of their names."""
    found = recall_all(db, _CONTESTED)
    return [_unpack(LogKey(author, int(name[len(_CONTESTED) :])), v) for name, v in found.items()]


def confirm_contested(db: "apsw.Connection", author: bytes) -> None:
    """The operator knows: other logs may be appended to again, and these stay as they are."""
    for each in load_contested(db, author):
        confirmed = _pack(each._replace(confirmed=True))
        remember(db, f"{_CONTESTED}{each.key.log_id}", confirmed)


def why_contested(db: "apsw.Connection", author: bytes, where: object) -> OwnLogsReadOnly | None:
    """Why own logs must not be appended to; None if none is contested that nobody confirmed."""
    for each in load_contested(db, author):
        if not each.confirmed:
            return OwnLogsReadOnly(
                each.what,
                f"{where} (own logs are read-only)",
                f"this key signs on two machines. {_spread_of(each)} Leave the key to the other"
                " machine, and give this one a key of its own: `init` makes another store,"
                f" `dump {each.key} {each.seq}..` has what was signed here",
            )
    return None


def check_uncontested(
    db: "apsw.Connection", author: bytes, log_ids: Collection[int], where: object
) -> None:
    """To be called in the transaction that signs. Raises OwnLogsReadOnly; LogClosed of its log."""
    reason = why_contested(db, author, where)
    if reason is not None:
        raise reason
    for each in load_contested(db, author):
        if each.key.log_id in log_ids:
            error = LogClosed(each.what, str(each.key), "use another log id")
            error.log = each.key
            raise error


def _spread_of(contested: Contested) -> str:
    return (
        f"What was signed here from entry {contested.seq} on has reached no peer and is given to"
        " none, so that the log goes on elsewhere unharmed."
    )


def _pack(contested: Contested) -> bytes:
    flag = _CONFIRMED if contested.confirmed else _OPEN
    size = len(contested.encoded).to_bytes(2, "big")
    return flag + size + contested.encoded + contested.source.encode()


def _unpack(key: LogKey, value: bytes) -> Contested:
    end = 3 + int.from_bytes(value[1:3], "big")
    encoded = value[3:end]
    confirmed = value[:1] == _CONFIRMED
    return Contested(key, decode_entry(encoded).seq, encoded, value[end:].decode(), confirmed)
