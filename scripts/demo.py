"""Two real nodes on this machine: history, live appends, a kill, a restart, verify, Spark.

Run by `make demo`. Every command shown is run, everything behind `amy |` and `ben |` is what that
node prints (with $AMY and $BEN for the two keys), and each claim is checked: the exit status is 1
if one of them does not come true. The stores live in a temporary folder; nothing is left behind.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from analytics import JavaMissing, ensure_java
from logstore import Store
from wire import LogKey

PROGRAM = Path(sys.executable).with_name("bamboo-peer")
LIMIT_S = 180.0
"""The whole demo but Spark; it takes about 7 s, on a machine with other work a minute."""
SPARK_LIMIT_S = 180.0
"""Starting Java and asking one question; it takes about 15 s."""
POLL_S = 0.01
STOP_S = 8.0
LINES = 1000


class Failed(Exception):  # noqa: N818 - what became of the demo
    """Something that the demo claims did not happen."""


class Screen:
    """What is shown; nodes print from threads of their own."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        """What is shown instead of keys, once they have been introduced."""
        self._lock = threading.Lock()
        coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self._bold, self._dim, self._plain = (
            ("\x1b[1m", "\x1b[2m", "\x1b[0m") if coloured else ("", "", "")
        )

    def line(self, text: str = "") -> None:
        for key, name in self.names.items():
            text = text.replace(key, name)
        with self._lock:
            print(text, flush=True)

    def title(self, text: str) -> None:
        self.line(f"\n{self._bold}{text}{self._plain}")

    def command(self, text: str) -> None:
        self.line(f"{self._bold}$ {text}{self._plain}")

    def of_node(self, name: str, text: str) -> None:
        self.line(f"{self._dim}{name} |{self._plain} {text}")


class Node:
    """A running `bamboo-peer serve`, whose lines are shown as they come."""

    def __init__(self, name: str, argv: list[str], folder: Path, screen: Screen) -> None:
        self.name = name
        self.lines: list[str] = []
        self._screen = screen
        self.process = subprocess.Popen(
            argv,
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Ctrl-C is for the demo, which then ends its nodes itself.
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._show, daemon=True)
        self._reader.start()

    def _show(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            self._screen.of_node(self.name, self.lines[-1])

    def has_printed(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    def signal(self, number: signal.Signals) -> int:
        """Sends a signal, and waits for the end; the exit status."""
        self.process.send_signal(number)
        status = self.process.wait(STOP_S)
        self._finish()
        return status

    def end(self) -> None:
        """Whatever happened before: no process is left."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._finish()

    def _finish(self) -> None:
        """Shows what the process printed last."""
        self._reader.join(STOP_S)
        if self.process.stdout is not None:
            self.process.stdout.close()


def environment(folder: Path) -> dict[str, str]:
    """In which neither a configuration nor a store of the person who runs this plays a part."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith("BAMBOO_PEER_")}
    return ours | {"XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder)}


class Demo:
    """The folder, the nodes and the clock that all steps share."""

    def __init__(self, folder: Path, screen: Screen) -> None:
        self.folder = folder
        self.screen = screen
        self.nodes: dict[str, Node] = {}
        self.authors: dict[str, str] = {}
        self.ports: dict[str, str] = {}
        self._deadline = time.monotonic() + LIMIT_S

    def run(self, *arguments: str, stdin: str | None = None, shown_lines: int = 12) -> str:
        """Runs a command to its end, shows it and what it prints; its output."""
        given = ""
        if stdin is not None:
            lines = stdin.splitlines()
            given = f"seq {len(lines)} | " if len(lines) > 1 else f"echo {lines[0]!r} | "
        self.screen.command(f"{given}bamboo-peer {shlex.join(arguments)}")
        done = self._done(arguments, stdin)
        lines_out = (done.stdout + done.stderr).splitlines()
        for line in lines_out[:shown_lines]:
            self.screen.line(line)
        if len(lines_out) > shown_lines:
            self.screen.line(f"... and {len(lines_out) - shown_lines} more lines")
        if done.returncode != 0:
            raise Failed(f"bamboo-peer {shlex.join(arguments)}: exit status {done.returncode}")
        return done.stdout

    def serve(self, name: str, *arguments: str) -> Node:
        """Starts a node and waits until it listens."""
        listen = f"127.0.0.1:{self.ports.get(name, '0')}"
        argv = ["--store", name, "serve", "--listen", listen, *arguments]
        self.screen.command(f"bamboo-peer {shlex.join(argv)} &")
        node = self.nodes[name] = Node(name, [str(PROGRAM), *argv], self.folder, self.screen)
        self.wait_for(f"{name}'s node listens", lambda: self._port_of(node) is not None)
        self.ports[name] = self._port_of(node) or ""
        return node

    def wait_for(self, claim: str, holds: Callable[[], bool]) -> None:
        """Waits until a claim holds, with a limit."""
        while not holds():
            for node in self.nodes.values():
                if node.process.poll() not in (None, 0, -signal.SIGKILL):
                    raise Failed(f"{node.name}'s node ended with {node.process.returncode}")
            if time.monotonic() > self._deadline:
                raise Failed(f"waited in vain: {claim}")
            time.sleep(POLL_S)

    def payloads(self, name: str, author: str) -> str:
        """All payloads of an author's log 0 that are in a store, read directly."""
        with Store.open(self.folder / name, readonly=True) as store:
            found = store.read(LogKey(author), 1, entries_max=2 * LINES, bytes_max=1 << 20)
        return b"".join(entry.payload for entry in found).decode()

    def both_have(self, author: str, payloads: str) -> bool:
        """Whether both stores hold exactly these payloads of an author's log."""
        return all(self.payloads(name, author) == payloads for name in ("amy", "ben"))

    def _done(
        self, arguments: tuple[str, ...], stdin: str | None
    ) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [str(PROGRAM), *arguments],
                cwd=self.folder,
                env=environment(self.folder),
                input=stdin or "",
                capture_output=True,
                text=True,
                timeout=max(self._deadline - time.monotonic(), 0.1),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"bamboo-peer {shlex.join(arguments)} takes too long") from None

    @staticmethod
    def _port_of(node: Node) -> str | None:
        found = (re.search(r"listening\D* 127\.0\.0\.1:(\d+)", line) for line in node.lines)
        return next((match[1] for match in found if match), None)


def two_authors(demo: Demo) -> None:
    """Amy and Ben each have a store, and so a key: the name of what they write"""
    for name in ("amy", "ben"):
        demo.authors[name] = demo.run("--store", name, "init").strip()
    for name, author in demo.authors.items():
        demo.screen.names[author] = f"${name.upper()}"
    demo.screen.line("From here on these keys are shown as $AMY and $BEN.")
    demo.run("--store", "amy", "append", stdin="Hello.\n")
    demo.run("--store", "amy", "append", stdin="I am Amy.\n")


def history(demo: Demo) -> None:
    """A node for each; they follow each other, and what was written before comes first"""
    demo.serve("amy", "--follow", demo.authors["ben"])
    amy = f"127.0.0.1:{demo.ports['amy']}"
    demo.serve("ben", "--follow", demo.authors["amy"], "--connect", amy)
    written = "Hello.\nI am Amy.\n"
    demo.wait_for("ben has amy's log", lambda: demo.both_have(demo.authors["amy"], written))
    demo.run("--store", "ben", "cat", demo.authors["amy"])


def live(demo: Demo) -> None:
    """What either of them appends now is with the other at once"""
    for name, other, text in (("amy", "ben", "Live.\n"), ("ben", "amy", "Hi Amy.\n")):
        author = demo.authors[name]
        payloads = demo.payloads(name, author) + text
        demo.run("--store", name, "append", stdin=text)
        written_at = time.monotonic()
        demo.wait_for(f"{other} has it", partial(demo.both_have, author, payloads))
        took_ms = (time.monotonic() - written_at) * 1000
        demo.screen.line(f"In {other}'s store {took_ms:.0f} ms after `append` returned.")
        count = payloads.count("\n")
        said = f"{author}/0: {count} {'entry' if count == 1 else 'entries'}"
        demo.wait_for(f"{other}'s node says so", partial(demo.nodes[other].has_printed, said))
    demo.run("--store", "amy", "cat", demo.authors["ben"])


def restart(demo: Demo) -> None:
    """Ben's node is killed, Amy writes on, and Ben's next node goes on where the first one was"""
    demo.screen.command(f"kill -9 {demo.nodes['ben'].process.pid}")
    demo.nodes.pop("ben").signal(signal.SIGKILL)
    before = demo.payloads("amy", demo.authors["amy"])
    lines = [str(number) for number in range(1, LINES + 1)]
    demo.run("--store", "amy", "append", "--lines", stdin="\n".join(lines), shown_lines=2)
    node = demo.serve("ben", "--connect", f"127.0.0.1:{demo.ports['amy']}")
    after = before + "".join(lines)
    demo.wait_for("ben has caught up", lambda: demo.both_have(demo.authors["amy"], after))
    demo.wait_for("ben's node says so", lambda: node.has_printed(f"/0: {LINES + 3} entries"))
    demo.run("--store", "ben", "status")


def verified(demo: Demo) -> None:
    """Both nodes end in good order; every signature, link, hash and size is checked once more"""
    for name in ("ben", "amy"):
        demo.screen.command(f"kill -INT {demo.nodes[name].process.pid}")
        status = demo.nodes.pop(name).signal(signal.SIGINT)
        if status != 0:
            raise Failed(f"{name}'s node ended with {status}")
    for name in ("amy", "ben"):
        demo.run("--store", name, "verify")


QUERY = """\
from analytics import read_export, replication_delay, start_spark
with start_spark("local[2]") as spark:
    replication_delay(read_export(spark, ["amy-lake", "ben-lake"])).selectExpr(
        "left(author, 8) AS log_of", "left(from_node, 8) AS written_at",
        "left(to_node, 8) AS replicated_to", "entries", "median_s", "most_s"
    ).show()
"""


def exported(demo: Demo) -> None:
    """Both export what they hold as Parquet; Spark reads the two, and tells how replication went"""
    for name in ("amy", "ben"):
        demo.run("--store", name, "export", f"{name}-lake")
    try:
        ensure_java()
    except JavaMissing as missing:
        demo.screen.line(f"Spark is not asked: {missing}")
        return
    demo.screen.command(f"python -c '\n{QUERY}'")
    done = subprocess.run(
        [sys.executable, "-c", QUERY],
        cwd=demo.folder,
        env=environment(demo.folder),
        capture_output=True,
        text=True,
        timeout=SPARK_LIMIT_S,
        check=False,
    )
    for line in done.stdout.splitlines():
        demo.screen.line(line)
    if done.returncode != 0:
        raise Failed(f"the query: {done.stderr.strip().splitlines()[-1]}")
    for entries in (LINES + 3, 1):
        if not re.search(rf"\|\s*{entries}\|", done.stdout):
            raise Failed(f"the query does not tell of a log of {entries} entries on two nodes")


STEPS: tuple[Callable[[Demo], None], ...] = (
    two_authors,
    history,
    live,
    restart,
    verified,
    exported,
)
"""The docstring of a step is its title. A new one goes to the end: both stores are whole there."""


def play(screen: Screen) -> None:
    """All steps, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="bamboo-peer-demo-") as folder:
        demo = Demo(Path(folder), screen)
        try:
            for number, step in enumerate(STEPS, 1):
                screen.title(f"{number}. {step.__doc__}.")
                step(demo)
        finally:
            for node in demo.nodes.values():
                node.end()


def main() -> int:
    screen = Screen()
    began = time.monotonic()
    try:
        play(screen)
    except Failed as failed:
        print(f"\nThe demo failed: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    screen.title(f"Done in {time.monotonic() - began:.0f} s. Next: docs/tutorial.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
