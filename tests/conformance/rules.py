"""The catalogue: every rule of point2point.md 1-9 and of bymux.md, each with a stable id.

An id never changes its meaning; a rule that is added takes the next free number of its section.
`test_catalogue.py` fails if a rule lacks a test for a role that it applies to, so that the page
made from this (docs/conformance.md) cannot say more than the tests do.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from . import rules_bymux, rules_control, rules_data


class Kind(StrEnum):
    """What sort of statement a rule is."""

    MUST = "must"
    """An endpoint has to behave like this."""
    VIOLATION = "violation"
    """What the other side must not do; the connection ends if it does."""
    DECIDED = "decided"
    """Left open by the protocol's source and decided for this protocol."""
    MAY = "may"
    """Allowed, however strange it looks; the connection has to survive it."""
    OURS = "ours"
    """A default or a habit of this implementation that others can rely on when they test it."""


class Role(StrEnum):
    """What the endpoint under test is."""

    PROACTIVE = "proactive"
    REACTIVE = "reactive"
    ANY = "any"
    """The rule, or the test, has nothing to do with roles: encodings, arithmetic."""


BOTH = frozenset((Role.PROACTIVE, Role.REACTIVE))
_ROLES = {
    "both": BOTH,
    "any": frozenset((Role.ANY,)),
    "proactive": frozenset((Role.PROACTIVE,)),
    "reactive": frozenset((Role.REACTIVE,)),
}
_HEAD = re.compile(r"((?:P2P|BYMUX)-(\d+)\.\d\d) (\w+) (\w+)")
_TITLES = {
    "P2P-1": "Transport and session setup",
    "P2P-2": "Control messages",
    "P2P-3": "The sequence of a request",
    "P2P-4": "Data packets",
    "P2P-5": "Adjusting",
    "P2P-6": "Cancelling",
    "P2P-7": "Overlapping proposals",
    "P2P-8": "Data and verification",
    "P2P-9": "Violations",
    "BYMUX-1": "Packets",
    "BYMUX-2": "Credit",
    "BYMUX-3": "Ping, Pong",
    "BYMUX-4": "Closing",
    "BYMUX-5": "Creating streams",
    "BYMUX-6": "Fairness",
    "BYMUX-7": "Idle work",
    "BYMUX-8": "Initial state",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One normative statement. `roles` are those for which there has to be a test."""

    id: str
    kind: Kind
    roles: frozenset[Role]
    text: str

    @property
    def chapter(self) -> str:
        """Its section as a prefix of ids: "P2P-4"."""
        return self.id.partition(".")[0]

    @property
    def section(self) -> str:
        """Its section as violations name it."""
        document, _, number = self.chapter.partition("-")
        return f"point2point.md {number}" if document == "P2P" else f"bymux.md {self.title}"

    @property
    def title(self) -> str:
        return _TITLES[self.chapter]


def parse(text: str) -> list[Rule]:
    """Rules from a text: a line with id, kind and roles, then the sentence, indented."""
    rules: list[Rule] = []
    head: re.Match[str] | None = None
    sentence: list[str] = []

    def finish() -> None:
        if head is not None:
            words = " ".join(sentence)
            rules.append(Rule(head[1], Kind(head[3]), _ROLES[head[4]], words))
        sentence.clear()

    for line in text.splitlines():
        if line.startswith("  "):
            sentence.append(line.strip())
        elif line:
            finish()
            head = _HEAD.fullmatch(line)
            if head is None:
                raise ValueError(f"not the head of a rule: {line!r}")
    finish()
    return rules


def _order(rule: Rule) -> tuple[int, int, int]:
    document, section, number = re.split(r"[-.]", rule.id)
    return (document != "P2P", int(section), int(number))


_FOUND = sorted(
    parse(rules_control.TEXT + rules_data.TEXT + rules_bymux.TEXT),
    key=_order,
)
RULES = {rule.id: rule for rule in _FOUND}
"""All rules by id, in the order of the specification."""

if len(RULES) != len(_FOUND):
    raise ValueError("two rules have the same id")
