"""Deleting what rules say (keeping.py), in a store that is full of what was deleted.

Theory. Of a million entries the thousand newest have payloads, and something comes every second. So
nothing may look through the log each time. There is no index for it either, which every entry would
pay for, whether there are rules or not: a `Keeper` looks through everything once, and knows since

- of a log with a limit on numbers, up to which number nothing is left that goes. Only what is above
  that is looked at when the newest entry is another one, and what came below it;
- of a rule with another limit the payloads that are due next (`_Queue`), and their bytes in all.

What happens beside it it learns from the change feed, as everybody does, and it begins anew where
that does not say all: another rule, more changes than are worth reading, or counts that do not
match those of the logs. What it knows is a hint. What is deleted is decided by the transaction that
deletes it: each payload is looked at once more, with the rules as they are then; and the bytes of a
rule are right when the transaction begins, since it reads what has changed until then, and counts
payloads.

A thousand are deleted in a transaction, and there is a pause behind each: who waits for the store
is in no queue but asks again and again (SQLite's busy handler), so that whoever began the next one
at once would have it for himself. Whatever kills it in between, each payload is held or deleted.

Not taken: an index of held payloads by age, for which each entry of every store would pay; deleting
in the transaction that stores, which makes all wait that comes, and knows of no age.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from json import dumps
from typing import TYPE_CHECKING, Final, NamedTuple

from wire import U64_MAX, LogKey

from .errors import StoreFull
from .feed import load_position
from .files import PayloadFiles, detach_file
from .following import follows_mark, has_latest
from .keep_rules import KeepRule, load_rules
from .keeping import (
    HELD,
    IN_ORDER,
    PAGE_ROWS,
    Item,
    Ruled,
    Sums,
    Tidied,
    Wants,
    boundary_of,
    covers,
    held_of,
    is_old,
    is_spared,
    rows_of_logs,
    ruled_by,
    size_of,
)
from .records import ALL, Follow
from .rows import (
    LogRow,
    entry_tag,
    load_changed_logs,
    load_log,
    load_logs_after,
    pack_u64,
    save_log,
    unpack_u64,
)
from .schema import PAYLOAD_DELETED, PAYLOAD_FILE, PAYLOAD_INLINE
from .wants import load_wants

if TYPE_CHECKING:
    import apsw

    from .database import Transaction
    from .opening import Opened
    from .runs import Run
    from .system import System

ROWS: Final = 1_000
"""Payloads deleted in one transaction."""
ROWS_FULL: Final = 32
"""The same where the disk is full."""
CHANGES_MAX: Final = 50_000
"""Of more changes than these nothing is read: it is sooner begun anew."""
QUEUE_ROWS: Final = 20_000
"""Payloads that are due next and known, of each rule."""
_RULED_MAX: Final = 50_000


class _Queue:
    """The payloads that are due next of all that a rule with a limit on age or bytes goes for."""

    def __init__(self, ruled: Ruled) -> None:
        self.ruled = ruled
        self.is_loaded = False
        self.items: list[Item] = []
        """In order, and complete up to the last of them, or if there are no others..."""
        self.has_more = False
        """... which is to say that this is false."""
        self.logs: set[int] = set()
        self.count = 0
        """Payloads held of all these logs,"""
        self.bytes = 0
        """and their sizes."""
        self.forgotten = 0
        """What is held and counted as deleted: it goes, and is not what was asked for."""
        self.wants_all = False
        """Whether what is due next is not enough to go on with: all of it is being fetched."""

    def load(self, db: "apsw.Connection", keys: Mapping[int, LogKey], *, whole: bool) -> None:
        """Looks through everything. `whole`: all of them are wanted at once."""
        self.logs = set(keys)
        most = -1 if whole else QUEUE_ROWS
        self.items = list(held_of(db, keys, f"{IN_ORDER} LIMIT {most}"))
        self.has_more = len(self.items) == most
        self.count = self.bytes = self.forgotten = 0
        if self.ruled.rule.bytes is not None:
            for item in held_of(db, keys) if self.has_more else self.items:
                self.count += 1
                self.bytes += item.size
        self.is_loaded, self.wants_all = True, False

    def load_all(self) -> None:
        """Looks through everything the next time, and keeps all of it."""
        self.is_loaded, self.wants_all = False, True

    def add(self, log: int, item: Item) -> None:
        """A payload has come."""
        self.logs.add(log)
        self.count += 1
        self.bytes += item.size
        if self.items and item < self.items[-1]:
            insort(self.items, item)
        elif not self.has_more:
            self.items.append(item)
        if len(self.items) > 2 * QUEUE_ROWS:
            del self.items[QUEUE_ROWS:]
            self.has_more = True

    def take(self, item: Item, *, forgets: bool = False) -> None:
        """A payload is deleted, or counts as if it were."""
        self.count -= 1
        self.bytes -= item.size
        self.forgotten += forgets
        self.discard(item)

    def discard(self, item: Item) -> None:
        """It is not due, for whatever reason."""
        place = bisect_left(self.items, item)
        if place < len(self.items) and self.items[place] == item:
            del self.items[place]
            # The rest are found by looking through everything again.
            self.is_loaded = bool(self.items) or not self.has_more

    def is_counted(self, db: "apsw.Connection") -> bool:
        """Whether the logs have as many payloads as it knows of."""
        held: float = db.execute(
            "SELECT total(payloads) FROM logs WHERE id IN (SELECT value FROM json_each(?))",
            (dumps(list(self.logs)),),
        ).get
        return int(held) == self.count + self.forgotten


class _Chosen(NamedTuple):
    """A payload that goes, as its row is in the transaction that deletes it."""

    ruled: Ruled
    item: Item
    ingest: int
    file: bytes | None


class Keeper:
    """Deletes what the rules say: `look`, and as long as there is anything `act`, in turns.

    `look` reads only, and may take long; `act` is one transaction. Not both at a time.
    `target`: of these logs alone.
    """

    def __init__(
        self,
        opened: "Opened",
        files: PayloadFiles,
        target: Follow | None = None,
    ) -> None:
        self._opened = opened
        self._files = files
        self._target = target
        self._author = opened.author
        self._mark: object = None
        """Of the rules that all the rest was made with."""
        self._rules: dict[Follow, KeepRule] = {}
        self._ruled: dict[LogKey, Ruled | None] = {}
        self._wants: Wants = {}
        self._place = 0
        """In the change feed: what was before is known."""
        self._walk: LogKey | None = None
        """The last log that was looked through since it began anew."""
        self._has_walked = False
        self._waiting: dict[LogKey, None] = {}
        """Logs that are to be looked through from `_through` on, in order."""
        self._through: dict[LogKey, int] = {}
        self._work: list[tuple[LogKey, int, Item | None]] = []
        """What may go by number or by age; from a queue, what it has there."""
        self._over: _Queue | None = None
        """Where too many bytes are."""
        self._queues: dict[Follow, _Queue] = {}
        self._has_rules = False
        self._rows_max = ROWS

    # Looking

    def look(self) -> bool:
        """Whether there may be anything to delete. Raises StoreError."""
        with self._opened.database.read() as db:
            mark = _mark_of(db)
            wants = load_wants(db)
            place = load_position(db)
            if mark != self._mark or not 0 <= place - self._place <= CHANGES_MAX:
                self._begin(db, mark)
            elif self._has_rules:
                self._take_changes(db, place)
            self._note_wants(wants)
            self._place = place
            if self._has_rules and not self._work:
                self._choose(db, may_load=True)
        return bool(self._work) or self._over is not None

    def _begin(self, db: "apsw.Connection", mark: object) -> None:
        self._mark, self._rules = mark, load_rules(db)
        self._has_rules = bool(self._rules) or has_latest(db)
        self._walk, self._has_walked = None, False
        for kept in (self._ruled, self._waiting, self._through, self._work, self._queues):
            kept.clear()
        self._wants, self._over = {}, None

    def _begin_anew(self) -> None:
        self._mark = None

    def _take_changes(self, db: "apsw.Connection", place: int) -> None:
        """What came since, and in which logs anything is otherwise."""
        if place == self._place:
            return
        found = db.execute(
            f"{HELD} AND e.ingest > ? AND e.ingest <= ? ORDER BY e.ingest", (self._place, place)
        )
        for log, author, log_id, blob, received_at, size in found:
            key, seq = LogKey(author, unpack_u64(log_id)), unpack_u64(blob)
            ruled = self._rule(db, key)
            if ruled is None:
                continue
            if seq <= self._through.get(key, 0):
                self._work.append((key, seq, None))
            queue = self._queues.get(ruled.target)
            if queue is not None and queue.is_loaded:
                queue.add(log, Item(received_at, seq, key, size_of(size, key, seq)))
        self._waiting |= dict.fromkeys(load_changed_logs(db, self._place))

    def _note_wants(self, wants: Wants) -> None:
        """What is fetched no more is to be looked at."""
        for key, ranges in self._wants.items():
            for first, last in ranges:
                if (first, last) not in wants.get(key, ()):
                    through = self._through.get(key, 0)
                    self._through[key] = min(through, first - 1)
                    self._waiting[key] = None
        self._wants = wants

    def _rule(self, db: "apsw.Connection", key: LogKey) -> Ruled | None:
        """The rule that counts for a log, if it has to be looked at."""
        if key not in self._ruled:
            if len(self._ruled) >= _RULED_MAX:
                self._ruled.clear()
            ruled = ruled_by(db, key, self._author, self._rules)
            if ruled is not None and ruled.rule.bytes is None and not covers(self._target, key):
                ruled = None
            if ruled is not None and ruled.rule.counts_all:
                self._queues.setdefault(ruled.target, _Queue(ruled))
            self._ruled[key] = ruled
        return self._ruled[key]

    def _choose(self, db: "apsw.Connection", *, may_load: bool) -> None:
        """What goes next: by number, then by age, and only then is it known what bytes are left."""
        self._over = None
        self._choose_by_number(db)
        if self._work:
            return
        now_us = self._opened.system.now_us()
        queues = list(self._queues.values())
        for queue in queues:
            if not (queue.is_loaded or may_load):
                return
            self._choose_by_age(db, queue, now_us)
            if not self._work and queue.wants_all and may_load:
                self._choose_by_age(db, queue, now_us)
        if not self._work:
            self._over = next((each for each in queues if self._bytes_over(db, each) > 0), None)

    def _choose_by_age(self, db: "apsw.Connection", queue: _Queue, now_us: int) -> None:
        if not queue.is_loaded:
            # What is passed over would be found again and again.
            whole = queue.wants_all or self._target not in (None, ALL)
            queue.load(db, self._keys_under(db, queue), whole=whole)
        for item in queue.items:
            if not is_old(queue.ruled.rule, item.received_at, now_us):
                return
            if len(self._work) >= ROWS:
                return
            if not is_spared(self._wants, item.key, item.seq):
                self._work.append((item.key, item.seq, item))
        if queue.has_more and not self._work:
            queue.load_all()

    def _keys_under(self, db: "apsw.Connection", queue: _Queue) -> dict[int, LogKey]:
        found = {}
        for row in rows_of_logs(db):
            ruled = self._rule(db, row.key)
            if ruled is not None and ruled.target == queue.ruled.target:
                found[row.id] = row.key
        return found

    def _choose_by_number(self, db: "apsw.Connection") -> None:
        while len(self._work) < ROWS:
            if not self._waiting and not self._has_walked:
                rows = load_logs_after(db, None, self._walk, PAGE_ROWS)
                self._has_walked = len(rows) < PAGE_ROWS
                self._walk = rows[-1].key if rows else None
                self._waiting |= dict.fromkeys(row.key for row in rows)
            key = next(iter(self._waiting), None)
            if key is None:
                return
            if self._look_through(db, key):
                del self._waiting[key]

    def _look_through(self, db: "apsw.Connection", key: LogKey) -> bool:
        """Finds what goes by number; False if there may be more of it."""
        ruled, row = self._rule(db, key), load_log(db, key)
        if ruled is None or row is None:
            return True
        boundary, through = boundary_of(ruled.rule, row), self._through.get(key, 0)
        if boundary <= through:
            return True
        if row.payloads:
            room = ROWS - len(self._work)
            found = db.execute(
                "SELECT seq FROM entries WHERE log = ? AND seq > ? AND seq <= ?"
                " AND payload_state IN (1, 2) ORDER BY seq LIMIT ?",
                (row.id, pack_u64(through), pack_u64(boundary), room),
            )
            seqs = [unpack_u64(blob) for (blob,) in found]
            self._work += [(key, seq, None) for seq in seqs]
            if len(seqs) == room and seqs[-1] < boundary:
                self._through[key] = seqs[-1]
                return False
        self._through[key] = boundary
        return True

    def _bytes_over(self, db: "apsw.Connection", queue: _Queue) -> int:
        """How many bytes of payloads there are too many."""
        rule = queue.ruled.rule
        if rule.bytes is None or not queue.is_loaded:
            return 0
        over = queue.bytes - rule.bytes
        if over > 0:
            for key, ranges in self._wants.items():
                ruled = self._rule(db, key)
                if ruled is not None and ruled.target == queue.ruled.target:
                    over -= _bytes_within(db, key, ranges)
        return over

    # Deleting

    def act(self) -> list[Tidied]:
        """Deletes some of what `look` has found; a line for each log. Works on a full disk."""
        try:
            return self._opened.reserve.free(self._act)
        except BaseException:
            self._begin_anew()
            raise

    def end(self) -> None:
        """Nothing more is to be deleted for now."""
        self._rows_max = ROWS
        self._opened.reserve.set_aside()

    def _act(self) -> list[Tidied]:
        try:
            with self._opened.database.write(frees=True) as transaction:
                db = transaction.db
                if _mark_of(db) != self._mark or transaction.ingest - self._place > CHANGES_MAX:
                    self._begin_anew()
                    return []
                self._take_changes(db, transaction.ingest)
                self._note_wants(load_wants(db))
                self._place = transaction.ingest
                if self._over is not None:
                    # Of what has come since some may go by number or age, and is no bytes left.
                    self._choose(db, may_load=False)
                batch = self._work[: self._rows_max]
                stale, chosen = self._checked(transaction, batch)
                if self._over is not None:
                    chosen = self._oldest(db, self._over)
                going = [each for each in chosen if covers(self._target, each.item.key)]
                self._delete(transaction, going)
                place = transaction.ingest
        except StoreFull:
            self._rows_max = ROWS_FULL
            raise
        self._place = place
        self._over = None
        del self._work[: len(batch)]
        for item in stale:
            for each_queue in self._queues.values():
                each_queue.discard(item)
        sums = Sums()
        for each in chosen:
            item, queue = each.item, self._queues.get(each.ruled.target)
            forgets = not covers(self._target, item.key)
            if queue is not None and queue.is_loaded:
                queue.take(item, forgets=forgets)
            if not forgets:
                sums.add(item.key, item.seq, item.size, each.ruled.kind)
        if self._rows_max < ROWS or any(each.file is not None for each in chosen):
            self._files.tidy()
        return sums.all()

    def _checked(
        self, transaction: "Transaction", batch: "list[tuple[LogKey, int, Item | None]]"
    ) -> tuple[list[Item], list[_Chosen]]:
        """What a queue has and nobody holds, and what of a batch does go by number or by age."""
        db, now_us = transaction.db, transaction.now_us
        rows: dict[LogKey, LogRow | None] = {}
        stale: list[Item] = []
        chosen: dict[tuple[LogKey, int], _Chosen] = {}
        for key, seq, due in batch:
            if key not in rows:
                rows[key] = load_log(db, key)
            row, ruled = rows[key], self._rule(db, key)
            found = None if row is None else _load_held(db, row, seq)
            if due is not None and (found is None or found[0] != due):
                stale.append(due)
            if row is None or ruled is None or found is None:
                continue
            item, ingest, file = found
            goes = seq <= boundary_of(ruled.rule, row) or is_old(
                ruled.rule, item.received_at, now_us
            )
            if goes and not is_spared(self._wants, key, seq):
                chosen[key, seq] = _Chosen(ruled, item, ingest, file)
        return stale, list(chosen.values())

    def _oldest(self, db: "apsw.Connection", queue: _Queue) -> list[_Chosen]:
        """Those of a rule's payloads that have to go until the rest is within its bytes."""
        if not queue.is_counted(db):
            queue.is_loaded = False
            return []
        over = self._bytes_over(db, queue)
        chosen: list[_Chosen] = []
        for item in queue.items:
            if over <= 0 or len(chosen) >= self._rows_max:
                break
            if is_spared(self._wants, item.key, item.seq):
                continue
            row = load_log(db, item.key)
            found = None if row is None else _load_held(db, row, item.seq)
            if found is None or found[0] != item:
                # It counts as held, and is not: nothing that follows from the counts is right.
                queue.is_loaded = False
                return []
            chosen.append(_Chosen(queue.ruled, *found))
            over -= item.size
        if over > 0 and not chosen:
            queue.load_all()
        return chosen

    def _delete(self, transaction: "Transaction", chosen: list[_Chosen]) -> None:
        by_log: dict[LogKey, list[_Chosen]] = {}
        for each in chosen:
            by_log.setdefault(each.item.key, []).append(each)
        for key, several in by_log.items():
            row = load_log(transaction.db, key)
            assert row is not None
            delete_held(transaction, row, [(e.ingest, e.item.received_at, e.file) for e in several])
            row.payloads -= len(several)
            row.bytes -= sum(each.item.size for each in several)
            save_log(transaction.db, row)


def delete_held(
    transaction: "Transaction", row: LogRow, held: list[tuple[int, int, bytes | None]]
) -> None:
    """Says of entries, by ingest number, time and file, that their payloads were deleted.

    The caller counts them, and saves the row.
    """
    first = transaction.take_ingest(len(held))
    rows = []
    for new, (ingest, received_at, file) in enumerate(held, first):
        if file is not None:
            detach_file(transaction.db, file)
        tag = entry_tag(new, row.id, received_at, PAYLOAD_DELETED)
        rows.append((new, PAYLOAD_DELETED, tag, ingest))
        row.changed = new
    transaction.db.executemany(
        "UPDATE entries SET ingest = ?, payload_state = ?, payload = NULL, tag = ?"
        " WHERE ingest = ?",
        rows,
    )


def _load_held(
    db: "apsw.Connection", row: LogRow, seq: int
) -> tuple[Item, int, bytes | None] | None:
    """A payload that is held, with its entry's ingest number and its file."""
    found = db.execute(
        "SELECT ingest, received_at, payload_state,"
        " CASE payload_state WHEN 1 THEN length(payload) ELSE encoded END,"
        " CASE payload_state WHEN 2 THEN payload END"
        " FROM entries WHERE log = ? AND seq = ?",
        (row.id, pack_u64(seq)),
    ).fetchone()
    if found is None or found[2] not in (PAYLOAD_INLINE, PAYLOAD_FILE):
        return None
    ingest, received_at, _, size, file = found
    return Item(received_at, seq, row.key, size_of(size, row.key, seq)), ingest, file


def _bytes_within(db: "apsw.Connection", key: LogKey, ranges: "Iterable[Run]") -> int:
    """The bytes of payloads that are held of some ranges."""
    row = load_log(db, key)
    if row is None:
        return 0
    sizes: dict[int, int] = {}
    for first, last in ranges:
        found = db.execute(
            "SELECT seq, CASE payload_state WHEN 1 THEN length(payload) ELSE encoded END"
            " FROM entries WHERE log = ? AND seq BETWEEN ? AND ? AND payload_state IN (1, 2)",
            (row.id, pack_u64(first), pack_u64(min(last, U64_MAX))),
        )
        sizes |= {unpack_u64(blob): size_of(size, key, unpack_u64(blob)) for blob, size in found}
    return sum(sizes.values())


def _mark_of(db: "apsw.Connection") -> object:
    """Another value once any rule is another one."""
    return tuple(load_rules(db).items()), follows_mark(db)


def tidy(keeper: Keeper, system: "System") -> list[Tidied]:
    """Deletes all that there is to delete now."""
    done = Sums()
    while keeper.look():
        began_s = system.monotonic_s()
        done.merge_all(keeper.act())
        system.let_others(began_s)
    keeper.end()
    return done.all()
