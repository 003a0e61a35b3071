"""How much each peer has brought of authors whom nobody here has named (quotas.py).

It is a row of `memory` for each peer, and one for all that have proved no id. It is not counted
back when something is dropped, or a peer could bring for ever; so it lasts as long as what it is
about, the peer:

- Of a peer that is decided, allowed or blocked, it is kept until that peer is removed. Whoever
  allows it again begins anew with it, as with all else that was decided.
- Ids cost nothing to make, and with `--allow-any` whoever has one may bring something. Of those
  that nobody has decided the rows of 256 are kept, and those who brought least give way: they have
  least to win by it, and no more than by another id. Whoever has just brought something does not,
  or it would never be counted.
"""

from typing import TYPE_CHECKING, Final

from .rows import pack_u64, unpack_u64
from .upkeep import recall, recall_all, remember

if TYPE_CHECKING:
    import apsw

UNDECIDED_MAX: Final = 256
DECIDED: Final = "peer/"
"""Rows of `memory`: what is decided of a peer (peers.py), by its id in hex."""
_BROUGHT: Final = "brought/"


def brought_before(db: "apsw.Connection", giver: bytes) -> int:
    """How many bytes a peer has brought; `giver`: its id, b"" for all that have proved none."""
    known = recall(db, _BROUGHT + giver.hex())
    return 0 if known is None else unpack_u64(known)


def note_brought(db: "apsw.Connection", giver: bytes, count: int) -> None:
    """It has brought so many bytes more."""
    name = _BROUGHT + giver.hex()
    before = recall(db, name)
    remember(db, name, pack_u64(count + (0 if before is None else unpack_u64(before))))
    if before is None:
        _bound(db, name)


def forget_brought(db: "apsw.Connection", giver: bytes) -> None:
    """A peer is removed."""
    remember(db, _BROUGHT + giver.hex(), None)


def _bound(db: "apsw.Connection", new: str) -> None:
    """Has those give way of whom nothing is decided, and who brought least."""
    rows = recall_all(db, _BROUGHT)
    decided = recall_all(db, DECIDED)
    for name in [_BROUGHT, *(_BROUGHT + each.removeprefix(DECIDED) for each in decided)]:
        rows.pop(name, None)
    more = len(rows) - UNDECIDED_MAX
    rows.pop(new, None)
    for name in sorted(rows, key=lambda name: unpack_u64(rows[name]))[: max(0, more)]:
        remember(db, name, None)
