"""Framework files together: the operators of a network, and which one a (stream, task) of the device belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from instrument.trace.events import AI_CORE, MISSING, Operator
from instrument.trace.framework_desc import SIDES, OperatorDesc, Tasks, short_name, type_of

#: In the text form, task ids from here on name their operator alone.
_GLOBAL_TASKS_FROM = 25_000
_ANY_STREAM = 0xFFFFFFFF


class OperatorMap:
    """`operators`, and their rows by stream and task."""

    def __init__(
        self,
        tasks: Tasks | None = None,
        graph: Sequence[OperatorDesc] = (),
        tensors: Mapping[tuple[int, int], OperatorDesc] | None = None,
    ) -> None:
        self.operators: list[Operator] = []
        self._row_of: dict[str, int] = {}
        self._is_text = tasks is None or tasks.is_text
        self._keys, self._rows = np.empty(0, np.uint64), np.empty(0, np.int32)
        if tasks is not None and len(tasks.rows):
            known = {one.name: one for one in graph}
            self._add(tasks, known, tensors or {})

    def __len__(self) -> int:
        """Return how many tasks are named."""
        return len(self._keys)

    def row(self, operator: Operator) -> int:
        """The row of an operator, which is added if none of its name is there."""
        if operator.full_name not in self._row_of:
            self._row_of[operator.full_name] = len(self.operators)
            self.operators.append(operator)
        return self._row_of[operator.full_name]

    def row_on(self, full_name: str, side: str) -> int:
        """The row of the operator of that name, of which another file says where it runs."""
        row = self.row(Operator(full_name, short_name(full_name), type_of(full_name), side))
        self.operators[row] = self.operators[row]._replace(side=side)
        return row

    def find(self, streams: NDArray[np.integer], tasks: NDArray[np.integer]) -> NDArray[np.int32]:
        """The row of the operator behind each task; `MISSING` where none is."""
        keys = self._keys_of(streams, tasks)
        if not len(self._keys):
            return np.full(len(keys), MISSING, np.int32)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[places] == keys, self._rows[places], MISSING).astype(np.int32)

    def behind(self, stream: int, task: int) -> int:
        """The row of the operator that comes next on the stream of a mark; `MISSING` behind the last one."""
        key = self._keys_of(np.array([stream]), np.array([task]))
        place = int(np.searchsorted(self._keys, key[0], side="right"))
        if place == len(self._keys) or self._keys[place] >> np.uint64(32) != key[0] >> np.uint64(32):
            return MISSING
        return int(self._rows[place])

    def _keys_of(self, streams: NDArray[np.integer], tasks: NDArray[np.integer]) -> NDArray[np.uint64]:
        if self._is_text:
            streams = np.where(tasks >= _GLOBAL_TASKS_FROM, _ANY_STREAM, streams)
        return streams.astype(np.uint64) << np.uint64(32) | (tasks.astype(np.uint64) & np.uint64(_ANY_STREAM))

    def _add(
        self, tasks: Tasks, known: Mapping[str, OperatorDesc], tensors: Mapping[tuple[int, int], OperatorDesc]
    ) -> None:
        columns = [tasks.rows[field].tolist() for field in ("name", "type", "kind", "stream", "task")]
        rows = np.array([self._row(tasks, known, tensors, *fields) for fields in zip(*columns, strict=True)], np.int32)
        keys = self._keys_of(tasks.rows["stream"], tasks.rows["task"])
        self._keys, last = np.unique(keys[::-1], return_index=True)
        self._rows = rows[::-1][last]

    def _row(
        self, tasks: Tasks, known: Mapping[str, OperatorDesc], tensors: Mapping[tuple[int, int], OperatorDesc],
        name: int, type_: int, kind: int, stream: int, task: int,
    ) -> int:  # fmt: skip
        full_name = tasks.names[name]
        if full_name in self._row_of:
            return self._row_of[full_name]
        desc = known.get(full_name) or tensors.get((stream, task))
        told = (desc.type if desc else "") or (tasks.names[type_] if type_ != MISSING else "")
        return self.row(
            Operator(
                full_name, short_name(full_name), told or type_of(full_name), SIDES.get(kind, f"task type {kind}"),
                ";".join(",".join(map(str, tensor.shape)) for tensor in desc.inputs) if desc else "",
            )
        )  # fmt: skip


#: The types of operators that stand for tasks without a name.
UNNAMED_TYPES = frozenset({"task", "AI CPU task"})


def unnamed(stream: int = MISSING, task: int = MISSING) -> Operator:
    """Return the operator of a task that no file names; of all such tasks if none is given."""
    if task == MISSING:
        return Operator("tasks", "tasks", "task", AI_CORE)
    return Operator(f"stream {stream} task {task}", f"task {task}", "task", AI_CORE)
