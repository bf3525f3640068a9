"""The operators that take the time: by name, by type and by the side of the device where they run.

Shares are of the sum over all operators. Operators that run at the same time each count in full, so the sums may exceed
the time that passed. `idle` says what passed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from instrument.analyse.executions import CountedExecutions
from instrument.analyse.groupby import aggregate, factorize, masked
from instrument.analyse.table import ColumnData, Record, Table, Value
from instrument.errors import InstrumentError
from instrument.trace.ascend_executions import UNNAMED_TYPES
from instrument.trace.events import CPU, GPU, MISSING, Capture, Integers, Operator, Rows

#: Between the shapes of inputs of one operator that met several.
SHAPES_APART = " | "
_UNNAMED_NOTE = (
    "{count} of {of} rows are tasks that no file names; tasks of the runtime, no operators, may be among them."
)
_SOURCE_NOTE = "The trace has no executions; counts and totals are what its source summed up."


def by_name(capture: Capture, counted: CountedExecutions) -> Table:
    """Tabulate operators by full name and side, most time first: count, total, mean, min, max, share, per step, shapes.

    `per_step` is executions in steps by the number of steps in which anything of that side ran: a trace of operators
    need not reach over all steps.
    """
    stats = _Stats(capture, counted, lambda operator: (operator.full_name or operator.type, operator.side))
    kinds = [capture.operators[place].type for place in stats.first]
    columns = {
        "full_name": [name for name, _ in stats.keys],
        "type": kinds,
        "side": [side for _, side in stats.keys],
        **stats.columns(),
        "input_shapes": stats.shapes(),
    }
    table = _table("operators", "Operators", columns, stats)
    unnamed = sum(kind in UNNAMED_TYPES for kind in table["type"].tolist())
    return table.with_notes(_UNNAMED_NOTE.format(count=unnamed, of=len(table))) if unnamed else table


def by_type(capture: Capture, counted: CountedExecutions) -> Table:
    """Tabulate operators by type and side, most time first. `operators` counts the different names of a type."""
    stats = _Stats(capture, counted, lambda operator: (operator.type, operator.side))
    columns = {
        "type": [kind for kind, _ in stats.keys],
        "side": [side for _, side in stats.keys],
        "operators": stats.names(),
        **stats.columns(),
    }
    return _table("operator_types", "Operators by type", columns, stats)


def by_side(capture: Capture, counted: CountedExecutions) -> Table:
    """Tabulate operators by the side of the device (AI Core, AI CPU, GPU, CPU, communication)."""
    stats = _Stats(capture, counted, lambda operator: (operator.side,))
    columns = {"side": [side for (side,) in stats.keys], "operators": stats.names(), **stats.columns()}
    return _table("sides", "Operators by where they run", columns, stats)


def _table(name: str, caption: str, columns: dict[str, ColumnData], stats: _Stats) -> Table:
    notes = [_SOURCE_NOTE] if stats.is_of_source else []
    table = Table(name, columns, caption, notes)
    return table.take(np.flatnonzero(table["count"] > 0)).sorted_by("total_ns")


class _Stats:
    """Sums over the groups into which `key` puts operators. `first` is the first operator of each group."""

    def __init__(
        self, capture: Capture, counted: CountedExecutions, key: Callable[[Operator], tuple[str, ...]]
    ) -> None:
        self._capture = capture
        self.keys, self._groups = factorize([key(operator) for operator in capture.operators])
        self.first = np.unique(self._groups, return_index=True)[1].tolist()
        self.is_of_source = not len(capture.executions) and len(capture.totals) > 0
        if self.is_of_source:
            self._sum_totals(capture.totals)
        else:
            self._sum_executions(counted.executions)

    def _sum_executions(self, rows: Rows) -> None:
        self._used = np.unique(rows["operator"])
        groups = self._groups[rows["operator"]] if len(rows) else np.empty(0, np.int64)
        sums = aggregate(groups, rows["duration_ns"], len(self.keys))
        self.count, self.total, self.min, self.max = sums.count, sums.total, sums.min, sums.max
        inside = rows["step"] != MISSING
        self._in_steps = np.bincount(groups[inside], minlength=len(self.keys))
        self._steps = self._steps_of_sides(rows[inside])

    def _steps_of_sides(self, rows: Rows) -> Integers:
        """Count for each group the steps in which anything of its side ran."""
        sides, of_operator = factorize([operator.side for operator in self._capture.operators])
        side = of_operator[rows["operator"]] if len(rows) else np.empty(0, np.int64)
        steps = np.array([len(np.unique(rows["step"][side == place])) for place in range(len(sides))], np.int64)
        return steps[of_operator[self.first]] if self.first else steps

    def _sum_totals(self, rows: Rows) -> None:
        self._used = np.unique(rows["operator"])
        groups = self._groups[rows["operator"]]
        self.count, self.total = (aggregate(groups, rows[name], len(self.keys)).total for name in ("count", "total_ns"))
        lowest, highest = (aggregate(groups, rows[name], len(self.keys)) for name in ("min_ns", "max_ns"))
        is_unknown = lowest.min == MISSING  # the source does not tell for one of them
        self.min, self.max = masked(lowest.min, is_unknown), masked(highest.max, is_unknown)
        self._in_steps = self.count
        self._steps = np.zeros(len(self.keys), np.int64)

    def columns(self) -> dict[str, ColumnData]:
        total = int(self.total.sum())
        share = self.total * (100 / total) if total else np.zeros(len(self.total))
        per_step = self._in_steps / np.maximum(self._steps, 1)
        return {
            "count": self.count,
            "total_ns": self.total,
            "mean_ns": self.total / np.maximum(self.count, 1),
            "min_ns": self.min,
            "max_ns": self.max,
            "share_percent": share,
            "per_step": masked(per_step, self._steps == 0),
        }

    def names(self) -> Integers:
        """Count the different operators of each group."""
        _, names = factorize(
            [(operator.full_name or operator.type, operator.side) for operator in self._capture.operators]
        )
        pairs = np.unique(np.stack([self._groups[self._used], names[self._used]]), axis=1)
        return np.bincount(pairs[0], minlength=len(self.keys))

    def shapes(self) -> list[str]:
        """Return the shapes of inputs of each group, as one text."""
        met: list[dict[str, None]] = [{} for _ in self.keys]
        for place in self._used.tolist():
            shapes = self._capture.operators[place].shapes
            if shapes:
                met[self._groups[place]][shapes] = None
        return [SHAPES_APART.join(shapes) for shapes in met]


# ---------------------------------------------------------------- as MindSpore and torch ask


def op_analyse(capture: Capture, counted: CountedExecutions, op_name: str | Sequence[str]) -> str:
    """Return facts about operators as MindSpore's `Profiler.op_analyse`: JSON, by type, side and shapes of inputs.

    `op_name` is one or several of a type ("Conv2D"), a name ("Conv2D-op0") or a full name. Times are in microseconds.

    Raises:
        TypeError: `op_name` is neither text nor a list of texts.
        InstrumentError: there is no such operator. The message has the types that there are.
    """
    names = [op_name] if isinstance(op_name, str) else op_name
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"op_name is {op_name!r}; expected the name of an operator, or a list of such.")
    stats = _Stats(capture, counted, lambda operator: operator)
    facts = {name: _facts(stats, capture, name) for name in names}
    return json.dumps({**facts, "device_id": str(capture.device)}, ensure_ascii=False)


def _facts(stats: _Stats, capture: Capture, name: str) -> list[dict[str, Value]]:
    entries: dict[tuple[str, str], list[int]] = {}
    for place, count, total in zip(stats.first, stats.count.tolist(), stats.total.tolist(), strict=True):
        operator = capture.operators[place]
        if count and name in (operator.type, operator.name, operator.full_name):
            entry = entries.setdefault((_SIDE.get(operator.side, operator.side), operator.shapes), [0, 0])
            entry[0] += count
            entry[1] += total
    if not entries:
        met = zip(stats.first, stats.count.tolist(), strict=True)
        kinds = sorted({capture.operators[place].type for place, count in met if count})
        raise InstrumentError(f"There is no operator {name!r} in this profile; types: {', '.join(kinds) or 'none'}.")
    return [
        {
            "op_side": side,
            "input_shape": shapes,
            "op_occurrences": count,
            "op_total_time(us)": round(total_ns / 1000, 4),
            "op_avg_time(us)": round(total_ns / count / 1000, 4),
        }
        for (side, shapes), (count, total_ns) in entries.items()
    ]


#: Sides in MindSpore's words.
_SIDE = {CPU: "cpu", GPU: "gpu"}
#: torch's names of the columns.
_TORCH = {
    "cpu_time_total": "total_ns", "self_cpu_time_total": "total_ns", "cuda_time_total": "total_ns",
    "self_cuda_time_total": "total_ns", "device_time_total": "total_ns", "self_device_time_total": "total_ns",
    "cpu_time": "mean_ns", "cuda_time": "mean_ns", "device_time": "mean_ns", "key": "full_name", "name": "full_name",
}  # fmt: skip


@dataclass(frozen=True)
class KeyAverages:
    """Operators by name, as torch's `key_averages()`: `table()` is a text. `averages` are the columns behind it."""

    averages: Table

    def table(self, sort_by: str | None = None, row_limit: int = 100) -> str:
        """Return the operators as a text, largest first by a column of `averages` (or torch's word for it).

        Raises:
            ValueError: there is no such column.
        """
        column = "total_ns" if sort_by is None else _TORCH.get(sort_by, sort_by)
        if column not in self.averages.columns:
            raise ValueError(f"sort_by is {sort_by!r}; expected one of {', '.join(self.averages.columns)}.")
        is_text = self.averages[column].dtype.kind == "O"
        return self.averages.sorted_by(column, descending=not is_text).text(None if row_limit < 0 else row_limit)

    def __str__(self) -> str:
        return self.table()

    def __len__(self) -> int:
        return len(self.averages)

    def __iter__(self) -> Iterator[Record]:
        """Iterate over the operators, each a dictionary by the names of the columns of `averages`."""
        return iter(self.averages)

    def _repr_html_(self) -> str:
        return self.averages._repr_html_()
