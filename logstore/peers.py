"""The table of peers: who is let in, what each may read and write, and who has knocked.

A peer is known by its id, the key with which its node signs. What is *decided* of one is a row of
its own, and so is what was *seen* of one: deciding is rare and is told to a running node at once,
seeing happens with every call, and tells it nothing. A peer that was seen and is not decided waits.

Ids cost nothing to make. So what is kept of those who wait is bounded, in all and by where they
come from, and whoever is busiest gives way: a flood of new ids from one place pushes out its own.
Who is decided is never pushed out.

A row that is damaged lets nobody in: it counts as blocked until somebody decides anew.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from wire import LogKey

from .brought import DECIDED, forget_brought
from .errors import NoSuchPeer
from .names import check_name, forget_name, load_names, set_name
from .records import ALL, Follow
from .rows import row_tag
from .upkeep import recall, recall_all, remember

if TYPE_CHECKING:
    import apsw

    from .database import Database

PEER_ID_BYTES: Final = 32
CONNECTIONS_MAX: Final = 4
"""How many a peer may have at a time, unless its row says otherwise."""
WAITING_MAX: Final = 256
WAITING_PER_PLACE_MAX: Final = 8

_SEEN: Final = "seen/"


class PeerState(StrEnum):
    """Whether a peer is let in (doors.md 3)."""

    ALLOWED = "allowed"
    BLOCKED = "blocked"
    WAITING = "waiting"
    """It has knocked, and nothing was decided."""


class WriteScope(StrEnum):
    """What is taken from a peer (doors.md 3)."""

    FOLLOWED = "followed"
    """Whatever this store follows."""
    OWN = "own"
    """Of that, the logs of its own author."""
    NONE = "none"


ReadScope = frozenset[Follow]
"""What a peer may read: `ALL`, authors (all their logs) and logs; empty: nothing."""

EVERYTHING: Final[ReadScope] = frozenset((ALL,))
NOTHING: Final[ReadScope] = frozenset()


@dataclass(frozen=True, slots=True)
class PeerRule:
    """What was decided of a peer.

    `rate_in`, `rate_out`: bytes a second that it may send us, and that it is sent; None: without a
    limit of its own. `connections`: at a time. `address`: where `serve` calls it, as
    `HOST:PORT`; None: nowhere.
    """

    allowed: bool
    read: ReadScope = EVERYTHING
    write: WriteScope = WriteScope.FOLLOWED
    rate_in: int | None = None
    rate_out: int | None = None
    connections: int = CONNECTIONS_MAX
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """What was seen of a peer: how often, when (microseconds since 1970), and where from."""

    count: int
    first_at: int
    last_at: int
    address: str
    place: str
    """What addresses have in common that one person has: an IPv4 address, or an IPv6 /64."""


@dataclass(frozen=True, slots=True)
class KnownPeer:
    """All that a store knows of a peer."""

    peer_id: bytes
    name: str | None
    rule: PeerRule | None
    seen: Sighting | None

    @property
    def state(self) -> PeerState:
        """Whether it is let in."""
        if self.rule is None:
            return PeerState.WAITING
        return PeerState.ALLOWED if self.rule.allowed else PeerState.BLOCKED


@dataclass(frozen=True, slots=True)
class RuleChange:
    """What `allow` changes; None leaves that as it is. A rate of 0, an address of "": none."""

    name: str | None = None
    read: ReadScope | None = None
    write: WriteScope | None = None
    rate_in: int | None = None
    rate_out: int | None = None
    connections: int | None = None
    address: str | None = None

    def of(self, rule: PeerRule) -> PeerRule:
        """The rule of a peer that is allowed from now on."""
        return PeerRule(
            allowed=True,
            read=rule.read if self.read is None else self.read,
            write=rule.write if self.write is None else self.write,
            rate_in=rule.rate_in if self.rate_in is None else self.rate_in or None,
            rate_out=rule.rate_out if self.rate_out is None else self.rate_out or None,
            connections=rule.connections if self.connections is None else self.connections,
            address=rule.address if self.address is None else self.address or None,
        )


class PeerTable:
    """The table, as any process may read and change it. Raises StoreError as `Store` does."""

    def __init__(self, database: "Database", own_id: bytes) -> None:
        self._database = database
        self._own_id = own_id

    def rules(self) -> dict[bytes, PeerRule]:
        """What is decided, by peer id."""
        with self._database.read() as db:
            return _load_rules(db)

    def known(self) -> list[KnownPeer]:
        """Every peer that is decided or waits, in the order of their ids."""
        with self._database.read() as db:
            rules, seen = _load_rules(db), _load_seen(db)
            names = {target: name for name, target in load_names(db).items()}
        ids = sorted(rules.keys() | seen.keys())
        return [KnownPeer(each, names.get(each), rules.get(each), seen.get(each)) for each in ids]

    def allow(self, peer_id: bytes, change: RuleChange | None = None) -> PeerRule:
        """Lets a peer in, and changes what is named. Returns what goes for it now.

        Raises NameTaken, and ValueError for what is no id, no name, or one's own id, which has no
        row: it is always let in, with everything.
        """
        change = change or RuleChange()
        self._check(peer_id)
        if change.name is not None:
            check_name(change.name)
        with self._database.write() as transaction:
            db = transaction.db
            before = _load_rule(db, peer_id)
            # Who is let in again after having been blocked begins with the defaults: what was
            # his before might be more than whoever allows him now has in mind.
            known = before is not None and before.allowed
            rule = change.of(before if known and before is not None else PeerRule(allowed=True))
            if change.name is not None:
                set_name(db, change.name, peer_id)
            if rule != before:
                transaction.changes_wishes = True
                _save_rule(db, peer_id, rule)
            return rule

    def block(self, peer_id: bytes) -> bool:
        """Lets a peer in no more, and lets it not even wait; False if that was so already."""
        self._check(peer_id)
        with self._database.write() as transaction:
            before = _load_rule(transaction.db, peer_id)
            if before is not None and not before.allowed:
                return False
            transaction.changes_wishes = True
            _save_rule(transaction.db, peer_id, PeerRule(allowed=False))
            return True

    def remove(self, peer_id: bytes) -> None:
        """Forgets a peer, with its name and what it brought. Raises NoSuchPeer."""
        with self._database.write() as transaction:
            db = transaction.db
            _check_known(db, peer_id)
            transaction.changes_wishes = True
            for kind in (DECIDED, _SEEN):
                remember(db, kind + peer_id.hex(), None)
            forget_brought(db, peer_id)
            forget_name(db, peer_id)

    def rename(self, peer_id: bytes, name: str) -> bool:
        """Calls a peer something else; False if it is called so. Raises NoSuchPeer, NameTaken."""
        check_name(name)
        with self._database.write() as transaction:
            _check_known(transaction.db, peer_id)
            return set_name(transaction.db, name, peer_id)

    def note_seen(self, sightings: Mapping[bytes, Sighting]) -> None:
        """Takes down who was seen; the count and the first time of what is known are kept."""
        with self._database.write() as transaction:
            db = transaction.db
            known = _load_seen(db)
            for peer_id, new in sightings.items():
                before = known.get(peer_id)
                if before is not None:
                    new = replace(  # noqa: PLW2901 - the same sighting, with what was before
                        new, count=before.count + new.count, first_at=before.first_at
                    )
                known[peer_id] = new
                _save_seen(db, peer_id, new)
            decided = _load_rules(db)
            waiting = {each: seen for each, seen in known.items() if each not in decided}
            for peer_id in _too_many(waiting):
                remember(db, _SEEN + peer_id.hex(), None)

    def _check(self, peer_id: bytes) -> None:
        if len(peer_id) != PEER_ID_BYTES:
            raise ValueError(f"a peer id has {PEER_ID_BYTES} bytes, not {len(peer_id)}")
        if peer_id == self._own_id:
            raise ValueError("that is this store's own id, which is always let in")


def _check_known(db: "apsw.Connection", peer_id: bytes) -> None:
    if all(recall(db, kind + peer_id.hex()) is None for kind in (DECIDED, _SEEN)):
        raise NoSuchPeer("there is no such peer", peer_id.hex(), "`peer list` lists them")


def _too_many(waiting: Mapping[bytes, Sighting]) -> list[bytes]:
    """Who gives way: of each place what is above its number, then the oldest of the busiest."""
    # A dictionary of ids, the oldest first, for each place.
    places: dict[str, dict[bytes, None]] = {}
    for peer_id, seen in sorted(waiting.items(), key=lambda each: each[1].last_at):
        places.setdefault(seen.place, {})[peer_id] = None
    left = Counter({place: len(ids) for place, ids in places.items()})
    gone: list[bytes] = []
    while left and (
        left.total() > WAITING_MAX or left.most_common(1)[0][1] > WAITING_PER_PLACE_MAX
    ):
        place = left.most_common(1)[0][0]
        peer_id = next(iter(places[place]))
        del places[place][peer_id]
        left[place] -= 1
        gone.append(peer_id)
    return gone


# Rows


def _load_rules(db: "apsw.Connection") -> dict[bytes, PeerRule]:
    found = {}
    for name, value, tag in db.execute(
        "SELECT name, value, tag FROM memory WHERE name >= ? AND substr(name, 1, ?) = ?",
        (DECIDED, len(DECIDED), DECIDED),
    ):
        found[bytes.fromhex(name[len(DECIDED) :])] = _rule(name, value, tag)
    return found


def _load_rule(db: "apsw.Connection", peer_id: bytes) -> PeerRule | None:
    name = DECIDED + peer_id.hex()
    row = db.execute("SELECT value, tag FROM memory WHERE name = ?", (name,)).fetchone()
    return None if row is None else _rule(name, row[0], row[1])


def _rule(name: str, value: bytes, tag: int) -> PeerRule:
    if tag != row_tag(name, value):
        return PeerRule(allowed=False)
    try:
        row: dict[str, Any] = json.loads(value)
        return PeerRule(
            allowed=row["allowed"],
            read=read_scope(row["read"]),
            write=WriteScope(row["write"]),
            rate_in=row["rate_in"],
            rate_out=row["rate_out"],
            connections=row["connections"],
            address=row["address"],
        )
    except (ValueError, KeyError, TypeError):
        # Of a later version that knows more, which is no reason to let in whom it might not.
        return PeerRule(allowed=False)


def _save_rule(db: "apsw.Connection", peer_id: bytes, rule: PeerRule) -> None:
    row = {
        "allowed": rule.allowed,
        "read": written_scope(rule.read),
        "write": rule.write,
        "rate_in": rule.rate_in,
        "rate_out": rule.rate_out,
        "connections": rule.connections,
        "address": rule.address,
    }
    remember(db, DECIDED + peer_id.hex(), json.dumps(row).encode())


def _load_seen(db: "apsw.Connection") -> dict[bytes, Sighting]:
    found = {}
    for name, value in recall_all(db, _SEEN).items():
        # What is damaged, or of a later version, is no more than something that was seen.
        with suppress(ValueError, TypeError):
            found[bytes.fromhex(name[len(_SEEN) :])] = Sighting(**json.loads(value))
    return found


def _save_seen(db: "apsw.Connection", peer_id: bytes, seen: Sighting) -> None:
    row = {
        "count": seen.count,
        "first_at": seen.first_at,
        "last_at": seen.last_at,
        "address": seen.address,
        "place": seen.place,
    }
    remember(db, _SEEN + peer_id.hex(), json.dumps(row).encode())


# Scopes as text, in rows, in JSON and on the command line


def read_scope(text: str | Iterable[str]) -> ReadScope:
    """`all`, `none`, or several of `AUTHOR` and `AUTHOR/N`. Raises ValueError."""
    parts = [text] if isinstance(text, str) else list(text)
    if parts in (["all"], ["none"]):
        return EVERYTHING if parts == ["all"] else NOTHING
    found: set[Follow] = set()
    for part in parts:
        if part in ("all", "none"):
            raise ValueError(f"{part!r} stands alone: it is everything, or nothing")
        found.add(LogKey.parse(part) if "/" in part else LogKey.parse(part).author)
    return frozenset(found)


def written_scope(scope: ReadScope) -> str | list[str]:
    """The reverse of `read_scope`."""
    if ALL in scope:
        return "all"
    names = [
        str(target) if isinstance(target, LogKey) else target.hex()
        for target in scope
        if target is not ALL
    ]
    return sorted(names) or "none"
