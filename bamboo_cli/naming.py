"""What people call logs, authors and peers: as arguments, on terminals, and in JSON
(docs/cli.md, logs, numbers, ranges).

An argument that says all by itself is a key as soon as it is read. Any other is kept as it was
written until the store is opened, for only the store knows what it stands for; `opened_store` then
puts the key in its place, so that no command ever sees a text of which the meaning is still open,
and none can forget to ask. It is looked up once: a name that somebody else gives away while the
command runs goes on to mean what it did.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from local_api import full
from wire import LogKey

from .errors import Problem, WrongUsage

if TYPE_CHECKING:
    from argparse import Namespace

    from logstore import Named, Store

Kind = TypeVar("Kind", bound="LogKey | bytes")

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
