"""What is held, for whoever looks: the half of a store that changes nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, overload

from wire import U64_MAX, LogKey

from . import feed, following, keeping, proofs, reading, resolving, sharing, upkeep, wants
from .alarms import AlarmBook
from .arguments import (
    AnyLog,
    AnyTarget,
    author_of,
    check_author,
    check_log,
    check_number,
    check_numbers,
    check_target,
    log_of,
    wrong_type,
)
from .cursors import CursorTable
from .errors import translated
from .files import ArrivingFile, PayloadFiles
from .forgetting import load_forgotten
from .held_log import HeldLog
from .keep_rules import KeepRule, load_rules, nearest_rule
from .names import Named, load_names
from .opening import Opened
from .pauses import load_pauses
from .peers import PeerTable
from .reader import PayloadReader, open_payload
from .records import (
    Arrivals,
    Arrived,
    Change,
    Contested,
    Follow,
    ForkProof,
    LogInfo,
    Statistics,
    StoredEntry,
)
from .rows import (
    load_changed_logs,
    load_changed_rows,
    load_log,
    load_log_and_lacks,
    load_logs_after,
)
from .shortfall import Holding, Shortfall, count_holding, count_shortfall
from .subscriptions import Subscription
from .with_payload import PAYLOAD_BYTES_MAX, EntryWithPayload, with_payload

if TYPE_CHECKING:
    import apsw

_PAGE_ROWS: Final = 500


class StoreView:
    """Reads replicas of logs. See `Store`, which also changes them."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._database = opened.database
        self._system = opened.system
        self._files = PayloadFiles(opened.database, opened.system, opened.folder)
        self.peers = PeerTable(opened.database, opened.author)
        """Who is let in, and with what."""
        self.alarms = AlarmBook(opened.database, opened.system)
        """What somebody has to look at."""
        self.cursors = CursorTable(opened.database, opened.system, opened.folder)
        """How far who has read what arrives."""

    @property
    def author(self) -> bytes:
        """The public key whose logs are appended to here, 32 bytes."""
        return self._opened.author

    @property
    def path(self) -> Path | None:
        """The directory, None in memory."""
        return self._opened.folder

    @property
    def readonly(self) -> bool:
        """Whether nothing can be changed."""
        return self._database.readonly

    # --- what things are called -----------------------------------------------------------------

    def resolve(self, text: str) -> Named:
        """What a text of a person stands for: a log, or an author (32 bytes) (everyday.md 1).

        Raises ValueError if it has no form that anything could be called by, NothingSoCalled if it
        has one and nothing is called so, Ambiguous. Methods that take a log or an author take such
        a text as well, and raise the same.
        """
        if not isinstance(text, str):
            raise wrong_type("text", text, "what people write is wanted")
        # What is wrong with a text is no damage, as which a ValueError counts while one reads.
        written = resolving.Reference.parse(text)
        with self._database.read() as db:
            found = resolving.resolve(db, self.author, written)
        return resolving.with_log_id(found, written)

    def _log(self, key: AnyLog) -> LogKey:
        if isinstance(key, str):
            return log_of(self.resolve(key))
        check_log(key, "key")
        return key

    def _author(self, author: bytes | str) -> bytes:
        if isinstance(author, str):
            return author_of(self.resolve(author), author)
        check_author(author)
        return author

    def _target(self, target: AnyTarget) -> Follow:
        if isinstance(target, str):
            return self.resolve(target)
        check_target(target)
        return target

    def names(self) -> dict[str, Named]:
        """Every name of the store, and what it names, in the order of the names."""
        with self._database.read() as db:
            return load_names(db)

    def ids(self) -> set[bytes]:
        """Every id that the store has: what a beginning is compared with."""
        with self._database.read() as db:
            return resolving.load_ids(db, self.author)

    # --- logs and entries -----------------------------------------------------------------------

    def snapshot(self) -> AbstractContextManager[None]:
        """All that this thread asks inside is answered for the same moment, and sooner.

        It keeps the write-ahead log from being emptied, so nothing is to be waited for inside, and
        it is for reading: what this thread writes inside it does not see before the end.
        """
        return self._database.snapshot()

    def log(self, key: AnyLog) -> LogInfo | None:
        """What is held of a log, None if nothing is."""
        key = self._log(key)
        with self._database.read() as db:
            row = load_log(db, key)
        return None if row is None else row.info()

    def held_log(self, key: AnyLog) -> HeldLog | None:
        """The same for whoever asks more of one log, inside of a `snapshot`."""
        key = self._log(key)
        with self._database.read() as db:
            found = load_log_and_lacks(db, key)
        if found is None:
            return None
        row, lacks_any = found
        return HeldLog(self._database, row, self.author, self._system, lacks_any=lacks_any)

    def logs(self, author: bytes | str | None = None) -> Iterator[LogInfo]:
        """All logs, or those of one author, in the order of author and log id."""
        author = None if author is None else self._author(author)
        after = None
        while True:
            with self._database.read() as db:
                rows = load_logs_after(db, author, after, _PAGE_ROWS)
            yield from (row.info() for row in rows)
            if len(rows) < _PAGE_ROWS:
                return
            after = rows[-1].key

    def hashes(self, key: AnyLog, seqs: Iterable[int]) -> dict[int, bytes]:
        """The hashes of those of the entries that are held and may be served."""
        with self.snapshot():
            held = self.held_log(key)
            return {} if held is None else held.hashes(seqs)

    def any_dropped(self, arriving: Sequence[ArrivingFile]) -> bool:
        """Whether any of these payloads was dropped while it came, or is its entry's by now."""
        return self._files.any_dropped([file.id for file in arriving])

    def entry(self, key: AnyLog, seq: int) -> StoredEntry | None:
        """One entry, None if it is not held or may not be served. Raises StoreDamaged."""
        check_number("seq", seq)
        found = self.read(key, seq, entries_max=1, bytes_max=0, end=seq, with_payload=False)
        return found[0] if found else None

    @overload
    def read(
        self,
        key: AnyLog,
        start: int,
        *,
        entries_max: int,
        bytes_max: int,
        end: int | None = None,
        with_payload: Literal[True] = True,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
    ) -> list[EntryWithPayload]: ...
    @overload
    def read(
        self,
        key: AnyLog,
        start: int,
        *,
        entries_max: int,
        bytes_max: int,
        end: int | None = None,
        with_payload: Literal[False],
    ) -> list[StoredEntry]: ...
    def read(
        self,
        key: AnyLog,
        start: int,
        *,
        entries_max: int,
        bytes_max: int,
        end: int | None = None,
        with_payload: bool = True,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
    ) -> Sequence[StoredEntry]:
        """Entries from `start` on, ascending, gaps left out; at least one if there is one.

        Ends after `entries_max` entries, before `bytes_max` bytes of encodings and payloads are
        exceeded, and at `end`. An entry whose payload is not held is left out too; that of one
        above `payload_bytes_max` raises PayloadTooLarge where it is taken from the entry. Without
        `with_payload` all entries come, and of payloads only those in rows (`StoredEntry`). Raises
        StoreDamaged, naming the entry, where bytes on disk are not those that were stored.
        """
        key = self._log(key)
        check_numbers(
            start=start,
            entries_max=entries_max,
            bytes_max=bytes_max,
            end=end,
            payload_bytes_max=payload_bytes_max,
        )
        if with_payload:
            return self._read_whole(key, start, end, entries_max, bytes_max, payload_bytes_max)
        with self._database.read() as db:
            return reading.read_entries(db, key, start, end, entries_max, bytes_max)

    def _read_whole(
        self,
        key: LogKey,
        start: int,
        end: int | None,
        entries_max: int,
        bytes_max: int,
        payload_bytes_max: int,
    ) -> list[EntryWithPayload]:
        found: list[EntryWithPayload] = []
        room = bytes_max
        while len(found) < entries_max:
            with self._database.read() as db:
                # Over those without a payload, of which there may be a million.
                due = reading.next_payload(db, key, start)
                if due is None or (end is not None and due > end):
                    break
                count = entries_max - len(found)
                page = reading.read_entries(db, key, due, end, count, max(room, 0))
            for entry in page:
                start = entry.seq + 1
                whole = self.with_payload(entry, payload_bytes_max=payload_bytes_max)
                if whole is None:
                    continue
                if whole.payload_bytes <= payload_bytes_max:
                    room -= whole.payload_bytes
                room -= len(whole.encoded)
                if room < 0 and found:
                    return found
                found.append(whole)
        return found

    def with_payload(
        self, entry: StoredEntry, *, payload_bytes_max: int = PAYLOAD_BYTES_MAX
    ) -> EntryWithPayload | None:
        """An entry and its payload, read if that is in a file; None if it is not held.

        Raises StoreDamaged where the payload is not the one that the entry names.
        """
        return with_payload(
            entry, payload_bytes_max, lambda each: self.open_payload(each.key, each.seq)
        )

    def first_since(
        self, key: AnyLog, first: int, last: int, since: int, count: int | None
    ) -> int | None:
        """The first entry of a range that was received at a moment or later, None if none was.

        `since`: microseconds since 1970. `count`: of the last so many of them.
        """
        key = self._log(key)
        with self._database.read() as db:
            row = load_log(db, key)
            return None if row is None else reading.first_since(db, row, first, last, since, count)

    def open_payload(self, key: AnyLog, seq: int) -> PayloadReader:
        """A payload that is held whole. Raises PayloadUnavailable."""
        key = self._log(key)
        check_number("seq", seq)
        return open_payload(self._database, self._files, self._system, key, seq)

    def missing_payloads(
        self,
        key: AnyLog,
        from_seq: int = 1,
        *,
        sizes: tuple[int, int] = (0, U64_MAX),
        limit: int,
    ) -> list[int]:
        """The first entries from there on whose payloads may be asked for.

        Those that are neither held whole nor deleted, those that were deleted and are wanted again
        (`want`), and of them those of a size between the two given, both included. But none that a
        rule (`keep`) would delete at once, unless it is wanted by `want`.
        """
        with self.snapshot():
            held = self.held_log(key)
            return [] if held is None else held.missing_payloads(from_seq, sizes=sizes, limit=limit)

    def next_payload(self, key: AnyLog, seq: int) -> int | None:
        """The first entry from there on whose payload is held whole, None if there is none."""
        key = self._log(key)
        with self._database.read() as db:
            return reading.next_payload(db, key, seq)

    def runs(self, key: AnyLog, runs_from: int = 1, *, limit: int) -> list[tuple[int, int]]:
        """The maximal runs of consecutive entries that are held and may be served, ascending.

        The first `limit` of those that end at or behind `runs_from`.
        """
        with self.snapshot():
            held = self.held_log(key)
            return [] if held is None else held.runs(runs_from, limit=limit)

    def is_held(self, key: AnyLog, first: int, last: int) -> bool:
        """Whether every entry of a range is held and may be served; payloads do not count."""
        check_numbers(first=first, last=last)
        with self.snapshot():
            held = self.held_log(key)
            return held is not None and held.is_held(first, last)

    def shortfall(self, key: AnyLog, wanted: Subscription) -> Shortfall:
        """What is missing of a log of all that is wanted of it, as far as is known here.

        What a rule (`keep`) would delete at once is not missing.
        """
        key = self._log(key)
        with self._database.read() as db:
            row = load_log(db, key)
            if row is None:
                return Shortfall(0, 0)
            found = nearest_rule(load_rules(db), key, self.author) if row.missing else None
            if found is not None:
                wanted = replace(wanted, kept=found[1])
            return count_shortfall(db, row, wanted, self._system.now_us())

    # --- the change feed ------------------------------------------------------------------------

    def position(self) -> int:
        """The newest number of the ingest sequence, 0 in an empty store."""
        with self._database.read() as db:
            return feed.load_position(db)

    def changes(self, after: int, limit: int) -> list[Change]:
        """What was stored, completed or deleted after a place, one change for each entry."""
        check_number("after", after)
        check_number("limit", limit)
        with self._database.read() as db:
            return feed.load_changes(db, after, limit)

    def arrived(self, key: AnyLog, after: int, among: Sequence[tuple[int, int]]) -> Arrived:
        """The payloads of a log that came after a place and are held, of ascending ranges of it."""
        key = self._log(key)
        with self._database.read() as db:
            row = load_log(db, key)
            if row is None:
                return Arrived((), feed.load_position(db))
            return feed.load_arrived(db, row, after, among)

    def read_changes(self, after: int, *, entries_max: int, bytes_max: int) -> list[StoredEntry]:
        """Like `changes`, the entries themselves, limited as by `read`."""
        check_number("after", after)
        with self._database.read() as db:
            return feed.read_changes(db, after, entries_max, bytes_max)

    def read_arrivals(
        self,
        after: int,
        key: AnyLog | None = None,
        *,
        has_payload: bool = True,
        since: int | None = None,
        entries_max: int,
        bytes_max: int,
    ) -> Arrivals:
        """Like `read_changes`, of one log alone, with payloads alone, or of a time on.

        `since`: received at that moment or later, in microseconds since 1970. The result says as
        well up to which place everything was looked at.
        """
        key = None if key is None else self._log(key)
        check_number("after", after)
        with self._database.read() as db:
            selection = self._selection(db, key, has_payload=has_payload, since=since)
            if selection is None:
                return Arrivals([], feed.load_position(db))
            found = feed.read_changes(db, after, entries_max, bytes_max, selection)
            # Nothing found is nothing there, up to where the feed ends for this reader.
            last = found[-1].ingest if found else max(after, feed.load_position(db))
            return Arrivals(found, last)

    def place_before(
        self,
        count: int | None,
        key: AnyLog | None = None,
        *,
        has_payload: bool = True,
        since: int | None = None,
    ) -> int:
        """The place in the feed behind which `read_arrivals` finds the last `count`, or all."""
        key = None if key is None else self._log(key)
        with self._database.read() as db:
            selection = self._selection(db, key, has_payload=has_payload, since=since)
            if selection is None:
                return 0
            return feed.place_before(db, selection, count)

    def _selection(
        self, db: "apsw.Connection", key: LogKey | None, *, has_payload: bool, since: int | None
    ) -> feed.Selection | None:
        """None: of a log of which nothing is held."""
        row = None if key is None else load_log(db, key)
        if key is not None and row is None:
            return None
        return feed.Selection(row, has_payload, since)

    def changed_logs(self, after: int) -> tuple[int, list[LogKey]]:
        """The position now, and the logs of which anything changed after an earlier one."""
        with self._database.read() as db:
            return feed.load_position(db), load_changed_logs(db, after)

    def changed_infos(self, after: int, also: Iterable[LogKey] = ()) -> tuple[int, list[LogInfo]]:
        """The same, and what is held of these logs, and of others if anything is."""
        with self._database.read() as db:
            infos = {row.key: row.info() for row in load_changed_rows(db, after)}
            for key in also:
                if key not in infos and (row := load_log(db, key)) is not None:
                    infos[key] = row.info()
            return feed.load_position(db), list(infos.values())

    def data_version(self) -> int:
        """A number that is another one once any process has committed something. Cheap to poll."""
        return self._database.data_version()

    def wishes_version(self) -> object:
        """Another value once what is followed or wanted may have been changed, by any process.

        That includes what has come by now, and own logs that are contested. It waits for whoever
        writes.
        """
        return self._database.wishes_version()

    @property
    def log_path(self) -> Path | None:
        """The file that every commit of any process writes to first, None where there is none.

        For who waits for its changes. Not to be opened: closing it would drop SQLite's locks.
        """
        return self._database.log_path

    # --- forks ----------------------------------------------------------------------------------

    def fork(self, key: AnyLog) -> ForkProof | None:
        """The log's earliest fork proof, None if it is not known to be forked."""
        key = self._log(key)
        with self._database.read() as db:
            row = load_log(db, key)
            return None if row is None else proofs.load_fork(db, row)

    def forks(self) -> Iterator[ForkProof]:
        """All fork proofs, in the order of author and log id."""
        after = None
        while True:
            with self._database.read() as db:
                found = proofs.load_forks(db, after, _PAGE_ROWS)
            yield from found
            if len(found) < _PAGE_ROWS:
                return
            after = found[-1].key

    # --- what a node remembers ------------------------------------------------------------------

    def follows(self) -> list[Follow]:
        """What is followed: `ALL` first, then authors and logs in order."""
        return list(self.subscriptions())

    def subscriptions(self) -> dict[Follow, Subscription]:
        """What is wanted of each of `follows`, in the same order; see `subscription_of`."""
        with self._database.read() as db:
            return following.load_subscriptions(db)

    def keeps(self) -> dict[Follow, KeepRule]:
        """The rules of what is kept: that of `ALL`, then authors' and logs' in order."""
        with self._database.read() as db:
            return load_rules(db)

    def forgotten(self) -> int:
        """How often logs were forgotten (`Store.forget`): another number once some were."""
        with self._database.read() as db:
            return load_forgotten(db)

    def pauses(self) -> dict[bytes | None, int | None]:
        """Until when which peers are paused, None: all; microseconds since 1970, None: no end.

        Those whose end has come may be among them (`is_in_force`).
        """
        with self._database.read() as db:
            return load_pauses(db)

    def ruled_by(self, key: AnyLog) -> keeping.Ruled | None:
        """The rule that counts for a log; None if all of it is kept."""
        key = self._log(key)
        with self._database.read() as db:
            return keeping.ruled_by(db, key, self.author)

    def plan_tidying(
        self, target: AnyTarget | None = None, rules: Mapping[Follow, KeepRule] | None = None
    ) -> list[keeping.Tidied]:
        """What `tidy` would delete now, in order. `rules`: if these were the rules."""
        target = None if target is None else self._target(target)
        with self._database.read() as db:
            return keeping.plan(db, self.author, self._system.now_us(), target, rules)

    def holding(self, key: AnyLog, first: int, last: int) -> Holding:
        """How much of a range that is wanted has come."""
        key = self._log(key)
        with self._database.read() as db:
            row = load_log(db, key)
            return Holding(0, 0, 0) if row is None else count_holding(db, row, first, last)

    def partial_payloads(self) -> dict[LogKey, list[int]]:
        """The entries of whose payloads a part is on disk, by log."""
        with self._database.read() as db:
            return reading.load_begun(db)

    def wants(self) -> dict[LogKey, list[tuple[int, int]]]:
        """What is asked for and not held yet: ranges, both ends included, by log."""
        with self._database.read() as db:
            return wants.load_wants(db)

    def recall(self, name: str) -> bytes | None:
        """The value kept under a name."""
        with self._database.read() as db:
            return upkeep.recall(db, name)

    def recall_all(self, prefix: str) -> dict[str, bytes]:
        """All values kept under names that begin with `prefix`."""
        with self._database.read() as db:
            return upkeep.recall_all(db, prefix)

    # --- own logs and others --------------------------------------------------------------------

    def shared(self) -> dict[LogKey, int]:
        """Up to which entry others have each own log, or may have it, as far as is known."""
        with self._database.read() as db:
            return sharing.load_all_shared(db, self.author)

    def contested(self) -> list[Contested]:
        """Own logs of which somebody else holds an entry that contradicts what was signed here."""
        with self._database.read() as db:
            return sharing.load_contested(db, self.author)

    # --- sizes ----------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """Sizes of the whole store."""
        path = self._database.path
        sizes = [0, 0]
        if path is not None:
            with translated(path):
                wal = path.with_name(path.name + "-wal")
                sizes = [self._system.file_size(each) or 0 for each in (path, wal)]
        with self._database.read() as db:
            return upkeep.load_statistics(db, *sizes)
