"""Which tests run in the same process, where several share the work (`pytest -n 2`).

xdist has a mark for this, and writes it into a test's id; pytest keeps ids in another place since
9.2, so that the mark has no effect and nothing says so. A table by files needs neither.

What is given to a process is a *unit*: a group of those below, some cases of one test function, or
a test. To hand over a unit, and to hear of its end, takes longer than most single cases: 12,000
that do nothing took 46 s on two cores one by one.
"""

from collections import Counter

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

GROUPS = {
    # One Java, and one session that starts for 10 s.
    "tests/analytics/": "spark",
    "tests/docs/test_demo.py": "spark",
    # A node for each of the two roles.
    "tests/conformance/test_over_sockets.py": "conformance over sockets",
    "tests/conformance/test_relays.py": "conformance over sockets",
}
"""The beginning of a path, and the group of the tests there."""
CASES = 16
"""Cases of one test function in a unit: with more of them the last unit would be waited for."""


class GroupedScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Units as they are said above. The largest go first, as they take longest."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._units: dict[str, str] = {}
        self._cases: Counter[str] = Counter()

    def _split_scope(self, nodeid: str) -> str:
        """The unit of a test. It is asked for each in the order of collection, and then again."""
        unit = self._units.get(nodeid)
        if unit is None:
            unit = self._units[nodeid] = group_of(nodeid) or self._next_unit(nodeid)
        return unit

    def _next_unit(self, nodeid: str) -> str:
        function = nodeid.partition("[")[0]
        number = self._cases[function]
        self._cases[function] += 1
        return f"{function} {number // CASES}"

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        """Forgets what is done: behind each test xdist counts through all that it has given."""
        work = self.assigned_work[node]
        test = self.registered_collections[node][item_index]
        unit = self._split_scope(test)
        work[unit][test] = True
        if all(work[unit].values()):
            del work[unit]
        self._reschedule(node)


def group_of(nodeid: str) -> str | None:
    """The group of a test, if it is of one."""
    return next((group for path, group in GROUPS.items() if nodeid.startswith(path)), None)
