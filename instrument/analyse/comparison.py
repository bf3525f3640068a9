"""Compare two profiles: the parts of a step, the steps and the operators with their differences.

Profiles may be of other devices or of other versions of a network. An operator is matched by its full name and side,
then by its full name, and what then is left by its name without the number that a compilation gives it, where that is
unique on both sides.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from instrument.analyse.layout import UNLIMITED, Screen, prose
from instrument.analyse.table import Record, Table
from instrument.analyse.tables import ProfileTables
from instrument.trace.events import MISSING

_NUMBER = re.compile(r"(?:-op|_)\d+$")
_BASE, _NEW = "base only", "new only"
_NO_STEPS = "One of the profiles has no steps."
_Pair = tuple[Record, Record]
#: Columns by name.
_Columns = dict[str, list[Any]]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Tables of two profiles side by side. A difference is always new - base: below 0 the new one is faster.

    `steps` has the parts of the mean step, `each_step` every step by its number. `operators` and `operator_types` have
    what is in both, the largest difference first. `unmatched` has the operators that only one of them has.
    """

    title: str
    steps: Table
    each_step: Table
    operators: Table
    operator_types: Table
    unmatched: Table

    def tables(self) -> list[Table]:
        """Return all tables, in the order in which they are shown."""
        return [self.steps, self.each_step, self.operators, self.operator_types, self.unmatched]

    def text(self, row_limit: int | None = 20, screen: Screen = UNLIMITED) -> str:
        """Return the tables with at most `row_limit` rows each, None for all."""
        parts = (table.text(row_limit, screen=screen) for table in self.tables())
        return "\n\n".join([prose(self.title, screen), *parts])

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self.tables())


def compare(base: ProfileTables, new: ProfileTables) -> Comparison:
    """Compare `new` with `base`: times in ns, differences in ns and in percent of `base`, masked if not known.

    The time of operators is by step where both profiles have steps, and otherwise the sum over the window. On the CPU,
    executions that are in no step, as those of an evaluation are, are left out.
    """
    (base, lost), (new, also_lost) = _in_steps(base), _in_steps(new)
    pairs, single = _matched(base.operators.records(), new.operators.records())
    by_step = bool(len(base.capture.steps) and len(new.capture.steps))
    steps = (len(base.capture.steps), len(new.capture.steps)) if by_step else (1, 1)
    title = ", ".join(
        f"{which}: {profile.path} ({profile.target} {profile.device}, {len(profile.capture.steps)} steps)"
        for which, profile in (("base", base), ("new", new))
    )
    kinds = _by_type(base.operator_types.records()), _by_type(new.operator_types.records())
    types = [(row, kinds[1][kind]) for kind, row in kinds[0].items() if kind in kinds[1]]
    notes = [f"{lost} (base) and {also_lost} (new) executions in no step are left out."] if lost or also_lost else []
    of_windows = [] if by_step else [f"{_NO_STEPS} Times are sums over the windows."]
    return Comparison(
        title,
        _parts(base.step_parts.records(), new.step_parts.records(), by_step),
        _each_step(base.steps.records(), new.steps.records()),
        _operators("full_name", pairs, steps, by_step, "compared_operators", "Operators in both").with_notes(
            *notes, *of_windows
        ),
        _operators("type", types, steps, by_step, "compared_types", "Types of operators in both").with_notes(
            *of_windows
        ),
        _unmatched(single),
    )


def _in_steps(profile: ProfileTables) -> tuple[ProfileTables, int]:
    """Leave out the executions that are in no step, and count them. Keep all of them if none is in a step."""
    steps, executions = profile.capture.steps["step"], profile.capture.executions["step"]
    outside = int((executions == MISSING).sum())
    is_of_host = profile.target == "cpu"  # a device's own steps may begin behind the fetch of their data
    if not is_of_host or not outside or outside == len(executions) or not len(steps) or (steps == MISSING).any():
        return profile, 0
    return profile.of_steps(int(steps.min()), int(steps.max())), outside


# ---------------------------------------------------------------- matching


def _matched(base: Sequence[Record], new: Sequence[Record]) -> tuple[list[_Pair], list[tuple[str, Record]]]:
    pairs: list[_Pair] = []
    keys: tuple[Callable[[Record], Hashable], ...] = (
        lambda row: (row["full_name"], row["side"]),
        lambda row: row["full_name"],
        lambda row: _NUMBER.sub("", row["full_name"]),
    )
    for key in keys:
        in_base, in_new = _unique(base, key), _unique(new, key)
        pairs += [(row, in_new[name]) for name, row in in_base.items() if name in in_new]
        taken = {id(row) for pair in pairs for row in pair}
        base, new = ([row for row in rows if id(row) not in taken] for rows in (base, new))
    return pairs, [(_BASE, row) for row in base] + [(_NEW, row) for row in new]


def _unique(rows: Sequence[Record], key: Callable[[Record], Hashable]) -> dict[Hashable, Record]:
    """Return the rows whose key no other row has, by that key."""
    keys = [key(row) for row in rows]
    count = Counter(keys)
    return {name: row for name, row in zip(keys, rows, strict=True) if count[name] == 1}


def _by_type(rows: Sequence[Record]) -> dict[str, Record]:
    """Add up the rows of one type, wherever they run: another device has other sides."""
    types: dict[str, Record] = {}
    for row in rows:
        total = types.setdefault(row["type"], {"type": row["type"], "side": "", "count": 0, "total_ns": 0})
        total["side"] = ", ".join(filter(None, (total["side"], row["side"])))
        for name in ("count", "total_ns"):
            total[name] += row[name]
        total["mean_ns"] = total["total_ns"] / max(total["count"], 1)
    return types


# ---------------------------------------------------------------- tables


def _differences(base: Sequence[float | None], new: Sequence[float | None]) -> _Columns:
    """Return new - base, and the same in percent of base, or None if either is not known, or base is 0."""
    difference = [None if old is None or now is None else now - old for old, now in zip(base, new, strict=True)]
    percent = [
        None if change is None or not old else 100 * change / old for change, old in zip(difference, base, strict=True)
    ]
    return {"difference_ns": difference, "difference_percent": percent}


def _parts(base: Sequence[Record], new: Sequence[Record], has_steps: bool) -> Table:
    """Compare the parts of a step, which both tables have. Without steps a row would be a whole window: none then."""
    base, new = (base, new) if has_steps else ((), ())
    columns = {"part": [row["part"] for row in base]}
    for name in ("mean_ns", "median_ns"):
        columns |= _both(name, base, new)
    columns |= _differences(columns["base_mean_ns"], columns["new_mean_ns"])
    return Table("compared_parts", columns, "The parts of the mean step", [] if has_steps else [_NO_STEPS])


def _each_step(base: Sequence[Record], new: Sequence[Record]) -> Table:
    """Compare every step that has a number, of the first graph where it has several, or None where it is absent."""
    in_base, in_new = _totals(base), _totals(new)
    numbers = sorted({*in_base, *in_new})
    columns: _Columns = {"step": numbers}
    columns |= {"base_total_ns": [in_base.get(number) for number in numbers]}
    columns |= {"new_total_ns": [in_new.get(number) for number in numbers]}
    columns |= _differences(columns["base_total_ns"], columns["new_total_ns"])
    apart = len(in_base.keys() ^ in_new.keys())
    notes = [f"{apart} steps are in one profile only."] if apart else []
    return Table("compared_steps", columns, "Steps by their number", notes)


def _totals(rows: Sequence[Record]) -> dict[int, int | None]:
    totals: dict[int, int | None] = {}
    for row in rows:
        if row["step"] is not None:
            totals.setdefault(row["step"], row["total_ns"])
    return totals


def _operators(
    key: str, pairs: Sequence[_Pair], steps: tuple[int, int], by_step: bool, name: str, caption: str
) -> Table:
    """Compare pairs of operators, or of types of them, the largest difference first."""
    time = "step_ns" if by_step else "total_ns"
    columns = {key: [base[key] for base, _ in pairs]}
    for column in ("side", "count", "mean_ns"):
        columns |= _both(column, [base for base, _ in pairs], [new for _, new in pairs])
    for place, which in enumerate(("base", "new")):
        totals = [pair[place]["total_ns"] for pair in pairs]
        columns[f"{which}_{time}"] = [total / steps[place] for total in totals] if by_step else totals
    differences = _differences(columns[f"base_{time}"], columns[f"new_{time}"])
    order = np.array(sorted(range(len(pairs)), key=lambda place: -abs(differences["difference_ns"][place])), np.int64)
    return Table(name, columns | differences, caption).take(order)


def _both(column: str, base: Sequence[Record], new: Sequence[Record]) -> _Columns:
    return {f"{which}_{column}": [row[column] for row in rows] for which, rows in (("base", base), ("new", new))}


def _unmatched(single: Sequence[tuple[str, Record]]) -> Table:
    rows = sorted(single, key=lambda pair: -pair[1]["total_ns"])
    columns: _Columns = {"where": [where for where, _ in rows]}
    for name in ("full_name", "type", "side", "count", "total_ns", "mean_ns"):
        columns[name] = [row[name] for _, row in rows]
    return Table("unmatched_operators", columns, "Operators in one profile only")
