"""What somebody has to look at: damage that was found, and forks that nobody wants to hear of.

Damage is remembered where it is found, by `verify` or by whoever reads, since the next look at how
a store stands is made by another process, and reads nothing again. It is forgotten by the one thing
that proves it gone: a later `verify` of that log that does not find it. So it is kept for each log,
and what `verify` says of a log replaces all that was known of it. What is no log's (a file that
nobody needs, a setting) is kept under a name that no log has.

There may be a fault in every row of a dead disk. A thousand are kept; more would say nothing else.

That a log is forked is proved for ever, and a proof is not taken back. `dismiss` keeps it from
being an alarm, and nothing else: who knows of it already is not to be woken by it every day.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from wire import LogKey

from .records import Fault
from .upkeep import recall, recall_all, remember

if TYPE_CHECKING:
    import apsw

    from .database import Database
    from .system import System

FAULTS_MAX: Final = 1000
_FAULT: Final = "fault/"
_DISMISSED: Final = "dismissed/"
_VERIFIED: Final = "verified_at"
_NO_LOG: Final = "-"


@dataclass(frozen=True, slots=True)
class KnownFault:
    """Damage that was found and has not been found gone."""

    log: LogKey | None
    seq: int | None
    text: str
    since: int
    """When it was found first, in microseconds since 1970."""


class AlarmBook:
    """The faults and dismissals of a store. Raises StoreError as `Store` does."""

    def __init__(self, database: "Database", system: "System") -> None:
        self._database = database
        self._system = system

    def faults(self) -> list[KnownFault]:
        """What is known to be damaged, the longest known first."""
        with self._database.read() as db:
            rows = recall_all(db, _FAULT)
        return sorted(map(_fault, rows.values()), key=lambda each: each.since)

    def note(self, fault: Fault) -> None:
        """Something was found while reading; what is known already is left as it is."""
        with self._database.read() as db:
            if recall(db, _name(fault)) is not None:
                # Whoever reads it may do so a thousand times a second.
                return
        with self._database.write() as transaction:
            self._note(transaction.db, fault, len(recall_all(transaction.db, _FAULT)))

    def verified(self, key: LogKey | None, faults: Iterable[Fault], *, whole: bool = False) -> None:
        """What `verify` has found in a log, and nothing else; None: in what is no log's.

        `whole`: it has looked at the whole store with that.
        """
        found = list(faults)
        if key is not None and not found:
            with self._database.read() as db:
                if not recall_all(db, f"{_FAULT}{key}/"):
                    return
        with self._database.write() as transaction:
            db = transaction.db
            names = {_name(each) for each in found}
            for name, value in recall_all(db, _FAULT).items():
                if _fault(value).log == key and name not in names:
                    remember(db, name, None)
            kept = len(recall_all(db, _FAULT))
            for each in found:
                kept += self._note(db, each, kept)
            if whole:
                remember(db, _VERIFIED, str(self._system.now_us()).encode())

    def verified_at(self) -> int | None:
        """When the whole store was verified last, in microseconds since 1970."""
        with self._database.read() as db:
            value = recall(db, _VERIFIED)
        return None if value is None else int(value)

    def _note(self, db: "apsw.Connection", fault: Fault, kept: int) -> bool:
        name = _name(fault)
        if kept >= FAULTS_MAX or recall(db, name) is not None:
            return False
        row = {
            "log": None if fault.key is None else str(fault.key),
            "seq": None if fault.seq is None else str(fault.seq),
            "text": str(fault),
            "since": self._system.now_us(),
        }
        remember(db, name, json.dumps(row).encode())
        return True

    # Forks

    def dismissed(self) -> set[LogKey]:
        """The forked logs that raise no alarm."""
        with self._database.read() as db:
            return {LogKey.parse(name[len(_DISMISSED) :]) for name in recall_all(db, _DISMISSED)}

    def dismiss(self, key: LogKey) -> bool:
        """That a log is forked is no alarm any more; False if that was so."""
        return self._set(key, b"1")

    def undo_dismissal(self, key: LogKey) -> bool:
        """It is one again; False if it was."""
        return self._set(key, None)

    def _set(self, key: LogKey, value: bytes | None) -> bool:
        name = f"{_DISMISSED}{key}"
        with self._database.write() as transaction:
            if (recall(transaction.db, name) is None) == (value is None):
                return False
            remember(transaction.db, name, value)
            return True


def _name(fault: Fault) -> str:
    log = _NO_LOG if fault.key is None else str(fault.key)
    # Of an entry one is enough; of the rest the place tells them apart.
    return f"{_FAULT}{log}/{fault.where if fault.seq is None else fault.seq}"


def _fault(value: bytes) -> KnownFault:
    row: dict[str, Any] = json.loads(value)
    log = None if row["log"] is None else LogKey.parse(row["log"])
    return KnownFault(
        log, None if row["seq"] is None else int(row["seq"]), row["text"], row["since"]
    )


def forget_alarms_of(db: "apsw.Connection", key: LogKey) -> None:
    """Forgets faults of a log that is forgotten. That its fork was dismissed stays: so does it."""
    for name in recall_all(db, f"{_FAULT}{key}/"):
        remember(db, name, None)
