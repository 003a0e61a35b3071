"""The node under siege: a real `bamboo-peer serve`, and what it uses of the machine."""

import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.support.processes import BAMBOO_PEER, ENVIRONMENT, descendants, used_cpu_s

if TYPE_CHECKING:
    from http.client import HTTPResponse

SAMPLE_S: Final = 0.1
START_S: Final = 30.0
STOP_S: Final = 10.0
"""Within so long SIGTERM has to end a node."""
_PAGE_MB: Final = os.sysconf("SC_PAGE_SIZE") / (1 << 20)
_NUMBER: Final = re.compile(r"\d+(\.\d+)?")


class Node:
    """A node that serves a store, from the call on; `stop` ends it."""

    def __init__(
        self,
        store: Path,
        flags: Sequence[str],
        environment: Mapping[str, str],
        *,
        descriptors: int | None = None,
    ) -> None:
        self.store = store
        serve = ["--store", str(store), "--json", "serve", "--log-level", "info"]
        serve += ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", *flags]
        command = [*BAMBOO_PEER, *serve]
        if descriptors is not None:
            # Soft and hard, or it would raise it again.
            command = ["/bin/sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**ENVIRONMENT, **environment},
        )
        self.events: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self._addresses: dict[str, str] = {}
        self._listening = threading.Event()
        self._ended = threading.Event()
        self._peak_mb = 0.0
        self._peak_disk = 0
        self._threads = [
            threading.Thread(target=self._take_events, daemon=True),
            threading.Thread(target=self._take_errors, daemon=True),
            threading.Thread(target=self._sample, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        if not self._listening.wait(START_S):
            self.kill()
            raise RuntimeError(f"the node does not listen: {''.join(self.errors)[-2000:]}")

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, _, port = self._addresses["listening"].rpartition(":")
        return host, int(port)

    # What it tells

    def _take_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            if event["event"] in {"listening", "metrics_listening"}:
                self._addresses[event["event"]] = str(event["address"])
            elif event["event"] == "page":
                # Both at the same address: one server.
                where = str(event["address"]).removeprefix("http://").rstrip("/")
                self._addresses["metrics_listening"] = where
            if len(self._addresses) == 2:
                self._listening.set()
            self.events.append(event)
        self._listening.set()

    def _take_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.errors.append(line)

    def metrics(self) -> dict[str, float]:
        """What `/metrics` says, each name's sum over its labels."""
        found: Counter[str] = Counter()
        for line in self.scrape().decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name.partition("{")[0].removeprefix("bamboo_peer_")] += float(value)  # type: ignore[assignment]
        return dict(found)

    def scrape(self) -> bytes:
        """One page of metrics, as Prometheus fetches it. OSError if the node does not answer."""
        where = f"http://{self._addresses['metrics_listening']}/metrics"
        with urllib.request.urlopen(where, timeout=20) as page:
            return bytes(page.read())

    def open_page(self, path: str) -> "HTTPResponse":
        """What the local API answers to GET, as whoever owns the store; of `--page`."""
        token = (self.store / "api.token").read_text().strip()
        request = urllib.request.Request(
            f"http://{self._addresses['metrics_listening']}{path}",
            headers={"Authorization": f"Bearer {token}"},
        )
        found: HTTPResponse = urllib.request.urlopen(request, timeout=60)
        return found

    def endings(self, since: int, ports: set[int]) -> Counter[str]:
        """How connections from these ports ended, in its own words, and how often."""
        found: Counter[str] = Counter()
        for event in self.events[since:]:
            if event["event"] not in {"disconnected", "violation", "refused"}:
                continue
            port = str(event["address"]).rpartition(":")[2]
            if port.isdigit() and int(port) in ports:
                reason = _NUMBER.sub("N", str(event["reason"]))
                found[f"{event['kind']}: {reason}"] += int(event.get("count", 1))
        return found

    # What it uses

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self._peak_mb = max(self._peak_mb, self.rss_mb())
            self._peak_disk = max(self._peak_disk, self.disk_bytes())

    def rss_mb(self) -> float:
        """Resident memory now, of the node and the processes that it has started. MiB."""
        pages = 0
        for pid in (self.pid, *descendants(self.pid)):
            try:
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except OSError:
                continue
        return pages * _PAGE_MB

    def disk_bytes(self) -> int:
        """Of the store, in blocks that are in use."""
        total = 0
        for folder, _, names in os.walk(self.store):
            for name in names:
                try:
                    total += Path(folder, name).stat().st_blocks * 512
                except OSError:
                    continue
        return total

    def take_peaks(self) -> tuple[float, int]:
        """The most memory (MiB) and disk (bytes) since the last call."""
        found = max(self._peak_mb, self.rss_mb()), max(self._peak_disk, self.disk_bytes())
        self._peak_mb, self._peak_disk = 0.0, 0
        return found

    def cpu_s(self) -> float:
        """Seconds of cores that it has used so far."""
        return used_cpu_s(self.pid)

    # The end

    def signal(self, number: signal.Signals) -> None:
        """One signal; nothing if it has ended."""
        self._process.send_signal(number)

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def stop(self) -> float | None:
        """SIGTERM; seconds until it had ended well, None if it took more than 10 or did not."""
        began = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            status = -1
        seconds = time.monotonic() - began
        self.kill()
        return seconds if status == 0 else None

    def kill(self) -> None:
        """At once, whatever it does."""
        self._ended.set()
        if self.runs:
            self._process.kill()
        self._process.wait()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(5)
