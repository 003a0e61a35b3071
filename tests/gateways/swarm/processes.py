"""`swarm serve` in processes of its own, on stores on disk."""

import json
from pathlib import Path
from typing import Any

from gateways.swarm import Side, in_pages
from logstore import Store
from tests.processes.node import Node, records, run, wait_until

from .nodes import chunk_entries, held, made_node, put

ANYWHERE = ("--listen", "127.0.0.1:0")


class SwarmNode(Node):
    """A `swarm serve` process, which listens at a free port unless it is told otherwise."""

    command = ("swarm", "serve")

    def __init__(self, store: Path, *arguments: str) -> None:
        is_told = any("listen" in each for each in arguments)
        super().__init__(store, *arguments, *(() if is_told else ANYWHERE))

    @property
    def enode(self) -> str:
        return str(self.wait_for("listening")["enode"])

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind so far."""
        return [each for each in self.seen() if each["event"] == kind]

    def wait_for_count(self, kind: str, count: int) -> dict[str, Any]:
        """The so-manyth event of a kind, once it is there."""
        wait_until(lambda: len(self.of(kind)) >= count, f"{count} events {kind!r}")
        return self.of(kind)[count - 1]

    def peers(self) -> list[dict[str, Any]]:
        """What it says of its peers: it writes that down once a second at most."""
        return list(status(self.store)["peers"])


def made(folder: Path, *files: bytes) -> list[bytes]:
    """A store with a node, and files in it: their hashes."""
    with made_node(folder) as store:
        return [put(store, each) for each in files]


def put_more(folder: Path, data: bytes) -> bytes:
    """A file into a store, as another process puts one; its hash."""
    with Store.open(folder) as store:
        return put(store, data)


def addresses(folder: Path) -> set[bytes]:
    """All chunks that are held."""
    with Store.open(folder, readonly=True) as store:
        return held(store)


def status(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(folder, "--json", "swarm", "status"))
    return found


def intervals(folder: Path) -> dict[str, str]:
    """The records of the bins of the one peer that there was: texts by key."""
    found = records(folder, "swarm", "intervals")
    assert len({each["overlay"] for each in found}) <= 1
    return {each["stream"].partition("|")[2]: each["text"] for each in found}


def bins(folder: Path) -> list[dict[str, Any]]:
    """The bins of a node: how many items, and the state there."""
    return list(status(folder)["bins"])


def places(folder: Path) -> list[tuple[str, int, int]]:
    """Each chunk's bin and index."""
    with Store.open(folder, readonly=True) as store:
        side = Side(store)
        side.refresh()
        try:
            found = [each.address for each in in_pages(side)]
            return sorted((each.hex(), *(side.item(each) or (-1, 0))) for each in found)
        finally:
            side.close()


def covered(text: str) -> list[range]:
    """What a record says to be had."""
    ranges = (each.split(",") for each in text.split(";")[1:])
    return [range(int(first, 36), int(last, 36) + 1) for first, last in ranges]


def until_recorded(folder: Path, count: int) -> None:
    """Returns once a node has recorded that so many items of its peers' bins are here."""
    with Store.open(folder, readonly=True) as store:
        side = Side(store)

        def recorded() -> int:
            ranges = [every for each in side.intervals() for every in covered(each.text)]
            # Index 0 is none of ours.
            return sum(len(each) - (0 in each) for each in ranges)

        try:
            wait_until(lambda: recorded() >= count, f"{count} items recorded in {folder.name}")
        finally:
            side.close()


def until_placed(folder: Path, count: int) -> None:
    """Returns once a node has given so many chunks their places."""
    with Store.open(folder, readonly=True) as store:
        side = Side(store)

        def placed() -> int:
            side.refresh()
            return sum(each.newest for each in side.bins()[0].values())

        try:
            wait_until(lambda: placed() >= count, f"{count} places in {folder.name}")
        finally:
            side.close()


def until_entries(folder: Path, count: int) -> None:
    """Returns once so many chunks are in a node's own log."""
    with Store.open(folder, readonly=True) as store:
        wait_until(lambda: chunk_entries(store) >= count, f"{count} chunks in {folder.name}")


def own_chunks(folder: Path) -> int:
    """How many chunks are in a node's own log."""
    with Store.open(folder, readonly=True) as store:
        return chunk_entries(store)
