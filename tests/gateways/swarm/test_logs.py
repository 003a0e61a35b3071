"""Files and chunks in logs: once each, of whatever author, and what is no chunk there."""

import random
import stat
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from gateways.swarm import (
    KEY_NAME,
    Chunks,
    Node,
    NotANode,
    Side,
    declare_chunks,
    make_node,
    node_of,
)
from gateways.swarm import logs as logs_module
from gateways.swarm import side as side_module
from gateways.swarm.bmt import read_chunk
from gateways.swarm.declared import ChunksDeclared, declare
from gateways.swarm.files import ChunkMissingError, FileSplitter
from gateways.swarm.side import FILE_NAME
from logstore import NewEntry, Store
from tests.gateways.failing import damage
from wire import LogKey

DATA = random.Random(7).randbytes(600_000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / "s") as made:
        yield made


@pytest.fixture
def side(store: Store) -> Iterator[Side]:
    made = Side(store)
    yield made
    made.close()


@pytest.fixture
def node(store: Store, side: Side) -> Node:
    return make_node(store, side, store.append_many)


def read(chunks: Chunks, root: bytes, first: int = 0, last: int | None = None) -> bytes:
    return b"".join(chunks.read(root, first, last))


def test_a_node_is_made_once(store: Store, side: Side, node: Node) -> None:
    assert store.path is not None
    assert node.first_log == 7000
    assert stat.S_IMODE((store.path / "swarm.key").stat().st_mode) == 0o600
    position = store.position()
    again = make_node(store, side, store.append_many, 9000)
    assert (again.overlay, again.first_log) == (node.overlay, 7000)
    assert node_of(store, side).overlay == node.overlay
    assert store.position() == position


def test_where_an_id_has_an_entry_no_log_is_made(store: Store, side: Side) -> None:
    store.append([b"something"], log_id=7035)
    position = store.position()
    with pytest.raises(NotANode, match="7035"):
        make_node(store, side, store.append_many)
    assert store.position() == position
    assert make_node(store, side, store.append_many, 8000).first_log == 8000


def test_a_key_that_is_none_is_named(store: Store, side: Side, node: Node) -> None:
    assert store.path is not None
    path = store.path / "swarm.key"
    kept = path.read_bytes()
    for wrong in (b"", b"00" * 32, b"ff" * 32, b"xyz", kept[:10]):
        path.write_bytes(wrong)
        with pytest.raises(NotANode, match="64 hexadecimal digits"):
            node_of(store, side)
    path.unlink()
    with pytest.raises(NotANode, match="no Swarm node"):
        node_of(store, side)
    path.write_bytes(kept)
    path.chmod(0o600)
    assert node_of(store, side).overlay == node.overlay


def test_a_file_is_read_again_and_its_chunks_are_there_once(
    store: Store, side: Side, node: Node
) -> None:
    chunks = Chunks(store, side)
    put = chunks.put(store.append_many, node.chunk_log, [DATA[:70_001], DATA[70_001:]])
    assert (put.bytes, put.chunks, put.new) == (len(DATA), 150, 150)
    assert read(chunks, put.hash) == DATA
    for first, last in ((0, 0), (4095, 4096), (131_000, 400_000), (599_999, 10**9), (10**9, None)):
        end = None if last is None else last + 1
        assert read(chunks, put.hash, first, last) == DATA[first:end]
    position = store.position()
    again = chunks.put(store.append_many, node.chunk_log, [DATA])
    assert again == put._replace(new=0)
    # Equal blocks of one file, and of several.
    zeros = chunks.put(store.append_many, node.chunk_log, [bytes(4096 * 100)])
    assert (zeros.chunks, zeros.new) == (101, 2)
    assert store.position() == position + 2
    assert side.counts() == (152, 0)
    with pytest.raises(ValueError, match="empty"):
        chunks.put(store.append_many, node.chunk_log, [])


def test_a_table_that_is_lost_is_made_anew_and_says_the_same(
    store: Store, side: Side, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = Chunks(store, side)
    made = 0

    def counted(data: bytes) -> object:
        nonlocal made
        made += 1
        return read_chunk(data)

    monkeypatch.setattr(side_module, "read_chunk", counted)
    put = chunks.put(store.append_many, node.chunk_log, [DATA])
    # Who has made a chunk knows its address.
    assert made == 0
    before = side.page(b"", 1_000)
    side.close()
    assert store.path is not None
    (store.path / FILE_NAME).unlink()
    other = Side(store)
    other.refresh()
    assert made == put.chunks
    assert other.page(b"", 1_000) == before
    assert read(Chunks(store, other), put.hash) == DATA
    other.close()


def test_chunks_of_another_author_are_held_too_and_not_stored_again(
    store: Store, side: Side, node: Node
) -> None:
    with Store.memory() as elsewhere:
        declare_chunks(elsewhere, elsewhere.append_many, 3)
        theirs = Side(elsewhere)
        put = Chunks(elsewhere, theirs).put(elsewhere.append_many, 3, [DATA])
        theirs.close()
        key = LogKey(elsewhere.author, 3)
        entries = elsewhere.read(key, 1, entries_max=1_000, bytes_max=1 << 30, with_payload=False)
        new = [NewEntry(each.seq, each.encoded, each.hash, each.payload) for each in entries]
    # One payload comes late.
    late = entries[40]
    new[40] = NewEntry(late.seq, late.encoded, late.hash, None)
    store.put_entries(key, new, source="a friend")
    side.refresh()
    chunks = Chunks(store, side)
    with pytest.raises(ChunkMissingError):
        read(chunks, put.hash)
    assert late.payload is not None
    store.complete_payload(key, late.seq, late.payload)
    side.refresh()
    assert read(chunks, put.hash) == DATA
    assert chunks.put(store.append_many, node.chunk_log, [DATA]).new == 0


def test_what_was_deleted_is_had_from_another_log_or_put_again(
    store: Store, side: Side, node: Node
) -> None:
    chunks = Chunks(store, side)
    put = chunks.put(store.append_many, node.chunk_log, [DATA])
    key = LogKey(store.author, node.chunk_log)
    store.drop(key, 10, 12)
    with pytest.raises(ChunkMissingError):
        read(chunks, put.hash)
    declare_chunks(store, store.append_many, 5)
    side.refresh()
    assert chunks.put(store.append_many, 5, [DATA]).new == 3
    assert read(chunks, put.hash) == DATA
    damage(store, key, 20)
    with pytest.raises(ChunkMissingError):
        read(chunks, put.hash)


def test_chunks_of_one_address_that_others_have_written_keep_nobody_s_file_out(
    store: Store, side: Side, node: Node
) -> None:
    """Zeros behind a payload, or cut off, do not change an address."""
    data = DATA[:5_000] + bytes(3_000) + DATA[:32] + bytes(4_064)
    splitter = FileSplitter()
    made = splitter.feed(data)
    rest, _ = splitter.finish()
    declare_chunks(store, store.append_many, 5)
    variants = []
    for each in (*made, *rest):
        span, payload = each.encoded[:8], each.encoded[8:]
        cut = payload.rstrip(b"\0")
        for other in (payload + bytes(1), payload.ljust(4096, b"\0"), cut, cut.ljust(32, b"\0")):
            if other != payload and 0 < len(other) <= 4096:
                assert read_chunk(span + other).address == each.address
                variants.append(span + other)
    assert len(variants) > len(made)
    store.append(variants, log_id=5)
    side.refresh()
    chunks = Chunks(store, side)
    put = chunks.put(store.append_many, node.chunk_log, [data])
    assert put.new == put.chunks
    assert read(chunks, put.hash) == data
    assert chunks.put(store.append_many, node.chunk_log, [data]).new == 0


def test_a_payload_that_is_no_chunk_is_counted_and_passed_over(
    store: Store, side: Side, node: Node
) -> None:
    wrong = [b"", b"short", bytes(9), bytes(5000), b"\1" + bytes(7), bytes(200_000)]
    store.append(wrong, log_id=node.chunk_log)
    # A log that declares nothing is not looked into.
    store.append([b"\1" + bytes(8)], log_id=77)
    side.refresh()
    assert side.counts() == (0, len(wrong))
    chunks = Chunks(store, side)
    assert read(chunks, chunks.put(store.append_many, node.chunk_log, [DATA]).hash) == DATA


def test_a_log_of_chunks_is_made_or_found(store: Store) -> None:
    declare_chunks(store, store.append_many, 5)
    position = store.position()
    declare_chunks(store, store.append_many, 5)
    assert store.position() == position
    store.append([b"something"], log_id=6)
    with pytest.raises(NotANode, match="/6"):
        declare_chunks(store, store.append_many, 6)
    entry = store.entry(LogKey(store.author, 5), 1)
    assert entry is not None
    assert entry.payload == declare(ChunksDeclared())


def test_large_files_are_signed_a_thousand_chunks_at_a_time(
    store: Store, side: Side, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs_module, "TOGETHER_CHUNKS", 16)
    sizes: list[int] = []

    def signed(batches: list[tuple[int, list[bytes]]], **more: object) -> object:
        sizes.extend(len(each) for _, each in batches)
        assert all(read_chunk(each).address for _, some in batches for each in some)
        return store.append_many(batches, **more)  # type: ignore[arg-type]

    chunks = Chunks(store, side)
    put = chunks.put(signed, node.chunk_log, [DATA])  # type: ignore[arg-type]
    assert sum(sizes) == put.chunks
    assert max(sizes) == 16
    assert read(chunks, put.hash) == DATA


def test_a_table_of_an_earlier_version_is_made_anew(store: Store, side: Side, node: Node) -> None:
    put = Chunks(store, side).put(store.append_many, node.chunk_log, [DATA])
    side.close()
    assert store.path is not None
    with apsw.Connection(str(store.path / FILE_NAME)) as db:
        db.execute("DROP TABLE items")
        db.execute("PRAGMA user_version = 1")
    other = Side(store)
    other.refresh()
    assert other.counts() == (put.chunks, 0)
    assert [each.address for each in other.unplaced(0, 1_000)][-1] == put.hash
    other.close()


def test_chunks_that_were_here_before_the_node_have_no_place_yet(store: Store, side: Side) -> None:
    declare_chunks(store, store.append_many, 5)
    declare_chunks(store, store.append_many, 6)
    chunks = Chunks(store, side)
    put = chunks.put(store.append_many, 5, [DATA])
    entries = store.read(
        LogKey(store.author, 5), 2, entries_max=50, bytes_max=1 << 30, with_payload=False
    )
    store.append([each.payload or b"" for each in entries] * 2, log_id=6)
    make_node(store, side, store.append_many)
    # Each address once, however often it is there.
    assert side.counts() == (put.chunks, 0)
    unplaced = [each.address for each in side.unplaced(0, 1_000)]
    assert len(unplaced) == len({*unplaced}) == put.chunks
    assert all(side.item(each) is None for each in unplaced)
    assert side.known([*unplaced, bytes(32)]) == ({*unplaced}, set())
    assert side.places_of(unplaced[:50], store.author, 1_000) == {
        each: side.places(each, store.author) for each in unplaced[:50]
    }
    # More than were asked for are not looked through.
    assert side.places_of(unplaced[:50], store.author, 100) == {}


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s") as store:
        side = Side(store)
        make_node(store, side, store.append_many)
        (tmp_path / "s" / KEY_NAME).chmod(0o644)
        with pytest.raises(NotANode, match="chmod 600"):
            node_of(store, side)
        side.close()
