"""Figures beside the table: what TLS costs, what connections keep, what one scrape takes.

Everything is measured at a real node on loopback, as in the attacks.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import trio
from nacl.signing import SigningKey

from bench.support.output import show
from bench.support.processes import ENVIRONMENT, read_record, tell
from logstore import RuleChange, Store
from peer.node.doors.tls import Identity, TlsStream

from .campaign import environment
from .honest import HonestOrders, payloads
from .line import Line, Pace
from .node import Node

SMALL_GOAL: Final = 0.85
LARGE_GOAL: Final = 0.75
SMALL: Final = 8000
"""Entries of a sync of small ones."""
LARGE: Final = 64
LARGE_BYTES: Final = 1 << 20
PAIRS: Final = 5
HANDSHAKES: Final = 200
CONNECTIONS: Final = 256
LOGS: Final = 10_000
REPLICATION_MAX_S: Final = 180.0
SCRAPE_EVERY_S: Final = 0.5
ASKED: Final = 10
"""How often each page is asked for."""
VIEWED: Final = 300_000
"""Entries of a replica that somebody looks at."""
VIEWED_GOAL: Final = 0.97


Fill = list[tuple[list[bytes], int]]
"""Batches of payloads, and the ids of the logs that they are appended to."""


def figures(record: dict[str, Any]) -> bool:
    """Measures and prints all of them; whether the goals are reached."""
    found = [handshakes(), small_entries(), large_payloads(), connections(), scrapes()]
    found += [*pages(), viewer()]
    record["figures"] = found
    return all(each.get("is_good", True) for each in found)


@contextmanager
def _serving(fill: Fill, *flags: str, allows: tuple[SigningKey, ...] = ()) -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="siege-") as folder:
        state = {"BAMBOO_PEER_STATE": str(Path(folder, "state"))}
        path = Path(folder, "node")
        with environment(**state), Store.create(path) as store:
            if fill:
                store.append_many([(log_id, batch) for batch, log_id in fill])
            for key in allows:
                change = RuleChange(connections=CONNECTIONS)
                store.peers.allow(bytes(key.verify_key), change)
        node = Node(path, flags, state)
        try:
            yield node
        finally:
            node.kill()


def _author(node: Node) -> str:
    with Store.open(node.store, readonly=True) as store:
        return store.author.hex()


# What TLS costs


def handshakes() -> dict[str, Any]:
    """One after the other, until our setup may be sent; each with a new connection."""
    key = SigningKey.generate()
    limits = ("--tls", "--limit", "accepts=100000", "--limit", "accepts-burst=100000")
    with _serving([], *limits, allows=(key,)) as node:
        identity = Identity(key)

        async def run() -> tuple[float, float, float]:
            cpu, own, began = node.cpu_s(), time.process_time(), time.monotonic()
            for _ in range(HANDSHAKES):
                stream = TlsStream(
                    await trio.open_tcp_stream(*node.address), identity, server=False
                )
                await stream.do_handshake()
                await trio.aclose_forcefully(stream)
            seconds = time.monotonic() - began
            return seconds, node.cpu_s() - cpu, time.process_time() - own

        seconds, theirs, ours = trio.run(run)
    return _told(
        "TLS handshakes",
        per_s=round(HANDSHAKES / seconds),
        node_cpu_ms=round(theirs / HANDSHAKES * 1000, 2),
        caller_cpu_ms=round(ours / HANDSHAKES * 1000, 2),
    )


def small_entries() -> dict[str, Any]:
    """A replica of small entries, with TLS and without in turns."""
    fill = [(payloads(SMALL)[at : at + 1000], 0) for at in range(0, SMALL, 1000)]
    return _paired("small entries", fill, SMALL, SMALL_GOAL)


def large_payloads() -> dict[str, Any]:
    """The same with payloads that do not compress."""
    fill = [([os.urandom(LARGE_BYTES) for _ in range(8)], 0) for _ in range(LARGE // 8)]
    return _paired("large payloads", fill, LARGE, LARGE_GOAL)


def _paired(name: str, fill: Fill, entries: int, goal: float) -> dict[str, Any]:
    """Both nodes are there all the time, and have their turns: what else runs hits both."""
    key = SigningKey.generate()
    with (
        _serving(fill) as plain,
        _serving(fill, "--tls", allows=(key,)) as secured,
    ):
        pair = [_syncing(node, key, entries, tls=node is secured) for node in (plain, secured)]
        try:
            for each in pair:
                read_record(each)
            rates: tuple[list[float], list[float]] = ([], [])
            # The first pair finds nodes that have not served yet.
            for number in range(PAIRS + 1):
                for each, found in zip(pair, rates, strict=True):
                    tell(each, "round")
                    told = read_record(each)
                    if number:
                        found.append(told["entries"] / (told["ended"] - told["began"]))
        finally:
            for each in pair:
                _end(each)
    ratio = _ratio(rates)
    return _told(
        f"TLS against without: {name}",
        plain_per_s=round(statistics.median(rates[0])),
        tls_per_s=round(statistics.median(rates[1])),
        ratio=round(ratio, 3),
        goal=goal,
        is_good=ratio >= goal,
    )


def _syncing(node: Node, key: SigningKey, entries: int, *, tls: bool) -> subprocess.Popen[str]:
    host, port = node.address
    orders = HonestOrders(
        host=host,
        port=port,
        node_store=str(node.store),
        author=_author(node),
        seed=bytes(key).hex(),
        entries=entries,
        tls=tls,
        pushes=False,
        push_seed="",
        with_payloads=True,
    )
    return subprocess.Popen(
        [sys.executable, "-m", "siege.honest", "rounds", orders.as_json()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


# What a node keeps


def connections() -> dict[str, Any]:
    """Memory of sessions that are set up and do nothing, with TLS and without."""
    key = SigningKey.generate()
    limits = ["--limit", f"connections={2 * CONNECTIONS}", "--limit", f"per-address={CONNECTIONS}"]
    limits += ["--limit", "accepts=1000", "--limit", "accepts-burst=1000"]
    limits += ["--limit", f"handshakes={CONNECTIONS}"]
    each: dict[str, float] = {}
    for name, flags in (("plain", []), ("tls", ["--tls"])):
        with _serving([], *limits, *flags, allows=(key,)) as node:
            identity = Identity(key) if flags else None
            each[f"{name}_KiB"] = round(trio.run(_grown_kib, node, identity) / CONNECTIONS, 1)
    return _told(f"memory of one connection, of {CONNECTIONS}", **each)


async def _grown_kib(node: Node, identity: Identity | None) -> float:
    counts: Counter[str] = Counter()
    before = node.rss_mb()
    lines = []
    async with trio.open_nursery() as nursery:
        for _ in range(CONNECTIONS):
            stream: trio.abc.Stream = await trio.open_tcp_stream(*node.address)
            if identity is not None:
                stream = TlsStream(stream, identity, server=False)
            line = Line(stream, Pace(None, 0), counts)
            await line.begin()
            nursery.start_soon(line.listen)
            lines.append(line)
        with trio.move_on_after(20):
            for line in lines:
                await line.until(partial(_is_held, line))
        grown = (node.rss_mb() - before) * 1024
        held = sum(line.ended is None and _is_held(line) for line in lines)
        nursery.cancel_scope.cancel()
    if held < CONNECTIONS:
        raise RuntimeError(f"only {held} of {CONNECTIONS} connections were held")
    return grown


def _is_held(line: Line) -> bool:
    """Whether the node has taken the connection's setup and given it credit."""
    return line.data_credit > 0


def scrapes() -> dict[str, Any]:
    """One page of metrics while ten thousand logs go to another node."""
    fill: Fill = [([b"%d" % log_id], log_id) for log_id in range(LOGS)]
    with _serving(fill) as node, _following(node) as follower:
        took, size, held = [], 0, 0
        began = time.monotonic()
        while held < LOGS and time.monotonic() - began < REPLICATION_MAX_S:
            at = time.monotonic()
            size = len(follower.scrape())
            took.append((time.monotonic() - at) * 1000)
            held = int(follower.metrics().get("logs", 0))
            time.sleep(SCRAPE_EVERY_S)
        seconds = time.monotonic() - began
    return _told(
        f"/metrics while {LOGS} logs replicate",
        bytes=size,
        ms_median=round(statistics.median(took), 1),
        ms_max=round(max(took), 1),
        scrapes=len(took),
        replicated_s=round(seconds, 1),
        is_good=held >= LOGS,
    )


def pages() -> list[dict[str, Any]]:
    """The page and the status of a node with ten thousand logs that are in step."""
    fill: Fill = [([b"%d" % log_id], log_id) for log_id in range(LOGS)]
    found = []
    with _serving(fill) as node, _following(node, "--page", "127.0.0.1:0") as follower:
        began, held = time.monotonic(), 0
        while held < LOGS and time.monotonic() - began < REPLICATION_MAX_S:
            time.sleep(SCRAPE_EVERY_S)
            held = int(follower.metrics().get("logs", 0))
        for path in ("/", "/v1/status"):
            took, size = [], 0
            for _ in range(ASKED):
                # What is younger than a second is not found out anew.
                time.sleep(1.2)
                at = time.monotonic()
                with follower.open_page(path) as answer:
                    size = len(answer.read())
                took.append((time.monotonic() - at) * 1000)
            found.append(
                _told(
                    f"{path} with {LOGS} logs",
                    bytes=size,
                    ms_median=round(statistics.median(took), 1),
                    ms_max=round(max(took), 1),
                    is_good=held >= LOGS,
                )
            )
    return found


def viewer() -> dict[str, Any]:
    """New replicas of small entries, with somebody who looks at the page of the node, and without.

    Each begins anew, and they take turns; the time is that from the start of the process.
    """
    batch = payloads(VIEWED)
    fill: Fill = [(batch[at : at + 1000], 0) for at in range(0, VIEWED, 1000)]
    rates: tuple[list[float], list[float]] = ([], [])
    with _serving(fill) as node:
        for number in range(PAIRS + 1):
            for is_viewed, found in enumerate(rates):
                rate = _viewed(node, is_viewed=bool(is_viewed))
                if number:
                    found.append(rate)
    ratio = _ratio(rates)
    return _told(
        "one viewer of the page during replication",
        alone_per_s=round(statistics.median(rates[0])),
        viewed_per_s=round(statistics.median(rates[1])),
        ratio=round(ratio, 3),
        goal=VIEWED_GOAL,
        is_good=ratio >= VIEWED_GOAL,
    )


def _viewed(node: Node, *, is_viewed: bool) -> float:
    """Entries a second of a new replica, of whose events each is read."""
    began = time.monotonic()
    with _following(node, "--page", "127.0.0.1:0") as follower:
        if is_viewed:
            threading.Thread(target=_view, args=(follower,), daemon=True).start()
        with Store.open(follower.store, readonly=True) as store:
            while store.statistics().entries < VIEWED:
                if time.monotonic() - began > REPLICATION_MAX_S:
                    return 0.0
                time.sleep(0.05)
        return VIEWED / (time.monotonic() - began)


def _view(follower: Node) -> None:
    """As a browser does: the page, and then its events until the node is gone."""
    with suppress(OSError, HTTPException):
        with follower.open_page("/") as page:
            page.read()
        with follower.open_page("/v1/events") as events:
            for _ in events:
                pass


@contextmanager
def _following(node: Node, *flags: str) -> Iterator[Node]:
    host, port = node.address
    with _serving([], "--follow-all", "--connect", f"{host}:{port}", *flags) as follower:
        yield follower


def _ratio(rates: tuple[list[float], list[float]]) -> float:
    """The median of the second to the first within each pair."""
    return statistics.median(b / a if a else 0.0 for a, b in zip(*rates, strict=True))


def _told(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever JSON can hold
    found = {"name": name, **fields}
    show(found)
    return found
