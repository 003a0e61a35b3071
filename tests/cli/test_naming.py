"""Names, beginnings of ids and numbers of own logs, wherever something is named."""

import re

import pytest
from nacl.signing import SigningKey

from tests.cli.harness import AUTHOR_KEY, CommandLine, lines_of, make_log, words

AUTHOR = bytes(AUTHOR_KEY.verify_key).hex()


@pytest.fixture
def both(own: CommandLine) -> CommandLine:
    """A store with a log of its own, 0, and two of another author, 0 and 3."""
    own("append", "--lines", stdin=b"one\ntwo\n")
    for log_id in (0, 3):
        own("import", stdin=lines_of(make_log(words(2), log_id=log_id)))
    return own


def test_a_name_stands_wherever_a_log_or_an_author_is_named(both: CommandLine) -> None:
    assert both("name", AUTHOR, "ben").status == 0
    assert both("name", f"{AUTHOR}/3", "ben.news").status == 0
    assert both("name").lines == [f"ben       {AUTHOR}", f"ben.news  {AUTHOR}/3"]
    assert both("cat", "ben").out == both("cat", AUTHOR).out
    assert both("cat", "ben/3").out == both("cat", "ben.news").out != b""
    for command in ("cat", "dump", "logs", "verify", "status"):
        assert both(command, "ben").out == both(command, AUTHOR).out
    assert both("entry", "ben.news", 1).out == both("entry", f"{AUTHOR}/3", 1).out
    both("follow", "ben", "ben.news")
    assert [each["log_id"] for each in both("follows", "--json").records] == [None, 3]


def test_names_are_in_json_of_the_log_before_its_author(both: CommandLine) -> None:
    both("name", AUTHOR, "ben")
    both("name", f"{AUTHOR}/3", "news")
    found = {
        (each["author"], each["log_id"]): each["name"] for each in both("logs", "--json").records
    }
    assert found == {(AUTHOR, 0): "ben", (AUTHOR, 3): "news", (both.author, 0): None}
    logs = both("status", "--json").record["logs"]
    assert {each["name"] for each in logs} == {"ben", "news", None}
    assert [each["name"] for each in both("name", "--json").records] == ["ben", "news"]
    assert both("whoami", "--json").record["name"] is None
    both("name", both.author, "me")
    assert both("whoami", "--json").record["name"] == "me"


def test_beginnings_and_numbers(both: CommandLine) -> None:
    assert both("cat", AUTHOR[:8]).out == both("cat", AUTHOR).out
    assert both("cat", f"{AUTHOR[:8]}/3").out == both("cat", f"{AUTHOR}/3").out
    assert both("cat", "0").out == both("cat", "/0").out == b"onetwo"
    assert both("cat", "7").status == 1


def test_who_changes_the_store_is_told_what_was_meant(both: CommandLine) -> None:
    both("name", AUTHOR, "ben")
    for text, full in (("ben", AUTHOR), (AUTHOR[:9], AUTHOR), ("5", f"{both.author}/5")):
        assert f"{text} is {full}" in both("follow", text).err
    assert f"ben is {AUTHOR}/0" in both("drop", "ben", "1").err
    assert both("cat", "ben/3").err == ""
    assert both("follow", AUTHOR).err == ""


def test_unknown_is_no_and_ambiguous_or_malformed_is_wrong_usage(both: CommandLine) -> None:
    assert both("cat", "nobody").status == 1
    assert both("cat", "f" * 63).status == 1
    wrong = both("cat", "abc")
    assert (wrong.status, "names nothing" in wrong.err) == (2, True)
    twin = AUTHOR[:20] + "0" * 44
    both("follow", twin)
    ambiguous = both("cat", AUTHOR[:8])
    assert ambiguous.status == 2
    assert all(each in ambiguous.err for each in (AUTHOR, twin))
    assert both("cat", AUTHOR[:21]).status == 0


def test_names_are_checked_and_unique(both: CommandLine) -> None:
    for name in ("all", "abc", "12", "-x", "x" * 65, "a/b", ""):
        assert both("name", "--", AUTHOR, name).status == 2, name
    assert both("name", AUTHOR, "ben").status == 0
    taken = both("name", both.author, "ben")
    assert (taken.status, AUTHOR in taken.err) == (1, True)
    assert both("name", AUTHOR, "x" * 64).status == 0
    assert [each["name"] for each in both("name", "--json").records] == ["x" * 64]
    assert both("name", "--remove", "ben").status == 1
    removed = both("name", "--remove", "x" * 64)
    assert (removed.status, AUTHOR in removed.err) == (0, True)
    assert both("name").out == b""
    assert both("name", AUTHOR).status == 2


def test_a_new_peer_is_named_in_full(both: CommandLine) -> None:
    refused = both("peer", "allow", AUTHOR[:8])
    assert (refused.status, "in full" in refused.err) == (2, True)
    assert both("peer", "allow", AUTHOR, "--name", "ben").status == 0
    assert both("cat", "ben").out == both("cat", AUTHOR).out
    assert both("peer", "allow", AUTHOR[:8], "--read", "0").status == 0
    assert both("peer", "show", "ben", "--json").record["read"] == [f"{both.author}/0"]


def test_a_terminal_shows_names_and_short_ids_in_80_columns(both: CommandLine) -> None:
    both.setenv("COLUMNS", "80")
    both.setenv("NO_COLOR", "1")
    both("name", f"{AUTHOR}/3", "a.very.long.name.that.somebody.has.given.to.this.log")
    lines = both("logs", terminal=True).lines
    assert max(map(len, lines)) <= 80
    assert any(line.startswith(f"{both.author[:12]} ") for line in lines)
    assert any(re.match(r"a\.very.*~.*log ", line) for line in lines)
    both("follow", AUTHOR)
    assert both("follows", terminal=True).lines == [AUTHOR[:12]]
    # What is shown can be typed.
    assert both("cat", AUTHOR[:12]).status == 0


def test_as_many_digits_are_shown_as_it_takes(both: CommandLine) -> None:
    twin = AUTHOR[:20] + ("0" if AUTHOR[20] != "0" else "1") + "0" * 43
    both("follow", AUTHOR, twin)
    shown = both("follows", terminal=True).lines
    assert sorted(shown) == sorted([AUTHOR[:21], twin[:21]])


def test_a_key_that_signs_elsewhere_is_named_by_its_beginning(own: CommandLine) -> None:
    other = bytes(SigningKey.generate().verify_key).hex()
    own("follow", other)
    assert own("unfollow", other[:10]).status == 0
    assert own("follows").out == b""
