"""`ockam VERB`: what is printed, and what is refused, with a hub as a process of its own."""

import pytest

from gateways.ockam import client
from tests.cli.conftest import cli, own  # noqa: F401 - fixtures
from tests.cli.harness import CommandLine

from .hubs import hub


@pytest.fixture
def gives_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishers are refused twice, and not six times with a second before each next one."""
    monkeypatch.setattr(client, "REFUSALS_MAX", 1)
    monkeypatch.setattr(client, "REPEAT_AFTER_S", 0.1)


@pytest.mark.usefixtures("gives_up_soon")
def test_messages_positions_and_retention(own: CommandLine) -> None:  # noqa: F811
    with hub(own.store) as (where, _):
        created = own("--json", "ockam", "create", where, "orders", "--partitions", 2).records
        assert [each["partition"] for each in created] == [0, 1]
        pushed = own("ockam", "push", where, "orders", "--lines", stdin=b"tea\ncoffee\nmilk\n")
        assert pushed.text == "0\n1\n2"
        first = own("ockam", "pull", where, "orders", "--client", "billing", "--limit", 2)
        assert first.text == "tea\ncoffee"
        lag = own("--json", "ockam", "lag", "orders").record
        assert (lag["client"], lag["index"], lag["next"], lag["lag"]) == ("billing", 2, 3, 1)
        assert own("ockam", "pull", where, "orders", "--client", "billing").text == "milk"
        asked = ("ockam", "position", where, "orders", "--client")
        assert own("--json", *asked, "billing").record["index"] == 3
        assert own(*asked, "nobody").text == "-"
        assert own(*asked, "billing", "--save", 2).text == "3", "a save never goes back"
        rewound = own("ockam", "rewind", "orders", "--client", "billing", "--to", 1)
        assert rewound.text == "orders/0  billing  at 1"
        assert own("ockam", "pull", where, "orders", "--client", "billing").text == "coffee\nmilk"
        trimmed = own("--json", "ockam", "trim", "orders", "--before", 2).record
        assert (trimmed["earliest"], trimmed["count"]) == (2, 2)
        assert own("ockam", "pull", where, "orders").text == "milk"
        zero, one = own("--json", "ockam", "streams").records
        assert (zero["earliest"], zero["next"], zero["messages"]) == (2, 3, 1)
        assert (one["address"], one["own"], one["messages"]) == (created[1]["address"], True, 0)
        ended = own("ockam", "end", "orders", "--partition", 0)
        assert ended.text == "orders/0 ended before 3"
        refused = own("ockam", "push", where, "orders", "--timeout", 5, stdin=b"x")
        assert (refused.status, refused.out) == (1, b"")
        assert "refused" in refused.err
    assert own("--json", "ockam", "streams").records[0]["state"] == "ended"
    assert own("ockam", "end", "orders").text == "orders/1 ended before 0"
    assert own("ockam", "end", "orders").status == 5, "all have ended"


def test_messages_of_rust_nodes_are_wrapped_and_taken_apart(own: CommandLine) -> None:  # noqa: F811
    with hub(own.store) as (where, _):
        own("ockam", "push", where, "out", "--to", "echoer", stdin=b"hello")
        assert own("ockam", "pull", where, "out", "--routing").text == "hello"
        row = own("--json", "ockam", "pull", where, "out", "--routing").record
        assert (row["form"], row["onward"], row["return"]) == ("routing", ["0#echoer"], [])
        assert bytes.fromhex(row["message"]) == b"hello"
        own("ockam", "push", where, "out", stdin=b"\xff plain")
        plain = own("--json", "ockam", "pull", where, "out", "--routing", "--from", 1).record
        assert (plain["form"], plain["message"]) == ("data", None)


@pytest.mark.usefixtures("gives_up_soon")
@pytest.mark.parametrize("rights", ["no-create", "read-only"])
def test_a_listener_gives_its_clients_no_more_rights_than_told(
    own: CommandLine,  # noqa: F811
    rights: str,
) -> None:
    with hub(own.store) as (where, _):
        own("ockam", "push", where, "orders", stdin=b"tea")
    with hub(own.store, "--listen", f"127.0.0.1:0,{rights}") as (where, _):
        assert own("ockam", "pull", where, "orders").text == "tea"
        push = own("ockam", "push", where, "orders", "--timeout", 5, stdin=b"x")
        assert push.status == (rights == "read-only")
        assert own("ockam", "create", where, "new", "--timeout", 5).status == 1
    names = {each["stream"] for each in own("--json", "ockam", "streams").records}
    assert names == {"orders"}


def test_a_hub_that_is_killed_has_what_it_confirmed(own: CommandLine) -> None:  # noqa: F811
    with hub(own.store) as (where, process):
        own("ockam", "push", where, "orders", "--lines", stdin=b"tea\ncoffee\n")
        own("ockam", "pull", where, "orders", "--client", "billing", "--limit", 1)
        process.kill()
        process.wait()
    with hub(own.store) as (where, _):
        assert own("ockam", "pull", where, "orders").text == "tea\ncoffee"
        assert own("ockam", "pull", where, "orders", "--client", "billing").text == "coffee"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("bogus",), "none of serve, create"),
        (("create", "127.0.0.1:1"), "takes HUB NAME"),
        (("position", "127.0.0.1:1", "orders"), "needs --client"),
        (("trim", "orders"), "needs --before"),
        (("streams", "--lines"), "ockam streams --help"),
        (("pull", "127.0.0.1:x", "orders"), "port"),
        (("pull", "127.0.0.1:1", "orders", "--from", "1", "--client", "c"), "exclude"),
        (("serve", "--keep", "orders"), "--keep"),
        (("serve", "--hold", "6"), "5 s at most"),
        (("serve", "--listen", "127.0.0.1:0,all"), "neither no-create nor read-only"),
        (("rewind", "orders", "--client", "c", "--to", "x"), "--to"),
    ],
)
def test_what_is_asked_for_in_a_wrong_way_is_named(
    own: CommandLine,  # noqa: F811
    argv: tuple[str, ...],
    said: str,
) -> None:
    result = own("ockam", *argv)
    assert (result.status, result.out) == (2, b"")
    assert said in result.err


def test_what_is_not_there_is_named(own: CommandLine) -> None:  # noqa: F811
    gone = own("ockam", "pull", "127.0.0.1:1", "orders")
    assert gone.status == 3
    assert "127.0.0.1:1" in gone.err
    for argv in (("trim", "orders", "--before", 1), ("end", "orders")):
        missing = own("ockam", *argv)
        assert missing.status == 1
        assert "no such stream of its own" in missing.err
