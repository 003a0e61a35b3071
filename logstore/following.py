"""What is followed, and what of it is wanted: point2point.md 10.

The table `subscriptions` has a row for each follow that does not want everything.
"""

from typing import TYPE_CHECKING

from wire import LogKey

from .records import ALL, All, Follow
from .rows import pack_optional, pack_u64, row_tag, unpack_optional, unpack_u64
from .subscriptions import FULL, Subscription, restored

if TYPE_CHECKING:
    import apsw


def _names(target: Follow) -> tuple[bytes, bytes]:
    # An empty log id means all logs of the author, an empty author everything.
    if isinstance(target, All):
        return b"", b""
    if isinstance(target, LogKey):
        return target.author, pack_u64(target.log_id)
    if len(target) != 32:
        raise ValueError(f"an author has 32 bytes, not {len(target)}")
    return bytes(target), b""


def _target(author: bytes, log_id: bytes) -> Follow:
    return LogKey(author, unpack_u64(log_id)) if log_id else author or ALL


def follow(db: "apsw.Connection", target: Follow, wanted: Subscription | None) -> bool:
    """Remembers to follow; None leaves what is wanted as it was. False if nothing changes."""
    names = _names(target)
    db.execute(
        "INSERT INTO follows VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (*names, row_tag(*names))
    )
    changed = bool(db.changes())
    if wanted is None or load_subscriptions(db).get(target, FULL) == wanted:
        return changed
    _forget_subscription(db, names)
    if wanted != FULL:
        row = (
            *names,
            str(wanted),
            pack_u64(wanted.min_bytes),
            pack_u64(wanted.max_bytes),
            pack_optional(wanted.eager_bytes),
        )
        db.execute("INSERT INTO subscriptions VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, row_tag(*row)))
    return True


def unfollow(db: "apsw.Connection", target: Follow) -> bool:
    """Forgets to follow; False if nothing was followed by that name."""
    names = _names(target)
    _forget_subscription(db, names)
    db.execute("DELETE FROM follows WHERE author = ? AND log_id = ?", names)
    return bool(db.changes())


def _forget_subscription(db: "apsw.Connection", names: tuple[bytes, bytes]) -> None:
    db.execute("DELETE FROM subscriptions WHERE author = ? AND log_id = ?", names)


def load_subscriptions(db: "apsw.Connection") -> dict[Follow, Subscription]:
    """Everything that is followed, and what of it is wanted: all, then authors and logs in order.

    A row that is damaged, and says nothing, wants everything; `verify` names it.
    """
    found: dict[Follow, Subscription] = {}
    for author, log_id, policy, least, most, eager in db.execute(
        "SELECT author, log_id, policy, min_bytes, max_bytes, eager_bytes"
        " FROM follows LEFT JOIN subscriptions USING (author, log_id) ORDER BY author, log_id"
    ):
        wanted = FULL
        if policy is not None:
            sizes = unpack_u64(least), unpack_u64(most), unpack_optional(eager)
            wanted = restored(policy, *sizes)
        found[_target(author, log_id)] = wanted
    return found
