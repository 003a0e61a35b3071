"""Our node, as people start it, among upstream's: both have what either has, and find what neither.

Whoever calls whom. Upstream's nodes are told when to ask for subscriptions, as they ask only once.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from gateways.swarm.bmt import content_address
from tests.gateways.swarm.processes import SwarmNode
from tests.processes.node import init, records, run, wait_until

from .swarm_go import PROGRAM, UpstreamNode, made_up

if not PROGRAM.exists():
    pytest.skip("not built: `make interop`", allow_module_level=True)

CHUNKS = 2_000
BINS = 17
LISTEN = ("--listen", "127.0.0.1:0")


def made(folder: Path) -> Path:
    """A store with a node."""
    init(folder)
    run(folder, "swarm", "init")
    return folder


def put(store: Path, data: bytes) -> str:
    """Puts a file; its hash."""
    path = store.parent / "file"
    path.write_bytes(data)
    [said] = records(store, "swarm", "put", str(path))
    found: str = said["hash"]
    return found


def held(store: Path) -> int:
    [said] = records(store, "swarm", "status")
    return int(said["chunks"])


def leaves(count: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(4096 * count)


@contextmanager
def joined(store: Path, upstream: UpstreamNode, *, who_calls: str) -> Iterator[SwarmNode]:
    """Our node, called by upstream's or calling it."""
    with ExitStack() as stack:
        if who_calls == "upstream":
            ours = stack.enter_context(SwarmNode(store, *LISTEN))
            upstream.connect(str(ours.wait_for("listening")["enode"]))
        else:
            flags = ("--no-listen", "--connect", upstream.enode)
            ours = stack.enter_context(SwarmNode(store, *flags))
        assert ours.wait_for("connected")["overlay"] == upstream.overlay
        overlay = records(store, "swarm", "status")[0]["overlay"]
        upstream.wait_connected(overlay)
        # It takes what we have, and has us take what it has: which we do without being asked.
        upstream.sync(overlay)
        upstream.sync(overlay, to=True)
        yield ours
        assert ours.stop() == 0


@pytest.mark.parametrize("who_calls", ["upstream", "we"])
def test_both_have_what_either_has(tmp_path: Path, who_calls: str) -> None:
    store = made(tmp_path / "ours")
    file = leaves(CHUNKS, 1)
    root = put(store, file)
    ours = held(store)
    with UpstreamNode.start(tmp_path / "upstream") as upstream:
        addresses = {content_address(made_up("x", number)).hex() for number in range(CHUNKS)}
        assert {*upstream.put(CHUNKS, "x")["addresses"]} == addresses
        with joined(store, upstream, who_calls=who_calls):
            upstream.wait(CHUNKS + ours)
            wait_until(lambda: held(store) == CHUNKS + ours, "all chunks are here")
            [peer] = records(store, "swarm", "status")[0]["peers"]
            # Its live streams begin with each bin's newest item again.
            assert peer["duplicates"] <= BINS
            # Files, those that were there before and those that come now.
            upstream.command("get", root, tmp_path / "there", 60)
            assert (tmp_path / "there").read_bytes() == file
            (tmp_path / "late").write_bytes(late := leaves(300, 2) + b"and a bit")
            theirs = upstream.command("upload", tmp_path / "late")["hash"]
            run(store, "swarm", "get", theirs, "--to", str(tmp_path / "here"))
            assert (tmp_path / "here").read_bytes() == late
            mine = put(store, later := leaves(200, 3))
            upstream.command("get", mine, tmp_path / "there too", 60)
            assert (tmp_path / "there too").read_bytes() == later
        assert {*upstream.held()} >= addresses
    chunks = records(store, "swarm", "chunks")
    assert len(chunks) == len({each["address"] for each in chunks})
    assert {each["address"] for each in chunks} >= addresses


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    store = made(tmp_path / "ours")
    with UpstreamNode.start(tmp_path / "upstream") as upstream:
        upstream.put(300, "x")
        with joined(store, upstream, who_calls="we"):
            wait_until(lambda: held(store) == 300, "all chunks are here")
        upstream.put(40, "y")
        with joined(store, upstream, who_calls="we") as ours:
            wait_until(lambda: held(store) == 340, "the new ones are here too")
            ours.wait_for("synced")
            [peer] = records(store, "swarm", "status")[0]["peers"]
            assert peer["received"] == 40


@pytest.mark.parametrize("middle_is", ["ours", "upstream's"])
def test_a_file_through_a_node_that_holds_nothing(tmp_path: Path, middle_is: str) -> None:
    file = leaves(130, 1)
    if middle_is == "ours":
        store = made(tmp_path / "ours")
        with (
            SwarmNode(store, *LISTEN, "--max-chunks", "0") as middle,
            UpstreamNode.start(tmp_path / "has", sync=False) as has,
            UpstreamNode.start(tmp_path / "wants", sync=False) as wants,
        ):
            (tmp_path / "file").write_bytes(file)
            root = has.command("upload", tmp_path / "file")["hash"]
            enode = str(middle.wait_for("listening")["enode"])
            for each in (has, wants):
                each.connect(enode)
            wants.command("get", root, tmp_path / "there", 60)
            assert (tmp_path / "there").read_bytes() == file
            assert held(store) == 0
        return
    has_store, wants_store = made(tmp_path / "has"), made(tmp_path / "wants")
    root = put(has_store, file)
    with UpstreamNode.start(tmp_path / "middle", sync=False) as upstream:
        flags = ("--no-listen", "--connect", upstream.enode)
        with (
            SwarmNode(has_store, *flags) as has_node,
            SwarmNode(wants_store, *flags, "--max-chunks", "0") as wants_node,
        ):
            for node in (has_node, wants_node):
                node.wait_for("connected")
            run(wants_store, "swarm", "get", root, "--to", str(tmp_path / "there"))
            assert (tmp_path / "there").read_bytes() == file


def test_a_light_node_of_ours_is_never_asked_to_sync(tmp_path: Path) -> None:
    store = made(tmp_path / "ours")
    put(store, leaves(20, 1))
    before = held(store)
    with UpstreamNode.start(tmp_path / "upstream", auto_s=0.1) as upstream:
        (tmp_path / "file").write_bytes(file := leaves(30, 2))
        root = upstream.command("upload", tmp_path / "file")["hash"]
        flags = ("--no-listen", "--light", "--connect", upstream.enode)
        with SwarmNode(store, *flags) as ours:
            ours.wait_for("connected")
            run(store, "swarm", "get", root, "--to", str(tmp_path / "here"))
            assert (tmp_path / "here").read_bytes() == file
            assert not [each for each in ours.seen() if each["event"] == "disconnected"]
            mine = {each["address"] for each in records(store, "swarm", "chunks")}
            assert len(mine) == before + 31
            assert len(mine & {*upstream.held()}) == 31
