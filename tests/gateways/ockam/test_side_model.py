"""The side table says what the logs say, whatever happens to them and to its file meanwhile."""

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import apsw
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateways import SideTable
from gateways.ockam import Side, side
from gateways.ockam.declared import LEDGER_DECLARATION, address_of, declare_stream
from gateways.ockam.ledger import Place, Position, Record, Subject, Trim, encode_records
from logstore import Store
from tests.logstore.authors import AuthorLog, signing_key
from wire import U64_MAX, LogKey

OWN, FRIEND = 1, 2
IDS = range(1, 3)
NAMES = ("bills", "orders")
PARTITION = 3

authors = st.sampled_from([OWN, FRIEND])
ids = st.sampled_from(IDS)
places = st.sampled_from([0, 1, 7, U64_MAX])

# Few of them, so that one is saved again and again.
positions = st.builds(
    Position,
    author=authors.map(lambda number: bytes(signing_key(number).verify_key)),
    name=st.just("orders"),
    partition=st.just(PARTITION),
    client=st.sampled_from(["web", "app"]),
    epoch=st.integers(0, 2),
    index=places,
)
records = st.one_of(positions, st.builds(Trim, ids, places))
# What a log says first, and what behind it: most that happens is about ledgers.
declarations = st.sampled_from(
    [
        *(LEDGER_DECLARATION,) * 3,
        *(declare_stream("orders", PARTITION),) * 2,
        declare_stream("bills", PARTITION),
        b"tea",
    ]
)
payloads = st.one_of(st.lists(records, min_size=1, max_size=5), st.just(b"tea"))
entries = st.tuples(st.just("entry"), authors, ids, declarations, payloads, st.booleans())
happenings = st.sampled_from(
    [
        *(entries,) * 7,
        st.tuples(st.just("payload")),
        *(st.tuples(st.just("refresh")),) * 2,
        st.tuples(st.sampled_from(["deleted", "damaged", "ahead", "another author's"])),
    ]
).flatmap(lambda each: each)


@dataclass
class Said:
    """What a log says, as far as it is held."""

    declared: bytes | None = None
    records: list[Record] = field(default_factory=list)
    bytes: int = 0
    """Of payloads behind entry 1."""


class World:
    """A store with logs of two authors, the side table, and what is to be in it."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.path = folder / side.FILE_NAME
        self.said: dict[LogKey, Said] = defaultdict(Said)
        self.logs = {id_: AuthorLog(FRIEND, id_) for id_ in IDS}
        self.late: list[tuple[LogKey, int, bytes | list[Record]]] = []
        self.side = self.opened()

    def opened(self) -> Side:
        found = Side(self.store)
        # Beside the store in memory, which has no folder to keep it in.
        found._table.close()
        statements = (*found._met.statements, *side._STATEMENTS)
        found._table = SideTable(self.path, side.VERSION, statements)
        return found

    def entry(
        self, number: int, id_: int, first: bytes, then: bytes | list[Record], *, held: bool
    ) -> None:
        """An entry is written or comes, its payload later if it is somebody else's and not held."""
        author = self.store.author if number == OWN else self.logs[id_].key.author
        info = self.store.log(LogKey(author, id_))
        payload = first if info is None else then
        content = payload if isinstance(payload, bytes) else encode_records(payload)
        if number == OWN:
            seq = self.store.append([content], log_id=id_)[0].seq
            self.hear(LogKey(self.store.author, id_), seq, payload)
            return
        log = self.logs[id_]
        seq = len(log.entries) + 1
        self.store.put_entries(log.key, [log.add(seq, content, held=held)], source="a friend")
        if held:
            self.hear(log.key, seq, payload)
        else:
            self.late.append((log.key, seq, payload))

    def payload(self) -> None:
        """The payload of the newest entry that lacks one comes."""
        if self.late:
            key, seq, payload = self.late.pop()
            content = payload if isinstance(payload, bytes) else encode_records(payload)
            self.store.complete_payload(key, seq, content)
            self.hear(key, seq, payload)

    def hear(self, key: LogKey, seq: int, payload: bytes | list[Record]) -> None:
        said = self.said[key]
        content = payload if isinstance(payload, bytes) else encode_records(payload)
        if seq == 1:
            said.declared = content
            return
        said.bytes += len(content)
        if not isinstance(payload, bytes):
            said.records += payload

    def spoil(self, how: str) -> None:
        """The table's file is another one than was written, while no process has it open."""
        self.side.close()
        if not self.path.exists():
            how = "deleted"
        match how:
            case "deleted":
                for each in self.path.parent.glob(f"{side.FILE_NAME}*"):
                    each.unlink()
            case "damaged":
                data = bytearray(self.path.read_bytes())
                data[20:4000] = b"\xff" * len(data[20:4000])
                self.path.write_bytes(data)
            case _:
                change = "ingest = ingest + 1000" if how == "ahead" else "store = zeroblob(32)"
                # One that is damaged stays so.
                with suppress(apsw.Error), closing(apsw.Connection(str(self.path))) as db:
                    db.execute(f"UPDATE applied SET {change}")
                    db.execute("DELETE FROM logs; DELETE FROM positions; DELETE FROM trims")
        self.side = self.opened()

    # What is to be ------------------------------------------------------------------------------

    def ledger(self, author: bytes) -> LogKey | None:
        """The one that counts."""
        found = [
            key.log_id
            for key, said in self.said.items()
            if key.author == author and said.declared == LEDGER_DECLARATION
        ]
        return LogKey(author, min(found)) if found else None

    def streams(self, author: bytes) -> Iterator[tuple[str, int, LogKey]]:
        """Those that count, by name and partition."""
        for name in NAMES:
            declared = declare_stream(name, PARTITION)
            found = [
                key.log_id
                for key, said in self.said.items()
                if key.author == author and said.declared == declared
            ]
            if found:
                yield name, PARTITION, LogKey(author, min(found))

    def places(self, saved_by: bytes) -> dict[Subject, Place]:
        """The positions that an author's ledger says."""
        merged: dict[Subject, Place] = {}
        ledger = self.ledger(saved_by)
        for each in self.said[ledger].records if ledger else ():
            if isinstance(each, Position):
                known = merged.get(each.subject, each.place)
                merged[each.subject] = max(known, each.place)
        return merged

    def earliest(self, key: LogKey) -> int:
        ledger = self.ledger(key.author)
        said = self.said[ledger].records if ledger else ()
        return max(
            (each.earliest for each in said if isinstance(each, Trim) and each.log == key.log_id),
            default=0,
        )

    def check(self) -> None:
        self.side.refresh()
        both = self.store.author, self.logs[1].key.author
        for author in both:
            self.check_streams(author)
            self.check_ledger(author)
            mine, theirs = (self.places(each) for each in both)
            for counted, places in (
                (both[:1], [mine]),
                (both[1:], [theirs]),
                (both, [mine, theirs]),
            ):
                merged: dict[Subject, Place] = {}
                for each in places:
                    for subject, place in each.items():
                        if subject.author == author:
                            merged[subject] = max(merged.get(subject, place), place)
                found = self.side.positions(author, counted)
                assert {each.subject: each.place for each in found} == merged
                for subject, place in merged.items():
                    saved = self.side.position(subject, counted)
                    assert saved is not None
                    assert saved.place == place

    def check_streams(self, author: bytes) -> None:
        wanted = list(self.streams(author))
        found = self.side.streams(author)
        assert [(each.name, each.partition, each.key) for each in found] == wanted
        for each in found:
            entry = self.store.entry(each.key, 1)
            assert entry is not None
            assert each.address == address_of(entry.hash)
            assert self.side.stream(author, each.name, each.partition) == each
            assert self.side.by_address(each.address, [author]) == each
        for name in NAMES:
            assert self.side.has_name(author, name) == (name in {each.name for each in found})

    def check_ledger(self, author: bytes) -> None:
        key = self.ledger(author)
        state = self.side.ledger(author)
        assert (state.key if state else None) == key
        if state is not None:
            assert state.bytes == self.said[state.key].bytes
        assert self.side.count_positions(author) == len(self.places(author))
        for id_ in IDS:
            assert self.side.earliest(LogKey(author, id_)) == self.earliest(LogKey(author, id_))
        met = {
            key.log_id for key, said in self.said.items() if key.author == author and said.declared
        }
        assert self.side.highest_log(author, 1, 2) == max(met, default=None)
        assert self.side.first_unmet(author, 1, 3) == min(set(IDS) - met, default=None)


SAVED = [
    Position(bytes(signing_key(OWN).verify_key), "orders", PARTITION, "web", 0, index)
    for index in (3, 5)
]
LATE: list[tuple[object, ...]] = [
    ("entry", FRIEND, 1, LEDGER_DECLARATION, b"", True),
    ("entry", FRIEND, 1, LEDGER_DECLARATION, SAVED[1:], False),
    ("entry", FRIEND, 1, LEDGER_DECLARATION, SAVED[:1], True),
    ("refresh",),
    ("payload",),
    ("refresh",),
]
"""The payload of a ledger's entry comes behind those of later ones that were applied."""


@settings(max_examples=50)
@given(history=st.lists(happenings, min_size=20, max_size=40))
@example(history=LATE)
def test_the_table_says_what_the_logs_say(history: list[tuple[object, ...]]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.memory(signing_key=signing_key(OWN)) as store,
    ):
        world = World(store, Path(folder))
        for happening in history:
            match happening:
                case ("entry", number, id_, first, then, held):
                    world.entry(number, id_, first, then, held=held)  # type: ignore[arg-type]
                case ("payload",):
                    world.payload()
                case ("refresh",):
                    world.check()
                case (how, *_):
                    world.spoil(str(how))
                case _:
                    raise AssertionError(happening)
        world.check()
        world.side.close()
