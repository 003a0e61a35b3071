"""What signals do to `serve`: in processes of their own."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .running import PATIENCE_S, Serving, run, serving, until

LOG = "ab" * 32 + "/7"
NOTHING: dict[str, object] = {
    "event": "config_reloaded",
    "changed": [],
    "needs_restart": [],
    "error": None,
}


def event(node: Serving, name: str) -> dict[str, Any]:
    while (found := node.event())["event"] != name:
        pass
    return found


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text("[serve]\nmax-rate = '1M'\n")
    return path


def test_sighup_has_the_configuration_read_again(taker: Path, config: Path) -> None:
    with serving(
        taker, "--listen", "127.0.0.1:0", "--json", "--config", str(config), "--max-requests", "50"
    ) as node:
        node.event()
        node.process.send_signal(signal.SIGHUP)
        assert node.event() == NOTHING
        config.write_text(
            f"[serve]\nmax-rate = '2M'\nfollow = ['{LOG}']\n"
            "max-requests = 9\nmax-in-flight = '2M'\n"
        )
        node.process.send_signal(signal.SIGHUP)
        # What the command line says stands nearer than the file.
        changed = {"changed": ["follow", "max-rate"], "needs_restart": ["max-in-flight"]}
        assert node.event() == NOTHING | changed
        assert run(taker, "follows").stdout.startswith(LOG)
        config.write_text("[serve]\nmax-rate = 0\n")
        node.process.send_signal(signal.SIGHUP)
        refused = node.event()
        assert (refused["changed"], refused["needs_restart"]) == ([], [])
        assert refused["error"].startswith(f"{config}: max-rate: a rate of 0 would move nothing")
        config.unlink()
        node.process.send_signal(signal.SIGHUP)
        assert "there is no such configuration" in node.event()["error"]
        assert node.end() == (0, "")


def test_a_call_that_the_file_names_is_made_and_hung_up(
    taker: Path, giver: str, author: str, config: Path
) -> None:
    with serving(taker, "--no-listen", "--json", "--config", str(config)) as node:
        # There is no event of a node that neither listens nor calls: what it writes says it runs.
        until((taker / "status.json").exists)
        config.write_text(f"[serve]\nconnect = ['{giver}']\nfollow = ['{author}']\n")
        node.process.send_signal(signal.SIGHUP)
        # What is called may answer before all is applied, and that is told.
        seen: dict[str, dict[str, Any]] = {}
        while not {"config_reloaded", "log_advanced"} <= seen.keys():
            told = node.event()
            seen[told["event"]] = told
        assert seen["config_reloaded"]["changed"] == ["connect", "follow", "max-rate"]
        config.write_text("")
        node.process.send_signal(signal.SIGHUP)
        assert event(node, "disconnected")["kind"] == "closed"
        node.end()


HANGING_UP = """
import os, signal, sys

def hang_up(event, arguments):
    global over
    if event == "import" and not over:
        over = arguments[0] == "bamboo_cli.reloading"
        os.kill(os.getpid(), signal.SIGHUP)

from bamboo_cli import main
over = False
sys.addaudithook(hang_up)
raise SystemExit(main())
"""
"""The program, which gets SIGHUP with each module that it loads until it begins to run."""


def hanging_up(
    store: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HANGING_UP, *arguments, "--store", str(store)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )


def test_sighup_does_not_end_a_node_that_is_being_started_and_is_heard(taker: Path) -> None:
    with serving(taker, "--listen", "127.0.0.1:0", "--json", start=hanging_up) as node:
        assert {node.event()["event"], node.event()["event"]} == {"listening", "config_reloaded"}
        assert node.end() == (0, "")


def test_sighup_does_not_change_how_a_start_fails(taker: Path, config: Path) -> None:
    config.write_text("[serve]\nmax-rate = 0\n")
    for arguments in (["--config", str(config)], ["--listen", "127.0.0.1:65537"]):
        with serving(taker, *arguments, start=hanging_up) as node:
            node.process.communicate(timeout=PATIENCE_S)
            assert node.process.returncode == 2


def test_sighup_ends_other_commands(taker: Path) -> None:
    process = hanging_up(taker, "logs")
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGHUP


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_other_signals_do_nothing(taker: Path, number: int) -> None:
    with serving(taker, "--listen", "127.0.0.1:0", "--json") as node:
        node.event()
        node.process.send_signal(number)
        node.process.send_signal(signal.SIGHUP)
        assert node.event()["event"] == "config_reloaded"
        assert node.end(signal.SIGINT) == (0, "")


def test_a_service_manager_hears_of_start_reload_and_end(taker: Path, tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(PATIENCE_S)
        heard: list[str] = []

        def hear(word: str) -> None:
            while not heard or not heard[-1].startswith(word):
                heard.append(manager.recv(4096).decode())

        environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "600000000"}
        with serving(taker, "--listen", "127.0.0.1:0", "--json", environment=environment) as node:
            listening = node.event()
            hear("READY=1")
            hear("WATCHDOG=1")
            node.process.send_signal(signal.SIGHUP)
            hear("RELOADING=1")
            hear("READY=1")
            assert node.end() == (0, "")
            hear("STOPPING=1")
        assert heard[0] == "READY=1"
        assert f"STATUS=listening on {listening['address']}; 0 connections" in heard
