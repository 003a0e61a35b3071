"""`follow`, `unfollow` and `follows`."""

import pytest

from logstore import ALL, Store
from tests.cli.harness import CommandLine, Result
from wire import LogKey

AUTHOR = "ab" * 32


def test_nothing_is_followed_at_first(own: CommandLine) -> None:
    assert own("follows") == Result(0, b"", "")


def test_what_is_followed_is_remembered(own: CommandLine) -> None:
    assert own("follow", AUTHOR, f"{AUTHOR}/3", "--all") == Result(0, b"", "")
    assert set(own("follows").lines) == {"all", AUTHOR, f"{AUTHOR}/3"}
    author = bytes.fromhex(AUTHOR)
    with Store.open(own.store, readonly=True) as store:
        assert set(store.follows()) == {ALL, author, LogKey(author, 3)}


def test_follows_as_json(own: CommandLine) -> None:
    own("follow", AUTHOR, f"{AUTHOR}/{2**60}", "--all")
    records = own("follows", "--json").records
    assert {record["kind"]: record for record in records} == {
        "all": {"kind": "all"},
        "author": {"kind": "author", "author": AUTHOR},
        "log": {"kind": "log", "author": AUTHOR, "log_id": str(2**60)},
    }


def test_following_twice_is_following(own: CommandLine) -> None:
    own("follow", AUTHOR)
    assert own("follow", AUTHOR).status == 0
    assert own("follows").lines == [AUTHOR]


def test_an_author_is_not_their_log_0(own: CommandLine) -> None:
    own("follow", AUTHOR, f"{AUTHOR}/0")
    assert own("unfollow", f"{AUTHOR}/0").status == 0
    assert own("follows").lines == [AUTHOR]


def test_unfollow_of_all(own: CommandLine) -> None:
    own("follow", "--all")
    assert own("unfollow", "--all").status == 0
    assert own("follows").lines == []


@pytest.mark.parametrize("target", [AUTHOR, f"{AUTHOR}/0", "--all"])
def test_unfollow_of_what_is_not_followed(own: CommandLine, target: str) -> None:
    result = own("unfollow", target)
    assert (result.status, result.out) == (1, b"")
    assert "is not followed" in result.err


@pytest.mark.parametrize("command", ["follow", "unfollow"])
@pytest.mark.parametrize("argv", [(), ("nonsense",), (f"{AUTHOR}/x",)])
def test_a_target_is_a_log_or_an_author(
    own: CommandLine, command: str, argv: tuple[str, ...]
) -> None:
    result = own(command, *argv)
    assert (result.status, result.out) == (2, b"")
