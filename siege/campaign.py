"""Runs one attack: a new node, honest peers before, during and after, and SIGTERM in the end."""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from nacl.signing import SigningKey

from bench.support.processes import ENVIRONMENT, read_record, tell, used_cpu_s
from logstore import LogInfo, RuleChange, Store, WriteScope, read_scope

from .attack import Attack, Scope, Seen, at_least
from .honest import LIVE_LOG, HonestOrders, payloads
from .hostile import Orders
from .machine import Machine
from .node import Node
from .report import RATIO_MIN, Phase, Row, judge

SIGNALS: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
SIGNAL_EVERY_S: Final = 1 / 30
ROUNDS_LAST_S: Final = 60.0
"""An attack that lasts for a number of rounds ends after so long, whoever got in."""
RECOVERY_LOOKED_S: Final = 6.0
BURNT_MIN: Final = 0.05
"""Cores that an attacker has to take itself for the rates to tell of it."""
BEFORE_TERM_S: Final = 1.0
PROBE_S: Final = 0.3
FEW: Final = 300
"""Entries of a sync where the time of each is what counts."""


class Siege:
    """One attack on one node, with all its processes."""

    def __init__(self, attack: Attack, folder: Path, *, seconds: float, entries: int) -> None:
        self.attack = attack
        self.folder = folder
        self.seconds = seconds * attack.share
        self.entries = min(entries, FEW) if attack.rounds else entries
        self.environment = {"BAMBOO_PEER_STATE": str(folder / "state")}
        self._processes: list[subprocess.Popen[str]] = []
        self._keys = {name: SigningKey.generate() for name in ("hostile", "rounds", "pulse")}
        self._pushed = SigningKey.generate()
        """The author of what honest peers bring."""
        self.store = folder / "node"
        self.author = self._write_store()
        flags = list(attack.serve) + (["--tls"] if attack.tls else [])
        if attack.follows_hostile:
            flags += ["--follow", bytes(self._keys["hostile"].verify_key).hex()]
        if attack.pushes:
            flags += ["--follow", bytes(self._pushed.verify_key).hex()]
        self.node = Node(self.store, flags, self.environment, descriptors=attack.descriptors)
        try:
            self.rounds = self._start("siege.honest", "rounds", self._honest("rounds"))
            self.pulse = self._start("siege.honest", "pulse", self._honest("pulse"))
            self.hostile = self._start_hostile() if attack.play is not None else None
            for process in self._processes:
                read_record(process)
        except BaseException:
            self.close()
            raise

    def _write_store(self) -> str:
        with environment(**self.environment), Store.create(self.store) as store:
            for start in range(0, self.entries, 1000):
                store.append(payloads(self.entries)[start : start + 1000])
            store.append([b"0"], log_id=LIVE_LOG)
            if self.attack.tls:
                for name, key in self._keys.items():
                    scope = self.attack.scope if name == "hostile" else Scope()
                    if scope is not None:
                        store.peers.allow(bytes(key.verify_key), _rule(scope, self.attack))
            return store.author.hex()

    # Its processes

    def _honest(self, name: str) -> str:
        host, port = self.node.address
        orders = HonestOrders(
            host=host,
            port=port,
            node_store=str(self.store),
            author=self.author,
            seed=bytes(self._keys[name]).hex(),
            entries=self.entries,
            tls=self.attack.tls,
            pushes=self.attack.pushes,
            push_seed=bytes(self._pushed).hex(),
            with_payloads=False,
        )
        return orders.as_json()

    def _start_hostile(self) -> subprocess.Popen[str]:
        host, port = self.node.address
        orders = Orders(
            attack=self.attack.name,
            host=host,
            port=port,
            seed=bytes(self._keys["hostile"]).hex(),
            node_id=self.author if self.attack.tls else "",
            connections=self.attack.connections,
            held=self.author,
            entries=self.entries,
            seconds=self.seconds,
        )
        return self._start("siege.playing", json.dumps(asdict(orders)))

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Each of them is a machine of its own, but for the pulse, which appends on the node's.
            env={**ENVIRONMENT, **self.environment},
        )
        self._processes.append(process)
        return process

    def close(self) -> None:
        """Ends everything that is left."""
        self.node.kill()
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(BrokenPipeError):
                    if pipe is not None:
                        pipe.close()

    # Its phases

    def phase(self, seconds: float, *, rounds: int = 0, until_good: float = 0.0) -> "_Measured":
        """Honest peers for so long: at least one round, and at least `rounds`.

        `until_good`: a rate (entries a second) that a round has to reach, for which is waited.
        """
        measured = _Measured(Phase())
        phase = measured.phase
        tell(self.pulse, "take")
        read_record(self.pulse)
        machine = Machine()
        began, cpu = time.monotonic(), self.node.cpu_s()
        while True:
            tell(self.rounds, "round")
            record = read_record(self.rounds)
            took = record["ended"] - record["began"]
            phase.rounds += 1
            phase.got_in += bool(record["entries"])
            phase.entries += record["entries"]
            phase.seconds += took
            phase.round_s.append(round(took, 3))
            is_good = record["entries"] / took >= until_good
            if is_good and measured.good_at is None:
                measured.good_at = record["began"]
            lasted = time.monotonic() - began
            looked_s = min(RECOVERY_LOOKED_S, 3 * self.seconds)
            if lasted > (ROUNDS_LAST_S if rounds else seconds + looked_s):
                break
            if phase.rounds >= rounds and measured.good_at is not None and lasted >= seconds:
                break
        phase.node_cpu_s = self.node.cpu_s() - cpu
        phase.wall_s = time.monotonic() - began
        phase.others_cores = machine.others()
        tell(self.pulse, "take")
        pulse = read_record(self.pulse)
        phase.ping_ms, phase.live_ms = _two(pulse["pings_ms"]), _two(pulse["lives_ms"])
        phase.lost = pulse["lost"]
        return measured

    def run(self) -> Row:
        """All of it."""
        attack, node = self.attack, self.node
        rest_s = max(1.0, min(3.0, self.seconds / 2))
        # The first sync finds a node that has not served yet.
        self.phase(0)
        before = self.phase(rest_s).phase
        node.take_peaks()
        rss_before, disk_before = node.rss_mb(), node.disk_bytes()
        read_before, since = self._read(), len(node.events)
        with self._attack() as attacking:
            during = self.phase(self.seconds, rounds=attack.rounds or 0).phase
        ended = time.monotonic()
        read = self._read() - read_before
        after = self.phase(rest_s, until_good=before.per_s * RATIO_MIN)
        peak_mb, peak_disk = node.take_peaks()
        rss_after = node.rss_mb()
        control = self._beside_a_burner(attacking.cores, rest_s)
        told = attacking.told
        said = node.endings(since, set(told["ports"]))
        events = node.events[since:]
        stored = self._stored()
        seen = Seen(
            counts=told["counts"],
            said=said,
            limits=tuple({str(e["key"]) for e in events if e["event"] == "limit"}),
            node_read_bytes=read,
            disk_bytes=max(0, peak_disk - disk_before),
            entries_stored=sum(info.entries for info in stored),
            payloads_stored=sum(info.payloads for info in stored),
        )
        idle = self._idle(seen)
        held_back = self._held_back(seen) if idle else []
        row = Row(
            name=attack.name,
            what=attack.what,
            before=before,
            during=during,
            after=after.phase,
            control=control,
            recovery_s=None if after.good_at is None else max(0.0, after.good_at - ended),
            counts=dict(told["counts"]),
            said=dict(said.most_common(8)) or told["ends"],
            gone_s=statistics.median(told["gone_s"]) if told["gone_s"] else None,
            node_read_bytes=read,
            attacker_cores=attacking.cores,
            rss_mb=(rss_before, peak_mb, rss_after),
            rss_allowed_mb=attack.memory_mb,
            disk_bytes=seen.disk_bytes,
            entries_stored=seen.entries_stored,
            sigterm_s=self._terminate(),
            broken=[],
            idle=idle,
            held_back=held_back,
        )
        row.broken += judge(row, within=attack.within) + attack.judge(seen)
        if "Traceback" in "".join(node.errors):
            row.broken.append(f"a traceback on standard error: {node.errors[-1].strip()}")
        return row

    def _idle(self, seen: Seen) -> list[str]:
        found = at_least(seen, self.attack.needs)
        if seen.node_read_bytes < self.attack.node_reads:
            found.append(
                f"the node has read {seen.node_read_bytes} bytes,"
                f" {self.attack.node_reads} are needed"
            )
        return found

    def _held_back(self, seen: Seen) -> list[str]:
        """What it sends more while nobody honest syncs, if that is what was missing.

        A node that lets an attack wait while others are there has defended itself; one that is
        never really attacked has not.
        """
        if self.hostile is None:
            return []
        read = self._read()
        tell(self.hostile, "go")
        time.sleep(self.seconds)
        tell(self.hostile, "stop")
        counts = Counter(read_record(self.hostile)["counts"])
        counts.subtract(seen.counts)
        alone = replace(seen, counts=counts, node_read_bytes=self._read() - read)
        if self._idle(alone):
            return []
        needs = self.attack.needs
        found = [f"{name} {seen.counts.get(name, 0)} of {counts[name]}" for name in needs]
        return [*found, f"bytes read {seen.node_read_bytes} of {alone.node_read_bytes}"]

    def _beside_a_burner(self, share: float, seconds: float) -> Phase | None:
        """Honest peers beside a process that takes what the attacker took, and does nothing."""
        if share < BURNT_MIN:
            return None
        burner = subprocess.Popen([sys.executable, "-m", "siege.burning", f"{share:.3f}"])
        try:
            return self.phase(seconds).phase
        finally:
            burner.kill()
            burner.wait()

    def _read(self) -> int:
        try:
            return int(self.node.metrics().get("received_bytes_total", 0))
        except OSError:
            return 0

    def _stored(self) -> list[LogInfo]:
        """Logs of authors that are neither the node nor honest."""
        with Store.open(self.store, readonly=True) as store:
            known = {bytes.fromhex(self.author)}
            found = [info for info in store.logs() if info.key.author not in known]
        if self.attack.pushes:
            # Honest logs are of one length each.
            found = [info for info in found if info.entries != self.entries]
        return found

    @contextmanager
    def _attack(self) -> Iterator["_Attacking"]:
        attacking = _Attacking()
        began = time.monotonic()
        if self.hostile is None:
            stop = threading.Event()
            thread = threading.Thread(target=self._send_signals, args=(stop, attacking))
            thread.start()
            yield attacking
            stop.set()
            thread.join()
            return
        cpu = used_cpu_s(self.hostile.pid)
        tell(self.hostile, "go")
        # What is measured during an attack begins when it is under way.
        time.sleep(PROBE_S)
        yield attacking
        attacking.cores = (used_cpu_s(self.hostile.pid) - cpu) / (time.monotonic() - began)
        tell(self.hostile, "stop")
        attacking.told = read_record(self.hostile)

    def _send_signals(self, stop: threading.Event, attacking: "_Attacking") -> None:
        counts = attacking.told["counts"]
        for number in cycle(SIGNALS):
            if stop.wait(SIGNAL_EVERY_S):
                return
            self.node.signal(number)
            counts[number.name] = counts.get(number.name, 0) + 1

    def _terminate(self) -> float | None:
        """SIGTERM while the attack goes on. Nobody else is left who might not say goodbye."""
        self.pulse.kill()
        if self.hostile is not None:
            tell(self.hostile, "go")
            time.sleep(min(BEFORE_TERM_S, self.seconds))
        return self.node.stop()


class _Attacking:
    """What is known of an attack that is under way."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {"counts": {}, "ends": {}, "gone_s": [], "ports": []}
        self.cores = 0.0


class _Measured:
    """A phase, and when its first good round began (`time.monotonic`)."""

    def __init__(self, phase: Phase) -> None:
        self.phase = phase
        self.good_at: float | None = None


def _rule(scope: Scope, attack: Attack) -> RuleChange:
    connections = max(4, attack.connections)
    write = WriteScope(scope.write)
    return RuleChange(read=read_scope(scope.read), write=write, connections=connections)


def _two(values: list[float]) -> tuple[float, float]:
    if not values:
        return 0.0, 0.0
    return round(statistics.median(values), 2), round(max(values), 2)


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Variables of this process, until the end of the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def besiege(attack: Attack, *, seconds: float, entries: int) -> Row:
    """One attack on a new node, in a folder that is removed behind it."""
    with tempfile.TemporaryDirectory(prefix="siege-") as folder:
        siege = Siege(attack, Path(folder), seconds=seconds, entries=entries)
        try:
            return siege.run()
        finally:
            siege.close()
