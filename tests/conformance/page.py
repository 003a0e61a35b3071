"""docs/conformance.md: made of the catalogue and of what the marks of the tests say."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from .marks import Proof, proofs
from .rules import RULES, Kind, Role, Rule

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "conformance.md"
FOLDERS = ("bymux", "wire", "logstore", "peer", "peer_node", "processes", "conformance")
"""Where tests may be marked."""
NAMED_MAX = 4

UNTESTED: Mapping[str, str] = {}
"""Rules without a test for every role, and why; the page says so."""

INTRODUCTION = """\
# Conformance

What an endpoint of this protocol has to do, must not do and has to live with, and which test proves
it of ours. This page is made by `make conformance` from the catalogue in `tests/conformance` and
from the marks of the tests; a test compares them, and another one fails if a rule lacks a test.
[protocol.md](protocol.md) is the specification in one page; ids are made of the section: `P2P-4.05`
is of section 4, data packets, `BYMUX-2.02` of bymux's section about credit.

- **must**: an endpoint behaves like this. **ours**: a default or habit of this implementation.
  **decided**: left open by the protocol's source, and settled for this protocol.
- **violation**: what the other side must not do. Each is played to a session in memory, whole and
  byte by byte, and to a running node over TCP: the connection ends at once with a reason that names
  the rule and the request, an honest connection beside it goes on replicating, and a check of the
  whole store finds nothing.
- **may**: looks wrong, is allowed, and must not end a connection.

A rule of kind *both* holds, and is tested, for an endpoint that is proactive (it connected) and for
one that is reactive; *any* marks what has nothing to do with roles, such as encodings.

## Testing another implementation

The scripts behind this page need nothing of the endpoint but a connection and that it takes in the
logs that it is offered. They author these logs themselves, by a key that is new each time.

    python -m tests.conformance --target HOST:PORT     the endpoint listens: it is reactive
    python -m tests.conformance --listen HOST:PORT     the endpoint connects: it is proactive

Our own node is tested like this when it runs with `bamboo-peer serve --follow-all`. Each case is a
connection of its own, so an endpoint that is to be proactive has to connect again whenever a
connection ends; with `--ports N` it may connect to N ports at once, from PORT on, and one that
waits longer each time is through sooner. `--case WORDS` runs the cases whose names have these
words in them.

A line is printed for each case, and at the end one for each rule: passed, failed and with what, or
left out and why. The exit status is 1 if anything failed. What needs a clock that can be turned, an
author whom the endpoint does not want, or settings that only a node in the same process can be
given, is left out. That an endpoint ends the connection is seen; its reason is not, unless it
prints one.
"""


class _Collector:
    """Takes the proofs of all tests that are collected."""

    def __init__(self) -> None:
        self.proofs: list[Proof] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            self.proofs += proofs(item)


def collect() -> list[Proof]:
    """What all tests prove; collects them, and runs none."""
    collector = _Collector()
    folders = [str(ROOT / "tests" / folder) for folder in FOLDERS]
    options = ["--collect-only", "-qq", "--no-summary", "-p", "no:cacheprovider", "-m", ""]
    status = pytest.main([*options, f"--rootdir={ROOT}", *folders], plugins=[collector])
    if status != pytest.ExitCode.OK:
        raise RuntimeError(f"the tests cannot be collected: {status!r}")
    return collector.proofs


def gaps(found: Iterable[Proof]) -> list[str]:
    """What is wrong: rules without a test for a role, and marks that name no rule."""
    roles: defaultdict[str, set[Role]] = defaultdict(set)
    for proof in found:
        roles[proof.rule] |= proof.roles
    faults = [f"{rule}: no such rule in the catalogue" for rule in roles if rule not in RULES]
    for rule in RULES.values():
        missing = rule.roles - roles[rule.id]
        if Role.ANY in rule.roles and roles[rule.id]:
            missing = frozenset()
        if missing and rule.id not in UNTESTED:
            faults.append(f"{rule.id}: no test for {', '.join(sorted(missing))}")
        if not missing and rule.id in UNTESTED:
            faults.append(f"{rule.id}: is tested after all")
    return faults


def render(found: Iterable[Proof]) -> str:
    """The page."""
    by_rule: defaultdict[str, list[Proof]] = defaultdict(list)
    for proof in found:
        by_rule[proof.rule].append(proof)
    parts = [INTRODUCTION]
    kinds = {kind: sum(rule.kind is kind for rule in RULES.values()) for kind in Kind}
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    in_sockets = sum(any(p.socket for p in by_rule[rule]) for rule in RULES)
    parts.append(
        f"\n## The rules\n\n{len(RULES)} rules: {counted}.\n{in_sockets} of them are tested over a"
        " real socket too. Names in italics are cases of the\ntables in `tests/conformance`, run in"
        " memory and over sockets; the others are tests, by file\nand name.\n"
    )
    chapter = ""
    for rule in RULES.values():
        if rule.chapter != chapter:
            chapter = rule.chapter
            parts.append(
                f"\n### {chapter}: {rule.title}\n\n"
                "| id | rule | kind | roles | over a socket | tests |\n|---|---|---|---|---|---|\n"
            )
        parts.append(_row(rule, by_rule[rule.id]))
    return "".join(parts)


def _row(rule: Rule, found: list[Proof]) -> str:
    roles = "any" if Role.ANY in rule.roles else " ".join(sorted(rule.roles))
    roles = "both" if len(rule.roles) > 1 else roles
    sockets = frozenset().union(*(proof.roles for proof in found if proof.socket))
    over = {0: "-", 1: " ".join(sockets), 2: "both"}[len(sockets)]
    names = sorted({proof.name for proof in found})
    shown = "; ".join(names[:NAMED_MAX])
    if len(names) > NAMED_MAX:
        shown += f"; and {len(names) - NAMED_MAX} more"
    if rule.id in UNTESTED:
        shown = f"**not tested for every role**: {UNTESTED[rule.id]}. {shown}"
    return f"| {rule.id} | {rule.text} | {rule.kind} | {roles} | {over} | {shown} |\n"
