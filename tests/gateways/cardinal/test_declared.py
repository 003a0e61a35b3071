"""Entry 1: what it says, what is no declaration; and patterns that not everybody reads alike."""

import json

import pytest

from gateways.cardinal.declared import (
    PatternError,
    ReorgDeclared,
    Router,
    TopicDeclared,
    declare,
    read_declared,
)
from gateways.declaration import DeclarationError, canonical_json

from .vectors import VECTORS

DECLARED = TopicDeclared(
    "demo",
    "main",
    "main",
    {"accounts": 2, "main": 1, "storage": 3},
    (("a/", "accounts"), ("s/", "storage")),
    128,
)
CHANNEL = ReorgDeclared("demo", 1337, bytes(range(32)))


def test_the_vector_and_its_kin_read_as_they_were_written() -> None:
    payload = bytes.fromhex(VECTORS["payloads"]["declaration"])
    assert declare(DECLARED) == payload
    assert read_declared(payload) == DECLARED
    assert read_declared(declare(CHANNEL)) == CHANNEL
    large = DECLARED._replace(log_ids={"accounts": 2, "main": 1, "storage": 1 << 53})
    assert b'"9007199254740992"' in declare(large)
    assert read_declared(declare(large)) == large


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"chain": "de mo"}, "'chain'"),
        ({"chain": "x" * 65}, "'chain'"),
        ({"topic": "other"}, "each topic"),
        ({"role": "stream"}, "'role'"),
        ({"log_ids": {"main": 1}}, "each topic"),
        ({"log_ids": {"accounts": 2, "main": 1, "storage": 1}}, "twice"),
        ({"log_ids": {"accounts": 2, "main": 1, "storage": -1}}, "'storage'"),
        ({"log_ids": {"accounts": 2, "main": 1, "storage": True}}, "'storage'"),
        ({"log_ids": []}, "'log_ids'"),
        ({"patterns": [["a/"], ["s/", "storage"]]}, "'patterns'"),
        ({"patterns": [["(?=a)", "accounts"], ["s/", "storage"]]}, "pattern"),
        ({"patterns": "as"}, "'patterns'"),
        ({"threshold": -1}, "'threshold'"),
        ({"threshold": 1 << 31}, "'threshold'"),
        ({"version": 2}, "version 2"),
        ({"stream": "ockam"}, "ockam"),
        ({"more": 1}, "fields"),
    ],
)
def test_what_is_no_declaration_is_said(change: dict[str, object], said: str) -> None:
    fields = json.loads(declare(DECLARED)) | change
    with pytest.raises(DeclarationError, match=said):
        read_declared(canonical_json(fields))


@pytest.mark.parametrize(
    "change", [{"ancestor": "00"}, {"ancestor": "AB" * 32}, {"number": 1 << 31}, {"number": "1"}]
)
def test_what_is_no_channel_is_said(change: dict[str, object]) -> None:
    fields = json.loads(declare(CHANNEL)) | change
    with pytest.raises(DeclarationError):
        read_declared(canonical_json(fields))


def test_a_declaration_that_does_not_fit_is_refused() -> None:
    patterns = tuple((f"{number}/" + "x" * 60, "accounts") for number in range(100, 160))
    with pytest.raises(ValueError, match="4096"):
        declare(DECLARED._replace(patterns=patterns))


def test_who_can_be_consumed_together() -> None:
    assert DECLARED.fits(DECLARED._replace(log_ids={"accounts": 9}, threshold=1))
    assert not DECLARED.fits(DECLARED._replace(patterns=()))
    assert DECLARED.is_same_stream(DECLARED._replace(topic="accounts"))
    assert not DECLARED.is_same_stream(DECLARED._replace(threshold=1))


@pytest.mark.parametrize(
    "pattern",
    [
        "a/",
        "bar/[^/]+/baz/",
        "(?:a|b)/x*?",
        r"\d{2,3}/\w+?\.x\x2f",
        "[]a]b/",
        "[^]]/",
        r"[\]]/",
        "(?P<name>a)/",
        "a{2}/",
        "x{",
        "a$",
        "(?:a+b)/[^/]*",
        "(?:ab)+/",
        "[$]",
    ],
)
def test_patterns_that_everybody_reads_alike(pattern: str) -> None:
    assert Router([(pattern, "t")], "main").patterns == ((pattern, "t"),)


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)",
        "(?!a)",
        "(?<=a)b",
        "(?>a)",
        "(?i)a",
        "(?i:a)",
        "(?#x)",
        r"(a)\1",
        "(?P<x>a)(?P=x)",
        "a*+",
        "a++",
        "a?+",
        "a{1,2}+",
        "a{,3}",
        "a{1001}",
        r"\Z",
        r"\pL",
        r"\Qa\E",
        r"a\012",
        "[[:alpha:]]",
        "[a[:alpha:]]",
        "[^[:alpha:]]",
        r"[a\b]",
        "(?P<é>a)",
        "(?P<a",
        "(",
        "a)|(b",
        "a\\",
        "é\\é",
        r"a\s",
        r"\S+/",
        "(?:a*)*b/",
        "(?:(?:ab?)c){2}",
        "(a+)+?",
    ],
)
def test_patterns_that_are_read_otherwise_somewhere(pattern: str) -> None:
    with pytest.raises(PatternError, match="pattern"):
        Router([(pattern, "t")], "main")


def test_a_key_goes_where_the_first_pattern_that_matches_text_says() -> None:
    router = Router([("x*", "t"), ("ab?/", "a"), ("abc", "b")], "main")
    assert router.route("ab/c") == ("ab/", "a")
    assert router.route("abc") == ("abc", "b")
    # At the start alone, and nothing matched is no match.
    assert router.route("cab/") is None
    assert router.topic("cab/") == "main"
    end = Router([("a$", "t"), ("[$]/", "u")], "main")
    assert (end.topic("a"), end.topic("a\n"), end.topic("$/")) == ("t", "main", "u")
    for pair in ([("a/", "a"), ("a/b", "b")], [("a/b", "b"), ("a/", "a")], [("a", "a")] * 2):
        with pytest.raises(PatternError, match="begins with"):
            Router(pair, "main")


@pytest.mark.parametrize(
    "patterns",
    [
        [("b/", "one"), ("a/", "two"), ("c", "one")],
        [("[ab]/", "one"), ("a", "two")],
        [("b/", "one")],
        [],
    ],
)
def test_keys_that_lie_together_go_where_each_of_them_goes(patterns: list[tuple[str, str]]) -> None:
    router = Router(patterns, "main")
    keys = sorted(["a", "a/", "a/1", "a0", "b/1", "b/2", "b0", "c", "c/\U0001f600", "d", "\ud7ff"])
    for some in (keys, keys[1:4], keys[4:6], []):
        runs = [*router.runs(some)]
        assert all(run for _, run in runs)
        assert [(found, key) for found, run in runs for key in run] == [
            (router.route(key), key) for key in some
        ]
