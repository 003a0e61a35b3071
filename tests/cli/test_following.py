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


def test_nothing_is_unfollowed_where_one_of_several_is_not_followed(own: CommandLine) -> None:
    own("follow", AUTHOR)
    assert own("unfollow", AUTHOR, f"{AUTHOR}/5").status == 1
    assert own("follows").lines == [AUTHOR]
    assert own("unfollow", AUTHOR, AUTHOR).status == 0


def test_what_is_followed_is_no_entry(own: CommandLine) -> None:
    result = own("follow", f"{AUTHOR}/0/1")
    assert (result.status, result.out) == (2, b"")
    assert f"write the log and the number apart, {AUTHOR}/0 1" in result.err


def test_follows_as_json(own: CommandLine) -> None:
    own("follow", AUTHOR, f"{AUTHOR}/{2**60}", "--all")
    records = own("follows", "--json").records
    everything = {"policy": "full", "min_payload": 0, "max_payload": None, "eager": None}
    assert {record["kind"]: record for record in records} == {
        "all": {"kind": "all", "author": None, "log_id": None, "name": None} | everything,
        "author": {"kind": "author", "author": AUTHOR, "log_id": None, "name": None} | everything,
        "log": {"kind": "log", "author": AUTHOR, "log_id": str(2**60), "name": None} | everything,
    }


def test_what_is_wanted_is_remembered_shown_and_changed_by_following_again(
    own: CommandLine,
) -> None:
    flags = ("--policy", "latest:7", "--min-payload", 10, "--max-payload", "4M", "--eager", "10k")
    assert own("follow", AUTHOR, *flags) == Result(0, b"", "")
    said = "latest:7, payloads from 10 B, up to 4.0 MiB, eagerly up to 10.0 KiB"
    assert own("follows").lines == [f"{AUTHOR}  {said}"]
    record = own("follows", "--json").record
    assert {name: record[name] for name in ("policy", "min_payload", "max_payload", "eager")} == {
        "policy": "latest:7",
        "min_payload": 10,
        "max_payload": 4 << 20,
        "eager": 10 << 10,
    }
    assert own("follow", AUTHOR).err == (
        f"{AUTHOR}: {said}, as before (`--policy full` takes in all of it)\n"
    )
    assert own("follows").lines == [f"{AUTHOR}  {said}"]
    assert own("follow", AUTHOR, "--max-payload", "1G").err == (
        f"{AUTHOR}: full, payloads up to 1.0 GiB from now on, no longer {said}\n"
    )
    assert own("follow", AUTHOR, "--max-payload", "1G").err == ""
    assert own("follows").lines == [f"{AUTHOR}  full, payloads up to 1.0 GiB"]
    own("follow", AUTHOR, "--policy", "full")
    assert own("follows").lines == [AUTHOR]
    assert own("follow", AUTHOR).err == ""


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--policy", "everything"), "is no policy: it is one of full, sparse"),
        (("--policy", "latest"), "write latest:N, as in latest:100"),
        (("--policy", "latest:0"), "write latest:N"),
        (("--policy", "range:7"), "write range:A..B"),
        (("--policy", "range:9..2"), "ends before it begins"),
        (("--max-payload", "10x"), "is no number of bytes, like 1000, 10k"),
        (("--min-payload", "10k", "--max-payload", "9k"), "smallest payload wanted is larger"),
        (("--eager", "-1"), "--eager"),
    ],
)
@pytest.mark.parametrize("command", [("follow", AUTHOR), ("sync", "localhost", "--follow", AUTHOR)])
def test_what_is_no_policy_is_said_in_a_line(
    own: CommandLine, command: tuple[str, ...], flags: tuple[str, ...], reason: str
) -> None:
    result = own(*command, *flags)
    assert (result.status, result.out) == (2, b"")
    assert reason in result.err
    assert result.err.count("\n") == 1
    assert own("follows").lines == []


@pytest.mark.parametrize("command", [("serve", "--no-listen"), ("sync", "localhost")])
def test_a_policy_beside_nothing_to_follow_is_a_mistake(
    own: CommandLine, command: tuple[str, ...]
) -> None:
    result = own(*command, "--policy", "sparse")
    assert (result.status, result.out) == (2, b"")
    assert "name something" in result.err


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
@pytest.mark.parametrize("argv", [(), ("abc",), (f"{AUTHOR}/x",)])
def test_a_target_is_a_log_or_an_author(
    own: CommandLine, command: str, argv: tuple[str, ...]
) -> None:
    result = own(command, *argv)
    assert (result.status, result.out) == (2, b"")
