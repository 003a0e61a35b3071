"""What people call logs, authors and peers: as arguments, on terminals, and in JSON
(docs/cli.md, logs, numbers, ranges).

An argument that says all by itself is a key as soon as it is read. Any other is kept as it was
written until the store is opened, for only the store knows what it stands for; `opened_store` then
puts the key in its place, so that no command ever sees a text of which the meaning is still open,
and none can forget to ask. It is looked up once: a name that somebody else gives away while the
command runs goes on to mean what it did.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

from wire import LogKey

from .errors import Problem, WrongUsage

if TYPE_CHECKING:
    from argparse import Namespace

    from logstore import Named, Store

Kind = TypeVar("Kind", bound="LogKey | bytes")

SHOWN_DIGITS: Final = 12
"""Of an id on a terminal, or as many more as it takes."""
READ_AGAIN_S: Final = 1.0
"""How soon a command that goes on learns of a name that was given meanwhile."""

_ID: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)

LOG_HELP = "AUTHOR, NAME or AUTHOR/N (N is 0 unless given), or the number of an own log"


@dataclass(frozen=True, slots=True)
class Written:
    """An argument as it was written, which the store is to be asked about."""

    text: str
    kind: "Callable[[Named, str], Named]"
    """What is to be made of what it stands for."""


def log_key(text: str) -> LogKey | Written:
    """A LOG. Raises ValueError."""
    return _argument(text, _a_log)


def follow_target(text: str) -> "Named | Written":
    """A log, or an author and all of his logs. Raises ValueError."""
    return _argument(text, _as_it_is)


def author_key(text: str) -> bytes | Written:
    """An AUTHOR. Raises ValueError."""
    return _argument(text, _an_author)


def _argument(text: str, kind: "Callable[[Named, str], Kind]") -> "Kind | Written":
    from logstore import Reference  # loads SQLite, which `--help` can do without

    written = Reference.parse(text)
    if written.author is None:
        return Written(text, kind)
    if written.log_id is None:
        return kind(written.author, text)
    return kind(LogKey(written.author, written.log_id), text)


def _as_it_is(found: "Named", _: str) -> "Named":
    return found


def _a_log(found: "Named", _: str) -> LogKey:
    return found if isinstance(found, LogKey) else LogKey(found, 0)


def _an_author(found: "Named", text: str) -> bytes:
    if isinstance(found, LogKey):
        raise ValueError(f"{text[:100]!r} is a log, and an author is wanted")  # noqa: TRY004
    return found


def resolved(store: "Store", text: str) -> "Named":
    """What a text stands for. Raises Problem if nothing is called so, else WrongUsage."""
    from logstore import Ambiguous, NothingSoCalled

    try:
        return store.resolve(text)
    except NothingSoCalled as error:
        raise Problem(str(error)) from None
    except (Ambiguous, ValueError) as error:
        raise WrongUsage(str(error)) from None


def resolved_log(store: "Store", text: str) -> LogKey:
    """The log that a text stands for: of an author his log 0. Raises as `resolved` does."""
    found = resolved(store, text)
    return found if isinstance(found, LogKey) else LogKey(found, 0)


def resolved_author(store: "Store", text: str) -> bytes:
    """The author that a text stands for. Raises as `resolved` does."""
    found = resolved(store, text)
    if isinstance(found, LogKey):
        raise WrongUsage(f"{text[:100]!r} is a log, and an author is wanted")
    return found


def resolve_arguments(
    store: "Store", args: "Namespace", note: Callable[[str], None] | None
) -> None:
    """Puts the keys in the place of all that was written. Raises Problem, WrongUsage.

    Who changes the store is told by `note` what that is: later it is too late to find out.
    """
    for name, value in vars(args).items():
        if isinstance(value, Written):
            setattr(args, name, _resolve(store, value, note))
        elif isinstance(value, list) and any(isinstance(each, Written) for each in value):
            keys = [
                _resolve(store, each, note) if isinstance(each, Written) else each for each in value
            ]
            setattr(args, name, keys)


def _resolve(store: "Store", written: Written, note: Callable[[str], None] | None) -> "Named":
    try:
        found = written.kind(resolved(store, written.text), written.text)
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    if note is not None and not store.readonly:
        note(f"{written.text} is {full(found)}")
    return found


def full(target: "Named") -> str:
    """The form that everybody understands."""
    return str(target) if isinstance(target, LogKey) else target.hex()


class Names:
    """What is called how in a store; it is asked again where a command goes on for long."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._names: Mapping[Named, str] = {}
        self._read()

    def _read(self) -> None:
        self._names = {target: name for name, target in self._store.names().items()}
        self._read_at = time.monotonic()

    def of(self, target: "Named") -> str | None:
        """The log's name, else its author's."""
        if time.monotonic() - self._read_at >= READ_AGAIN_S:
            self._read_again()
        if isinstance(target, LogKey):
            return self._names.get(target) or self._names.get(target.author)
        return self._names.get(target)

    def _read_again(self) -> None:
        from logstore import StoreError

        try:
            self._read()
        except StoreError:
            # Closed already, or a disk that fails: what was printed before stays as it was called.
            self._read_at = time.monotonic()

    def shown(self, target: "Named") -> str:
        """For people, as they can type it: the name, else as many digits as it takes."""
        author, log_id = target if isinstance(target, LogKey) else (target, 0)
        if isinstance(target, LogKey) and (name := self._names.get(target)) is not None:
            return name
        who = self._names.get(author) or author.hex()[: self._digits.get(author, SHOWN_DIGITS)]
        return f"{who}/{log_id}" if log_id else who

    @cached_property
    def _digits(self) -> Mapping[bytes, int]:
        """How many it takes, of the ids that begin like another one."""
        ids = sorted(each.hex() for each in self._store.ids())
        found: dict[bytes, int] = {}
        for one, other in pairwise(ids):
            pairs = enumerate(zip(one, other, strict=True))
            alike = next(place for place, (a, b) in pairs if a != b)
            if alike >= SHOWN_DIGITS:
                for each in (one, other):
                    key = bytes.fromhex(each)
                    found[key] = max(found.get(key, 0), alike + 1)
        return found


def with_names(fields: Mapping[str, Any], names: "Names | None") -> dict[str, Any]:
    """What is printed as JSON, and in each object that has an `author` also what it is called."""
    found: dict[str, Any] = {}
    lacking = "author" in fields and "name" not in fields
    last = "log_id" if "log_id" in fields else "author"
    for field, value in fields.items():
        if isinstance(value, Mapping):
            value = with_names(value, names)  # noqa: PLW2901 - the same, with names
        elif isinstance(value, list):
            value = [  # noqa: PLW2901 - likewise
                with_names(each, names) if isinstance(each, Mapping) else each for each in value
            ]
        found[field] = value
        if lacking and field == last:
            # Beside what it names: the last one is far away in a long line.
            found["name"] = _name(fields["author"], fields.get("log_id"), names)
    return found


def _name(author: object, log_id: object, names: "Names | None") -> str | None:
    if names is None or not isinstance(author, str) or not _ID.fullmatch(author):
        return None
    key = bytes.fromhex(author)
    return names.of(LogKey(key, int(log_id)) if isinstance(log_id, int | str) else key)
