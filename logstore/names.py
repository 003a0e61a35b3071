"""Names that people give to authors, logs and peers: unique in a store, and sent to nobody.

Kept in `memory`, one row for each, so that a name is taken by whoever was first and what asks for
one finds it without reading the others.
"""

import re
from typing import TYPE_CHECKING, Final

from wire import LogKey

from .errors import NameTaken, NothingSoCalled
from .rows import pack_u64, unpack_u64
from .upkeep import recall, recall_all, remember

if TYPE_CHECKING:
    import apsw

Named = LogKey | bytes
"""A log, or an author (32 bytes), whose id is that of his node as well."""

NAME_CHARACTERS_MAX: Final = 64
_NAME: Final = "name/"
_ALLOWED: Final = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]*", re.ASCII)
_DIGITS: Final = re.compile(r"[0-9A-Fa-f]+", re.ASCII)
_AUTHOR_BYTES: Final = 32


def check_name(name: str) -> str:
    """The name, if it is one. Raises ValueError.

    What could be taken for an id or its beginning, a log's number or a flag is none.
    """
    if not _ALLOWED.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX:
        raise ValueError(
            f"{name[:80]!r} is no name: it has 1 to {NAME_CHARACTERS_MAX} of A-Z a-z 0-9 . _ -,"
            " and does not begin with -"
        )
    if _DIGITS.fullmatch(name) or name == "all":
        raise ValueError(f"{name!r} is no name: it would be taken for an id, a number or `all`")
    return name


def load_names(db: "apsw.Connection") -> dict[str, Named]:
    """Every name, and what it names, in the order of the names."""
    rows = recall_all(db, _NAME)
    return {name[len(_NAME) :]: _named(value) for name, value in rows.items()}


def set_name(db: "apsw.Connection", name: str, target: Named) -> bool:
    """Names something; a name that it had before is forgotten. False if it is called so already.

    Raises NameTaken, ValueError for no name.
    """
    check_name(name)
    known = recall(db, _NAME + name)
    if known is not None:
        if _named(known) == target:
            return False
        raise NameTaken(f"the name {name} is taken", _written(_named(known)), "choose another one")
    forget_name(db, target)
    author = target.author if isinstance(target, LogKey) else target
    number = pack_u64(target.log_id) if isinstance(target, LogKey) else b""
    remember(db, _NAME + name, author + number)
    return True


def forget_name(db: "apsw.Connection", target: Named) -> bool:
    """Forgets what something is called; False if it has no name."""
    found = [name for name, named in load_names(db).items() if named == target]
    for name in found:
        remember(db, _NAME + name, None)
    return bool(found)


def forget_name_of(db: "apsw.Connection", target: Named) -> None:
    """Takes the name from what is forgotten, if it has one."""
    for name, named in load_names(db).items():
        if named == target:
            remember(db, _NAME + name, None)


def remove_name(db: "apsw.Connection", name: str) -> Named:
    """Takes a name from what it names, which is returned. Raises NothingSoCalled."""
    known = recall(db, _NAME + name)
    if known is None:
        raise NothingSoCalled("nothing has that name", name, "`name` lists those that there are")
    remember(db, _NAME + name, None)
    return _named(known)


def _named(value: bytes) -> Named:
    author, number = value[:_AUTHOR_BYTES], value[_AUTHOR_BYTES:]
    return LogKey(author, unpack_u64(number)) if number else author


def _written(target: Named) -> str:
    return str(target) if isinstance(target, LogKey) else target.hex()
