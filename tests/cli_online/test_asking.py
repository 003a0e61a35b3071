"""`append` asks peers before it signs what was perhaps signed before: in processes of their own."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .running import Serving, run, serving, started, until


class Machine:
    """All that a machine has on its disk: a store, and whatever else its programs leave."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        folder.mkdir()
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "BAMBOO_PEER_STATE": str(folder / "state"),
            "XDG_DATA_HOME": str(folder / "data"),
        }

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        return run(self.store, *arguments, stdin=stdin, environment=self.environment)

    def append(self, *flags: str, text: str = "x") -> subprocess.CompletedProcess[str]:
        return self.run("append", *flags, stdin=text.encode())

    def snapshot(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    def restore(self, files: dict[Path, bytes]) -> None:
        """As a snapshot of the whole disk does: every file is what and where it was."""
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in files:
                path.unlink()
        for path, data in files.items():
            with path.open("r+b") as file:
                file.write(data)
                file.truncate()

    def forget_asking(self) -> None:
        """More than a minute passes."""
        from logstore import Store

        with Store.open(self.store) as store:
            for name in store.recall_all("asked/"):
                store.remember(name, None)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "machine")
    machine.run("init")
    machine.append(text="1")
    machine.append(text="2")
    return machine


@pytest.fixture
def author(machine: Machine) -> str:
    return str(json.loads(machine.run("status", "--json").stdout)["author"])


@pytest.fixture
def friend(tmp_path: Path) -> Iterator[tuple[Machine, Serving, str]]:
    """A machine that follows everybody, its node, and the node's address."""
    friend = Machine(tmp_path / "friend")
    friend.run("init")
    with serving(
        friend.store,
        "--listen",
        "127.0.0.1:0",
        "--follow-all",
        "--json",
        environment=friend.environment,
    ) as node:
        yield friend, node, node.event()["address"]


Friend = tuple[Machine, Serving, str]


def newest(machine: Machine, author: str) -> int:
    done = machine.run("logs", author, "--json")
    return int(json.loads(done.stdout)["newest"]) if done.returncode == 0 else 0


def forks(machine: Machine) -> str:
    return machine.run("forks").stdout


def test_a_machine_that_was_restored_whole_takes_its_entries_back_before_it_signs(
    machine: Machine, friend: Friend, author: str
) -> None:
    other, _, address = friend
    machine.run("sync", address)
    files = machine.snapshot()
    machine.append("--offline", text="3")
    machine.append("--offline", text="4")
    assert "sent 2" in machine.run("sync", address).stdout
    machine.restore(files)
    assert newest(machine, author) == 2
    machine.forget_asking()
    done = machine.append(text="5")
    assert done.stdout.strip() == f"{author}/0/5"
    assert f"this store was behind: 2 entries signed before, up to 4, came from {address}" in (
        done.stderr
    )
    machine.run("sync", address)
    assert newest(other, author) == 5
    assert not forks(other)
    assert not forks(machine)


def test_what_was_signed_after_a_restore_is_noticed_before_it_spreads(
    machine: Machine, friend: Friend, author: str
) -> None:
    other, _, address = friend
    machine.run("sync", address)
    files = machine.snapshot()
    machine.append("--offline", text="3")
    machine.run("sync", address)
    machine.restore(files)
    assert machine.append("--offline", text="another 3").returncode == 0
    done = machine.append("--ask-first", text="4")
    assert done.returncode == 7
    assert "entry 3 of log 0 was signed elsewhere too" in done.stderr
    assert "this key signs on two machines" in done.stderr
    assert newest(other, author) == 3
    assert not forks(other)


@contextmanager
def hub(machine: Machine) -> Iterator[tuple[str, list[str]]]:
    """A hub of Ockam streams, where it listens, and in the end its standard error."""
    errors: list[str] = []
    flags = ("--json", "ockam", "serve", "--listen", "127.0.0.1:0")
    process = started(machine.store, *flags, environment=machine.environment)
    node = Serving(process)
    yield node.event()["address"], errors
    status, error = node.end()
    assert status == 0
    errors.append(error)


def test_a_hub_of_a_machine_that_was_restored_takes_all_its_logs_back_before_it_signs(
    machine: Machine, friend: Friend, author: str
) -> None:
    other, _, address = friend

    def push(where: str, partition: int, text: str) -> str:
        flags = ("--partition", str(partition))
        return machine.run("ockam", "push", where, "orders", *flags, stdin=text.encode()).stdout

    with hub(machine) as (where, _):
        machine.run("ockam", "create", where, "orders", "--partitions", "3")
        assert [push(where, partition, "tea").strip() for partition in (0, 2)] == ["0", "0"]
    machine.run("sync", address)
    files = machine.snapshot()
    with hub(machine) as (where, _):
        assert [push(where, partition, "milk").strip() for partition in (1, 2)] == ["0", "1"]
    machine.run("sync", address)
    machine.restore(files)
    machine.forget_asking()
    with hub(machine) as (where, errors):
        assert [push(where, partition, "water").strip() for partition in (1, 2)] == ["1", "2"]
    assert "this store was behind: 1 entry signed before" in errors[0]
    assert f"came from {address} (and 1 other log likewise)" in errors[0]
    machine.run("sync", address)
    assert not forks(other)
    assert not forks(machine)


def test_a_hub_of_a_machine_that_was_restored_knows_the_streams_made_since(
    machine: Machine, friend: Friend, author: str
) -> None:
    """It would sign their logs anew, for others."""
    other, _, address = friend

    def push(where: str, name: str) -> str:
        return machine.run("ockam", "push", where, name, stdin=b"tea").stdout.strip()

    with hub(machine) as (where, _):
        machine.run("ockam", "create", where, "orders")
        assert push(where, "orders") == "0"
    machine.run("sync", address)
    files = machine.snapshot()
    with hub(machine) as (where, _):
        machine.run("ockam", "create", where, "bills", "--partitions", "30")
        assert push(where, "bills") == "0"
    machine.run("sync", address)
    machine.restore(files)
    machine.forget_asking()
    with hub(machine) as (where, _):
        assert push(where, "bills") == "1"
        machine.run("ockam", "create", where, "notes")
        assert push(where, "notes") == "0"
    machine.run("sync", address)
    assert not forks(other)
    assert not forks(machine)


def test_nobody_who_answers_is_said_once_in_a_while(
    machine: Machine, friend: Friend, author: str
) -> None:
    _, node, address = friend
    machine.run("sync", address)
    node.end()
    first, second = machine.append(), machine.append()
    assert (first.returncode, second.returncode) == (0, 0)
    assert f"nobody says whether this store has the newest entry of {author}/0" in first.stderr
    assert f"{address}: Connection refused" in first.stderr
    assert not second.stderr
    refused = machine.append("--ask-first")
    assert refused.returncode == 3
    assert "nothing was signed" in refused.stderr
    assert newest(machine, author) == 4
    machine.forget_asking()
    assert not machine.append("--offline").stderr


def test_who_never_gave_anything_to_anybody_is_not_asked(machine: Machine) -> None:
    assert not machine.append().stderr
    done = machine.append("--ask-first")
    assert done.returncode == 3
    assert "there is nobody to ask" in done.stderr
    assert machine.append("--ask-first", "--offline").returncode == 2


def test_somebody_who_accepts_and_says_nothing_costs_three_seconds(
    machine: Machine, friend: Friend, author: str
) -> None:
    import socket

    _, node, address = friend
    machine.run("sync", address)
    node.end()
    host, port = address.rsplit(":", 1)
    with socket.create_server((host, int(port))):
        started = time.monotonic()
        done = machine.append()
        assert time.monotonic() - started < 10
        assert done.stdout.strip() == f"{author}/0/3"
        assert f"{address}: no answer in 3 s" in done.stderr


def test_beside_a_node_that_is_connected_nobody_else_is_asked(
    machine: Machine, friend: Friend, author: str
) -> None:
    other, _, address = friend
    machine.run("sync", address)
    with serving(
        machine.store, "--no-listen", "--connect", address, environment=machine.environment
    ) as node:
        assert "connected" in "".join(node.line() for _ in range(1))
        machine.forget_asking()
        done = machine.append(text="3")
        assert done.stdout.strip() == f"{author}/0/3"
        assert not done.stderr
        until(lambda: newest(other, author) == 3)
        node.end()


def test_beside_a_node_that_has_not_heard_anybody_yet_the_peers_are_asked(
    machine: Machine, friend: Friend, author: str
) -> None:
    other, _, address = friend
    machine.run("sync", address)
    files = machine.snapshot()
    machine.append("--offline", text="3")
    machine.run("sync", address)
    machine.restore(files)
    # It calls somebody else, and will not hear of entry 3 by itself.
    with serving(
        machine.store, "--no-listen", "--connect", "127.0.0.1:9", environment=machine.environment
    ) as node:
        assert "connect failed" in node.line()
        assert machine.append(text="4").stdout.strip() == f"{author}/0/4"
        node.end()
    machine.run("sync", address)
    assert newest(other, author) == 4
    assert not forks(other)


def test_a_key_on_two_machines_is_noticed_at_the_first_contact_of_the_second(
    tmp_path: Path, machine: Machine, friend: Friend, author: str
) -> None:
    other, _, address = friend
    second = Machine(tmp_path / "second")
    machine.run("sync", address)
    machine.run("key", "export", str(tmp_path / "key"))
    second.run("key", "import", str(tmp_path / "key"))
    second.run("sync", address)
    second.run("key", "confirm")
    assert newest(second, author) == 2
    machine.append("--offline", text="3 of the first")
    machine.run("sync", address)
    assert second.append("--offline", text="3 of the second").returncode == 0
    with serving(
        second.store, "--no-listen", "--connect", address, environment=second.environment
    ) as node:
        while not (line := node.line()).startswith("SIGNED ELSEWHERE"):
            assert line
        assert f"{author}/0: entry 3 of log 0 was signed elsewhere too" in line
        assert address in line
        done = second.append(text="4 of the second")
        assert done.returncode == 7
        assert "give this one a key of its own" in done.stderr
        node.end()
    assert "own logs are read-only: entry 3 of log 0" in second.run("status").stdout
    # The first one has noticed nothing, and its log goes on everywhere.
    assert machine.append(text="4 of the first").stdout.strip() == f"{author}/0/4"
    assert "sent 1" in machine.run("sync", address).stdout
    assert newest(other, author) == 4
    assert not forks(other)
    assert not forks(machine)
    # What the operator insists on leaves that log alone.
    assert second.run("key", "confirm").returncode == 1
    assert second.run("key", "confirm", "--anyway").returncode == 0
    assert second.append("--offline", "--log-id", "7").stdout.strip() == f"{author}/7/1"
    assert "use another log id" in second.append("--offline").stderr
