"""What a program hands to a store, looked at before anything is done with it.

A wrong argument is named, with its type and value: TypeError where its type cannot be right,
ValueError where a value of that type can. It is done here and nowhere else, and before a
transaction: what is raised while the database is read counts as damage of it. `peer.node` checks
by the same functions what is handed to a peer.

A log or an author may be given as the text that people write for it (resolving.py). It is looked up
once, where it comes in: below, there are keys alone.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from wire import AUTHOR_BYTES, U64_MAX, LogKey

from .keep_rules import KeepRule
from .names import Named
from .records import ALL, Follow
from .subscriptions import Subscription

AnyLog = LogKey | str
"""A log, or what people write for one: of an author it is log 0."""
AnyTarget = Follow | str
"""A log, an author, everything, or what people write for one of the first two."""

_A_LOG: Final = "a log is a LogKey, or text that names one"
_AN_AUTHOR: Final = "an author 32 bytes"
_PAYLOAD: Final = "a payload is bytes, a Path or a binary file"
IN_MEMORY: Final = (bytes, bytearray, memoryview)
"""What a payload may be that is not read from anywhere."""
_READABLE: Final = (*IN_MEMORY, Path)
INGEST_MAX: Final = (1 << 63) - 1


def wrong_type(name: str, value: object, wanted: str) -> TypeError:
    """The error for an argument that cannot be right whatever its value."""
    kind = type(value).__name__
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    what = "None" if value is None else f"{value!r:.60} is {article} {kind}"
    return TypeError(f"{name}={what}: {wanted}")


def check_number(name: str, value: object, wanted: str = "a number is wanted") -> None:
    """Raises TypeError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(name, value, wanted)


def check_numbers(**values: object) -> None:
    """Raises TypeError for the first that is neither a number nor None."""
    for name, value in values.items():
        if value is not None:
            check_number(name, value)


def check_log_id(log_id: object, name: str = "log_id") -> None:
    """Raises TypeError, ValueError."""
    wanted = "a log id is a number from 0 to 2^64 - 1"
    check_number(name, log_id, wanted)
    if not (isinstance(log_id, int) and 0 <= log_id <= U64_MAX):
        raise ValueError(f"{name}={log_id}: {wanted}")


def check_log(log: object, name: str = "log") -> None:
    """Raises TypeError for what is no log, such as an author's bytes, ValueError."""
    if not isinstance(log, LogKey):
        raise wrong_type(name, log, _A_LOG)
    author, log_id = log
    if type(author) is not bytes or len(author) != AUTHOR_BYTES:
        check_author(author, "author")
    if type(log_id) is not int or not 0 <= log_id <= U64_MAX:
        check_log_id(log_id, "log_id")


def check_author(author: object, name: str = "author") -> None:
    """Raises TypeError, ValueError."""
    if not isinstance(author, bytes):
        raise wrong_type(name, author, f"a log is a LogKey, {_AN_AUTHOR}")
    if len(author) != AUTHOR_BYTES:
        raise ValueError(f"{name}: an author has {AUTHOR_BYTES} bytes, not {len(author)}")


def check_target(target: object, name: str = "target") -> None:
    """Raises ValueError for what names no log and no author, TypeError; `ALL` is right."""
    if isinstance(target, LogKey):
        check_log(target, name)
    elif target is not ALL:
        check_author(target, name)


def check_range(first: object, last: object) -> None:
    """Raises TypeError, ValueError for what is no range of entries, both ends included."""
    check_number("first", first, "an entry is named by its number")
    check_number("last", last, "an entry is named by its number")
    if not (isinstance(first, int) and isinstance(last, int) and 1 <= first <= last <= U64_MAX):
        raise ValueError(
            f"{first}..{last} is no range of entries: they have numbers from 1 to 2^64 - 1"
        )


def check_place(after: object) -> None:
    """Raises TypeError, ValueError for what is no number of the ingest sequence."""
    check_number("after", after, "an ingest number is wanted")
    if not (isinstance(after, int) and 0 <= after <= INGEST_MAX):
        raise ValueError(f"after={after}: an ingest number is from 0 to 2^63 - 1")


def check_wish(subscription: object = None, rule: object = None) -> None:
    """Raises TypeError for what is no Subscription, or no KeepRule."""
    if subscription is not None and not isinstance(subscription, Subscription):
        raise wrong_type(
            "subscription", subscription, "write Subscription.parse(text), or leave it out"
        )
    if rule is not None and not isinstance(rule, KeepRule):
        raise wrong_type("rule", rule, "write KeepRule(last=100) or the like, or None")


def check_payloads(payloads: object, name: str = "payloads") -> None:
    """Raises TypeError for what is no list of payloads, ValueError for an empty one."""
    if isinstance(payloads, (*IN_MEMORY, str, Path)) or hasattr(payloads, "read"):
        raise wrong_type(
            name, payloads, "append takes a list of payloads: write [payload] for a single one"
        )
    if not isinstance(payloads, Sequence):
        raise wrong_type(name, payloads, "append takes a list of payloads")
    for place, each in enumerate(payloads):
        if isinstance(each, str):
            raise wrong_type(f"{name}[{place}]", each, f"{_PAYLOAD}: encode text first")
        if not isinstance(each, _READABLE) and not hasattr(each, "read"):
            raise wrong_type(f"{name}[{place}]", each, _PAYLOAD)
    if not payloads:
        raise ValueError("nothing to append")


def check_signing(log_id: object, expected_seq: object) -> None:
    """Of `append`, beside its payloads. Raises TypeError, ValueError."""
    check_log_id(log_id)
    check_numbers(expected_seq=expected_seq)


def check_batches(
    batches: object,
    expected_seqs: Sequence[int | None] | None,
    ending: Collection[int],
) -> None:
    """Of `append_many`: raises TypeError, and ValueError where there is nothing to append, in all,
    in one batch or to what ends."""
    if not isinstance(batches, Sequence) or isinstance(batches, (*IN_MEMORY, str)):
        raise wrong_type("batches", batches, "a list of (log id, payloads) is wanted")
    if not batches:
        raise ValueError("nothing to append")
    for place, each in enumerate(batches):
        if not isinstance(each, tuple | list) or len(each) != 2:
            raise wrong_type(f"batches[{place}]", each, "a batch is (log id, payloads)")
        check_log_id(each[0], f"batches[{place}][0]")
        if not each[1]:
            raise ValueError(f"nothing to append to log {each[0]}")
        check_payloads(each[1], f"batches[{place}][1]")
    if expected_seqs is not None:
        if len(expected_seqs) != len(batches):
            raise ValueError("expected_seqs names a number, or None, for each batch")
        for place, seq in enumerate(expected_seqs):
            check_numbers(**{f"expected_seqs[{place}]": seq})
    for log_id in {*ending} - {each[0] for each in batches}:
        raise ValueError(f"nothing to append to log {log_id}, which is to end")


def log_of(found: Named) -> LogKey:
    """The log that something stands for where a log is wanted: of an author log 0."""
    return found if isinstance(found, LogKey) else LogKey(found, 0)


def author_of(found: Named, text: str) -> bytes:
    """The author that something stands for. Raises ValueError for a log."""
    if isinstance(found, LogKey):
        raise ValueError(f"{text[:100]!r} is a log, and an author is wanted")  # noqa: TRY004
    return found
