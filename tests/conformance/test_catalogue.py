"""What is told of rules without tests and marks without rules; `make lint` asks it of the page."""

import pytest

from .cases import Case, Offence
from .exchanges import CASES
from .marks import Proof
from .offences import OFFENCES
from .page import UNTESTED, gaps, render
from .rules import BOTH, RULES, Kind, Role, parse

EVERYTHING = [
    Proof(rule.id, "a test", rule.roles, socket=False)
    for rule in RULES.values()
    if rule.id not in UNTESTED
]


def test_a_rule_without_a_test_for_a_role_is_told() -> None:
    assert gaps(EVERYTHING) == []
    rule = next(rule for rule in RULES.values() if rule.roles == BOTH)
    found = [proof for proof in EVERYTHING if proof.rule != rule.id]
    assert gaps(found) == [f"{rule.id}: no test for proactive, reactive"]
    found.append(Proof(rule.id, "a test", frozenset((Role.PROACTIVE,)), socket=False))
    assert gaps(found) == [f"{rule.id}: no test for reactive"]
    found.append(Proof(rule.id, "another", frozenset((Role.ANY,)), socket=False))
    assert gaps(found) == [f"{rule.id}: no test for reactive"]


def test_a_mark_that_names_no_rule_is_told() -> None:
    unknown = Proof("P2P-99.01", "a test", BOTH, socket=False)
    assert gaps([*EVERYTHING, unknown]) == ["P2P-99.01: no such rule in the catalogue"]


def test_the_page_names_rule_tests_and_sockets() -> None:
    text = render([*EVERYTHING, Proof("P2P-4.05", "a *fine* test", BOTH, socket=True)])
    [row] = [line for line in text.splitlines() if line.startswith("| P2P-4.05 |")]
    assert row.endswith("| must | both | both | a *fine* test; a test |")


@pytest.mark.parametrize(
    "text", ["P2P-4.5 must both\n", "P2P-4.05 ought both\n", "P2P-4.05 must\n"]
)
def test_a_rule_that_is_not_well_written_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"rule|Kind"):
        parse(text + "  Something.\n")


def test_every_rule_is_a_sentence() -> None:
    for rule in RULES.values():
        assert rule.text.endswith(".")
        assert rule.text[0].isupper()
        assert "|" not in rule.text


def test_cases_have_names_of_their_own_and_rules() -> None:
    cases: list[Case | Offence] = [*OFFENCES, *CASES]
    names = [each.name for each in cases]
    assert len(set(names)) == len(names)
    for each in cases:
        assert each.rules
        assert set(each.rules) <= set(RULES)


def test_every_violation_is_played_over_a_socket() -> None:
    """Apart from those of creating streams, which two peers cannot do at all."""
    played = {rule for each in OFFENCES if not each.in_memory_only for rule in each.rules}
    missing = {r.id for r in RULES.values() if r.kind is Kind.VIOLATION} - played
    assert missing == {"BYMUX-2.10", "BYMUX-5.02", "BYMUX-5.03", "BYMUX-5.04"}
