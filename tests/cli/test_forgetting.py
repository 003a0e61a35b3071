"""`forget`."""

import pytest

from tests.cli.harness import CommandLine, lines_of, make_log, words
from wire import LogKey


@pytest.fixture
def log(own: CommandLine) -> LogKey:
    """Somebody else's log of nine entries."""
    made = make_log(words(9))
    own("import", stdin=lines_of(made))
    return made[0].key


def test_a_log_is_removed_with_its_name(own: CommandLine, log: LogKey) -> None:
    own("append", stdin=b"ours")
    own("name", str(log), "theirs")
    would = own("forget", "theirs", "--dry-run", "--json").record
    assert would == {
        "author": log.author.hex(),
        "log_id": 0,
        "name": "theirs",
        "entries": 9,
        "payloads": 9,
        "bytes": own("logs", str(log), "--json").record["bytes"],
        "dry_run": True,
    }
    assert own("logs", str(log)).status == 0
    done = own("forget", log.author.hex()[:8])
    assert done.status == 0
    assert done.text.startswith(f"{log}  9 entries, 9 payloads, ")
    assert done.text.endswith(" forgotten")
    assert "`compact`" in done.err
    assert own("name").out == b""
    assert [each["author"] for each in own("logs", "--json").records] == [own.author]
    assert own("verify").status == 0
    assert own("forget", str(log)).status == 1


@pytest.mark.parametrize("by", ["log", "author", "all"])
def test_what_is_followed_is_kept_and_it_is_said_by_what(
    own: CommandLine, log: LogKey, by: str
) -> None:
    target = {"log": str(log), "author": log.author.hex(), "all": "--all"}[by]
    own("follow", target)
    for flags in ((), ("--dry-run",)):
        refused = own("forget", str(log), *flags)
        assert (refused.status, refused.out) == (1, b"")
        assert f"unfollow {target}" in refused.err
    assert own("logs", str(log)).status == 0
    own("unfollow", target)
    assert own("forget", str(log)).status == 0


def test_own_logs_are_kept(own: CommandLine) -> None:
    own("append", stdin=b"ours")
    for target in (own.author, "0", f"{own.author}/0"):
        refused = own("forget", target)
        assert (refused.status, refused.out) == (1, b"")
        assert "it is signed here" in refused.err
    assert own("cat", own.author).out == b"ours"
