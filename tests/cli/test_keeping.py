"""`keep` and `tidy`."""

import json

import pytest

from logstore import ALL, KeepRule, Store
from tests.cli.harness import CommandLine, lines_of, make_log, words
from wire import LogKey

AUTHOR = "ab" * 32


@pytest.fixture
def log(own: CommandLine) -> LogKey:
    """Somebody else's log of nine entries."""
    made = make_log(words(9))
    own("import", stdin=lines_of(made))
    return made[0].key


def payloads(own: CommandLine, log: LogKey | str) -> object:
    return own("logs", str(log), "--json").record["payloads"]


def test_there_is_no_rule_at_first(own: CommandLine) -> None:
    own("append", stdin=b"x")
    result = own("keep")
    assert (result.status, result.out, result.err) == (0, b"", "")
    assert own("tidy").out == b""
    assert payloads(own, own.author) == 1


def test_a_rule_is_remembered_shown_changed_and_ended(own: CommandLine) -> None:
    said = own("keep", AUTHOR, "--last", 5, "--age", "7d", "--bytes", "1G")
    assert (said.status, said.out) == (0, b"")
    assert said.err.splitlines() == [
        f"{AUTHOR}: payloads: the last 5, no older than 7d, up to 1.0 GiB in all from now on",
        "no node serves this store: `tidy` deletes what is not to be kept",
    ]
    with Store.open(own.store, readonly=True) as store:
        assert store.keeps() == {bytes.fromhex(AUTHOR): KeepRule(5, 604_800.0, 1 << 30)}
    own("keep", "--all", "--age", "90s")
    changed = own("keep", AUTHOR, "--last", 3).err
    assert changed.startswith(f"{AUTHOR}: payloads: the last 3 from now on, no longer payloads:")
    assert own("keep").lines == [
        "all  payloads: no older than 90s",
        f"{AUTHOR}  payloads: the last 3",
    ]
    assert own("keep", "--json").records == [
        {
            "kind": "all",
            "author": None,
            "log_id": None,
            "name": None,
            "last": None,
            "age_s": 90.0,
            "bytes": None,
        },
        {
            "kind": "author",
            "author": AUTHOR,
            "log_id": None,
            "name": None,
            "last": 3,
            "age_s": None,
            "bytes": None,
        },
    ]
    assert own("keep", AUTHOR, "--everything").status == 0
    again = own("keep", AUTHOR, "--everything")
    assert (again.status, again.out) == (1, b"")
    assert "there is no rule for it" in again.err
    with Store.open(own.store, readonly=True) as store:
        assert set(store.keeps()) == {ALL}


def test_a_dry_run_says_what_would_go_and_tidy_says_the_same(own: CommandLine, log: LogKey) -> None:
    dry = own("keep", str(log), "--last", 4, "--dry-run", "--json").record
    fields = {"author": log.author.hex(), "log_id": log.log_id, "name": None}
    size = sum(map(len, words(5)))
    assert dry == fields | {
        "count": 5,
        "bytes": size,
        "oldest_seq": 1,
        "newest_seq": 5,
        "rule": "log",
        "dry_run": True,
    }
    assert own("keep").out == b""
    own("keep", str(log), "--last", 4)
    assert own("tidy", "--dry-run", "--json").record == dry
    assert payloads(own, log) == 9
    assert own("tidy", "--json").record == dry | {"dry_run": False}
    assert payloads(own, log) == 4
    assert own("tidy", "--json").out == b""
    assert own("verify").status == 0


def test_tidy_is_for_one_target_or_for_all(own: CommandLine, log: LogKey) -> None:
    own("append", "--lines", stdin=b"a\nb\nc\n")
    own("keep", "--all", "--last", 2)
    own("keep", own.author, "--last", 2)
    assert own("tidy", own.author).text == (
        f"{own.author}/0  1 payload, 1 B of entry 1 deleted (rule: author)"
    )
    assert payloads(own, log) == 9
    assert own("tidy").text.startswith(f"{log}  7 payloads, ")


def test_who_gives_up_own_payloads_is_warned(own: CommandLine) -> None:
    own("append", "--lines", stdin=b"a\nb\n")
    assert "warning" not in own("keep", "--all", "--last", 1).err
    for target in (own.author, f"{own.author}/7"):
        assert "what nobody else holds of it" in own("keep", target, "--last", 1).err
    own("keep", own.author, "--everything")
    assert own("tidy").out == b""


def test_a_dry_run_says_that_nothing_would_go(own: CommandLine, log: LogKey) -> None:
    nothing = "nothing would be deleted\n"
    for argv in (("keep", str(log), "--last", 9), ("tidy",)):
        dry = own(*argv, "--dry-run")
        assert (dry.status, dry.out, dry.err) == (0, b"", nothing)
        assert own(*argv, "--dry-run", "--json").out == b""
    assert nothing not in own("keep", str(log), "--last", 8, "--dry-run").err
    # Whoever lets it run by the clock hears of what is done.
    assert own("tidy").err == ""


def test_a_dry_run_warns_as_the_rule_does(own: CommandLine) -> None:
    own("append", "--lines", stdin=b"a\nb\n")
    argv = ("keep", f"{own.author}/0", "--last", 1)
    dry = own(*argv, "--dry-run")
    [warning] = dry.err.splitlines()
    assert warning.startswith(f"warning: {own.author}/0 is your own: ")
    assert warning in own(*argv).err.splitlines()
    ending = own("keep", f"{own.author}/0", "--everything", "--dry-run")
    assert (ending.status, "warning" in ending.err) == (0, False)


def test_what_has_gone_is_brought_back_by_import(own: CommandLine, log: LogKey) -> None:
    dumped = own("dump", str(log)).out
    own("keep", str(log), "--last", 1)
    own("tidy")
    assert json.loads(own("dump", str(log), "1").out)["payload"] is None
    own("import", stdin=dumped)
    assert payloads(own, log) == 9


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (("--last", 5), "name a LOG or an AUTHOR, or say --all"),
        (("--dry-run",), "name a LOG or an AUTHOR, or say --all"),
        ((AUTHOR,), "say --last, --age or --bytes"),
        ((AUTHOR, "--last", 5, "--everything"), "not both"),
        ((AUTHOR, "--all", "--last", 5), "name a TARGET, or say --all"),
        ((AUTHOR, "--age", "7"), "no span of time, like 90s, 10m, 2h or 7d"),
        ((AUTHOR, "--last", "-1"), "no number"),
        (("abc", "--last", 5), "64 hex digits"),
    ],
)
def test_wrong_usage(own: CommandLine, argv: tuple[str | int, ...], reason: str) -> None:
    result = own("keep", *argv)
    assert (result.status, result.out) == (2, b"")
    assert reason in result.err
    assert own("keep").out == b""
