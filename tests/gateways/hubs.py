"""Gateways in processes of their own, for tests with Trio and without."""

import json
import shlex
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import trio

from tests.cli_online.running import EXECUTABLE


@contextmanager
def hub(store: Path, *flags: str) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A hub on a store, and where it listens; it is interrupted at the end, unless it is gone."""
    argv = [EXECUTABLE, "--store", str(store), "--json", "ockam", "serve", *flags]
    if "--listen" not in flags:
        argv += ["--listen", "127.0.0.1:0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            event = json.loads(process.stdout.readline())
            assert event["event"] == "listening", event
            yield event["address"], process
        finally:
            was_running = process.poll() is None
            if was_running:
                process.send_signal(signal.SIGINT)
            _, error = process.communicate()
    assert not was_running or process.returncode == 0, (process.returncode, error.decode())


class Gateway:
    """A `bamboo-peer ... serve` process."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.address = ""

    async def begun(self) -> None:
        """Waits until it has told where it listens."""
        assert self.process.stdout is not None
        data = b""
        while not self.address:
            while b"\n" not in data:
                data += bytes(await self.process.stdout.receive_some())
            line, _, data = data.partition(b"\n")
            event: dict[str, Any] = json.loads(line)
            if event["event"] == "listening":
                self.address = event["address"]


@asynccontextmanager
async def gateway(
    store: Path, *arguments: str, open_files: int | None = None
) -> AsyncIterator[Gateway]:
    """One that is killed at the end, unless it is gone. `open_files`: as many as it may have."""
    argv = [EXECUTABLE, "--store", str(store), "--json", *arguments, "--listen", "127.0.0.1:0"]
    if open_files is not None:
        argv = ["sh", "-c", f"ulimit -Sn {open_files} && exec {shlex.join(argv)}"]
    process = await trio.lowlevel.open_process(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        serving = Gateway(process)
        await serving.begun()
        yield serving
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()
            await process.stdout.aclose()
