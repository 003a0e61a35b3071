"""Which tests run in the same process, where several share the work (`pytest -n 2`).

xdist has a mark for this, and writes it into a test's id; pytest keeps ids in another place since
9.2, so that the mark has no effect and nothing says so. A table by files needs neither.
"""

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


class GroupedScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Each test by itself, but for those of a group. The groups go first, as they take longest."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid) or nodeid

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        """Forgets what is done: behind each test xdist counts through all that it has given."""
        work = self.assigned_work[node]
        test = self.registered_collections[node][item_index]
        group = self._split_scope(test)
        work[group][test] = True
        if all(work[group].values()):
            del work[group]
        self._reschedule(node)


def group_of(nodeid: str) -> str | None:
    """The group of a test, if it is of one."""
    return next((group for path, group in GROUPS.items() if nodeid.startswith(path)), None)
