"""`check`: what fails, how it is said, and which exit status it is."""

import json
from typing import Any

import pytest

from bamboo_cli.checking import lag_of
from local_api import connected_peers
from logstore import NodeLock, Store
from tests.cli.harness import CommandLine, lines_of, make_log, words

NOBODY = "no node serves this store"


def connection(address: str, state: str = "established", peer_id: str | None = None) -> object:
    return {"address": address, "state": state, "peer_id": peer_id}


class Node:
    """What a node would have left in the store's directory, and the lock that it holds."""

    def __init__(self, cli: CommandLine) -> None:
        self._cli = cli
        self.state: dict[str, Any] = {
            "connections": [connection("a:1"), connection("b:1", "waiting")],
            "entries_behind": 0,
            "behind_since": None,
        }

    def check(self, *flags: str) -> tuple[int, str]:
        self._cli.store.joinpath("status.json").write_text(json.dumps(self.state))
        with Store.open(self._cli.store) as store, store.lock_node():
            result = self._cli("check", *flags)
            told = self._cli("check", *flags, "--json")
        assert (told.status, result.err) == (result.status, "")
        assert told.record["ok"] == (result.status == 0)
        assert "; ".join(told.record["reasons"]) in result.text
        return result.status, result.text


@pytest.fixture
def node(own: CommandLine) -> Node:
    return Node(own)


def test_a_node_without_troubles_is_well(node: Node) -> None:
    assert node.check() == (0, "ok: 1 peer connected, 0 entries behind")
    assert node.check("--max-lag", "0", "--min-peers", "1", "--max-behind", "0", "--forks")[0] == 0


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--min-peers", "2"), "1 peer connected, 2 are wanted"),
        (("--max-behind", "6"), "7 entries behind, 6 are allowed"),
    ],
)
def test_what_is_beyond_a_threshold_is_said(
    node: Node, flags: tuple[str, ...], reason: str
) -> None:
    node.state["entries_behind"] = 7
    assert node.check(*flags) == (1, f"not ok: {reason}")
    assert node.check()[0] == 0


def test_who_has_been_behind_for_long_fails(node: Node) -> None:
    node.state["behind_since"] = "2001-01-01T00:00:00Z"
    status, text = node.check("--max-lag", "60", "--min-peers", "3")
    assert status == 1
    assert text.startswith("not ok: something has been missing for ")
    assert text.endswith(" s, 60 are allowed (`status` says what); 1 peer connected, 3 are wanted")


def test_a_lag_ends_with_what_was_missing_and_is_never_negative() -> None:
    assert lag_of({"behind_since": None}, 0) == 0
    assert lag_of({"behind_since": "1970-01-01T00:00:10Z"}, 70_000_000) == 60
    assert lag_of({"behind_since": "1970-01-01T00:00:10Z"}, 0) == 0


def test_a_peer_with_two_connections_is_one() -> None:
    connections = [
        connection("a:1", peer_id="ab"),
        connection("a:2", peer_id="ab"),
        connection("c:1"),
        connection("d:1", "connecting"),
    ]
    assert connected_peers({"connections": connections}) == 2


def test_a_fork_fails_until_it_is_dismissed(own: CommandLine, node: Node) -> None:
    made, other = make_log(words(2)), make_log([*words(1), b"other"])
    own("import", stdin=lines_of([*made, other[1]]))
    said = f"not ok: {made[0].key} was signed twice at entry 2 (`forks show`)"
    assert node.check() == node.check("--forks") == (1, said)
    own("forks", "dismiss", str(made[0].key))
    assert node.check()[0] == 0
    assert node.check("--forks") == (
        1,
        f"not ok: 1 fork that was dismissed: {made[0].key}",
    )


def test_a_fork_of_a_log_that_nobody_wants_is_no_trouble(own: CommandLine, node: Node) -> None:
    made, other = make_log(words(1)), make_log([b"other"])
    with Store.open(own.store) as store:
        store.record_fork(made[0].key, made[0].encoded, other[0].encoded)
    assert node.check("--forks")[0] == 0
    own("follow", str(made[0].key))
    assert node.check("--forks")[0] == 1


def test_where_nobody_answers_the_exit_status_is_3(own: CommandLine) -> None:
    result = own("check", "--json")
    assert (result.status, result.record) == (3, {"ok": False, "reasons": [NOBODY]})
    assert own("check").text == f"not ok: {NOBODY}"
    assert not NodeLock.is_held(own.store)
    with Store.open(own.store) as store, store.lock_node():
        assert own("check").text == (
            "not ok: the node has not said how it is: it has just begun, or is of an older version"
        )
        assert own("check").status == 3


@pytest.mark.parametrize("text", ["-1", "soon", "nan", "inf"])
def test_a_threshold_is_a_number(own: CommandLine, text: str) -> None:
    result = own("check", "--max-lag", text)
    assert result.status == 2
    assert "is no number of seconds" in result.err or "expected one argument" in result.err
