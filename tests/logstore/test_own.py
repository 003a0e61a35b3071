"""One's own logs: logstore/own.py, identity.py, keyfile.py."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore import (
    KeyFileExposed,
    KeyFileMissing,
    KeyFileWrong,
    LogClosed,
    LogState,
    NewEntry,
    OwnLogsReadOnly,
    PayloadHandle,
    Store,
    StoreDamaged,
    StoreExists,
    StoreFailed,
    StoreFull,
    read_key_file,
    write_key_file,
)
from logstore.meta import load_meta, set_meta
from logstore.rows import pack_u64
from logstore.witness import Noted
from tests.logstore.authors import AuthorLog, signing_key
from tests.logstore.disk import PowerCutError, SimDisk, SimFile
from tests.records import replace
from wire import LogKey, decode_entry, lipmaa, signature_is_valid, yamf_hash


def copy(store: Store, target: Path) -> Path:
    """What `cp -r` makes of a store that nobody has open."""
    assert store.path is not None
    store.close()
    shutil.copytree(store.path, target)
    return target


def test_appended_entries_are_a_valid_log(store: Store) -> None:
    first = store.append([b"one", b"", b"three"])
    second = store.append([b"%d" % n for n in range(60)])
    appended = first + second
    assert [each.seq for each in appended] == list(range(1, 64))
    hashes = {each.seq: each.hash for each in appended}
    entries = store.read(appended[0].key, 1, entries_max=100, bytes_max=1 << 20, with_payload=False)
    for stored in entries:
        entry = decode_entry(stored.encoded)
        assert signature_is_valid(stored.encoded)
        assert stored.hash == hashes[entry.seq] == yamf_hash(stored.encoded)
        assert entry.backlink == hashes.get(entry.seq - 1)
        assert entry.lipmaalink in (None, hashes.get(lipmaa(entry.seq)))
        assert entry.payload_bytes == len(stored.payload or b"")
    info = store.log(appended[0].key)
    assert info is not None
    assert (info.height, info.newest, info.newest_from) == (63, 63, "own")


def test_logs_of_one_author_are_apart(store: Store) -> None:
    store.append([b"a"])
    store.append([b"b"], log_id=2**64 - 1)
    store.append([b"c"], log_id=7)
    assert [info.key.log_id for info in store.logs(store.author)] == [0, 7, 2**64 - 1]
    assert [info.newest for info in store.logs()] == [1, 1, 1]
    assert list(store.logs(bytes(32))) == []


def test_nothing_of_several_payloads_is_appended_if_one_cannot_be_read(
    store: Store, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match="missing"):
        store.append([b"a", tmp_path / "missing"])
    assert list(store.logs()) == []
    with pytest.raises(ValueError, match="nothing to append"):
        store.append([])


def test_the_last_of_several_payloads_ends_the_log(store: Store) -> None:
    appended = store.append([b"a", b"b"], end_of_log=True)
    ends = [
        decode_entry(e.encoded).is_end
        for e in store.read(appended[0].key, 1, entries_max=9, bytes_max=999, with_payload=False)
    ]
    assert ends == [False, True]
    assert store.log(appended[0].key).state is LogState.ENDED  # type: ignore[union-attr]
    with pytest.raises(LogClosed, match="ended with entry 2"):
        store.append([b"c"])
    store.append([b"c"], log_id=1)


def test_a_forked_log_of_one_s_own_is_not_appended_to(store: Store) -> None:
    store.append([b"a", b"b"])
    elsewhere = AuthorLog(99)
    elsewhere.add_all([1, 2])
    store.note_shared({LogKey(store.author, 0): 2})
    store.put_entries(LogKey(store.author, 0), [elsewhere.entries[2]], source="peer")
    with pytest.raises(LogClosed, match="forked at entry 2"):
        store.append([b"c"])


@given(st.integers(1, 2**64 - 2), st.lists(st.booleans(), max_size=100))
def test_a_sparse_log_can_always_be_appended_to(tail: int, far: list[bool]) -> None:
    """Whatever path from the tail to entry 1 is held, the next entry's lipmaalink is on it."""
    path = [tail]
    choices = iter(far)
    while path[-1] > 1:
        path.append(lipmaa(path[-1]) if next(choices, True) else path[-1] - 1)
    assert lipmaa(tail + 1) in path


def test_a_sparse_log_goes_on_from_its_newest_entry(store: Store) -> None:
    elsewhere = AuthorLog(99)
    elsewhere.add_all(range(1, 40))
    sparse = [elsewhere.entries[seq] for seq in (1, 4, 13, 26, 39)]
    store.put_entries(elsewhere.key, sparse, source="peer")
    assert store.append([b"40", b"41"])[-1].seq == 41
    assert len(list(store.verify())) == 1


def test_a_damaged_tail_is_not_signed_upon(memory: Store) -> None:
    key = memory.append([b"a", b"b"])[0].key
    with memory._database.write() as transaction:
        transaction.db.execute("UPDATE entries SET hash = zeroblob(66) WHERE ingest = 2")
    with pytest.raises(StoreDamaged, match=f"{key}/2"):
        memory.append([b"c"])
    with memory._database.write() as transaction:
        transaction.db.execute("DELETE FROM entries WHERE ingest = 2")
    with pytest.raises(StoreDamaged, match="newest own entry"):
        memory.append([b"c"])


def test_a_tail_that_the_witness_knows_and_the_database_does_not_is_not_signed_upon(
    store: Store,
) -> None:
    store.append([b"a", b"b"])
    with store._database.write() as transaction:
        transaction.db.execute("UPDATE entries SET hash = zeroblob(66) WHERE ingest = 2")
    with pytest.raises(OwnLogsReadOnly, match="lacks the newest own entry"):
        store.append([b"c"])


def test_a_lost_link_target_is_not_signed_upon(store: Store) -> None:
    key = store.append([b"a", b"b", b"c"])[0].key
    with store._database.write() as transaction:
        transaction.db.execute("DELETE FROM entries WHERE ingest = 1")
    with pytest.raises(StoreDamaged, match=f"{key}/1"):
        store.append([b"d"])


def test_a_copied_store_is_read_only_for_own_logs_until_confirmed(
    store: Store, tmp_path: Path
) -> None:
    store.append([b"a"])
    with Store.open(copy(store, tmp_path / "copy")) as copied:
        reason = copied.own_logs_read_only
        assert reason is not None
        assert "copied or restored" in str(reason)
        with pytest.raises(OwnLogsReadOnly, match="then confirm"):
            copied.append([b"b"])
        log = AuthorLog()
        copied.put_entries(log.key, [log.add(1)], source="peer")
        copied.confirm_identity()
        assert copied.append([b"b"])[0].seq == 2
    with Store.open(tmp_path / "copy") as copied:
        assert copied.own_logs_read_only is None


def test_a_confirmation_by_one_process_counts_for_the_others(store: Store, tmp_path: Path) -> None:
    target = copy(store, tmp_path / "copy")
    with Store.open(target) as one, Store.open(target) as other:
        assert one.own_logs_read_only is not None
        other.confirm_identity()
        assert one.append([b"a"])[0].seq == 1


def test_a_moved_store_is_the_same_store(store: Store, tmp_path: Path) -> None:
    assert store.path is not None
    store.append([b"a"])
    store.close()
    store.path.rename(tmp_path / "moved")
    with Store.open(tmp_path / "moved") as moved:
        assert moved.own_logs_read_only is None


def test_an_older_database_put_back_in_place_is_noticed(store: Store) -> None:
    """Same folder, same inode, fewer entries than were signed: the witness says so."""
    assert store.path is not None
    path = store.path
    store.append([b"a"])
    store.close()
    old = (path / "store.sqlite3").read_bytes()
    with Store.open(path) as again:
        again.append([b"b"])
    (path / "store.sqlite3").write_bytes(old)
    with Store.open(path) as restored:
        with pytest.raises(OwnLogsReadOnly, match="knows 1 own entries of 2"):
            restored.append([b"c"])
        restored.confirm_identity()
        restored.append([b"c"])
    with Store.open(path) as restored:
        assert restored.own_logs_read_only is None


@pytest.mark.parametrize("content", [b"", bytes(300)])
def test_a_witness_that_was_made_and_not_written_stops_nobody(
    store: Store, state_folder: Path, content: bytes
) -> None:
    path = state_folder / "authors" / store.author.hex()
    path.parent.mkdir()
    path.write_bytes(content)
    assert store.append([b"b"])[0].seq == 1


def test_a_damaged_witness_stops_appending_until_it_is_confirmed(
    store: Store, state_folder: Path
) -> None:
    store.append([b"a"])
    (path,) = (state_folder / "authors").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    with pytest.raises(OwnLogsReadOnly, match="is damaged"):
        store.append([b"b"])
    store.confirm_identity()
    assert store.append([b"b"])[0].seq == 2


def test_of_two_stores_of_one_author_the_one_behind_is_refused(
    store: Store, tmp_path: Path
) -> None:
    store.append([b"a"])
    assert store.path is not None
    target = copy(store, tmp_path / "copy")
    with Store.open(target) as second, Store.open(store.path) as first:
        second.confirm_identity()
        with pytest.raises(OwnLogsReadOnly, match="another store"):
            first.append([b"b"])
        assert second.append([b"b"])[0].seq == 2
        with pytest.raises(OwnLogsReadOnly, match="has signed 2 entries"):
            first.append([b"c"])


def test_a_key_that_has_signed_here_is_told_so_where_it_is_imported(
    store: Store, tmp_path: Path
) -> None:
    store.append([b"a", b"b"])
    with Store.create(tmp_path / "second", signing_key=signing_key(99), imported=True) as second:
        assert "2 entries were signed on this machine" in str(second.own_logs_read_only)
        assert second.own_entries_lost == 2
    with Store.create(tmp_path / "third", signing_key=signing_key(99)) as third:
        assert "has signed 2 entries" in str(third.own_logs_read_only)


def test_a_store_of_an_earlier_version_goes_on_and_is_witnessed_from_then_on(
    store: Store, state_folder: Path
) -> None:
    """It remembers inodes only, counts beside its database, and has no lineage."""
    assert store.path is not None
    store.append([b"a", b"b"])
    with store._database.write() as transaction:
        place = load_meta(transaction.db)["identity"]
        set_meta(transaction.db, {"identity": place[:32], "lineage": None})
    store.close()
    shutil.rmtree(state_folder)
    count = store.path / "authored"
    count.write_bytes(pack_u64(3) + pack_u64(2**64 - 1 - 3))
    with (
        Store.open(store.path) as again,
        pytest.raises(OwnLogsReadOnly, match="knows 2 own entries of 3"),
    ):
        again.append([b"c"])
    count.write_bytes(pack_u64(2) + pack_u64(2**64 - 1 - 2))
    with Store.open(store.path) as again:
        assert again.append([b"c"])[0].seq == 3
        assert not count.exists()
    assert len(list((state_folder / "authors").iterdir())) == 1


def test_without_a_state_directory_appending_goes_on_and_says_so_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    assert store.path is not None
    store.close()
    (tmp_path / "file").touch()
    monkeypatch.setenv("BAMBOO_PEER_STATE", str(tmp_path / "file" / "state"))
    with Store.open(store.path) as again:
        again.append([b"a"])
        again.append([b"b"])
        assert again.witness_problem is not None
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "a restored copy of this store may go unnoticed"
    ]


def test_a_thousand_entries_cost_one_sync_of_the_witness(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = 0
    sync = PayloadHandle.sync

    def count(self: PayloadHandle) -> None:
        nonlocal syncs
        syncs += 1
        sync(self)

    monkeypatch.setattr(PayloadHandle, "sync", count)
    for _ in range(1000):
        store.append([b"a"])
    assert syncs == 1
    store.close()
    assert syncs == 2


def test_a_failed_sync_of_the_witness_signs_nothing_and_is_made_good(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: PayloadHandle) -> None:
        raise OSError(errno.EIO, "simulated")

    with monkeypatch.context() as patch:
        patch.setattr(PayloadHandle, "sync", fail)
        with pytest.raises(StoreFailed):
            store.append([b"a"])
    assert list(store.logs()) == []
    assert store.append([b"a"])[0].seq == 1


@pytest.mark.parametrize("put_back", [False, True])
def test_what_a_power_cut_left_is_taken_and_what_was_put_back_since_is_not(
    tmp_path: Path, put_back: bool
) -> None:
    disk = SimDisk(3)
    store = Store.create(tmp_path / "store", signing_key=signing_key(9), system=disk)
    store.append([b"a"])
    image = {name: file.seen[:] for name, file in disk.files.items() if "/state/" not in name}
    for _ in range(20):
        store.append([b"b"])
    disk.fault = lambda kind, number: (_ for _ in ()).throw(PowerCutError(errno.EIO, "no power"))
    store.close()
    disk.cut_power()
    # The worst that can have become of what was not synced.
    (witness,) = (file for name, file in disk.files.items() if name.startswith("/state/"))
    found = Noted.unpack(bytes(witness.seen))
    assert found is not None
    assert not found.is_exact
    data = replace(found, signed=0, newest=None).pack()
    witness.seen[:] = witness.platter[:] = data
    if put_back:
        for name, content in image.items():
            disk.files[name] = SimFile(bytearray(content), bytearray(content))
            disk.put_back.add(name)
    with Store.open(tmp_path / "store", system=disk) as again:
        if put_back:
            with pytest.raises(OwnLogsReadOnly, match="a later state of this one"):
                again.append([b"c"])
        else:
            assert again.append([b"c"])[0].seq == 22
            assert again.own_logs_read_only is None
    disk.unregister()


def test_another_machine_is_noticed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.path is not None
    store.close()
    monkeypatch.setattr("logstore.system.System.machine_id", lambda self: b"another")
    with Store.open(store.path) as elsewhere:
        assert "another machine" in str(elsewhere.own_logs_read_only)


def test_a_key_file_is_private_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_key_file(path, signing_key(1))
    assert path.stat().st_mode & 0o777 == 0o600
    assert bytes(read_key_file(path)) == bytes(signing_key(1))
    with pytest.raises(StoreExists):
        write_key_file(path, signing_key(2))
    assert bytes(read_key_file(path)) == bytes(signing_key(1))


def test_a_key_file_that_finds_no_room_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key"

    def full(fd: int) -> None:
        os.ftruncate(fd, 2)
        raise OSError(errno.ENOSPC, "simulated")

    with monkeypatch.context() as patch:
        patch.setattr("logstore.keyfile.os.fsync", full)
        with pytest.raises(StoreFull):
            write_key_file(path, signing_key(1))
    assert list(tmp_path.iterdir()) == []
    write_key_file(path, signing_key(1))


def test_a_missing_wrong_or_exposed_key_stops_appending_and_nothing_else(store: Store) -> None:
    assert store.path is not None
    store.append([b"a"])
    store.close()
    path = store.path / "author.key"
    content = path.read_text()

    def attempt() -> None:
        assert store.path is not None
        with Store.open(store.path) as again:
            assert len(list(again.logs())) == 1
            again.append([b"b"])

    path.chmod(0o644)
    with pytest.raises(KeyFileExposed, match="mode 0644"):
        attempt()
    path.chmod(0o600)
    for wrong in ("", "zz", content[:20], bytes(signing_key(5)).hex()):
        path.write_text(wrong)
        with pytest.raises(KeyFileWrong):
            attempt()
    path.unlink()
    with pytest.raises(KeyFileMissing):
        attempt()
    with Store.open(store.path) as again:
        assert any("key file is missing" in str(fault) for fault in again.verify())


def test_entries_that_a_peer_brings_back_are_appended_to(store: Store) -> None:
    """After a restore the newest entries come from a peer, and the next number follows them."""
    elsewhere = AuthorLog(99)
    entries = elsewhere.add_all(range(1, 6))
    store.append([b"payload 1"])
    back = [NewEntry(e.seq, e.encoded, e.hash, e.payload) for e in entries]
    assert store.put_entries(elsewhere.key, back, source="peer").stored == 4
    assert store.append([b"next"])[0].seq == 6


@pytest.mark.parametrize("payload", [b"abc", bytearray(b"abc"), "abc", Path("abc")])
def test_one_payload_that_is_not_in_a_list_is_refused(payload: object) -> None:
    with Store.memory() as store:
        with pytest.raises(TypeError, match=r"\[payload\]"):
            store.append(payload)  # type: ignore[arg-type]
        assert store.log(LogKey(store.author, 0)) is None


def test_text_is_no_payload() -> None:
    with Store.memory() as store:
        with pytest.raises(TypeError, match="encode text first"):
            store.append([b"one", "two"])  # type: ignore[list-item]
        assert store.log(LogKey(store.author, 0)) is None
