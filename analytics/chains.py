"""What needs other rows than one: links, gaps, forks and ends of logs that are cut into pieces.

Theory. Rows come in pieces: each is some of the rows, checked by one worker that sees no other. How
they are cut is Spark's choice, and an entry may be in several pieces: two nodes export it, or its
payload came later. So a piece decides nothing that another piece could decide otherwise, and what
it does not decide it tells, in records whose place `at` is a number of the log. All records of a
log come together, in the order of these places, and are judged in one pass.

A link of a row is right if, anywhere among the sound rows, there is an entry of the named number
with the named hash. One witness is enough and no further row can refute it, so a piece that has the
witness says nothing of the link: it is settled for every cutting. For all other links the piece
makes a claim, placed at the number that is *named*; and each piece tells of every entry that it
holds, settled or not, placed at its own number. This is how both sides of a cut are checked: the
claim comes from above, the entry from below, and they meet at the number wherever the cut was. A
claim finds no entry (not a fault: that part of the log is not here), one with its hash (right), or
only others (a fault). A link is therefore either settled by a witness or a claim, never neither.

Gaps, forks and ends follow from what is held: which numbers there are (of unsound rows too),
whether one has two hashes, and the lowest that ends the log. No piece judges these. Since records
come in the order of places, a number has been told of by all pieces once a record with a higher
place comes; only then it is judged, and forgotten.

Costs. Entries of consecutive numbers are told of in one record (a run), 64 bytes of hash and 8 of
arrival each, so Spark moves and sorts one record for 256 rows. A run of 256 also bounds what the
pass keeps: numbers from the present place to 256 above it. A piece keeps the entries that a later
one can still name. Links of Bamboo do not cross: below entry n and above lipmaa(n) nothing is named
by what comes after n. So these are a stack of which each entry takes off what it spans; a few dozen
entries in a log of millions. Rows in another order make a piece settle less, and tell more, that is
all.

Alternatives not taken. A window of Spark over the whole log sorts every row with its hashes, and
needs joins for lipmaalinks. Cutting by number and judging where runs overlap only, by comparing
their last hash, is faster yet; but what is right then hangs on the pieces' own verdicts below that
number, and duplicates would need a second way.
"""

from array import array
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

from wire import lipmaa

BACKLINK: Final = "backlink"
LIPMAALINK: Final = "lipmaalink"
FORK: Final = "fork"
GAP: Final = "gap"
AFTER_END: Final = "after_end"
ROWS: Final = "rows"
"""The kind of a fault that is none of a log's: its `seq` is how many rows were checked."""
FILE: Final = "file"
"""The kind of a fault that is none of a log's: a file of an export is another than was written."""

RUN_ENTRIES_MAX: Final = 256
HASH_BYTES: Final = 64
# Only numbers that stand in no order of a log's can make the stack as long.
_NAMEABLE_MAX: Final = 1024

# What a record tells. Of one place they come in this order: a claim after all entries.
HELD: Final = 0
UNSOUND: Final = 1
CLAIM: Final = 2
KNOWN: Final = 3
FOUND: Final = 4

RECORDS_DDL: Final = (
    "author STRING, log_id DECIMAL(20,0), at BIGINT, tag TINYINT, seq BIGINT, kind STRING, "
    "detail STRING, node STRING, ingest_seq BIGINT, hashes BINARY, ingests BINARY, is_end BOOLEAN"
)
FAULTS_DDL: Final = (
    "author STRING, log_id DECIMAL(20,0), seq BIGINT, kind STRING, detail STRING, "
    "node STRING, ingest_seq BIGINT"
)


class Record(NamedTuple):
    """A record: what a piece tells of a log, at a place in it."""

    author: str | None
    log_id: object
    """A Decimal, compared only."""
    at: int
    tag: int
    """HELD: the entries `at`, `at` + 1, ... are there. UNSOUND: `at` is, but not to be relied on.
    CLAIM: entry `seq` names `hashes` as entry `at`. KNOWN: a node knows of a fork at `at`. FOUND: a
    fault that needs no judging.
    """
    seq: int | None = None
    kind: str | None = None
    detail: str | None = None
    node: str | None = None
    ingest_seq: int | None = None
    hashes: bytes | None = None
    ingests: bytes | None = None
    """Of HELD: 8 bytes for each entry, in the machine's order."""
    is_end: bool | None = None
    """Of HELD: whether the log ends with the last of the entries."""


class Fault(NamedTuple):
    """A row of FAULTS_DDL."""

    author: str | None
    log_id: object
    seq: int | None
    kind: str | None
    detail: str | None
    node: str | None
    ingest_seq: int | None


class SoundRow(NamedTuple):
    """A row that is right by itself, as far as others need it."""

    author: str
    log_id: object
    seq: int
    is_end: bool
    entry_hash: bytes
    backlink: bytes | None
    lipmaalink: bytes | None
    node: str
    ingest_seq: int


class Piece:
    """One piece of the rows: settles what it can, and tells the rest."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        """What it tells, since it was last emptied by whoever takes it."""
        self._log: tuple[str, object] = ("", None)
        # (number, hash) of entries that a later one can name, the newest last.
        self._nameable: list[tuple[int, bytes]] = []
        self._node = ""
        self._first = 0
        self._next = 0
        self._hashes = bytearray()
        self._ingests = array("q")

    def add(self, row: SoundRow) -> None:
        """Takes a row in."""
        author, log_id, seq, is_end, entry_hash, backlink, lipmaalink, node, ingest_seq = row
        if (author, log_id) != self._log:
            self.end_run()
            self._log = (author, log_id)
            self._nameable.clear()
        nameable = self._nameable
        if backlink is not None and (not nameable or nameable[-1] != (seq - 1, backlink)):
            self._claim(row, seq - 1, BACKLINK, backlink)
        if lipmaalink is not None:
            target = lipmaa(seq)
            while nameable and nameable[-1][0] > target:
                nameable.pop()
            if not nameable or nameable[-1] != (target, lipmaalink):
                self._claim(row, target, LIPMAALINK, lipmaalink)
        nameable.append((seq, entry_hash))
        if len(nameable) > _NAMEABLE_MAX:
            del nameable[: _NAMEABLE_MAX // 2]
        if seq != self._next or node != self._node or len(self._ingests) == RUN_ENTRIES_MAX:
            self.end_run()
            self._first, self._node = seq, node
        self._next = seq + 1
        self._hashes += entry_hash
        self._ingests.append(ingest_seq)
        if is_end:
            self.end_run(is_end=True)

    def add_unsound(self, author: str, log_id: object, seq: int) -> None:
        """Takes in that there is a row of a number, at least 1, which nothing may rely on."""
        self.records.append(Record(author, log_id, seq, UNSOUND))

    def end_run(self, *, is_end: bool = False) -> None:
        """Tells of the entries since the last run, if there are any. Last of all, too."""
        if self._ingests:
            hashes, ingests = bytes(self._hashes), self._ingests.tobytes()
            run = Record(*self._log, self._first, HELD, node=self._node, hashes=hashes)
            self.records.append(run._replace(ingests=ingests, is_end=is_end))
            self._hashes.clear()
            del self._ingests[:]
        self._next = 0

    def _claim(self, row: SoundRow, target: int, kind: str, link: bytes) -> None:
        place = (row.author, row.log_id, target, CLAIM, row.seq, kind, None)
        self.records.append(Record(*place, row.node, row.ingest_seq, link))


def judge(records: Iterable[Record]) -> Iterator[Fault]:
    """The faults, from what pieces told: each log's records together, by `at` and then `tag`."""
    log: _Log | None = None
    for each in records:
        if each.tag == FOUND:
            yield Fault(
                each.author,
                each.log_id,
                each.seq,
                each.kind,
                each.detail,
                each.node,
                each.ingest_seq,
            )
            continue
        if log is None or log.key != (each.author, each.log_id):
            if log is not None:
                yield from log.settle(None)
            log = _Log(each.author, each.log_id)
        yield from log.take(each)
    if log is not None:
        yield from log.settle(None)


# Which row shows a fault: of several the first to arrive, so that it is the same for all cuttings.
_Shown = tuple[int, str]


class _Log:
    """One log: what is told of numbers that are not judged yet."""

    def __init__(self, author: str | None, log_id: object) -> None:
        self.key = (author, log_id)
        self._at = 0
        self._last_held = 0
        self._end: int | None = None
        self._numbers: dict[int, dict[bytes, _Shown]] = {}
        # The keys of `_numbers`, lowest first.
        self._waiting: list[int] = []
        self._wrong: dict[tuple[str, int], _Shown] = {}

    def take(self, record: Record) -> Iterator[Fault]:
        """Takes a record in, and judges what lies below it."""
        assert record.at >= self._at, "records are not in order"
        if record.at > self._at:
            yield from self.settle(record.at)
            self._at = record.at
        if record.tag == HELD:
            self._hold(record)
        elif record.tag == UNSOUND:
            self._number(record.at)
        elif record.tag == CLAIM:
            self._weigh(record)
        elif len(self._numbers.get(record.at, ())) < 2:
            # Else the rows show it by themselves.
            yield Fault(*self.key, record.seq, FORK, record.detail, record.node, None)

    def settle(self, until: int | None) -> Iterator[Fault]:
        """Judges the numbers below `until`, None for all, and the claims so far."""
        for (kind, seq), (ingest_seq, node) in self._wrong.items():
            detail = f"it names another entry {self._at} than there is"
            yield Fault(*self.key, seq, kind, detail, node, ingest_seq)
        self._wrong.clear()
        while self._waiting and (until is None or self._waiting[0] < until):
            seq = heappop(self._waiting)
            held = self._numbers.pop(seq)
            if seq > self._last_held + 1:
                detail = f"entries {self._last_held + 1} to {seq - 1} are not here"
                yield Fault(*self.key, self._last_held + 1, GAP, detail, None, None)
            self._last_held = seq
            if len(held) > 1:
                ingest_seq, node = min(held[each] for each in sorted(held)[1:])
                detail = "there are two entries of this number"
                yield Fault(*self.key, seq, FORK, detail, node, ingest_seq)
            if self._end is not None and seq > self._end:
                detail = f"the log ended with entry {self._end}"
                for ingest_seq, node in held.values():
                    yield Fault(*self.key, seq, AFTER_END, detail, node, ingest_seq)

    def _number(self, seq: int) -> dict[bytes, _Shown]:
        held = self._numbers.get(seq)
        if held is None:
            held = self._numbers[seq] = {}
            heappush(self._waiting, seq)
        return held

    def _hold(self, record: Record) -> None:
        assert record.hashes is not None
        assert record.ingests is not None
        node = record.node or ""
        hashes, seq = record.hashes, record.at
        for at, ingest_seq in enumerate(array("q", record.ingests)):
            held = self._number(seq + at)
            entry_hash = hashes[at * HASH_BYTES : (at + 1) * HASH_BYTES]
            shown = (ingest_seq, node)
            if entry_hash not in held or shown < held[entry_hash]:
                held[entry_hash] = shown
        last = seq + len(hashes) // HASH_BYTES - 1
        if record.is_end and (self._end is None or last < self._end):
            self._end = last

    def _weigh(self, record: Record) -> None:
        held = self._numbers.get(record.at)
        if not held or record.hashes in held:
            return
        assert record.kind is not None
        assert record.seq is not None
        assert record.ingest_seq is not None
        key, shown = (record.kind, record.seq), (record.ingest_seq, record.node or "")
        self._wrong[key] = min(shown, self._wrong.get(key, shown))
