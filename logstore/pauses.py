"""Pauses: with whom no connection is made or taken for a while, by whoever serves the store.

A pause is a row of `memory`, so that it outlives the node, and is in force for every process from
the commit on. It has its end in it, by the wall clock: were it a timer of the node, a restart would
make it longer. One whose end has come counts as if it were not there, and the next change of any
pause removes it. Nothing else of the store changes by one: what is followed stays followed.

A damaged row is a pause without end: to connect when somebody said not to cannot be taken back, and
`resume` can be said.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from .rows import pack_u64, row_tag, unpack_u64
from .upkeep import recall_all, remember

if TYPE_CHECKING:
    import apsw

Pauses = Mapping[bytes | None, int | None]
"""Until when, by the peer's id (32 bytes), or None for all peers: microseconds since 1970, None
without an end."""

_PAUSE: Final = "pause/"
_ALL: Final = "all"
_ID_BYTES: Final = 32
_END_BYTES: Final = 8


def check_id(peer: bytes) -> None:
    """Raises ValueError for what is no peer's id."""
    if len(peer) != _ID_BYTES:
        raise ValueError(f"a peer's id has {_ID_BYTES} bytes, not {len(peer)}")


def set_pause(db: "apsw.Connection", peer: bytes | None, until_us: int | None, now_us: int) -> bool:
    """Pauses a peer, None: all of them; False if exactly that was so already."""
    _remove_ended(db, now_us)
    name, value = _name(peer), b"" if until_us is None else pack_u64(until_us)
    row = db.execute("SELECT value, tag FROM memory WHERE name = ?", (name,)).fetchone()
    if row == (value, row_tag(name, value)):
        return False
    remember(db, name, value)
    return True


def end_pause(db: "apsw.Connection", peer: bytes | None, now_us: int) -> bool:
    """Ends a pause; False if there is none any more."""
    _remove_ended(db, now_us)
    name = _name(peer)
    there = db.execute("SELECT 1 FROM memory WHERE name = ?", (name,)).fetchone() is not None
    remember(db, name, None)
    return there


def load_pauses(db: "apsw.Connection") -> dict[bytes | None, int | None]:
    """All that are remembered, those whose end has come as well."""
    found: dict[bytes | None, int | None] = {}
    for name, value in recall_all(db, _PAUSE).items():
        peer = _peer(name[len(_PAUSE) :])
        is_sound = len(value) == _END_BYTES and name == _name(peer)
        until_us = unpack_u64(value) if is_sound else None
        found[peer] = None if None in (until_us, found.get(peer, 0)) else until_us
    return found


def is_in_force(pauses: Pauses, peer: bytes | None, now_us: int) -> bool:
    """Whether everything is paused, or this peer is; None: somebody who has proved no id."""
    return any(
        each in pauses and ((until := pauses[each]) is None or now_us < until)
        for each in (None, peer)
    )


def _remove_ended(db: "apsw.Connection", now_us: int) -> None:
    for peer, until_us in load_pauses(db).items():
        if until_us is not None and until_us <= now_us:
            remember(db, _name(peer), None)


def _name(peer: bytes | None) -> str:
    return _PAUSE + (_ALL if peer is None else peer.hex())


def _peer(text: str) -> bytes | None:
    """The reverse of `_name`; what names nobody is taken for all of them."""
    try:
        peer = bytes.fromhex(text)
    except ValueError:
        return None
    return peer if len(peer) == _ID_BYTES else None
