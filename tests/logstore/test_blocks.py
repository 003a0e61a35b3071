"""The sums of a file's blocks, and what its readers see of a damaged one: logstore/blocks.py."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64

from logstore import (
    Completion,
    LogVerdict,
    NewEntry,
    PayloadHandle,
    PayloadReader,
    Store,
    StoreDamaged,
)
from logstore.blocks import BLOCK_BYTES, BlockSums, Summing
from logstore.schema import FILE_ATTACHED, FILE_PARTIAL
from logstore.system import System
from tests.logstore.authors import AuthorLog
from tests.payload_files import payload_files
from wire import LogKey, yamf_hash

LARGE = bytes(range(251)) * 1200
"""Four blocks and a half, no two of them the same."""
BLOCKS = -(-len(LARGE) // BLOCK_BYTES)
PLACES = st.integers(0, len(LARGE))


def sums_of(payload: bytes) -> bytes:
    """As the format says it."""
    sums = b""
    for at in range(0, len(payload), BLOCK_BYTES):
        number = xxh3_64(payload[at : at + BLOCK_BYTES]).intdigest()
        sums += number.to_bytes(8, "big")
    return sums + xxh3_64(sums).intdigest().to_bytes(8, "big")


def summed(pieces: list[bytes]) -> bytes:
    summing = Summing()
    for piece in pieces:
        summing.update(piece)
    return summing.encode()


@given(st.lists(PLACES, max_size=12))
def test_the_sums_are_the_same_in_whatever_pieces_the_bytes_come(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(LARGE)]
    pieces = [LARGE[start:end] for start, end in pairwise(ends)]
    assert summed(pieces) == sums_of(LARGE)
    assert summed([*pieces, b""]) == sums_of(LARGE)


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1])
def test_the_last_block_is_what_is_left(size: int) -> None:
    assert summed([LARGE[:size]]) == sums_of(LARGE[:size])
    assert BlockSums.load(sums_of(LARGE[:size]), size) is not None


def test_sums_that_were_damaged_are_as_good_as_none() -> None:
    right = sums_of(LARGE)
    assert BlockSums.load(right, len(LARGE)) is not None
    for bit in range(8 * len(right)):
        wrong = bytearray(right)
        wrong[bit // 8] ^= 1 << bit % 8
        assert BlockSums.load(bytes(wrong), len(LARGE)) is None
    for size in (0, BLOCK_BYTES, len(LARGE) + BLOCK_BYTES):
        assert BlockSums.load(right, size) is None
    assert BlockSums.load(b"", len(LARGE)) is None
    assert BlockSums.load(None, len(LARGE)) is None


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("blocks") / "payload"


@given(
    damaged=st.one_of(st.none(), st.integers(0, len(LARGE) - 1)),
    reads=st.lists(st.tuples(PLACES, st.integers(1, 3 * BLOCK_BYTES), st.booleans()), max_size=12),
)
def test_nothing_leaves_that_is_not_what_was_stored(
    large_file: Path, damaged: int | None, reads: list[tuple[int, int, bool]]
) -> None:
    """Each read goes on from the one before it, or somewhere else."""
    content = bytearray(LARGE)
    if damaged is not None:
        content[damaged] ^= 0x10
    large_file.write_bytes(content)
    sums = BlockSums.load(sums_of(LARGE), len(LARGE))
    handle = System().open_file(large_file, write=False)
    key = LogKey(bytes(32), 0)
    with PayloadReader(key, 1, handle, len(LARGE), yamf_hash(LARGE), sums) as reader:
        at = 0
        for place, count, goes_on in reads:
            offset = at if goes_on else place
            end = min(offset + count, len(LARGE))
            blocks = range(offset // BLOCK_BYTES, -(-end // BLOCK_BYTES))
            if damaged is not None and end > offset and damaged // BLOCK_BYTES in blocks:
                with pytest.raises(StoreDamaged, match="the payload is damaged"):
                    reader.read(offset, count)
            else:
                assert reader.read(offset, count) == LARGE[offset:end]
                at = end


def test_who_reads_on_reads_each_block_once(large_file: Path) -> None:
    large_file.write_bytes(LARGE)
    asked: list[tuple[int, int]] = []

    class Counted(PayloadHandle):
        def read(self, bytes_max: int, offset: int) -> bytes:
            asked.append((offset, bytes_max))
            return super().read(min(bytes_max, 50_000), offset)

    handle = Counted(System().open_file(large_file, write=False)._fd)
    sums = BlockSums.load(sums_of(LARGE), len(LARGE))
    read = b""
    with PayloadReader(LogKey(bytes(32), 0), 1, handle, len(LARGE), b"", sums) as reader:
        while piece := reader.read(len(read), 7_001):
            read += piece
    assert read == LARGE
    starts = [offset for offset, _ in asked]
    assert starts == sorted(set(starts))
    # A disk that gives less than it was asked for is asked for the rest, and no byte twice.
    assert len(starts) == 2 * (BLOCKS - 1) + 1


def kept_sums(store: Store, states: str = "state") -> list[bytes | None]:
    with store._database.read() as db:
        query = f"SELECT sums FROM files WHERE state IN ({states})"
        return [sums for (sums,) in db.execute(query)]


def attached_sums(store: Store) -> list[bytes | None]:
    return kept_sums(store, str(FILE_ATTACHED))


def entry_of(log: AuthorLog, *, held: bool = False) -> NewEntry:
    return log.make(1, LARGE, held=held)


@pytest.mark.parametrize("way", ["finish", "seal", "before the entry", "put", "resumed", "again"])
def test_a_payload_that_came_has_the_sums_of_its_blocks(store: Store, way: str) -> None:
    log = AuthorLog()
    wanted = (log.key, 1, len(LARGE), yamf_hash(LARGE))
    if way == "put":
        store.put_entries(log.key, [entry_of(log, held=True)], source="a")
    elif way != "before the entry":
        store.put_entries(log.key, [entry_of(log)], source="a")
    if way == "resumed":
        # Its first part is read again, by another sink, from the middle of a block.
        with store.payload_sink(*wanted, source="a") as sink:
            sink.write(LARGE[: BLOCK_BYTES + 100])
        assert set(kept_sums(store)) == {None}
    if way == "again":
        # Whole already, and nobody has told its entry.
        with store.payload_sink(*wanted, source="a") as sink:
            sink.write(LARGE)
            sink.finish()
    if way != "put":
        sink = store.payload_sink(*wanted, source="a")
        assert sink.offset == {"resumed": BLOCK_BYTES + 100, "again": len(LARGE)}.get(way, 0)
        for at in range(sink.offset, len(LARGE), 50_000):
            sink.write(LARGE[at : at + 50_000])
        if way == "seal":
            store.complete_payloads([Completion(log.key, 1, sink.seal())])
            sink.release()
        elif way == "before the entry":
            new = entry_of(log)
            given_ = NewEntry(1, new.encoded, new.hash, sink.finish())
            assert store.put_entries(log.key, [given_], source="a").stored == 1
        else:
            assert store.complete_payload(log.key, 1, sink.finish())
    assert attached_sums(store) == [sums_of(LARGE)]
    assert all(isinstance(found, LogVerdict) for found in store.verify())


@pytest.mark.parametrize("kind", ["bytes", "file"])
def test_a_payload_of_ones_own_has_the_sums_of_its_blocks(
    store: Store, tmp_path: Path, kind: str
) -> None:
    source = tmp_path / "source"
    source.write_bytes(LARGE)
    store.append([LARGE if kind == "bytes" else source])
    assert attached_sums(store) == [sums_of(LARGE)]


def test_a_backup_and_what_is_brought_to_it_have_them(store: Store, tmp_path: Path) -> None:
    store.append([LARGE])
    store.backup(tmp_path / "copy")
    store.append([LARGE[1:]])
    store.backup(tmp_path / "copy")
    with Store.open(tmp_path / "copy", readonly=True) as copy:
        assert set(attached_sums(copy)) == {sums_of(LARGE), sums_of(LARGE[1:])}
        assert all(isinstance(found, LogVerdict) for found in copy.verify())


def test_what_is_dropped_or_begun_has_none(store: Store) -> None:
    log = AuthorLog()
    key = store.append([LARGE])[0].key
    with store._files.kept():
        # So that the row of the file that goes can be looked at.
        store.drop(key, 1, 1)
        store.put_entries(log.key, [entry_of(log)], source="a")
        sink = store.payload_sink(log.key, 1, len(LARGE), yamf_hash(LARGE), source="a")
        sink.write(LARGE)
        sink.suspend()
        assert set(kept_sums(store)) == {None}
        with store._database.read() as db:
            query = "SELECT count(*) FROM files WHERE state = ?"
            assert db.execute(query, (FILE_PARTIAL,)).get == 1


def test_a_short_file_is_damage_before_anything_of_it_leaves(store: Store) -> None:
    key = store.append([LARGE])[0].key
    assert store.path is not None
    (path,) = payload_files(store.path)
    path.write_bytes(LARGE[: BLOCK_BYTES + 100])
    with store.open_payload(key, 1) as reader:
        assert reader.read(0, 1000) == LARGE[:1000]
        with pytest.raises(StoreDamaged, match="short"):
            reader.read(BLOCK_BYTES, 100)
    path.unlink()
    with pytest.raises(StoreDamaged, match="missing"):
        store.open_payload(key, 1)


def test_sums_that_are_wrong_are_named_and_keep_nobody_from_reading(store: Store) -> None:
    key = store.append([LARGE])[0].key
    damaged = bytearray(sums_of(LARGE))
    damaged[3] ^= 1
    with store._database.write() as transaction:
        transaction.db.execute("UPDATE files SET sums = ?", (bytes(damaged),))
    with store.open_payload(key, 1) as reader:
        assert reader.read(0, len(LARGE)) == LARGE
    found = [str(each) for each in store.verify() if not isinstance(each, LogVerdict)]
    assert found == [f"{key}/1: the payload is right, and the sums of its blocks are not"]
