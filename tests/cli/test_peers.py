"""`identity` and `peer`: ids and names, what is decided, and what a slip is answered with."""

from datetime import UTC, datetime

import pytest

from logstore import Sighting, Store
from tests.cli.harness import CommandLine

BEN, EVE = "22" * 32, "33" * 32
TWIN = BEN[:20] + "4" * 44
FIELDS = [
    *("peer_id", "name", "state", "read", "write", "rate_in", "rate_out", "connections_max"),
    *("address", "connected", "count", "first_seen", "last_seen", "last_address"),
]


def knock(cli: CommandLine, peer_id: str, at: int = 0) -> None:
    now = at or int(datetime.now(UTC).timestamp() * 1e6)
    with Store.open(cli.store) as store:
        seen = Sighting(1, now, now, "203.0.113.9:50122", "203.0.113.9")
        store.peers.note_seen({bytes.fromhex(peer_id): seen})


def row(cli: CommandLine, peer: str) -> dict[str, object]:
    result = cli("peer", "show", peer, "--json")
    assert result.status == 0, result.err
    return result.record


@pytest.mark.parametrize("command", ["identity", "whoami"])
def test_an_identity_is_the_authors_key(own: CommandLine, command: str) -> None:
    assert own(command).text == own.author
    assert own(command, "--json").record == {
        "author": own.author,
        "peer_id": own.author,
        "name": None,
        "store": str(own.store),
    }


def test_an_identity_whose_key_is_lost_is_none(own: CommandLine) -> None:
    (own.store / "author.key").unlink()
    result = own("identity")
    assert (result.status, result.out) == (1, b"")
    assert "author.key" in result.err


def test_an_allowed_peer_has_what_the_defaults_are(own: CommandLine) -> None:
    assert own("peer", "list").lines == ["PEER  NAME  STATE  MAY READ  MAY WRITE  LAST SEEN"]
    assert own("peer", "allow", BEN).status == 0
    record = row(own, BEN)
    assert list(record) == FIELDS
    assert record == dict.fromkeys(FIELDS) | {
        "peer_id": BEN,
        "state": "allowed",
        "read": "all",
        "write": "followed",
        "connections_max": 4,
        "count": 0,
    }


def test_what_flags_name_is_changed_and_nothing_else(own: CommandLine) -> None:
    flags = ("--read", own.author, "--read", f"{EVE}/3", "--write", "own", "--rate-in", "2M")
    assert own("peer", "allow", BEN, "--name", "ben", *flags).status == 0
    assert own("peer", "allow", "ben", "--connections", "2", "--address", "h.example").status == 0
    record = row(own, "ben")
    assert record["read"] == sorted([own.author, f"{EVE}/3"])
    assert (record["write"], record["rate_in"], record["rate_out"]) == ("own", 2 << 20, None)
    assert (record["connections_max"], record["address"]) == (2, "h.example:7007")
    assert own("peer", "allow", "ben", "--rate-in", "0", "--address", "none").status == 0
    record = row(own, "ben")
    assert (record["rate_in"], record["address"]) == (None, None)
    [heading, line] = own("peer", "list").lines
    assert line.split() == [BEN, "ben", "allowed", "2", "names", "own", "never"]
    assert heading.index("STATE") == line.index("allowed")


def test_who_knocked_waits_and_is_named_in_full(own: CommandLine) -> None:
    knock(own, BEN)
    [_, line] = own("peer", "list").lines
    assert line.split()[:5] == [BEN, "-", "waiting", "-", "-"]
    assert line.endswith("ago, from 203.0.113.9:50122")
    short = own("peer", "allow", BEN[:12])
    assert short.status == 2
    assert "name its id in full" in short.err
    assert own("peer", "allow", BEN).status == 0
    # What is decided may be named by its beginning.
    allowed = own("peer", "allow", BEN[:12], "--write", "none")
    assert allowed.status == 0
    assert BEN in allowed.err
    assert row(own, BEN[:8])["count"] == 1


def test_a_beginning_that_stands_for_two_is_said(own: CommandLine) -> None:
    for peer in (BEN, TWIN):
        assert own("peer", "allow", peer).status == 0
    result = own("peer", "block", BEN[:16])
    assert result.status == 2
    assert BEN in result.err
    assert TWIN in result.err
    assert row(own, BEN)["state"] == "allowed"


def test_blocking_removing_renaming(own: CommandLine) -> None:
    own("peer", "allow", BEN, "--name", "ben")
    assert own("peer", "rename", "ben", "benjamin").status == 0
    assert own("peer", "block", "benjamin").status == 0
    record = row(own, "benjamin")
    assert (record["state"], record["read"], record["write"]) == ("blocked", None, None)
    assert own("peer", "remove", "benjamin").status == 0
    assert own("peer", "show", "benjamin").status == 1
    gone = own("peer", "remove", BEN)
    assert (gone.status, gone.out) == (1, b"")
    assert "no such peer" in gone.err
    # Somebody who has never been here can be blocked.
    assert own("peer", "block", EVE).status == 0


def test_a_name_that_is_taken_is_exit_status_1(own: CommandLine) -> None:
    own("peer", "allow", BEN, "--name", "ben")
    result = own("peer", "allow", EVE, "--name", "ben")
    assert result.status == 1
    assert "the name ben is taken" in result.err
    assert own("peer", "show", EVE).status == 1


def test_the_own_id_has_no_row(own: CommandLine) -> None:
    for action in ("allow", "block"):
        result = own("peer", action, own.author)
        assert result.status == 1
        assert "always let in" in result.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("invite", BEN), "none of allow, block"),
        (("allow",), "takes one PEER"),
        (("list", BEN), "takes no PEER"),
        (("rename", BEN), "takes a PEER and its new NAME"),
        (("allow", "no/name"), "the number of a log"),
        (("allow", BEN[:7]), "is a log, and a peer is wanted"),
        (("allow", BEN, "--name", "12ab"), "is no name"),
        (("allow", BEN, "--read", "all", "--read", EVE), "stands alone"),
        (("allow", BEN, "--read", "abc"), "names nothing"),
        (("allow", BEN, "--write", "all"), "none of followed"),
        (("allow", BEN, "--connections", "0"), "no number of connections"),
        (("allow", BEN, "--address", f"{EVE}@host:1"), "HOST:PORT alone"),
        (("block", BEN, "--name", "ben"), "is about `peer allow`"),
        (("rename", BEN, "all"), "is no name"),
    ],
)
def test_what_makes_no_sense_is_exit_status_2(
    own: CommandLine, words: tuple[str, ...], said: str
) -> None:
    result = own("peer", *words)
    assert (result.status, result.out) == (2, b"")
    assert said in result.err
    assert len(result.err.splitlines()) == 1


def test_every_json_field_of_a_peer_is_documented(own: CommandLine) -> None:
    from tests.cli.test_docs import section

    own("peer", "allow", BEN)
    for name in FIELDS:
        assert f"`{name}`" in section("peer")
    for name in own("identity", "--json").record:
        assert f"`{name}`" in section("identity")
