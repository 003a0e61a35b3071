"""What people write for a log, an author or a peer, and what of a store it stands for
(everyday.md 1).

    64 hex digits, perhaps /N     the author, or his log N
    a name, perhaps /N            what was named so; a log's name takes no /N
    1 to 7 digits, or /N          own log N
    8 to 63 hex digits, perhaps /N   the one author that begins so

The forms exclude one another by how names are made (names.py: none is digits alone), so the table
has no order that anybody would have to remember, and a name that is given later changes the meaning
of nothing that was written before.

A beginning is compared with every id that the store has, be it only of somebody who is followed or
decided. Keys that begin alike can be made, 8 digits for cents; whoever makes one and gets it in
here makes the beginning ambiguous, and what was meant is never taken for something else.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from wire import U64_MAX, LogKey

from .brought import DECIDED
from .errors import Ambiguous, NothingSoCalled
from .names import Named, check_name, load_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

CANDIDATES_MAX: Final = 5
"""How many ids a refusal names."""
_DIGITS: Final = 64
_ID: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_BEGINNING: Final = re.compile(r"[0-9a-f]{8,63}", re.ASCII)
_OWN: Final = re.compile(r"[0-9]{1,7}", re.ASCII)
_FIRST: Final = "SELECT author FROM logs WHERE author >= ? AND author <= ? ORDER BY author LIMIT 1"
_NEXT: Final = "SELECT author FROM logs WHERE author > ? AND author <= ? ORDER BY author LIMIT 1"
_NUMBER: Final = re.compile(r"[0-9]{1,20}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Reference:
    """A text of one of the forms: one of the first three says who, none of them one's own log."""

    text: str
    author: bytes | None = None
    name: str | None = None
    beginning: str | None = None
    log_id: int | None = None
    """What stands behind the slash, or alone."""

    @property
    def is_full(self) -> bool:
        """Whether it says all, whatever the store holds."""
        return self.author is not None

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """Which form a text has. Raises ValueError, with a message for people, if it has none."""
        who, slash, number = text.partition("/")
        if not slash and _OWN.fullmatch(who):
            return cls(text, log_id=int(who))
        log_id = _log_id(text, number) if slash else None
        if slash and not who:
            return cls(text, log_id=log_id)
        if _ID.fullmatch(who):
            return cls(text, author=bytes.fromhex(who), log_id=log_id)
        if _BEGINNING.fullmatch(who):
            return cls(text, beginning=who, log_id=log_id)
        try:
            return cls(text, name=check_name(who), log_id=log_id)
        except ValueError:
            raise ValueError(
                f"{text[:100]!r} names nothing: expected an author's id (64 hex digits, or 8 and"
                " more that it begins with) or a name, and perhaps a slash and the number of a log;"
                " or the number of an own log"
            ) from None


def _log_id(text: str, number: str) -> int:
    log, slash, seq = number.partition("/")
    if slash and seq.isdecimal() and log.isdecimal():
        whole = text.rpartition("/")[0]
        raise ValueError(
            f"{text[:100]!r} is an entry: write the log and the number apart, {whole} {seq}"
        )
    if not _NUMBER.fullmatch(number):
        raise ValueError(f"{text[:100]!r}: a slash is followed by the number of a log")
    if int(number) > U64_MAX:
        raise ValueError(f"log id {int(number)} is above 2^64 - 1")
    return int(number)


def resolve(db: "apsw.Connection", own: bytes, written: Reference) -> Named:
    """What a text stands for but for what is behind its slash: an author (32 bytes), or a log.

    `own`: who signs here. Raises NothingSoCalled, Ambiguous.
    """
    if written.author is not None:
        return written.author
    if written.name is not None:
        return _named(db, written.name)
    if written.beginning is not None:
        return _beginning(db, own, written.beginning)
    return own


def with_log_id(found: Named, written: Reference) -> Named:
    """The log of an author that is behind the slash. Raises ValueError for a log of a log."""
    if written.log_id is None:
        return found
    if isinstance(found, LogKey):
        raise ValueError(  # noqa: TRY004 - what is wrong is the text
            f"{written.text[:100]!r}: {written.name} is a log already, {found}: leave /N out"
        )
    return LogKey(found, written.log_id)


def _named(db: "apsw.Connection", name: str) -> Named:
    found = load_names(db).get(name)
    if found is None:
        raise NothingSoCalled("nothing has that name", name, "`name` lists those that there are")
    return found


def _beginning(db: "apsw.Connection", own: bytes, beginning: str) -> bytes:
    low = bytes.fromhex(beginning.ljust(_DIGITS, "0"))
    high = bytes.fromhex(beginning.ljust(_DIGITS, "f"))
    found = {each for each in _few_ids(db, own) if low <= each <= high}
    for author in _holders(db, low, high):
        found.add(author)
        if len(found) > CANDIDATES_MAX:
            break
    if not found:
        raise NothingSoCalled(
            "no id in this store begins so", beginning, "what is new is named by all 64 digits"
        )
    if len(found) > 1:
        some = ", ".join(each.hex() for each in sorted(found)[:CANDIDATES_MAX])
        more = " and more" if len(found) > CANDIDATES_MAX else ""
        raise Ambiguous("several ids begin so", beginning, f"write more digits: {some}{more}")
    return found.pop()


def load_ids(db: "apsw.Connection", own: bytes) -> set[bytes]:
    """Every id that the store has: one's own, and what is held, followed, named or decided."""
    return {*_few_ids(db, own), *_holders(db, bytes(32), b"\xff" * 32)}


def _few_ids(db: "apsw.Connection", own: bytes) -> "Iterator[bytes]":
    """Those of which there are as many as people have written down."""
    yield own
    for (author,) in db.execute("SELECT author FROM follows WHERE length(author) = 32"):
        yield author
    for target in load_names(db).values():
        yield target.author if isinstance(target, LogKey) else target
    for (name,) in db.execute(
        "SELECT name FROM memory WHERE name >= ? AND substr(name, 1, ?) = ?",
        (DECIDED, len(DECIDED), DECIDED),
    ):
        yield bytes.fromhex(name[len(DECIDED) :])


def _holders(db: "apsw.Connection", low: bytes, high: bytes) -> "Iterator[bytes]":
    """The authors of which anything is held, ascending.

    Each is looked up behind the one before: to skip over his logs in the index costs less than to
    read them, where one author has ten thousand.
    """
    after, first = low, True
    while True:
        row = db.execute(_FIRST if first else _NEXT, (after, high)).fetchone()
        if row is None:
            return
        after, first = row[0], False
        yield after
