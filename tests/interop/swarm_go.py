"""Nodes of go-ethereum 1.8.27's Swarm: a Go program of ours on its packages, told what to do.

    python -m tests.interop.swarm_go

builds it, which takes two or three minutes the first time and no time after that; what it needs
comes from where Go is set to. Where there is no Go, it says so and is content: who needs the
program is left out then.

Upstream's node asks its peers for subscriptions once, some time after its start, and then only when
its depth changes. So it is not left to itself here (unless `auto_s` says so): it subscribes and
requests what `command` tells it, and a test knows what has begun.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

SOURCE = Path(__file__).parent / "swarm"
BUILT = SOURCE / "build"
PROGRAM = BUILT / "swarm"
NETWORK = 3
BINS = range(17)
PATIENCE_S = 60.0
SPAN_BYTES = 8
PAYLOAD_BYTES = 4096

Answer = dict[str, Any]


class UpstreamFailed(Exception):  # noqa: N818 - what happened to it
    """Upstream's node refused a command, or has ended; the text is what it said."""


def build() -> None:
    """Builds the program. Raises CalledProcessError."""
    BUILT.mkdir(exist_ok=True)
    subprocess.run(["go", "build", "-o", PROGRAM, "."], cwd=SOURCE, check=True)


def made_up(seed: object, number: int) -> bytes:
    """The chunk of this number of those that `put` stores: a leaf, its span in front."""
    payload = hashlib.shake_128(f"{seed}/{number}".encode()).digest(PAYLOAD_BYTES)
    return PAYLOAD_BYTES.to_bytes(SPAN_BYTES, "little") + payload


class UpstreamNode:
    """One node, and what it is told: a command waits for its answer, so Trio runs it in a thread.

    Of the same folder it is the same node again, key, chunks and intervals. Its log is there too.
    """

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        """Takes a program that was just started. Raises UpstreamFailed."""
        self._process = process
        self._log = log
        self._turn = threading.Lock()
        self._lines: SimpleQueue[str] = SimpleQueue()
        # An answer may never come, and a pipe has no timeout.
        threading.Thread(target=self._read, daemon=True).start()
        said = self._next(PATIENCE_S)
        self.enode: str = said["listening"]
        """Where it listens."""
        self.overlay: str = said["overlay"]
        """64 hex digits."""

    @classmethod
    def start(
        cls,
        folder: Path,
        *,
        network: int = NETWORK,
        light: bool = False,
        sync: bool = True,
        offer: bool = False,
        auto_s: float | None = None,
        verbosity: int = 2,
    ) -> Self:
        """Starts the node of a folder. Raises UpstreamFailed.

        Without `sync` it has no SYNC streams. With `offer` it wants retrieved chunks to be offered
        first. With `auto_s` it requests subscriptions by itself, so long after its start.
        """
        folder.mkdir(parents=True, exist_ok=True)
        options: list[object] = ["-dir", folder, "-network", network, "-verbosity", verbosity]
        options += [
            name
            for name, is_so in (("-light", light), ("-nosync", not sync), ("-offer", offer))
            if is_so
        ]
        if auto_s is not None:
            options += ["-auto", f"{auto_s}s"]
        log = folder / "log"
        with log.open("a") as errors:
            process = subprocess.Popen(
                [str(PROGRAM), *map(str, options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        try:
            return cls(process, log)
        except BaseException:
            _end(process)
            raise

    def command(self, *words: object, timeout_s: float = PATIENCE_S) -> Answer:
        """Gives a command, which stand in `swarm/commands.go`. Raises UpstreamFailed.

        Where no answer comes in time the node is of no further use.
        """
        with self._turn:
            assert self._process.stdin is not None
            texts = [*map(str, words)]
            try:
                self._process.stdin.write(json.dumps(texts) + "\n")
                self._process.stdin.flush()
            except (BrokenPipeError, ValueError):
                # Ended by itself, or closed.
                raise UpstreamFailed(self._last_words()) from None
            answer = self._next(timeout_s)
        if "error" in answer:
            raise UpstreamFailed(f"{words[0]}: {answer['error']}")
        return answer

    def put(self, count: int, seed: object, timeout_s: float = PATIENCE_S) -> Answer:
        """Stores the chunks `made_up(seed, 0)` and so on: their `addresses`, and `seconds`."""
        return self.command("put", count, seed, timeout_s=timeout_s)

    def connect(self, enode: str) -> str:
        """Calls another node, until it is there; returns its overlay. Raises UpstreamFailed."""
        overlay: str = self.command("connect", enode)["overlay"]
        self.wait_connected(overlay)
        return overlay

    def wait_connected(self, overlay: str) -> None:
        """Until that peer is connected. Raises UpstreamFailed."""
        _wait(lambda: overlay in self.peers(), f"{overlay} is not connected")

    def peers(self) -> dict[str, Answer]:
        """The connected ones by overlay."""
        return {each["overlay"]: each for each in self.command("peers")["peers"]}

    def sync(self, overlay: str, *, to: bool = False) -> None:
        """Has all bins of a peer synced, live and history; `to` it by asking that it subscribes."""
        self.command("sync", overlay, "to" if to else "from")

    def wait(self, chunks: int, timeout_s: float = PATIENCE_S) -> float:
        """Until so many chunks are held, and the seconds that took. Raises UpstreamFailed."""
        found = self.command("wait", chunks, timeout_s, timeout_s=timeout_s + PATIENCE_S)
        seconds: float = found["seconds"]
        return seconds

    def held(self) -> dict[str, tuple[int, int]]:
        """Bin and index in it of each chunk, by its address in hex."""
        found = self.command("list")["chunks"]
        return {each["address"]: (each["bin"], each["index"]) for each in found}

    def ended(self) -> list[Answer]:
        """Why sub-protocols of peers have ended since this was asked last: `peer` by public key."""
        found: list[Answer] = self.command("ended")["ended"]
        return found

    def wait_ended(self, protocol: str = "stream") -> Answer:
        """The first end of a sub-protocol that was not told yet. Raises UpstreamFailed."""
        found: list[Answer] = []

        def has_ended() -> bool:
            found.extend(each for each in self.ended() if each["protocol"] == protocol)
            return bool(found)

        _wait(has_ended, f"no peer's {protocol} has ended")
        return found[0]

    def close(self) -> None:
        """Ends it, and waits until it has ended."""
        _end(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _next(self, timeout_s: float) -> Answer:
        try:
            line = self._lines.get(timeout=timeout_s)
        except Empty:
            raise UpstreamFailed(f"no answer in {timeout_s} s") from None
        if not line:
            raise UpstreamFailed(self._last_words())
        answer: Answer = json.loads(line)
        return answer

    def _last_words(self) -> str:
        return f"it has ended: {self._log.read_text(errors='replace')[-2000:]}"


def _wait(is_so: Callable[[], bool], otherwise: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > until:
            raise UpstreamFailed(otherwise)
        time.sleep(0.01)


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def main() -> None:
    """Builds it where that is possible."""
    if shutil.which("go") is None:
        sys.stdout.write("upstream's Swarm nodes are left out: there is no Go here\n")
    else:
        build()


if __name__ == "__main__":
    main()
