"""What this machine can do at best: the work that cannot be left out, and nothing else.

    python bench/limits.py

One JSON line for each: signatures checked on all cores, signatures made on one, a payload's way
(its blocks summed up at both ends, sent over loopback, hashed, written to a file; all cores share
it), and two synced commits, which a live entry waits for.
"""

import os
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
from nacl.signing import SigningKey

from bench.support.logs import signed_log
from bench.support.output import report
from logstore.blocks import Summing
from wire import PayloadHasher, Signer, signatures_are_valid, yamf_hash

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE_BYTES = 1 << 16
MIB = 1 << 20


def main() -> None:
    report("verify", verify_per_s(), "entries/s")
    report("sign", sign_per_s(), "entries/s")
    report("payload", payload_mb_per_s(), "MB/s")
    report("two commits", two_commits_ms(), "ms")


def verify_per_s(count: int = 20_000) -> float:
    """Signatures of one author that all cores together check in a second."""
    entries = signed_log(SigningKey.generate(), 0, (b"%d" % number for number in range(1000)))
    encoded = [entry.encoded for entry in entries]
    cores = os.cpu_count() or 1
    rounds = max(1, count // cores // len(encoded))

    def check() -> None:
        for _ in range(rounds):
            assert all(signatures_are_valid(encoded))

    threads = [threading.Thread(target=check) for _ in range(cores)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rounds * len(encoded) * cores / (time.perf_counter() - began)


def sign_per_s(count: int = 5000) -> float:
    """Entries that one core signs in a second: each links to the one before it."""
    signer, link = Signer(SigningKey.generate()), yamf_hash(b"")
    began = time.perf_counter()
    signer.sign_run(0, 2, link, [(0, link)] * count, lambda _: link)
    return count / (time.perf_counter() - began)


def payload_mb_per_s(count: int = 64) -> float:
    """What all cores together carry from one end to the other, by what each step costs one."""
    data = os.urandom(MIB)
    pieces = [data[at : at + PIECE_BYTES] for at in range(0, MIB, PIECE_BYTES)]

    def hashed() -> None:
        hasher = PayloadHasher()
        for piece in pieces:
            hasher.update(piece)
        hasher.digest_yamf()

    def summed() -> None:
        sums = Summing()
        sums.update(data)
        sums.encode()

    def sent() -> None:
        here, there = socket.socketpair()
        with here, there:
            reader = threading.Thread(target=lambda: drain(there))
            reader.start()
            here.sendall(data)
            here.shutdown(socket.SHUT_WR)
            reader.join()

    with tempfile.TemporaryDirectory() as folder:

        def written() -> None:
            Path(folder, "payload").write_bytes(data)

        once = sum(cpu_s(step, count) for step in (hashed, sent, written))
        steps = once + 2 * cpu_s(summed, count)
    return MIB / 1e6 * (os.cpu_count() or 1) / steps


def drain(stream: socket.socket) -> None:
    """Reads to the end."""
    while stream.recv(4 * PIECE_BYTES):
        pass


def cpu_s(step: "Callable[[], None]", count: int) -> float:
    """Seconds of a core that something takes, all its threads together."""
    step()
    began = time.process_time()
    for _ in range(count):
        step()
    return (time.process_time() - began) / count


def two_commits_ms(count: int = 200) -> float:
    """How long two synced commits of one row take, one after the other; the median."""
    with tempfile.TemporaryDirectory() as folder:
        db = apsw.Connection(str(Path(folder, "db")))
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"):
            next(db.execute(statement), None)
        db.execute("CREATE TABLE rows (row)")
        taken = []
        for _ in range(count):
            began = time.perf_counter()
            for _ in range(2):
                db.execute("BEGIN IMMEDIATE; INSERT INTO rows VALUES (zeroblob(300)); COMMIT")
            taken.append((time.perf_counter() - began) * 1000)
        db.close()
    return statistics.median(taken)


if __name__ == "__main__":
    main()
