"""Rechecking a store: logstore/verify.py and verify_log.py."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from logstore import (
    Dropped,
    Fault,
    LogVerdict,
    NewEntry,
    NotAStore,
    Store,
    StoreDamaged,
    StoreError,
    StoreTooNew,
    Subscription,
)
from logstore.verify import Verifier
from tests.logstore.authors import AuthorLog, signing_key
from wire import lower_pool, signature_is_valid, yamf_hash

LARGE = bytes(range(256)) * 300


def faults(store: Store, *, collect: bool = False) -> list[str]:
    found = store.verify(collect=collect)
    return [str(each) for each in found if isinstance(each, Fault)]


def fill(store: Store) -> AuthorLog:
    """One of everything."""
    store.append([b"own %d" % n * 10 for n in range(30)])
    store.append([LARGE])
    log = AuthorLog()
    store.put_entries(log.key, log.add_all(range(1, 20)), source="peer")
    store.put_entries(log.key, [log.add(20, LARGE, held=False)], source="peer")
    forked = AuthorLog(2)
    store.put_entries(forked.key, forked.add_all(range(1, 5)), source="peer")
    store.put_entries(forked.key, [forked.make(3, b"other")], source="peer")
    store.drop(log.key, 2, 3)
    with store.payload_sink(log.key, 20, len(LARGE), yamf_hash(LARGE), source="peer") as sink:
        sink.write(LARGE[:70_000])
    partial = AuthorLog(3)
    partial.add_all(range(1, 41))
    path = [partial.entries[seq] for seq in lower_pool(40)]
    store.put_entries(partial.key, path, source="peer")
    store.follow(log.key, Subscription.parse("latest:7"))
    store.want(log.key, 1, 2)
    store.remember("name", b"value")
    return log


def test_a_store_with_one_of_everything_has_no_faults(store: Store) -> None:
    log = fill(store)
    found = list(store.verify())
    assert [type(each) for each in found] == [LogVerdict] * 4
    assert sum(each.entries for each in found if isinstance(each, LogVerdict)) == 31 + 20 + 4 + 4
    one = list(store.verify(log.key))
    assert len(one) == 1
    assert isinstance(one[0], LogVerdict)
    assert (one[0].info.key, one[0].entries, one[0].payloads) == (log.key, 20, 17)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE entries SET encoded = zeroblob(200) WHERE ingest = 5", "/5: the encoding is not"),
        ("UPDATE entries SET hash = zeroblob(66) WHERE ingest = 5", "/5: the hash is wrong"),
        ("UPDATE entries SET payload = x'00' WHERE ingest = 5", "/5: the payload is damaged"),
        ("UPDATE entries SET payload = NULL WHERE ingest = 5", "/5: the payload's row is damaged"),
        ("UPDATE entries SET received_at = 1 WHERE ingest = 5", "/5: the row's numbers"),
        ("UPDATE entries SET ingest = 900 WHERE ingest = 5", "/5: the row's numbers"),
        ("UPDATE entries SET ingest = 900 WHERE ingest = 5", ", below 900"),
        ("UPDATE entries SET payload_state = 2 WHERE ingest = 5", "/5: the payload's file is miss"),
        ("UPDATE entries SET log = 99 WHERE ingest = 5", "1 rows belong to nothing"),
        ("DELETE FROM entries WHERE ingest = 5", "says entries 31, counted: 30"),
        ("DELETE FROM entries WHERE ingest = 1", "there is no path to entry 1"),
        ("UPDATE logs SET height = zeroblob(8)", "says height 0, counted: 31"),
        ("UPDATE logs SET missing = 3", "says missing 3, counted: 0"),
        ("UPDATE logs SET bytes = 3", "says bytes 3, counted"),
        ("UPDATE logs SET encoded_bytes = 3", "says encoded_bytes 3, counted"),
        ("UPDATE logs SET payload_bytes = zeroblob(16)", "says payload_bytes 0, counted"),
        ("UPDATE logs SET newest_from = 'x'", "the log's row is damaged"),
        ("UPDATE logs SET servable = zeroblob(8)", "the log's row is damaged"),
        ("UPDATE logs SET fork_seq = NULL", "its fork proof differ"),
        ("DELETE FROM proofs", "its fork proof differ"),
        ("UPDATE proofs SET second = first", "the proof (fork) is damaged"),
        ("UPDATE files SET synced = 1 WHERE state = 1", "the file's row is damaged"),
        ("DELETE FROM files WHERE state = 3", "the payload's file has no row"),
        ("DELETE FROM files WHERE state = 3", "the payload file belongs to nothing"),
        ("UPDATE counters SET authored = 3", "a row of counters is damaged"),
        ("UPDATE memory SET value = x'00'", "a row of memory is damaged"),
        ("UPDATE follows SET log_id = x'00'", "a row of follows is damaged"),
        ("UPDATE meta SET value = x'00' WHERE name = 'store id'", "'store id' of meta is damaged"),
        ("DROP INDEX missing_by_size", "the tables are not those of a store"),
        ("UPDATE subscriptions SET policy = 'full'", "a row of subscriptions is damaged"),
        ("DELETE FROM follows", "1 rows belong to nothing"),
        ("UPDATE wants SET last = zeroblob(8)", "a row of wants is damaged"),
        ("DELETE FROM wants", "/2: what is said of its missing payload is wrong"),
        ("DELETE FROM runs", "the runs of held entries are not those counted"),
        ("UPDATE runs SET log = 99", "3 rows belong to nothing"),
        ("DELETE FROM missing WHERE NOT again", "/20: what is said of its missing payload"),
        ("UPDATE missing SET payload_bytes = seq", "/20: what is said of its missing payload"),
        ("UPDATE missing SET seq = zeroblob(8) WHERE again", "of entries that are not held"),
    ],
)
def test_what_is_changed_behind_the_store_s_back_is_named(
    store: Store, statement: str, expected: str
) -> None:
    fill(store)
    with store._database.write() as transaction:
        transaction.db.execute(statement)
    assert any(expected in fault for fault in faults(store)), faults(store)


def test_a_wrong_signature_is_named(store: Store) -> None:
    log = AuthorLog()
    entry = log.add(1)
    encoded = entry.encoded[:-1] + bytes((entry.encoded[-1] ^ 1,))
    store.put_entries(log.key, [NewEntry(1, encoded, yamf_hash(encoded), b"payload")], source="p")
    assert faults(store) == [f"{log.key}/1: the signature is wrong"]


def test_files_and_rows_that_disagree_are_named(store: Store) -> None:
    fill(store)
    assert store.path is not None
    root = store.path / "payloads"
    files = [path for path in root.rglob("*") if path.is_file()]
    stray = root / "ab" / ("ab" * 16)
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"?")
    assert faults(store) == [f"{stray}: the payload file belongs to nothing"]
    assert faults(store, collect=True) == [
        f"{stray}: a payload file that belongs to nothing was removed"
    ]
    assert faults(store) == []
    for path in files:
        path.write_bytes(b"")
    found = faults(store)
    assert any("/31: the payload is damaged" in fault for fault in found)
    assert any("has not its 70000 bytes" in fault for fault in found)
    for path in files:
        path.unlink()
    found = faults(store)
    assert any("/31: the payload's file is missing" in fault for fault in found)


def content_of(path: Path) -> list[object]:
    """Everything that a store can hand out, or the error instead."""
    found: list[object] = []
    with Store.open(path, readonly=True) as store:
        found.extend(store.logs())
        for info in list(store.logs()):
            found.append(store.runs(info.key, limit=1000))
            found.append(store.missing_payloads(info.key, limit=1000))
            found.append(store.shortfall(info.key, Subscription(max_bytes=100)))
            entries = store.read(
                info.key, 1, entries_max=1000, bytes_max=1 << 30, with_payload=False
            )
            found.extend(entries)
            for entry in entries:
                if entry.payload_state == "present":
                    with store.open_payload(info.key, entry.seq) as reader:
                        found.append(reader.read(0, 1 << 20))
        found.extend(store.forks())
        found.extend(store.subscriptions().items())
        found.append(store.wants())
        found.append(store.recall_all(""))
        found.append(store.changes(0, 1000))
        found.append(store.author)
    return found


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes((byte ^ 1 << bit % 8,)))


def reported(path: Path) -> bool:
    """Whether opening or verifying says that something is wrong."""
    try:
        with Store.open(path) as store:
            return bool(faults(store))
    except (NotAStore, StoreTooNew, StoreDamaged):
        return True


def flip_bits(store: Store, tmp_path: Path, count: int, choose: Callable[[Path], bool]) -> int:
    """Flips one bit at a time in a fresh copy; returns how many flips were reported."""
    fill(store)
    store.close()
    assert store.path is not None
    original = tmp_path / "original"
    shutil.copytree(store.path, original)
    expected = content_of(original)
    names = [p.relative_to(original) for p in sorted(original.rglob("*")) if p.is_file()]
    names = [name for name in names if choose(name) and (original / name).stat().st_size]
    rng = random.Random(7)
    caught = 0
    for number in range(count):
        victim = tmp_path / f"flip{number}"
        shutil.copytree(original, victim)
        name = rng.choice(names)
        flip(victim / name, rng.randrange((original / name).stat().st_size * 8))
        if reported(victim):
            caught += 1
        else:
            assert content_of(victim) == expected, f"a silent change in {name}"
        shutil.rmtree(victim)
    return caught


def test_a_flipped_bit_is_reported_or_changes_nothing(store: Store, tmp_path: Path) -> None:
    """What is not reported lies in bytes that mean nothing: free space, here more than half."""
    caught = flip_bits(store, tmp_path, 120, lambda name: name.name == "store.sqlite3")
    assert caught > 25


@pytest.mark.long
def test_thousands_of_flipped_bits_are_reported_or_change_nothing(
    store: Store, tmp_path: Path
) -> None:
    caught = flip_bits(store, tmp_path, 3000, lambda name: name.name == "store.sqlite3")
    assert caught > 600


def test_a_flipped_bit_of_a_payload_file_is_always_reported(store: Store, tmp_path: Path) -> None:
    used = {"attached": 0}

    def attached(name: Path) -> bool:
        # The partial payload's bytes are unverified by definition; its file is the shorter one.
        inside = name.parts[0] == "payloads"
        used["attached"] += inside
        path = tmp_path / "original" / name
        return inside and path.stat().st_size == len(LARGE)

    assert flip_bits(store, tmp_path, 15, attached) == 15
    assert used["attached"] == 2


def turn_index(path: Path, index: str) -> None:
    """Puts an index into the wrong order, which a flipped bit does to a part of it."""
    db = apsw.Connection(str(path / "store.sqlite3"))
    sql = db.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (index,)).get
    db.execute(f"DROP INDEX {index}")
    db.execute(sql.replace(")", " DESC)"))
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (sql, index))
    db.close()


def test_an_index_out_of_order_sends_nobody_round_in_circles(store: Store) -> None:
    key = store.append([b"x"] * 20)[0].key
    store.close()
    assert store.path is not None
    turn_index(store.path, "entries_by_seq")
    with Store.open(store.path) as again:
        found = faults(again)
        assert f"{key}: the index and the rows differ in order" in found
        assert any("database is damaged" in fault for fault in found)
        with pytest.raises(StoreDamaged, match="out of order"):
            again.read(key, 1, entries_max=9, bytes_max=9999, with_payload=False)


def test_logs_out_of_order_are_damage(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logstore.view._PAGE_ROWS", 7)
    for number in range(1, 8):
        log = AuthorLog(1, number)
        store.put_entries(log.key, [log.add(1), log.add(2)], source="p")
        store.put_entries(log.key, [log.make(2, b"fork")], source="p")
    store.close()
    assert store.path is not None
    turn_index(store.path, "logs_by_key")
    with Store.open(store.path) as again:
        for walk in (again.logs, again.forks):
            with pytest.raises(StoreDamaged, match="out of order"):
                list(walk())


def test_one_damaged_log_leaves_the_others_readable(store: Store) -> None:
    log = fill(store)
    own = next(info.key for info in store.logs(bytes(signing_key(99).verify_key)))
    with store._database.write() as transaction:
        transaction.db.execute("UPDATE entries SET encoded = zeroblob(9) WHERE ingest = 3")
    with pytest.raises(StoreDamaged, match=f"{own}/3"):
        store.read(own, 1, entries_max=100, bytes_max=1 << 20, with_payload=False)
    with pytest.raises(StoreDamaged, match=f"{own}/3"):
        store.hashes(own, [3])
    assert len(store.read(own, 4, entries_max=100, bytes_max=1 << 20, with_payload=False)) == 28
    assert len(store.read(log.key, 1, entries_max=100, bytes_max=1 << 20, with_payload=False)) == 20


@pytest.mark.parametrize("page", range(1, 12))
def test_a_zeroed_page_is_an_error_with_a_name(store: Store, page: int) -> None:
    fill(store)
    store.close()
    assert store.path is not None
    with (store.path / "store.sqlite3").open("r+b") as file:
        file.seek(page * 4096)
        file.write(bytes(4096))
    try:
        assert reported(store.path)
    except StoreError as error:
        assert "\n" not in str(error)  # noqa: PT017 (opening may or may not get that far)


def test_a_database_cut_short_is_an_error_with_a_name(store: Store) -> None:
    fill(store)
    store.close()
    assert store.path is not None
    path = store.path / "store.sqlite3"
    for pages in (10, 3, 1):
        with path.open("r+b") as file:
            file.truncate(pages * 4096)
        assert reported(store.path)


def test_a_plain_connection_finds_the_database_sound(store: Store) -> None:
    fill(store)
    store.close()
    assert store.path is not None
    db = apsw.Connection(str(store.path / "store.sqlite3"))
    assert db.execute("PRAGMA integrity_check").get == "ok"
    db.close()


def test_a_log_that_grows_during_every_attempt_is_found_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.create(tmp_path / "s").close()
    with Store.open(tmp_path / "s") as writer, Store.open(tmp_path / "s", readonly=True) as store:
        writer.append([b"x"] * 300)
        checked = 0

        def grows(encoded: bytes) -> bool:
            nonlocal checked
            checked += 1
            if checked % 100 == 0:
                writer.append([b"more"])
            return signature_is_valid(encoded)

        monkeypatch.setattr("logstore.verify_log.signature_is_valid", grows)
        assert faults(store) == []
        assert checked > 600


def test_a_payload_that_is_dropped_during_the_check_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.create(tmp_path / "s").close()
    with Store.open(tmp_path / "s") as writer, Store.open(tmp_path / "s", readonly=True) as store:
        key = writer.append([b"x", LARGE, LARGE])[0].key
        dropped = [2, 3]

        def drops(encoded: bytes) -> bool:
            if dropped:
                writer.append([b"more"])
                writer.drop(key, dropped[0], dropped.pop(0))
                list(writer.verify(collect=True))
            return signature_is_valid(encoded)

        monkeypatch.setattr("logstore.verify_log.signature_is_valid", drops)
        assert faults(store) == []


def test_a_payload_that_is_given_up_during_the_check_is_no_fault(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuthorLog()
    store.put_entries(log.key, [log.add(1, LARGE, held=False)], source="peer")
    with store.payload_sink(log.key, 1, len(LARGE), yamf_hash(LARGE), source="a") as sink:
        sink.write(LARGE[:100])
    reaches = Verifier._reaches
    given_up: list[Dropped] = []

    def drops(self: Verifier, id_: bytes, synced: int) -> bool:
        if not given_up:
            given_up.append(store.drop(log.key))
        return reaches(self, id_, synced)

    monkeypatch.setattr(Verifier, "_reaches", drops)
    assert faults(store) == []
    assert given_up == [Dropped(1, 100, 100)]


def test_a_stray_file_stays_while_a_backup_is_made(store: Store) -> None:
    assert store.path is not None
    stray = store.path / "payloads/ab" / ("ab" * 16)
    stray.parent.mkdir()
    stray.touch()
    with store._files.kept():
        assert "belongs to nothing" in str(next(iter(store.verify(collect=True))))
        assert stray.exists()
    assert "was removed" in str(next(iter(store.verify(collect=True))))
    assert not stray.exists()
