"""How tests say which rules they prove, and what is made of it.

`@pytest.mark.rule("P2P-4.07", ...)`. The role of the endpoint under test is read from a parameter
`proactive` or `role` of the test; one without such a parameter may say `roles="both"`,
`"proactive"` or `"reactive"`. Else it counts only for rules that have nothing to do with roles.
`socket=True`: the endpoint is behind a real socket.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

from bymux import Role as EndpointRole

from .cases import Case, Offence
from .rules import BOTH, Role

C = TypeVar("C", Case, Offence)
_SAID = {"both": BOTH, "proactive": frozenset((Role.PROACTIVE,))}
_SAID["reactive"] = frozenset((Role.REACTIVE,))


@dataclass(frozen=True, slots=True)
class Proof:
    """That a test proves a rule for some roles."""

    rule: str
    name: str
    """The case, or the test's file and name in words."""
    roles: frozenset[Role]
    socket: bool


def parameters(cases: Iterable[C], *, socket: bool = False) -> list[ParameterSet]:
    """The cases as parameters that are marked with their rules."""
    return [
        pytest.param(case, id=case.name, marks=pytest.mark.rule(*case.rules, socket=socket))
        for case in cases
    ]


def proofs(item: pytest.Item) -> list[Proof]:
    """What the marks of a test say. A test that is always skipped proves nothing."""
    if item.get_closest_marker("skip"):
        return []
    found = []
    case = _case_of(item)
    name = _name_of(item)
    socket = any(mark.kwargs.get("socket") for mark in item.iter_markers("rule"))
    for mark in item.iter_markers("rule"):
        said = mark.kwargs.get("roles")
        roles = _roles_of(item) if said is None else _SAID[said]
        for rule in mark.args:
            shown = f"*{case.name}*" if case is not None and rule in case.rules else name
            found.append(Proof(str(rule), shown, roles, socket))
    return found


def _case_of(item: pytest.Item) -> Case | Offence | None:
    callspec = getattr(item, "callspec", None)
    values = () if callspec is None else callspec.params.values()
    return next((value for value in values if isinstance(value, Case | Offence)), None)


def _name_of(item: pytest.Item) -> str:
    path, _, test = item.nodeid.partition("[")[0].partition("::")
    words = test.rpartition("::")[2].removeprefix("test_")
    return f"`{path.removeprefix('tests/').removesuffix('.py')}` {words.replace('_', ' ')}"


def _roles_of(item: pytest.Item) -> frozenset[Role]:
    callspec = getattr(item, "callspec", None)
    given = {} if callspec is None else callspec.params
    if "proactive" in given:
        is_proactive = bool(given["proactive"])
    elif isinstance(given.get("role"), EndpointRole):
        is_proactive = given["role"] is EndpointRole.PROACTIVE
    else:
        return frozenset((Role.ANY,))
    return frozenset((Role.PROACTIVE if is_proactive else Role.REACTIVE,))
