"""What a gateway has met of a store: each log once, what is new once, nothing that was undone."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from gateways import DeclaredRow, Met, MetLog, SideTable
from gateways.declaration import DeclarationError, canonical_json, read_declaration
from logstore import Seldom, Store, StoredEntry, StoreFull
from tests.logstore.authors import AuthorLog

from .failing import damage, fill_disk_once

KIND = 7


def declaration(name: str) -> bytes:
    return canonical_json({"name": name, "stream": "toy", "version": 1})


class Toy:
    """A system whose logs have names, and which takes down all that it is given."""

    def __init__(self, store: Store, path: Path | None = None, *, takes: bool = True) -> None:
        self.met = Met(
            store,
            Seldom(),
            ("name TEXT",),
            declare=self.declare,
            news=self.news,
            forgotten=lambda db: db.execute("DELETE FROM lines"),
        )
        statements = (*self.met.statements, "CREATE TABLE lines(log INTEGER, seq INTEGER)")
        self.table = SideTable(path, 1, statements)
        self.takes = takes
        self.given: list[tuple[str, list[int], list[int]]] = []

    def declare(self, entry: StoredEntry) -> DeclaredRow | None:
        assert entry.seq == 1
        try:
            fields = read_declaration(entry.payload or b"", stream="toy", version=1)
        except DeclarationError:
            return None
        return KIND, str(fields["name"])

    def news(
        self,
        db: apsw.Connection,
        of: MetLog,
        late: Iterator[StoredEntry],
        fresh: Iterator[StoredEntry],
    ) -> bool:
        assert of.kind == KIND
        name = db.execute("SELECT name FROM logs WHERE id = ?", (of.id,)).get
        if not self.takes:
            self.given.append((name, [], []))
            return False
        seqs = [each.seq for each in late], [each.seq for each in fresh]
        db.executemany("INSERT INTO lines VALUES (?, ?)", [(of.id, seq) for s in seqs for seq in s])
        self.given.append((name, *seqs))
        return True

    def bring_on(self) -> list[tuple[str, list[int], list[int]]]:
        """What was given out now."""
        self.given = []
        self.met.bring_on(self.table)
        return self.given


def test_what_declares_nothing_is_met_once_and_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.memory() as store:
        store.append([b"of somebody else"], log_id=1)
        store.append([declaration("ours"), b"a"], log_id=2)
        toy = Toy(store)
        assert toy.bring_on() == [("ours", [], [2])]
        declared: list[int] = []
        monkeypatch.setattr(toy.met, "_declare", lambda entry: declared.append(entry.seq))
        store.append([b"more"], log_id=1)
        store.append([b"b"], log_id=2)
        assert toy.bring_on() == [("ours", [], [3])]
        assert not declared
        assert toy.bring_on() == []


def test_what_is_late_is_found_by_one_walk_for_all_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [AuthorLog(number) for number in (1, 2, 3)]
    with Store.memory() as store:
        for at, log in enumerate(logs):
            payloads = [declaration(str(at)), b"a", b"b", b"c"]
            entries = [
                log.add(seq, payload, held=seq in (1, 4)) for seq, payload in enumerate(payloads, 1)
            ]
            store.put_entries(log.key, entries, source="a friend")
        toy = Toy(store)
        assert sorted(toy.bring_on()) == [(str(at), [], [4]) for at in range(3)]
        walks = []
        changes = store.changes

        def walked(after: int, limit: int) -> object:
            walks.append(after)
            return changes(after, limit)

        monkeypatch.setattr(store, "changes", walked)
        for log in logs[:2]:
            store.complete_payload(log.key, 3, b"b")
        store.complete_payload(logs[1].key, 2, b"a")
        assert sorted(toy.bring_on()) == [("0", [3], []), ("1", [3, 2], [])]
        # Whether the newest one noted is still at its place, a page, the empty one behind it, and
        # the newest change that is noted then.
        assert len(walks) == 4


def test_what_is_rolled_back_or_left_is_given_out_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with Store.memory() as store:
        toy = Toy(store, tmp_path / "toy.sqlite3")
        store.append([declaration("ours"), b"a"], log_id=2)
        assert toy.bring_on() == [("ours", [], [2])]
        store.append([declaration("new")], log_id=3)
        fill_disk_once(monkeypatch)
        with pytest.raises(StoreFull):
            toy.bring_on()
        assert toy.bring_on() == [("new", [], [])]
        store.append([b"b"], log_id=2)
        fill_disk_once(monkeypatch)
        with pytest.raises(StoreFull):
            toy.bring_on()
        assert toy.bring_on() == [("ours", [], [3])]
        toy.takes = False
        store.append([b"c"], log_id=2)
        assert toy.bring_on() == [("ours", [], [])]
        toy.takes = True
        store.append([b"d"], log_id=2)
        assert toy.bring_on() == [("ours", [], [4, 5])]
        toy.table.close()


def test_a_log_is_given_out_to_its_end_however_its_pages_end() -> None:
    """By their entries, of which one more is there or none, or by their bytes."""
    for sizes in ([1] * 255, [1] * 256, [1] * 257, [60_000] * 150, [1, 65_536] * 40):
        with Store.memory() as store:
            payloads = [bytes(size) for size in sizes]
            store.append([declaration("ours"), *payloads], log_id=2)
            assert Toy(store).bring_on() == [("ours", [], [*range(2, len(sizes) + 2)])]


def test_damage_is_a_gap_until_it_has_come_anew() -> None:
    with Store.memory() as store:
        toy = Toy(store)
        key = store.append([declaration("ours"), b"a", b"b", b"c"], log_id=2)[0].key
        damage(store, key, 3)
        assert toy.bring_on() == [("ours", [], [2, 4])]
        store.drop(key, 3, 3)
        store.want(key, 3, 3)
        assert toy.bring_on() == [("ours", [], [])]
        store.complete_payload(key, 3, b"b")
        assert toy.bring_on() == [("ours", [3], [])]


def test_a_table_beside_another_store_forgets_all(tmp_path: Path) -> None:
    path = tmp_path / "toy.sqlite3"
    with Store.memory() as one:
        one.append([declaration("one"), b"a", b"b"], log_id=2)
        toy = Toy(one, path)
        assert toy.bring_on() == [("one", [], [2, 3])]
        toy.table.close()
    with Store.memory() as other:
        other.append([declaration("other"), b"x", b"y", b"z"], log_id=2)
        toy = Toy(other, path)
        assert toy.bring_on() == [("other", [], [2, 3, 4])]
        assert toy.table.look(lambda db: db.execute("SELECT count(*) FROM lines").get) == 3
        assert toy.table.look(lambda db: db.execute("SELECT count(*) FROM logs").get) == 1
        toy.table.close()
