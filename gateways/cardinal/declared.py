"""Entry 1 of the logs of a stream: its topics, and which keys go where (spec 2.5, 4.1, 4.3).

Sans-io. A declaration is valid by its bytes alone, so every replica agrees on what a log is.
"""

import re
import warnings
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from gateways.cardinal.codec import HASH_BYTES, INT_MAX
from gateways.declaration import (
    DECLARATION_BYTES_MAX,
    DeclarationError,
    canonical_json,
    json_u64,
    read_declaration,
    text_field,
    u64_field,
)

SYSTEM: Final = "cardinal"
VERSION: Final = 1
DEFAULT_TOPIC: Final = "main"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LITERAL: Final = re.compile(r"[A-Za-z0-9_/:@=,;!%&~ \"'<>-]+")
"""Patterns that match their own text and nothing else."""
_ESCAPES: Final = frozenset("AbBdDwWafnrtv")
"""Letters behind a backslash that mean the same in Python's `re` and in RE2."""
_REPEATED_MAX: Final = 1_000
"""What RE2 repeats at most."""
_GROUP: Final = re.compile(r"\((?:\?:|\?P<[A-Za-z_][A-Za-z0-9_]*>|(?!\?))")
"""How one begins. Python's names may have letters beyond ASCII."""


class PatternError(ValueError):
    """A pattern that not every program reads alike; the text says which, and why."""


class Router:
    """Which topic a key goes to, and under which prefix: by the first pattern that matches.

    `patterns`: (pattern, topic), in their order. Raises PatternError.
    """

    def __init__(self, patterns: Iterable[tuple[str, str]], default: str) -> None:
        self.patterns = tuple(patterns)
        self.default = default
        self._compiled = [(compiled(pattern), topic) for pattern, topic in self.patterns]
        self._literals: list[tuple[str, str]] | None = None
        if all(_LITERAL.fullmatch(pattern) for pattern, _ in self.patterns):
            self._literals = [*self.patterns]
        for number, (pattern, _) in enumerate(self.patterns):
            for other, _ in self.patterns[:number] + self.patterns[number + 1 :]:
                if pattern.startswith(other):
                    raise PatternError(f"pattern {pattern!r} begins with another one, {other!r}")

    def route(self, key: str) -> tuple[str, str] | None:
        """The prefix and the topic of a key; None where no pattern matches."""
        if self._literals is not None:
            # Most patterns are the beginning itself: asked for in a third of the time.
            for literal in self._literals:
                if key.startswith(literal[0]):
                    return literal
            return None
        for pattern, topic in self._compiled:
            found = pattern.match(key)
            if found is not None and found.end():
                return found[0], topic
        return None

    def runs(self, keys: Sequence[str]) -> Iterator[tuple[tuple[str, str] | None, Sequence[str]]]:
        """Keys that are sorted, those with the same `route` next to each other together."""
        if self._literals is None:
            yield from ((found, [*run]) for found, run in groupby(keys, self.route))
            return
        # What begins alike lies together, and no pattern begins with another one.
        at = 0
        for literal in sorted(self._literals):
            begins = bisect_left(keys, literal[0], at)
            if begins > at:
                yield None, keys[at:begins]
            at = bisect_left(keys, 1, begins, key=lambda key: 1 - key.startswith(literal[0]))
            if at > begins:
                yield literal, keys[begins:at]
        if at < len(keys):
            yield None, keys[at:]

    def topic(self, key: str) -> str:
        """The topic of what a block says of a key, a prefix or a name."""
        found = self.route(key)
        return self.default if found is None else found[1]


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern to be matched at the start of a key. Raises PatternError."""
    checked = _checked(pattern)
    try:
        with warnings.catch_warnings():
            # A set in a set, say: what Python will read otherwise some day, others do now.
            warnings.simplefilter("error")
            return re.compile(f"(?:{checked})", re.ASCII)
    except (re.error, FutureWarning, OverflowError, RecursionError) as error:
        raise PatternError(f"pattern {pattern[:60]!r}: {error}") from None


def _checked(pattern: str) -> str:
    """The pattern as Python has to read it to mean what RE2 does. Raises PatternError.

    Repetitions of repetitions are refused too: RE2 takes them in its stride, and Python's `re` a
    time that doubles with each byte of a key, which anybody may choose.
    """
    found: list[str] = []
    at, in_set, is_repeated = 0, False, False
    groups = [False]
    """Of each group that is open, whether something in it is repeated."""
    was_group = False
    while at < len(pattern):
        rest, was_repeated, is_repeated = pattern[at:], is_repeated, False
        had_repeat, was_group = was_group, False
        step, text = 1, rest[0]
        if rest[0] == "\\":
            step = 2
            _check_escape(pattern, rest, in_set=in_set)
            text = rest[:2]
        elif in_set and rest.startswith("[:"):
            # A class of characters by its name to RE2, and these characters to Python.
            raise PatternError(f"pattern {pattern[:60]!r}: '[:' is not read alike everywhere")
        elif in_set:
            in_set = rest[0] != "]"
        elif rest[0] == "[":
            # A bracket that closes at once is one of the set.
            in_set, step = True, 2 if rest[1:2] == "^" else 1
            step += rest[step : step + 1] == "]"
            text = rest[:step]
        elif rest[0] == "$":
            # Python's is before a line feed at the end, too.
            text = r"\Z"
        elif rest[0] == "(":
            opened = _GROUP.match(rest)
            if opened is None:
                raise PatternError(
                    f"pattern {pattern[:60]!r}: {rest[:4]!r} means no group everywhere"
                )
            step, text = opened.end(), opened[0]
            groups.append(False)
        elif rest[0] == ")":
            if len(groups) == 1:
                # It would close the group that is put around the whole.
                raise PatternError(f"pattern {pattern[:60]!r}: a group is closed that is not open")
            was_group = groups.pop()
            groups[-1] = groups[-1] or was_group
        elif repeat := re.match(r"[*+?]|\{(\d*)(,(\d*))?\}", rest):
            _check_repeat(pattern, repeat, was_repeated=was_repeated or had_repeat)
            step, is_repeated = repeat.end(), True
            step += rest[step : step + 1] == "?"
            text = rest[:step]
            groups[-1] = True
        found.append(text)
        at += step
    return "".join(found)


def _check_escape(pattern: str, rest: str, *, in_set: bool) -> None:
    letter = rest[1:2]
    is_hex = re.match(r"\\x[0-9a-fA-F]{2}", rest) is not None
    is_alike = letter in _ESCAPES or is_hex or (letter.isascii() and not letter.isalnum())
    # In a set it is a character to Python.
    if not letter or not is_alike or (in_set and letter == "b"):
        raise PatternError(f"pattern {pattern[:60]!r}: {rest[:2]!r} is not read alike everywhere")


def _check_repeat(pattern: str, repeat: re.Match[str], *, was_repeated: bool) -> None:
    if was_repeated:
        raise PatternError(f"pattern {pattern[:60]!r}: {repeat[0]!r} behind a repetition")
    low, _, high = repeat[1], repeat[2], repeat[3]
    if low is None:
        return
    if not low or any(int(each) > _REPEATED_MAX for each in (low, high) if each):
        raise PatternError(f"pattern {pattern[:60]!r}: {repeat[0]!r} is not read alike everywhere")


class TopicDeclared(NamedTuple):
    """A log that holds one topic of a stream."""

    chain: str
    default: str
    topic: str
    log_ids: Mapping[str, int]
    """Of every topic."""
    patterns: tuple[tuple[str, str], ...]
    threshold: int

    def fits(self, other: "TopicDeclared") -> bool:
        """Whether producers of both can be consumed together."""
        ours = self.chain, self.default, self.patterns
        return ours == (other.chain, other.default, other.patterns)

    def is_same_stream(self, other: "TopicDeclared") -> bool:
        """Whether both are topics of one stream."""
        return self._replace(topic="") == other._replace(topic="")


class ReorgDeclared(NamedTuple):
    """A log that holds what comes behind a common ancestor."""

    chain: str
    number: int
    ancestor: bytes


Declared = TopicDeclared | ReorgDeclared


def is_name(text: str) -> bool:
    """Whether a chain or a topic may be called so."""
    return _NAME.fullmatch(text) is not None


def declare(declared: Declared) -> bytes:
    """The payload of entry 1. Raises ValueError for more than 4,096 bytes."""
    fields: dict[str, object] = {"stream": SYSTEM, "version": VERSION, "chain": declared.chain}
    if isinstance(declared, ReorgDeclared):
        fields |= {
            "role": "reorg",
            "number": declared.number,
            "ancestor": declared.ancestor.hex(),
        }
    else:
        fields |= {
            "role": "topic",
            "default": declared.default,
            "topic": declared.topic,
            "log_ids": {topic: json_u64(each) for topic, each in declared.log_ids.items()},
            "patterns": [list(each) for each in declared.patterns],
            "threshold": declared.threshold,
        }
    payload = canonical_json(fields)
    if len(payload) > DECLARATION_BYTES_MAX:
        raise ValueError(
            f"a declaration of {len(payload)} bytes, {DECLARATION_BYTES_MAX} are the limit:"
            " fewer or shorter patterns and topics"
        )
    return payload


def read_declared(payload: bytes) -> Declared:
    """What entry 1 says. Raises DeclarationError."""
    fields = read_declaration(payload, stream=SYSTEM, version=VERSION)
    role = text_field(fields, "role", ("topic", "reorg"))
    chain = _name(fields, "chain")
    declared: Declared
    if role == "reorg":
        declared = ReorgDeclared(chain, u64_field(fields, "number", INT_MAX), _ancestor(fields))
    else:
        declared = TopicDeclared(
            chain,
            _name(fields, "default"),
            _name(fields, "topic"),
            _log_ids(fields),
            _patterns(fields),
            u64_field(fields, "threshold", INT_MAX),
        )
        check_topics(declared)
    if declare(declared) != payload:
        raise DeclarationError("entry 1 has fields that a declaration has not")
    return declared


def check_topics(declared: TopicDeclared) -> None:
    """Raises DeclarationError where topics, logs and patterns do not agree."""
    topics = {declared.default, *(topic for _, topic in declared.patterns)}
    if topics != declared.log_ids.keys() or declared.topic not in topics:
        raise DeclarationError("'log_ids' does not name the log of each topic, and those alone")
    if len(set(declared.log_ids.values())) != len(topics):
        raise DeclarationError("'log_ids' names one log twice")
    try:
        Router(declared.patterns, declared.default)
    except PatternError as error:
        raise DeclarationError(str(error)) from None


def _name(fields: Mapping[str, object], field: str) -> str:
    value = fields.get(field)
    if not isinstance(value, str) or not is_name(value):
        raise DeclarationError(f"{field!r} is no name of 1 to 64 of A-Z a-z 0-9 . _ -")
    return value


def _ancestor(fields: Mapping[str, object]) -> bytes:
    value = fields.get("ancestor")
    if not isinstance(value, str) or re.fullmatch(r"[0-9a-f]{64}", value) is None:
        raise DeclarationError("'ancestor' is no hash")
    assert len(value) == 2 * HASH_BYTES
    return bytes.fromhex(value)


def _log_ids(fields: Mapping[str, object]) -> dict[str, int]:
    value = fields.get("log_ids")
    if not isinstance(value, dict) or not all(map(is_name, value)):
        raise DeclarationError("'log_ids' does not name the log of each topic")
    return {topic: u64_field(value, topic) for topic in value}


def _patterns(fields: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    value = fields.get("patterns")
    if not isinstance(value, list) or not all(map(_is_pair, value)):
        raise DeclarationError("'patterns' is no list of a pattern and a topic each")
    return tuple((pattern, topic) for pattern, topic in value)


def _is_pair(value: object) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and len(value) == 2
        and all(isinstance(each, str) for each in value)
        and is_name(value[1])
    )
