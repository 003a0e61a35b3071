"""Runs the command line in this process, and makes logs that no store has seen."""

import io
import json
import os
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from nacl.signing import SigningKey

from bamboo_cli import main
from bamboo_cli.registry import Command, Definition
from bamboo_cli.settings import Parser
from wire import LogKey, has_distinct_lipmaalink, lipmaa, sign_entry, yamf_hash


def parsers_of(command: Command) -> list[Parser]:
    """The parser of a command, or one for each of its verbs."""
    loaded = command.load()
    found = [loaded] if isinstance(loaded, Definition) else map(loaded.definition, loaded)
    made = []
    for each in found:
        parser = Parser(command.name, command.summary, verb=each.verb, takes=each.takes)
        each.arguments(parser)
        made.append(parser)
    return made


@dataclass(frozen=True)
class Result:
    """How a command ended and what it printed."""

    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode().rstrip("\n")

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    @property
    def dumped(self) -> bytes:
        """What `dump` has printed, without what `import` does not need."""
        kept = [{name: each[name] for name in ("encoded", "payload")} for each in self.records]
        return b"".join(json.dumps(each).encode() + b"\n" for each in kept)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    @property
    def record(self) -> dict[str, Any]:
        [record] = self.records
        return record


class Stream(io.TextIOWrapper):
    """A standard stream that remembers what was written; a terminal if asked to be one."""

    def __init__(self, data: bytes = b"", *, terminal: bool = False) -> None:
        self.bytes = io.BytesIO(data)
        super().__init__(self.bytes, encoding="utf-8", write_through=True)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


class CommandLine:
    """`cli("append", "--lines", stdin=b"x")` is what a shell would do."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.author = ""
        self._monkeypatch = monkeypatch

    @classmethod
    def isolated(cls, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Self:
        """One whose store, configuration and environment are the test's own; no store yet."""
        for name in list(os.environ):
            if name.startswith(("BAMBOO_PEER_", "XDG_")):
                monkeypatch.delenv(name)
        (folder / "home").mkdir(exist_ok=True)
        monkeypatch.setenv("HOME", str(folder / "home"))
        monkeypatch.setenv("BAMBOO_PEER_STORE", str(folder / "store"))
        return cls(folder, monkeypatch)

    def __call__(
        self, *argv: str | Path | int, stdin: bytes | None = b"", terminal: bool = False
    ) -> Result:
        out, err = Stream(terminal=terminal), Stream()
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", None if stdin is None else Stream(stdin))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            status = main([str(each) for each in argv])
        return Result(status, out.bytes.getvalue(), err.bytes.getvalue().decode())

    def setenv(self, name: str, value: str) -> None:
        self._monkeypatch.setenv(name, value)

    def file(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path


@dataclass(frozen=True)
class Made:
    """An entry of a log made by hand."""

    key: LogKey
    seq: int
    encoded: bytes
    payload: bytes

    @property
    def name(self) -> str:
        return f"{self.key}/{self.seq}"

    def line(self, *, payload: bool = True) -> str:
        fields = {"encoded": self.encoded.hex(), "payload": self.payload.hex() if payload else None}
        return json.dumps(fields)


AUTHOR_KEY = SigningKey(bytes(range(32)))


def make_log(
    payloads: Sequence[bytes],
    *,
    log_id: int = 0,
    signing_key: SigningKey = AUTHOR_KEY,
    ended: bool = False,
) -> list[Made]:
    """A whole log, signed; `ended` makes the last entry its end."""
    key = LogKey(bytes(signing_key.verify_key), log_id)
    made: list[Made] = []
    for seq, payload in enumerate(payloads, 1):
        encoded = sign_entry(
            signing_key,
            log_id=log_id,
            seq=seq,
            is_end=ended and seq == len(payloads),
            lipmaalink=(
                yamf_hash(made[lipmaa(seq) - 1].encoded) if has_distinct_lipmaalink(seq) else None
            ),
            backlink=yamf_hash(made[-1].encoded) if made else None,
            payload_bytes=len(payload),
            payload_hash=yamf_hash(payload),
        )
        made.append(Made(key, seq, encoded, payload))
    return made


def words(count: int) -> list[bytes]:
    """Small payloads, each different."""
    return [f"payload {number}".encode() for number in range(1, count + 1)]


def lines_of(made: Iterable[Made]) -> bytes:
    return "".join(each.line() + "\n" for each in made).encode()


def shuffled(made: Sequence[Made], seed: int) -> list[Made]:
    mixed = list(made)
    random.Random(seed).shuffle(mixed)
    return mixed
