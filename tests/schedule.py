"""How pytest-xdist shares the tests among processes: `make test` runs with `--dist loadgroup`.

The tests of one file run in one process, as they share fixtures. Those marked `alone` measure time, or the load of the
machine: they run when everything else is over, in the last process that is left, hence beside nothing.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

#: The name of their group, which xdist puts behind the name of the test: `tests/x.py::test_y@alone`.
ALONE = "alone"


class AloneLast(LoadScopeScheduling):
    """Give the files to the processes as these become free, and the group `alone` to the last process."""

    def _split_scope(self, nodeid: str) -> str:
        return ALONE if nodeid.endswith(f"@{ALONE}") else nodeid.partition("::")[0]

    def _assign_work_unit(self, node: Any) -> None:
        if ALONE in self.workqueue:
            self.workqueue.move_to_end(ALONE)
        if list(self.workqueue) != [ALONE] or self.nodes == [node]:
            super()._assign_work_unit(node)
        elif not all(other.shutting_down for other in self.nodes if other is not node):
            node.shutdown()  # it ends what it has; the tests that are left are for another process

    def remove_node(self, node: Any) -> str | None:
        crashed_test: str | None = super().remove_node(node)
        for other in self.nodes:
            self._reschedule(other)
        return crashed_test
