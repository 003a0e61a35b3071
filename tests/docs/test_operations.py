"""docs/operations.md works as it stands: commands are run, and what it lists is what there is."""

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from bamboo_cli.registry import COMMANDS
from bamboo_cli.settings import flag_name
from logstore import Store
from peer.api import Address, NodeConfig, Peer
from tests.cli.harness import parsers_of
from tests.docs.pages import ROOT, blocks, blocks_of, page, table
from tests.docs.tour import Tour
from tests.test_deploy import PROGRAM, check_arguments, settings

TEXT = page("docs/operations.md")
PATIENCE_S = 30


async def metrics() -> str:
    """Of a node that has nothing to do."""
    where: list[str] = []
    with trio.fail_after(PATIENCE_S), Store.memory() as store:
        config = NodeConfig(workers=0)
        tell = lambda event: where.append(str(event["address"]))  # noqa: E731
        async with Peer(store, config=config, observer=tell, metrics="0"):
            address = Address.parse(where[0])
            stream = await trio.open_tcp_stream(address.host, address.port)
            await stream.send_all(b"GET /metrics HTTP/1.1\r\n\r\n")
            received = b""
            while data := await stream.receive_some():
                received += data
            await stream.aclose()
    return received.partition(b"\r\n\r\n")[2].decode()


async def test_every_metric_is_listed_with_its_labels() -> None:
    listed = {
        name: set(re.findall(r"`(\w+)`", row[1]))
        for row in table(TEXT, "metric").rows
        for name in re.findall(r"`(bamboo_peer_\w+)`", row[0])
    }
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(await metrics()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = set().union(*(sample.labels for sample in family.samples))
    # A store in memory is on no disk.
    assert listed.keys() == found.keys() | {"bamboo_peer_disk_free_bytes"}
    for name, labels in found.items():
        assert labels <= listed[name]


async def test_every_expression_names_a_metric_that_there_is() -> None:
    text = await metrics()
    [alarms] = [table(TEXT, "alarm")]
    for row in alarms.rows:
        for name in re.findall(r"bamboo_peer_\w+", row[1]):
            assert f"# TYPE {name} " in text or name == "bamboo_peer_disk_free_bytes"


def test_the_rehearsal_does_what_it_shows(tmp_path: Path) -> None:
    found = [block for block in blocks(TEXT) if block.info.split(" ")[0] in {"console", "toml"}]
    assert sum(block.text.count("$ ") for block in found) >= 14
    with Tour(tmp_path) as tour:
        for block in found:
            tour.follow(block)


def shell_commands() -> list[list[str]]:
    """What stands on the page for a server, where a test has neither root nor systemd."""
    text = "".join(blocks_of(TEXT, "sh")).replace("$(date +%A)", "Wednesday")
    return [shlex.split(line) for line in text.splitlines()]


def test_what_is_done_on_a_server_is_shell() -> None:
    for block in blocks_of(TEXT, "sh"):
        subprocess.run(["bash", "-n", "-c", block], check=True)


def test_every_command_for_a_server_is_understood() -> None:
    commands = []
    for words in shell_commands():
        told = words[3:] if words[:2] == ["podman", "exec"] else words
        if told[0] == "bamboo-peer":
            # What stands before the command goes for each of them.
            before = 2 if told[1] == "--store" else 0
            commands.append([*told[1 + before :], *told[1 : 1 + before]])
    assert len(commands) >= 9
    for command in commands:
        check_arguments(command)


def test_what_is_named_for_a_server_is_what_the_unit_and_the_checkout_have() -> None:
    [start] = settings()["ExecStart"]
    program = start.split()[0]
    assert program == PROGRAM
    venv = str(Path(program).parents[1])
    words = {word for words in shell_commands() for word in words}
    assert {venv, "bamboo-peer", f"{venv}/bin/pip"} <= words
    named = {word for word in words if word.startswith(("deploy/", "requirements"))}
    assert len(named) == 3
    assert all((ROOT / name).exists() for name in named)
    for name in ("/var/lib/bamboo-peer", "/etc/bamboo-peer"):
        assert name in words
        assert any(name in value for value in settings()["Environment"])


@pytest.mark.parametrize("info", ["toml", "toml rehearsal.toml"])
def test_the_settings_are_settings(info: str) -> None:
    [parser] = parsers_of(COMMANDS["serve"])
    [text] = blocks_of(TEXT, info)
    tables = tomllib.loads(text)
    assert tables.keys() == {"serve"}
    assert tables["serve"].keys() <= {flag_name(action) for action in parser.flags}
    parser.preset({}, tables["serve"], "config.toml")
