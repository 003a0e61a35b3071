"""The options of `format("bamboo")`."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from logstore import ExplainedError, Store
from wire import U64_MAX, LogKey

from .errors import BadOption

_KNOWN = frozenset(
    (
        "path",
        "author",
        "log_id",
        "from",
        "to",
        "payload",
        "maxrowsperbatch",
        "verify",
        "failondataloss",
        "pushfilters",
    )
)


_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"


@contextmanager
def one_sentence() -> Iterator[None]:
    """What is the user's mistake reaches the user without a traceback, which is Spark's habit.

    Spark's own setting for that goes for all errors of a session. The variable behind it is looked
    at when an error is told, by the process that tells it and ends then; so a process that is about
    to tell of a mistake sets it for itself.
    """
    try:
        yield
    except ExplainedError:
        os.environ[_HIDE_TRACEBACK] = "1"
        raise


class Verify(StrEnum):
    """What is checked of a row before Spark gets it, beyond the hashes that the store checks."""

    NONE = "none"
    LINKS = "links"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Options:
    """What to read. Picklable: it travels to the workers."""

    path: str
    author: bytes | None = None
    log_id: int | None = None
    first: int = 1
    """Sequence numbers, both ends included."""
    last: int = U64_MAX
    payload: bool = True
    verify: Verify = Verify.NONE
    rows_per_batch_max: int | None = None
    fail_on_data_loss: bool = True
    push_filters: bool = False

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Options":
        """Raises BadOption, naming the option."""
        options = {name.lower(): value for name, value in given.items()}
        for name in options:
            if name not in _KNOWN:
                raise BadOption(
                    f"there is no option {name!r}", 'format("bamboo")', "see docs/spark.md"
                )
        path = options.get("path")
        if not path:
            raise BadOption("no store is named", 'format("bamboo")', "give it to load(...)")
        try:
            verify = Verify(options.get("verify", "none").lower())
        except ValueError:
            raise _bad("verify", options["verify"], "none, links or full") from None
        rows = _number(options, "maxrowsperbatch", None)
        if rows == 0:
            raise _bad("maxRowsPerBatch", "0", "a number from 1 on")
        return cls(
            path=path.removeprefix("file://"),
            author=_author(options.get("author")),
            log_id=_number(options, "log_id", None),
            first=_number(options, "from", 1) or 1,
            last=_number(options, "to", U64_MAX) or 0,
            payload=_truth(options, "payload", default=True),
            verify=verify,
            rows_per_batch_max=rows,
            fail_on_data_loss=_truth(options, "failondataloss", default=True),
            push_filters=_truth(options, "pushfilters", default=False),
        )

    def wants(self, key: LogKey, seq: int) -> bool:
        """Whether an entry is to be read."""
        return (
            (self.author is None or key.author == self.author)
            and (self.log_id is None or key.log_id == self.log_id)
            and self.first <= seq <= self.last
        )

    def narrowed(self, attribute: tuple[str, ...], value: Any) -> "Options":  # noqa: ANN401 - any literal
        """With a condition of the query added, if it is one of `author` or `log_id`."""
        if attribute == ("author",) and self.author is None and isinstance(value, str):
            try:
                return replace(self, author=_author(value))
            except BadOption:
                return self
        if attribute == ("log_id",) and self.log_id is None and isinstance(value, int | Decimal):
            return replace(self, log_id=int(value))
        return self

    def open_store(self) -> Store:
        """The store, for reading."""
        return Store.open(self.path, readonly=True)

    def node(self) -> str:
        """Whose store it is."""
        with self.open_store() as store:
            return store.author.hex()


def _bad(name: str, value: str, wanted: str) -> BadOption:
    return BadOption(f"option {name!r} is {value[:80]!r}", 'format("bamboo")', f"use {wanted}")


def _author(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return LogKey.parse(text.partition("/")[0]).author
    except ValueError:
        raise _bad("author", text, "64 hex digits") from None


def _number(options: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = options.get(name)
    if text is None:
        return default
    if not text.isdecimal() or not text.isascii() or int(text) > U64_MAX:
        raise _bad(name, text, "a number from 0 to 2^64 - 1")
    return int(text)


def _truth(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in {"true", "false"}:
        raise _bad(name, text, "true or false")
    return text.lower() == "true"
