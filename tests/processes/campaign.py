"""Real processes on one store, killed at random: nothing that was acknowledged is lost.

    python -m tests.processes.campaign --seconds 1200 --seed 7

Eight processes append, drop, receive payloads, check and collect, and back up, and each opens the
store again and again; a ninth replicates from a node beside them. Payloads lie around the 64 KiB
boundary and far above. One of them after another is killed with -9 and started again. In the end
each payload that was acknowledged and not dropped is compared with what was appended, byte for
byte, and the whole store is verified; so is each backup when it has been made.
"""

# ruff: noqa: T201 - a program for the terminal
import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from logstore import Store
from tests.processes.campaign_roles import ROLES, Work, compare, make_stores
from tests.processes.ledger import Ledgers, read_ledgers
from tests.processes.node import EXECUTABLE, Node

SHARES: Final = ("append", "append", "append", "drop", "fetch", "fetch", "check", "backup")
SYNC: Final = "sync"
_KILL_EACH_S: Final = 0.4
"""Somebody is killed after so long, on average."""
_SPARED: Final = {"check": 0.3, "backup": 0.15}
"""What takes longer is killed less often, so that some of it comes to its end."""
_REPORT_EACH_S: Final = 60

# Each is a fork of a process that has imported everything, and has neither threads nor a store.
_PROCESSES: Final = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["tests.processes.campaign_roles"])


class Campaign:
    """One run: its folder, its processes, and whom it killed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.kills: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._roles = (*SHARES, SYNC)

    def run(self, seconds: float) -> None:
        """Lets the processes work for so long."""
        make_stores(self.folder)
        with Node(self.folder / "other", "--listen", "127.0.0.1:0") as node:
            running = [self._start(index, node.address) for index in range(len(self._roles))]
            try:
                self._kill(running, node.address, time.monotonic() + seconds)
            finally:
                for process in running:
                    process.kill()
                    process.join()

    def _kill(self, running: list[BaseProcess], address: str, end: float) -> None:
        report = time.monotonic() + _REPORT_EACH_S
        while time.monotonic() < end:
            time.sleep(self._rng.expovariate(1 / _KILL_EACH_S))
            victim = self._rng.randrange(len(running))
            role = self._roles[victim]
            if self._rng.random() < _SPARED.get(role, 1):
                running[victim].kill()
                running[victim].join()
                self.kills[role] += 1
            for index, process in enumerate(running):
                if not process.is_alive():
                    running[index] = self._start(index, address)
            if time.monotonic() > report:
                report += _REPORT_EACH_S
                print(self.summary(read_ledgers(self.folder)), flush=True)

    def _start(self, index: int, address: str) -> BaseProcess:
        """Starts a process, for the first time or again."""
        arguments = (self.folder, self._roles[index], index, self._rng.getrandbits(40), address)
        process = _PROCESSES.Process(target=_work, args=arguments)
        process.start()
        return process

    def summary(self, ledgers: Ledgers) -> str:
        """What was done so far, in one line."""
        kinds = ("appended", "fetched", "dropped", "checked", "backed up", "opened")
        done = ", ".join(f"{ledgers.counts.get(kind, 0)} {kind}" for kind in kinds)
        return (
            f"{done}; {len(ledgers.promises)} payloads acknowledged,"
            f" {sum(self.kills.values())} kills, {len(ledgers.faults)} faults"
        )

    def judge(self) -> list[str]:
        """Everything that is wrong in the end."""
        ledgers = read_ledgers(self.folder)
        print(self.summary(ledgers), flush=True)
        with Store.open(self.folder / "store") as store:
            lost = list(compare(self.folder, store, ledgers.promises))
        work = Work(self.folder, "end", 0)
        with Store.open(self.folder / "store") as store:
            work.check(store, "in the end")
        faults = read_ledgers(self.folder).faults
        compared = sum(not ledgers.may_be_gone(promise) for promise in ledgers.promises)
        print(f"{compared} payloads compared, {len(lost)} lost, {len(faults)} faults")
        return lost + faults


def _work(folder: Path, role: str, index: int, seed: int, address: str) -> None:
    name = f"{role}{index}"
    if role == SYNC:
        _replicate(folder, name, address)
    work = Work(folder, name, seed)
    try:
        work.run(ROLES[role])
    except BaseException:
        work.ledger.note("fault", what=traceback.format_exc())
        raise


def _replicate(folder: Path, name: str, address: str) -> None:
    log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.execv(EXECUTABLE[0], [*EXECUTABLE, "sync", "--store", str(folder / "store"), address])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.processes.campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="of whom to kill and what to append")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bamboo-campaign-") as folder:
        campaign = Campaign(Path(folder), options.seed)
        campaign.run(options.seconds)
        wrong = campaign.judge()
    for each in wrong[:40]:
        print(each)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
