"""Upstream's Swarm nodes among themselves, and their addresses and hashes beside ours.

They are built by `make interop`, where Go is at hand; without them nothing here runs.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateways.swarm.bmt import content_address
from gateways.swarm.files import LEAF_BYTES, FileReader, FileSplitter
from gateways.swarm.keys import overlay_of, read_enode
from gateways.swarm.proximity import proximity

from .swarm_go import PROGRAM, UpstreamFailed, UpstreamNode, made_up

# All of them in one line.
if not PROGRAM.exists():
    pytest.skip("not built: `make interop`", allow_module_level=True)

CHUNKS = 500
SIZES = [1, 4095, 4096, 4097, 127 * 4096 + 1, 128 * 4096, 128 * 4096 + 1, 129 * 4096 - 1, 1_000_000]
# A full leaf is alone behind one full group, and behind two.
LONE_FULL_LEAF = [129 * 4096, 257 * 4096]


@pytest.fixture(name="two")
def _two(tmp_path: Path) -> Iterator[tuple[UpstreamNode, UpstreamNode]]:
    """The second has called the first."""
    with (
        UpstreamNode.start(tmp_path / "one") as one,
        UpstreamNode.start(tmp_path / "other") as other,
    ):
        other.connect(one.enode)
        one.wait_connected(other.overlay)
        yield one, other


def split(data: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """Our chunks of a file by address, and its hash."""
    splitter = FileSplitter()
    made = splitter.feed(data)
    last, root = splitter.finish()
    return {each.address: each.encoded for each in (*made, *last)}, root


def chunk_of(node: UpstreamNode, address: bytes) -> bytes:
    return bytes.fromhex(node.command("chunk", address.hex(), 10)["chunk"])


def read(node: UpstreamNode, root: bytes) -> bytes:
    """A file of a node's chunks, joined by us."""
    reader, parts = FileReader(root), bytearray()
    while reader.wanted is not None:
        parts += reader.take(chunk_of(node, reader.wanted))
    return bytes(parts)


# --- two of them --------------------------------------------------------------------------------


@pytest.mark.parametrize("is_requested", [False, True])
def test_one_node_syncs_all_bins_of_another(
    two: tuple[UpstreamNode, UpstreamNode], is_requested: bool
) -> None:
    one, other = two
    history = one.put(CHUNKS - 20, "history")["addresses"]
    if is_requested:
        one.sync(other.overlay, to=True)
    else:
        other.sync(one.overlay)
    other.wait(len(history))
    live = one.put(20, "live")["addresses"]
    other.wait(CHUNKS)
    assert set(one.held()) == set(other.held()) == {*history, *live}
    assert one.ended() == other.ended() == []
    traffic = other.command("traffic")
    assert traffic["received"]["StreamDelivery"] >= CHUNKS
    assert traffic["sent"]["StreamDelivery"] == 0


def test_what_is_uploaded_to_one_node_is_read_on_another(
    two: tuple[UpstreamNode, UpstreamNode], tmp_path: Path
) -> None:
    one, other = two
    uploaded, read_back = tmp_path / "uploaded", tmp_path / "read"
    uploaded.write_bytes(random.Random(1).randbytes(1_000_000))
    found = one.command("upload", uploaded)
    assert other.command("get", found["hash"], read_back, 30)["bytes"] == 1_000_000
    assert read_back.read_bytes() == uploaded.read_bytes()
    received = other.command("traffic")["received"]
    assert (received["RetrieveDelivery"], received["OfferedHashes"]) == (245 + 2 + 1, 0)


def test_a_chunk_may_be_offered_before_it_is_delivered(tmp_path: Path) -> None:
    # Of many at once upstream's own nodes lose some.
    with (
        UpstreamNode.start(tmp_path / "one") as one,
        UpstreamNode.start(tmp_path / "other", offer=True) as other,
    ):
        other.connect(one.enode)
        one.wait_connected(other.overlay)
        [address] = one.put(1, "offered")["addresses"]
        assert chunk_of(other, bytes.fromhex(address)) == made_up("offered", 0)
        received = other.command("traffic")["received"]
        assert received["OfferedHashes"]
        assert received["StreamDelivery"]
        assert not received["RetrieveDelivery"]


def test_a_node_that_is_started_again_is_the_same_one(tmp_path: Path) -> None:
    with UpstreamNode.start(tmp_path) as node:
        node.put(20, "held")
        before, held = node.overlay, node.held()
    with UpstreamNode.start(tmp_path) as node:
        assert (node.overlay, node.held()) == (before, held)


def test_a_node_by_itself_requests_subscriptions_once_connected(tmp_path: Path) -> None:
    with (
        UpstreamNode.start(tmp_path / "one", auto_s=2.0) as one,
        UpstreamNode.start(tmp_path / "other") as other,
    ):
        other.connect(one.enode)
        one.put(50, "by itself")
        other.wait(50)
        assert one.command("traffic")["sent"]["RequestSubscription"] == 17


def test_light_nodes_and_those_that_do_not_sync_refuse_to(tmp_path: Path) -> None:
    with (
        UpstreamNode.start(tmp_path / "one", light=True) as one,
        UpstreamNode.start(tmp_path / "other", sync=False) as other,
    ):
        overlay = other.connect(one.enode)
        assert other.peers()[overlay]["light"]
        with pytest.raises(UpstreamFailed, match="stream SYNC not registered"):
            other.sync(overlay)
        assert [each["light"] for each in one.peers().values()] == [False]


def test_a_command_that_is_wrong_is_refused_and_the_node_goes_on(tmp_path: Path) -> None:
    with UpstreamNode.start(tmp_path) as node:
        for wrong in ("nothing", "put x 1", "has 00", "count 1", f"sync {node.overlay} to"):
            words = wrong.split()
            with pytest.raises(UpstreamFailed, match=f"^{words[0]}: "):
                node.command(*words)
        with pytest.raises(UpstreamFailed, match="deadline exceeded"):
            node.command("chunk", bytes(32).hex(), 0.1)
        assert node.command("count") == {"chunks": 0}
        node.close()
        with pytest.raises(UpstreamFailed, match="has ended"):
            node.command("count")


# --- beside ours --------------------------------------------------------------------------------


def test_addresses_and_bins_are_those_that_we_compute(tmp_path: Path) -> None:
    with UpstreamNode.start(tmp_path) as node:
        assert bytes.fromhex(node.overlay) == overlay_of(read_enode(node.enode).public)
        chunks = [made_up(7, number) for number in range(CHUNKS)]
        addresses = [content_address(chunk) for chunk in chunks]
        assert node.put(CHUNKS, 7)["addresses"] == [each.hex() for each in addresses]
        assert chunk_of(node, addresses[-1]) == chunks[-1]
        held = node.held()
        bins = {each.hex(): proximity(each, bytes.fromhex(node.overlay)) for each in addresses}
        assert {address: bin_ for address, (bin_, _) in held.items()} == bins
        # One sequence for all bins, from 0: the indexes of a bin have holes.
        assert sorted(index for _, index in held.values()) == list(range(CHUNKS))
        assert node.command("has", addresses[0].hex()) == {"held": True}
        assert node.command("has", bytes(32).hex()) == {"held": False}


@pytest.mark.parametrize("size", SIZES)
def test_files_have_the_hashes_and_chunks_that_we_compute(tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(data)
    chunks, root = split(data)
    with UpstreamNode.start(tmp_path / "node") as node:
        assert node.command("upload", tmp_path / "file")["hash"] == root.hex()
        # Of a last leaf that is alone it stores a chunk that wraps it, and has no use for that.
        assert {*node.held()} >= {each.hex() for each in chunks}
        assert len(node.held()) - len(chunks) == (size in (128 * 4096 + 1, 129 * 4096 - 1))
        assert read(node, root) == data


@pytest.mark.parametrize("size", LONE_FULL_LEAF)
def test_a_lone_full_leaf_is_wrapped_by_upstream_and_read_by_us(tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(data)
    chunks, ours = split(data)
    assert size % LEAF_BYTES == 0
    with UpstreamNode.start(tmp_path / "node") as node:
        root = bytes.fromhex(node.command("upload", tmp_path / "file")["hash"])
        assert root != ours
        held = {bytes.fromhex(each) for each in node.held()}
        leaves = {address for address, chunk in chunks.items() if len(chunk) == 8 + LEAF_BYTES}
        assert leaves <= held
        assert read(node, root) == data
