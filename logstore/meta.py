"""What a store says of itself: rows of the table `meta`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .errors import StoreDamaged
from .rows import row_tag

if TYPE_CHECKING:
    import apsw


def load_meta(db: "apsw.Connection") -> dict[str, bytes]:
    """All of it. Raises StoreDamaged where a tag is wrong."""
    meta = {}
    for name, value, tag in db.execute("SELECT name, value, tag FROM meta"):
        if tag != row_tag(name, value):
            raise StoreDamaged(f"the row {name!r} of meta is damaged", "meta", "restore a backup")
        meta[name] = value
    return meta


def set_meta(db: "apsw.Connection", values: Mapping[str, bytes | None]) -> None:
    """Changes some of it; None removes a row."""
    for name, value in values.items():
        db.execute("DELETE FROM meta WHERE name = ?", (name,))
        if value is not None:
            db.execute("INSERT INTO meta VALUES (?, ?, ?)", (name, value, row_tag(name, value)))
