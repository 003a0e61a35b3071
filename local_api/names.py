"""What things are called in a store, for terminals and in JSON (everyday.md 1)."""

import re
import time
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from peer import log_fields
from wire import LogKey

if TYPE_CHECKING:
    from logstore import Follow, Named, Store

SHOWN_DIGITS: Final = 12
"""Of an id on a terminal, or as many more as it takes."""
READ_AGAIN_S: Final = 1.0
"""How soon a command that goes on learns of a name that was given meanwhile."""
_ID: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


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


def target_name(target: "Follow") -> str:
    """What is followed, as people type it."""
    if isinstance(target, bytes):
        return target.hex()
    return str(target) if isinstance(target, LogKey) else "all"


def target_fields(target: "Follow") -> dict[str, object]:
    """What is followed, for JSON."""
    if isinstance(target, bytes):
        return {"kind": "author", "author": target.hex(), "log_id": None}
    if isinstance(target, LogKey):
        return {"kind": "log"} | log_fields(target)
    return {"kind": "all", "author": None, "log_id": None}
