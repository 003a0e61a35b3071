"""Does what a page tells its reader to do, and compares what is seen with what the page shows.

A block ```console holds commands (`$ `, continued by `> `), each followed by what it prints; lines
of `...` stand for any lines. ```console NAME is a terminal of its own with a command that goes on
running; a later block of that name shows what is printed next, and `^C` in it is Ctrl-C.
```python FILE and ```toml FILE are files to save. Keys, hashes, times and durations differ from run
to run: a key has to be the same throughout, the others only have to look right.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.docs.pages import Block

PATIENCE_S = 30.0
"""How long anything on a page may take; it takes this long only if the page is wrong."""

_POLL_S = 0.05
_PROMPT, _CONTINUED, _INTERRUPT, _ANYTHING = "$ ", "> ", "^C", "..."
_PORT = re.compile(r"(?<=:)70\d\d\b")
_READING = re.compile(
    r"\b(bamboo-peer( --\S+ \S+)*"
    r" (swarm )?(cat|check|dump|entry|follows|logs|peer list|status|verify))\b"
)
_VARYING = re.compile(
    r"(?P<key>\b[0-9a-f]{64}\b|(?<=enode://)[0-9a-f]{128}\b)"
    r"|(?P<short>\b[0-9a-f]{8}\b)"
    r"|(?P<hash>\b[0-9a-f]{128,}\b)"
    r"|(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?|\b\d\d:\d\d:\d\d\b)"
    r"|(?P<duration>\b\d+(\.\d+)? (s|ms)\b)"
    r"|(?P<port>(?<=:)\d{4,5}\b)"
    r"|(?P<pid>(?<=process )\d+\b)"
    r"|(?P<core>(?<=native core: )[^\n]+)"
)
_PATTERNS = {
    "hash": r"[0-9a-f]{128,}",
    "time": r"[0-9T:. Z-]+",
    "duration": r"\d+(?:\.\d+)? (?:s|ms)",
    "port": r"\d+",
    "pid": r"\d+",
    "core": r"(?:\d+\.\d+\.\d+|no \([^\n]+\))",
}


@dataclass
class Keys:
    """Which key of this run stands for which key of the page."""

    known: dict[str, str] = field(default_factory=dict)

    def match(self, shown: str, seen: str) -> bool:
        """Whether `seen` is what the page shows; binds the keys that are new."""
        groups: dict[str, str] = {}
        found = re.fullmatch(self._pattern(shown, groups), seen, re.DOTALL)
        if found is None:
            return False
        for key, group in groups.items():
            self.known[key] = found[group]
        return True

    def in_command(self, command: str) -> str:
        """The command with the keys of this run."""
        for page_key, real_key in self.known.items():
            command = command.replace(page_key, real_key)
        return command

    def _pattern(self, shown: str, groups: dict[str, str]) -> str:
        parts = []
        place = 0
        for varying in _VARYING.finditer(shown):
            parts += [self._plain(shown[place : varying.start()]), self._one(varying, groups)]
            place = varying.end()
        return "".join([*parts, self._plain(shown[place:])])

    @staticmethod
    def _plain(text: str) -> str:
        """Text as it is, but for the width of gaps; a line of three dots is any lines."""
        lines = (
            ".*?" if line == _ANYTHING else r" +".join(map(re.escape, re.split(" +", line)))
            for line in text.split("\n")
        )
        return "\n".join(lines)

    def _one(self, varying: re.Match[str], groups: dict[str, str]) -> str:
        kind = str(varying.lastgroup)
        if kind not in ("key", "short"):
            return _PATTERNS[kind]
        text = varying[0]
        for page_key, real_key in self.known.items():
            if page_key.startswith(text):
                return real_key[: len(text)]
        if text in groups:
            return f"(?P={groups[text]})"
        groups[text] = f"key{len(groups)}"
        return f"(?P<{groups[text]}>[0-9a-f]{{{len(text)}}})"


class Terminal:
    """A command that goes on running, and what it has printed."""

    def __init__(self, argv: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            argv,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._seen = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._shown = 0

    def _read(self) -> None:
        assert self._process.stdout is not None
        while data := os.read(self._process.stdout.fileno(), 65536):
            self._seen += data

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def expect(self, shown: str, keys: Keys) -> None:
        """Waits for the lines that the page shows, from where it left off."""
        lines = shown.splitlines()
        deadline = time.monotonic() + PATIENCE_S
        while lines:
            text = self._seen.decode(errors="replace")
            seen = text[: text.rfind("\n") + 1].splitlines()[self._shown :]
            if len(seen) >= len(lines) and keys.match(shown, "\n".join(seen[: len(lines)]) + "\n"):
                self._shown += len(lines)
                return
            ended = not self.running and not self._reader.is_alive()
            hopeless = ended or time.monotonic() > deadline
            assert not hopeless, f"the page shows\n{shown}\nand this was printed:\n" + "\n".join(
                seen
            )
            time.sleep(_POLL_S)

    def interrupt(self) -> None:
        """Ctrl-C: the command has to end, and to be content."""
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(PATIENCE_S) == 0, self._seen.decode(errors="replace")
        self._reader.join(PATIENCE_S)

    def end(self) -> None:
        if self.running:
            self._process.kill()
        self._process.wait()
        self._reader.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Tour:
    """Somebody who follows a page in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state = folder / ".state"
        self._state.touch()
        self._keys = Keys()
        self._ports: dict[str, str] = {}
        self._terminals: dict[str, Terminal] = {}
        kept = ("HOME", "LANG", "LC_ALL", "TMPDIR", "JAVA_HOME")
        self._environment = {name: os.environ[name] for name in kept if name in os.environ} | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "XDG_DATA_HOME": str(folder / ".data"),
            "XDG_CONFIG_HOME": str(folder / ".config"),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for terminal in self._terminals.values():
            terminal.end()

    def follow(self, block: Block) -> None:
        """Does what one block says; AssertionError if the result is not what the page shows."""
        kind, _, name = block.info.partition(" ")
        text = _PORT.sub(lambda found: self._free_port(found[0]), block.text)
        if kind in ("python", "toml") and name:
            (self._folder / name).write_text(text, "utf-8")
        elif kind == "console":
            for command, shown in commands(text):
                self._do(name, self._keys.in_command(command), shown)

    def _do(self, terminal: str, command: str, shown: str) -> None:
        if command == _INTERRUPT:
            self._terminals[terminal].interrupt()
            self._terminals[terminal].expect(shown, self._keys)
        elif not command:
            self._terminals[terminal].expect(shown, self._keys)
        elif terminal:
            if terminal in self._terminals:
                self._terminals[terminal].end()
            argv = self._shell(f"exec {command}", keep_state=False)
            self._terminals[terminal] = Terminal(argv, self._folder, self._environment)
            self._terminals[terminal].expect(shown, self._keys)
        else:
            self._run(command, shown)

    def _run(self, command: str, shown: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            done = subprocess.run(
                self._shell(command, keep_state=True),
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=PATIENCE_S,
                check=False,
            )
            seen = done.stdout.decode()
            seen += "\n" if seen and not seen.endswith("\n") else ""
            if self._keys.match(shown, seen):
                return
            # What another terminal is about to bring may not be there yet: look again.
            running = any(terminal.running for terminal in self._terminals.values())
            waiting = running and _READING.search(command)
            hopeless = not waiting or time.monotonic() > deadline
            assert not hopeless, (
                f"$ {command}\nThe page shows\n{shown}\nand this was printed:\n{seen}"
            )
            time.sleep(_POLL_S)

    def _shell(self, command: str, *, keep_state: bool) -> list[str]:
        """The command as a shell of its own, which knows the variables set before."""
        state = shlex.quote(str(self._state))
        keep = f"status=$?; export -p > {state}; exit $status" if keep_state else ""
        return ["bash", "-c", f"set -a; . {state}\n{command}\n{keep}"]

    def _free_port(self, shown: str) -> str:
        if shown not in self._ports:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self._ports[shown] = str(probe.getsockname()[1])
        return self._ports[shown]


def commands(text: str) -> list[tuple[str, str]]:
    """Each command of a block and what is shown behind it; the command is "" before the first."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines(keepends=True):
        if line.startswith(_PROMPT):
            found.append((line[len(_PROMPT) :].rstrip("\n"), ""))
        elif line.startswith(_CONTINUED) and found and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line[len(_CONTINUED) :].rstrip()}", "")
        elif line.rstrip("\n") == _INTERRUPT:
            found.append((_INTERRUPT, ""))
        elif found:
            found[-1] = (found[-1][0], found[-1][1] + line)
        else:
            found.append(("", line))
    return found
