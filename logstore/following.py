"""What is followed, and what of it is wanted: point2point.md 10.

The table `subscriptions` has a row for each follow that does not want everything.
"""

from typing import TYPE_CHECKING, Final

from wire import LogKey

from .records import ALL, All, Follow
from .rows import pack_optional, pack_u64, row_tag, unpack_optional, unpack_u64
from .subscriptions import FULL, Subscription, restored

if TYPE_CHECKING:
    import apsw

_ALL_WANTED: Final = (
    "SELECT author, log_id, policy, min_bytes, max_bytes, eager_bytes"
    " FROM follows LEFT JOIN subscriptions USING (author, log_id)"
)


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
    rows = db.execute(f"{_ALL_WANTED} ORDER BY author, log_id")
    return {_target(author, log_id): _wanted(*rest) for author, log_id, *rest in rows}


def load_subscription(db: "apsw.Connection", log: LogKey) -> Subscription | None:
    """What is wanted of one log that others write; None if it is not followed."""
    row = db.execute(
        f"{_ALL_WANTED} WHERE author = ? AND log_id IN (?, x'') OR author = x'' AND log_id = x''"
        # The log itself sorts behind its author, that behind all.
        " ORDER BY author DESC, log_id DESC LIMIT 1",
        (log.author, pack_u64(log.log_id)),
    ).fetchone()
    return None if row is None else _wanted(*row[2:])


def has_latest(db: "apsw.Connection") -> bool:
    """Whether of anything no more than the newest entries are wanted."""
    found = db.execute("SELECT 1 FROM subscriptions WHERE policy LIKE 'latest:%' LIMIT 1").get
    return found is not None


def follows_mark(db: "apsw.Connection") -> tuple[object, ...]:
    """Another value once anything is followed, or wanted of it, that was not, or no more."""
    return tuple(
        db.execute(
            "SELECT (SELECT count(*) FROM follows), (SELECT sum(tag) FROM follows),"
            " (SELECT count(*) FROM subscriptions), (SELECT sum(tag) FROM subscriptions)"
        ).get
    )


def _wanted(policy: str | None, least: bytes, most: bytes, eager: bytes | None) -> Subscription:
    if policy is None:
        return FULL
    return restored(policy, unpack_u64(least), unpack_u64(most), unpack_optional(eager))
