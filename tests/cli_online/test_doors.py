"""Who gets in, from the command line: real processes over real sockets."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli_online.running import Serving, run, serving, until

pytestmark = pytest.mark.usefixtures("tmp_path")


class Node:
    """A store of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.store = folder / name
        self.id = self.say("init").strip()

    def say(self, *words: str, stdin: bytes = b"") -> str:
        found = run(self.store, *words, stdin=stdin)
        assert found.returncode == 0, found.stderr
        return str(found.stdout)

    def connection(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.say("status", "--json"))["node"]["connections"][0]
        return found

    def peers(self) -> dict[str, dict[str, Any]]:
        lines = self.say("peer", "list", "--json").splitlines()
        return {each["peer_id"]: each for each in map(json.loads, lines)}


@pytest.fixture
def amy(tmp_path: Path) -> Node:
    return Node(tmp_path, "amy")


@pytest.fixture
def ben(tmp_path: Path) -> Node:
    return Node(tmp_path, "ben")


def event(node: Serving, name: str) -> dict[str, Any]:
    while (found := node.event())["event"] != name:
        pass
    return found


def test_from_a_stranger_to_a_peer_and_back(amy: Node, ben: Node) -> None:
    """The tale of doors.md, section 1."""
    amy.say("append", stdin=b"hello")
    ben.say("follow", amy.id)
    with serving(amy.store, "--listen", "127.0.0.1:0", "--tls", "--json") as at_amy:
        listening = at_amy.event()
        assert listening["tls"] is True
        target = f"{amy.id}@{listening['address']}"
        refused = run(ben.store, "sync", target)
        assert refused.returncode == 7
        assert f"{amy.id} has not allowed this node yet" in refused.stderr
        assert event(at_amy, "refused")["peer_id"] == ben.id
        until(lambda: ben.id in amy.peers())
        assert amy.peers()[ben.id]["state"] == "waiting"
        with serving(ben.store, "--no-listen", "--connect", target, "--json") as at_ben:
            denied = event(at_ben, "connect_failed")
            assert (denied["kind"], denied["peer_id"]) == ("denied", amy.id)
            amy.say("peer", "allow", ben.id, "--name", "ben")
            assert event(at_ben, "connected")["peer_id"] == amy.id
            assert event(at_ben, "log_advanced")["height"] == 1
            until(lambda: amy.peers()[ben.id]["connected"] == 1)
            # What a node says of itself is written now and then.
            until(lambda: ben.connection()["peer_id"] == amy.id)
            amy.say("peer", "remove", "ben")
            gone = event(at_amy, "disconnected")
            assert (gone["kind"], gone["peer_id"]) == ("removed", ben.id)
            event(at_ben, "disconnected")
            assert event(at_ben, "connect_failed")["kind"] == "denied"


def test_people_are_told_in_lines(amy: Node, ben: Node) -> None:
    with serving(amy.store, "--listen", "127.0.0.1:0", "--tls") as at_amy:
        line = at_amy.line()
        assert line.startswith("listening on 127.0.0.1:")
        assert line.endswith(" with TLS; 0 peers are allowed\n")
        address = line.split()[2]
        target = f"{amy.id}@{address}"
        with serving(ben.store, "--no-listen", "--connect", target) as at_ben:
            assert at_ben.line() == (
                f"refused by {address}: {amy.id} has not allowed this node yet"
                " (tried again with back-off)\n"
            )
        assert at_amy.line().startswith(f"refused {ben.id} from 127.0.0.1:")


def test_a_peer_that_has_an_address_is_called_without_being_named(amy: Node, ben: Node) -> None:
    amy.say("peer", "allow", ben.id)
    with serving(amy.store, "--listen", "127.0.0.1:0", "--tls", "--json") as at_amy:
        address = at_amy.event()["address"]
        with serving(ben.store, "--no-listen", "--json") as at_ben:
            ben.say("peer", "allow", amy.id, "--address", address)
            assert event(at_ben, "connected")["address"] == address
            ben.say("peer", "allow", amy.id, "--address", "none")
            assert event(at_ben, "disconnected")["kind"] == "closed"


def test_another_key_than_expected_ends_a_sync_with_7(amy: Node, ben: Node) -> None:
    with serving(amy.store, "--listen", "127.0.0.1:0", "--tls", "--json") as at_amy:
        address = at_amy.event()["address"]
        found = run(ben.store, "sync", f"{'77' * 32}@{address}")
        assert found.returncode == 7
        assert amy.id in found.stderr
        assert "77" * 32 in found.stderr
        assert "somebody may sit between" in found.stderr


def test_tls_at_one_end_alone_is_said(amy: Node, ben: Node) -> None:
    with serving(amy.store, "--listen", "127.0.0.1:0", "--json") as at_amy:
        address = at_amy.event()["address"]
        found = run(ben.store, "sync", address, "--tls")
        assert found.returncode == 1
        assert "the other side does not speak TLS" in found.stderr
        assert "on loopback call it without `ID@` and --tls, or start it" in found.stderr
        assert event(at_amy, "disconnected")["kind"] == "wants tls"
    with serving(amy.store, "--listen", "127.0.0.1:0", "--tls", "--json") as at_amy:
        found = run(ben.store, "sync", at_amy.event()["address"])
        assert found.returncode == 1
        assert "the other side wants TLS" in found.stderr
        assert event(at_amy, "refused")["kind"] == "no tls"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--tls", "--insecure"), 2, "contradict"),
        (("--any-read", "all"), 2, "about --allow-any"),
        (("--allow-any", "--any-write", "all"), 2, "--allow-any"),
        (("--connect", f"{'77' * 32}@h:1,tls=no"), 2, "with TLS"),
        (("--connect", f"{'77' * 32}@h:1", "--insecure"), 2, "with TLS"),
        (("--connect", "nobody@h:1"), 1, "no peer is called nobody"),
        (("--connect", "77@h:1"), 2, "neither a peer id"),
        (("--connect", "@h:1"), 2, "lacks who is called"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_done(
    amy: Node, words: tuple[str, ...], status: int, said: str
) -> None:
    found = run(amy.store, "serve", "--no-listen", *words)
    assert found.returncode == status
    assert said in found.stderr


def test_a_node_whose_key_is_lost_says_so_before_it_listens(amy: Node) -> None:
    (amy.store / "author.key").unlink()
    found = run(amy.store, "serve", "--listen", "127.0.0.1:0", "--tls")
    assert found.returncode == 1
    assert "author.key" in found.stderr
    assert "listening" not in found.stdout


def test_why_says_how_it_stands_with_a_peer_by_its_id(amy: Node, ben: Node) -> None:
    def why(node: Node, *words: str) -> list[str]:
        return str(run(node.store, "why", *words).stdout).splitlines()

    assert "never knocked" in why(amy, "--peer", ben.id)[0]
    with serving(amy.store, "--listen", "127.0.0.1:0", "--tls", "--json") as at_amy:
        address = at_amy.event()["address"]
        target = f"{amy.id}@{address}"
        with serving(ben.store, "--no-listen", "--connect", target, "--json") as at_ben:
            assert event(at_ben, "connect_failed")["kind"] == "denied"
            until(lambda: any("`peer allow` what `identity` says" in x for x in why(ben, address)))
            until(lambda: any("waits until" in line for line in why(amy, "--peer", ben.id)))
            amy.say("peer", "allow", ben.id, "--name", "ben", "--write", "none")
            event(at_ben, "connected")
            until(lambda: any("is connected" in line for line in why(amy, "--peer", "ben")))
            assert "it may read: all; it may write: none" in why(amy, "--peer", "ben")[0]
        amy.say("peer", "block", "ben")
        assert "is blocked" in why(amy, "--peer", ben.id)[0]
    assert run(amy.store, "why").returncode == 2
