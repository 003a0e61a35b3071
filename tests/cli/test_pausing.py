"""`pause` and `resume`."""

from logstore import Store
from tests.cli.harness import CommandLine

AMY = "ab" * 32


def test_all_connections_are_paused_until_they_are_resumed(own: CommandLine) -> None:
    said = own("pause")
    assert (said.status, said.lines) == (0, ["all connections paused, `resume` ends that"])
    assert said.err == "no node serves this store: the next one will begin paused\n"
    status = own("status", "--json").record
    assert (status["paused"], status["paused_until"]) == (True, None)
    assert own("status").lines[0] == ("no node serves this store, and it is paused, until `resume`")
    assert own("pause", "--json").record == {
        "peer_id": None,
        "paused": True,
        "paused_until": None,
        "changed": False,
    }
    assert own("resume").lines == ["connections: resumed"]
    again = own("resume")
    assert (again.status, again.err) == (1, "bamboo-peer: nothing is paused\n")
    assert own("status", "--json").record["paused"] is False


def test_a_pause_may_end_by_itself(own: CommandLine) -> None:
    record = own("pause", "--for", "2h", "--json").record
    status = own("status", "--json").record
    assert status["paused_until"] == record["paused_until"]
    assert own("pause", "--for", "2 hours").status == 2
    own("pause", "--for", "0s")
    status = own("status", "--json").record
    assert (status["paused"], status["paused_until"]) == (False, None)


def test_one_peer_is_paused_by_any_name_it_has(own: CommandLine) -> None:
    own("peer", "allow", AMY, "--name", "amy")
    assert own("pause", "amy").lines == [f"{AMY} paused, `resume` ends that"]
    assert own("resume").err == (f"bamboo-peer: not all are paused, but {AMY}: name one\n")
    own("pause")
    assert own("resume", AMY[:8]).lines == [f"{AMY}: resumed, but all connections are paused"]
    assert own("resume", "amy").err == (
        f"bamboo-peer: {AMY} alone is not paused, but all connections are: `resume` without a"
        " PEER\n"
    )
    own("resume")
    assert own("resume", "amy").err == f"bamboo-peer: {AMY} is not paused\n"
    assert own("pause", "nobody").status == 1
    with Store.open(own.store, readonly=True) as store:
        assert store.pauses() == {}
