"""What rules delete: payloads beyond the newest N, older than D, or above B bytes in all.

What goes, by the rule of its log (keep_rules.py), is the payload that is held whole of an entry

    by number   that is not among the N largest numbers up to the newest entry held
    by age      that was received longer than D ago
    by bytes    that is the oldest (received first, then by number, then by log) of all that the
                rule goes for, as long as these are more than B bytes without those above

but for what somebody fetches at the moment: that is left alone, and counts for nothing, until all
of it is here or nobody wants it any more. What is arriving is left alone too. What goes goes as by
`drop`: its entry says that it was deleted, it is missing to nobody, not asked for, and not taken
from a peer (payloads.py); `fetch` and `import` bring it back on purpose, and then the rule takes it
again.

What a rule would delete at once is not missing in the first place. For entries that are held the
store says so (`load_askable`), for those that are still to come the subscription does
(`Subscription.kept`): they are asked for without payloads up to the Nth before the newest one that
the other side has. By bytes that is only what is larger than all that is kept: which of the others
would go at once depends on what else comes.

This file says what goes; tidying.py deletes it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from json import dumps
from typing import TYPE_CHECKING, Final, NamedTuple

from wire import LogKey, NeedMore, decode_varu64, tail_offset

from .following import load_subscription
from .keep_rules import KeepRule, load_rules, nearest_rule
from .missing import load_fresh_missing, load_missing
from .records import ALL, Follow
from .rows import LogRow, load_logs_after, pack_u64, unpack_u64
from .subscriptions import PolicyKind
from .wants import load_wants, load_wants_of

if TYPE_CHECKING:
    import apsw

    from .runs import Run

PAGE_ROWS: Final = 500
LATEST: Final = "latest"
"""The kind of rule that `latest:N` implies."""


class Ruled(NamedTuple):
    """The rule that counts for a log: `kind` is log, author, all, or latest."""

    kind: str
    target: Follow
    rule: KeepRule


@dataclass(frozen=True, slots=True)
class Tidied:
    """What was deleted of one log, or would be; `rule`: by which kind of rule."""

    key: LogKey
    count: int
    bytes: int
    oldest_seq: int
    newest_seq: int
    rule: str


class Item(NamedTuple):
    """A payload that is held, in the order in which they go."""

    received_at: int
    seq: int
    key: LogKey
    size: int


Wants = Mapping[LogKey, "list[Run]"]

HELD: Final = (
    "SELECT l.id, l.author, l.log_id, e.seq, e.received_at,"
    " CASE e.payload_state WHEN 1 THEN length(e.payload) ELSE e.encoded END"
    " FROM entries e CROSS JOIN logs l ON l.id = e.log WHERE e.payload_state IN (1, 2)"
)
"""The payloads that are held whole."""
IN_ORDER: Final = " ORDER BY e.received_at, e.seq, l.author, l.log_id"


# What counts


def ruled_by(
    db: "apsw.Connection",
    log: LogKey,
    author: bytes,
    rules: Mapping[Follow, KeepRule] | None = None,
) -> Ruled | None:
    """The rule for a log; None if everything is kept. `author`: whose store it is."""
    found = nearest_rule(load_rules(db) if rules is None else rules, log, author)
    if found is not None:
        target, rule = found
        kind = "log" if isinstance(target, LogKey) else "all" if target is ALL else "author"
        return Ruled(kind, target, rule)
    if log.author != author:
        wanted = load_subscription(db, log)
        if wanted is not None and wanted.kind is PolicyKind.LATEST:
            return Ruled(LATEST, log, KeepRule(last=wanted.count))
    return None


def load_askable(
    db: "apsw.Connection",
    row: LogRow,
    first: int,
    sizes: tuple[int, int],
    limit: int,
    *,
    author: bytes,
    now_us: int,
) -> list[int]:
    """`load_missing`, without what a rule would delete at once, unless it is fetched on purpose.

    Not by what `latest:N` implies: whoever asks knows what is wanted of the log.
    """
    found_rule = nearest_rule(load_rules(db), row.key, author) if row.missing else None
    if found_rule is None:
        return load_missing(db, row, first, sizes, limit)
    _, rule = found_rule
    found: list[int] = []
    for low, high in load_wants_of(db, row.key):
        fetched = load_missing(db, row, max(first, low), sizes, limit)
        found += [seq for seq in fetched if seq <= high]
    if not rule.keeps_none:
        if rule.last is not None:
            first = max(first, row.newest - rule.last + 1)
        if rule.bytes is not None:
            sizes = (sizes[0], min(sizes[1], rule.bytes))
        if rule.age_us is None:
            found += load_missing(db, row, first, sizes, limit)
        elif sizes[0] <= sizes[1] and first <= row.newest:
            since_us = now_us - rule.age_us
            seqs = (max(first, 0), row.newest)
            found += load_fresh_missing(db, row, seqs, sizes, since_us, limit)
    return sorted(set(found))[:limit]


def is_spared(wants: Wants, key: LogKey, seq: int) -> bool:
    """Whether somebody fetches it at the moment."""
    return any(first <= seq <= last for first, last in wants.get(key, ()))


def size_of(found: int | bytes, key: LogKey, seq: int) -> int:
    """A payload's size, from its length or from its entry."""
    if isinstance(found, int):
        return found
    try:
        return decode_varu64(found, tail_offset(key.log_id, seq))[0]
    except NeedMore:
        return 0  # the entry is damaged, which `verify` says


def covers(target: Follow | None, key: LogKey) -> bool:
    """Whether a target names a log; None names all."""
    return target is None or target is ALL or target in (key, key.author)


def held_of(db: "apsw.Connection", keys: Mapping[int, LogKey], end: str = "") -> Iterator[Item]:
    """The payloads of some logs that are held."""
    found = db.execute(
        f"{HELD} AND e.log IN (SELECT value FROM json_each(?)){end}",  # noqa: S608 (constants)
        (dumps(list(keys)),),
    )
    for log, _, _, blob, received_at, size in found:
        key, seq = keys[log], unpack_u64(blob)
        yield Item(received_at, seq, key, size_of(size, key, seq))


def _held_up_to(db: "apsw.Connection", row: LogRow, last: int) -> Iterator[Item]:
    """The payloads of a log that are held up to a number."""
    found = db.execute(f"{HELD} AND e.log = ? AND e.seq <= ?", (row.id, pack_u64(max(0, last))))
    for _, _, _, blob, received_at, size in found:
        seq = unpack_u64(blob)
        yield Item(received_at, seq, row.key, size_of(size, row.key, seq))


# What would go


def plan(
    db: "apsw.Connection",
    author: bytes,
    now_us: int,
    target: Follow | None = None,
    rules: Mapping[Follow, KeepRule] | None = None,
) -> list[Tidied]:
    """What would be deleted of the logs of a target now. `rules`: if these were the rules.

    Reads all payloads that are under a rule with a limit on age or bytes: not for each arrival.
    """
    rules = load_rules(db) if rules is None else rules
    wants = load_wants(db)
    groups: dict[Follow, tuple[Ruled, dict[int, LogRow]]] = {}
    for row in rows_of_logs(db):
        ruled = ruled_by(db, row.key, author, rules) if row.payloads else None
        if ruled is not None and (ruled.rule.bytes is not None or covers(target, row.key)):
            groups.setdefault(ruled.target, (ruled, {}))[1][row.id] = row
    found = Sums()
    for ruled, logs in groups.values():
        for item in _going(db, ruled.rule, logs, now_us, wants):
            if covers(target, item.key):
                found.add(item.key, item.seq, item.size, ruled.kind)
    return found.all()


def rows_of_logs(db: "apsw.Connection") -> Iterator[LogRow]:
    """The rows of all logs, in order."""
    after: LogKey | None = None
    while True:
        rows = load_logs_after(db, None, after, PAGE_ROWS)
        yield from rows
        if len(rows) < PAGE_ROWS:
            return
        after = rows[-1].key


def _going(
    db: "apsw.Connection", rule: KeepRule, logs: Mapping[int, LogRow], now_us: int, wants: Wants
) -> Iterator[Item]:
    """What a rule deletes, of all logs that are under it."""
    keys = {id_: row.key for id_, row in logs.items()}
    above = {row.key: boundary_of(rule, row) for row in logs.values()}

    def goes(item: Item) -> bool:
        return item.seq <= above[item.key] or is_old(rule, item.received_at, now_us)

    if not rule.counts_all:
        for row in logs.values():
            for item in _held_up_to(db, row, above[row.key]):
                if not is_spared(wants, item.key, item.seq):
                    yield item
        return
    left = 0
    if rule.bytes is not None:
        for item in held_of(db, keys):
            if not (goes(item) or is_spared(wants, item.key, item.seq)):
                left += item.size
    for item in held_of(db, keys, IN_ORDER):
        if is_spared(wants, item.key, item.seq):
            continue
        if goes(item):
            yield item
        elif rule.bytes is not None and left > rule.bytes:
            left -= item.size
            yield item


def boundary_of(rule: KeepRule, row: LogRow) -> int:
    """The largest number that goes by number, 0 or less if none does."""
    return 0 if rule.last is None else row.newest - rule.last


def is_old(rule: KeepRule, received_at: int, now_us: int) -> bool:
    """Whether a payload goes by age."""
    return rule.age_us is not None and received_at < now_us - rule.age_us


class Sums:
    """What was deleted of each log."""

    def __init__(self) -> None:
        self._found: dict[LogKey, Tidied] = {}

    def add(self, key: LogKey, seq: int, size: int, kind: str) -> None:
        self.merge(Tidied(key, 1, size, seq, seq, kind))

    def merge(self, new: Tidied) -> None:
        old = self._found.get(new.key, replace(new, count=0, bytes=0))
        self._found[new.key] = Tidied(
            new.key,
            old.count + new.count,
            old.bytes + new.bytes,
            min(old.oldest_seq, new.oldest_seq),
            max(old.newest_seq, new.newest_seq),
            new.rule,
        )

    def merge_all(self, several: Iterable[Tidied]) -> None:
        for each in several:
            self.merge(each)

    def all(self) -> list[Tidied]:
        """A line for each log, in order."""
        return [self._found[key] for key in sorted(self._found)]


def merged(several: Iterable[Tidied]) -> list[Tidied]:
    """What was deleted in several steps: a line for each log, in order."""
    sums = Sums()
    sums.merge_all(several)
    return sums.all()
