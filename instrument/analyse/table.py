"""`Table`, the result of an analysis: named columns of NumPy arrays, with the unit in each name.

The values are exact: times are integers in nanoseconds, and what is not known is masked, never a made-up number. Only
texts for people use larger units, chosen for each column, and say so in its heading.
"""

from __future__ import annotations

import csv
import html
import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from instrument.analyse import layout

Value = str | int | float | bool | None
#: A row by the names of its columns.
Record: TypeAlias = "dict[str, Any]"
#: The values of a column, masked where they are not known.
ColumnArray: TypeAlias = "NDArray[Any]"
#: The values of a column as they are given to a `Table`.
ColumnData: TypeAlias = "NDArray[Any] | Sequence[Value]"
#: Rows that a text or a page shows, unless told otherwise.
ROW_LIMIT = 100
#: Units for people by what a name of a column ends in: the smallest value (in the column's unit), its name, its size.
#: The largest ones come late, so that columns that belong together rarely differ.
_UNITS = {
    "_ns": ((10**10, "_s", 10**9), (10**6, "_ms", 10**6), (10**3, "_us", 10**3)),
    "_bytes": ((10 * 2**30, "_GiB", 2**30), (2**20, "_MiB", 2**20), (2**10, "_KiB", 2**10)),
}
#: Parts of a whole are shown in its unit.
_WHOLES = dict.fromkeys(("iteration_interval_ns", "fp_and_bp_ns", "tail_ns", "all_reduce_ns"), "total_ns")
_WHOLES |= {"busy_ns": "span_ns", "idle_ns": "span_ns"}
_WHOLES |= dict.fromkeys(("first_bytes", "last_bytes"), "peak_bytes")
_EXTREMES = ("min", "max", "median")
#: What a difference is of.
_COMPARED = ("base_step_ns", "base_mean_ns", "base_total_ns")
#: Nanoseconds from here on (over three years) are a point in time, and stay what they are.
_POINT_NS = 10**17
#: A unit is not used where a value of the column would be less than this of it.
_LEAST_SHOWN = 0.001
#: Columns of a terminal that a text of a table takes, unless told otherwise.
NAME_WIDTH = 60
#: Which columns stay where a terminal is narrow: those of the first line longest, those that are not named go before
#: the last line. The first column of a table always stays.
_KEPT = (
    ("total_ns", "step_ns", "difference_ns", "mean_ns", "duration_ns", "amount", "peak_bytes", "queue_use_percent"),
    ("share_percent", "difference_percent", "spread_percent", "idle_percent", "mean_step_ns", "full_name", "step"),
    ("type", "slowest", "what", "count", "busy_ns", "computing_ns", "before", "behind", "slowest_in_steps"),
    ("base_step_ns", "new_step_ns", "base_mean_ns", "new_mean_ns", "base_total_ns", "new_total_ns", "mean_own_ns"),
    (),
    ("side", "base_side", "new_side", "median_ns", "min_ns", "max_ns", "start_ns", "per_step", "input_shapes"),
)
#: Texts that keep more of their width than others before another column is hidden.
_LEAST = {"full_name": 40, "before": 26, "behind": 26, "what": 40}
_RANKS = {name: rank for rank, names in enumerate(_KEPT, 1) for name in names}
#: How a text says that there is no value.
NOT_AVAILABLE = "n/a"


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length, in order. `table["total_ns"]` is an array that cannot be written to.

    Iterating gives the rows as dictionaries, `len(table)` is their number, and `"total_ns" in table` asks for a column.

    Columns are given as arrays or sequences. Texts become arrays of `object`. A sequence with None in it becomes a
    `numpy.ma.MaskedArray`, whose sums and means leave out what is masked. `notes` say what is not in the table.

    Raises:
        ValueError: the columns are not of one length.
    """

    name: str
    columns: Mapping[str, Any]
    caption: str = ""
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        columns = {name: _frozen(values) for name, values in self.columns.items()}
        if len({len(values) for values in columns.values()}) > 1:
            lengths = ", ".join(f"{name} has {len(values)}" for name, values in columns.items())
            raise ValueError(f"Table {self.name!r}: its columns differ in length: {lengths}.")
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "notes", tuple(self.notes))

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, column: str) -> ColumnArray:
        try:
            values: ColumnArray = self.columns[column]
        except KeyError:
            raise KeyError(f"Table {self.name!r} has no column {column!r}; it has {', '.join(self.columns)}") from None
        return values

    def known(self, *columns: str) -> list[ColumnArray]:
        """Return columns as plain arrays, with the rows in which all of them are known."""
        is_known = ~np.logical_or.reduce([np.ma.getmaskarray(self[column]) for column in columns])
        return [np.ma.getdata(self[column])[is_known] for column in columns]

    def __iter__(self) -> Iterator[Record]:
        """Iterate over the rows, each a dictionary by the names of the columns; None is what is not known."""
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows())

    def __contains__(self, column: object) -> bool:
        """Return True if there is a column of this name."""
        return column in self.columns

    def rows(self) -> Iterator[tuple[Value, ...]]:
        """Iterate over the rows as Python values, None for what is not known."""
        return zip(*(column.tolist() for column in self.columns.values()), strict=True)

    def records(self) -> list[Record]:
        """Return the rows by the names of their columns, as a list."""
        return list(self)

    @classmethod
    def of_rows(
        cls, name: str, heads: Sequence[str], rows: Sequence[Sequence[Value]], caption: str, notes: Sequence[str] = ()
    ) -> Table:
        """Make a table of rows whose values are in the order of `heads`."""
        return cls(name, {head: [row[place] for row in rows] for place, head in enumerate(heads)}, caption, notes)

    def with_notes(self, *notes: str) -> Table:
        """Return the table with more notes."""
        return Table(self.name, self.columns, self.caption, (*self.notes, *notes))

    def take(self, places: slice | NDArray[np.intp] | NDArray[np.bool_]) -> Table:
        """Return the rows at `places`: indices, a slice, or an array of bool."""
        columns = {name: values[places] for name, values in self.columns.items()}
        return Table(self.name, columns, self.caption, self.notes)

    def sorted_by(self, column: str, descending: bool = True) -> Table:
        """Return the rows in the order of a column. Equal rows stay in order, and what is not known comes last."""
        values = self[column]
        is_missing = np.ma.getmaskarray(values)
        places = np.flatnonzero(~is_missing)
        keys = np.ma.getdata(values)[places]
        order = (
            len(keys) - 1 - np.argsort(keys[::-1], kind="stable")[::-1]
            if descending
            else np.argsort(keys, kind="stable")
        )
        return self.take(np.concatenate([places[order], np.flatnonzero(is_missing)]))

    def without(self, *columns: str) -> Table:
        """Return the table without some columns."""
        kept = {name: values for name, values in self.columns.items() if name not in columns}
        return Table(self.name, kept, self.caption, self.notes)

    # ------------------------------------------------------------------ for people

    def text(
        self,
        row_limit: int | None = ROW_LIMIT,
        name_width: int | None = NAME_WIDTH,
        screen: layout.Screen = layout.UNLIMITED,
    ) -> str:
        """Return aligned columns under a caption, in larger units where they read better, as their headings say.

        Texts are shortened to `name_width` columns of a terminal, None for none. A `screen` with a width hides the
        columns that do not fit, and names them.
        """
        shown = self if row_limit is None else self.take(slice(0, max(row_limit, 0)))
        parts = [_for_people(name, shown.columns) for name in shown.columns]
        cells = zip(*(part.cells for part in parts), strict=True)
        rows = [[layout.name(cell, name_width) for cell in row] for row in cells]
        heads = [
            layout.Column(part.heading, _rank(name, place), least=_LEAST.get(name))
            for place, (name, part) in enumerate(zip(shown.columns, parts, strict=True))
        ]
        lines = [layout.paint(layout.escape(self.caption), layout.BOLD, screen)] if self.caption else []
        lines.append(
            layout.aligned(heads, rows, [part.is_right for part in parts], screen) if len(self) else "(no rows)"
        )
        lines += [f"... and {len(self) - len(shown)} more rows"] if len(shown) < len(self) else []
        return "\n".join([*lines, *(layout.prose(f"  {layout.escape(note)}", screen, "  ") for note in self.notes)])

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {len(self)} rows: {', '.join(self.columns)})"

    def _repr_html_(self) -> str:
        """Return a static table for a notebook: no script, no style sheet, every text escaped."""
        shown = self.take(slice(0, ROW_LIMIT))
        parts = [_for_people(name, shown.columns) for name in shown.columns]
        heads = "".join(f"<th>{_html(part.heading)}</th>" for part in parts)
        styles = ["right" if part.is_right else "left" for part in parts]
        body = "".join(
            "<tr>"
            + "".join(f'<td style="text-align:{s}">{_html(c)}</td>' for s, c in zip(styles, row, strict=True))
            + "</tr>"
            for row in zip(*(part.cells for part in parts), strict=True)
        )
        notes = list(self.notes)
        notes += [f"... and {len(self) - len(shown)} more rows"] if len(shown) < len(self) else []
        below = "".join(f"<p>{_html(note)}</p>" for note in notes)
        caption = f"<caption>{_html(self.caption)}</caption>" if self.caption else ""
        return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{below}"

    # ------------------------------------------------------------------ for programs

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame`. Integers with gaps are `Int64`.

        Raises:
            ImportError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas, which is not installed: pip install pandas") from error
        return pandas.DataFrame({name: _for_pandas(values, pandas) for name, values in self.columns.items()})

    def to_csv(self) -> str:
        """Return CSV with a heading. A text that a spreadsheet would run as a formula begins with an apostrophe."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_csv(value) for value in row] for row in self.rows())
        return text.getvalue()

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Write CSV, as `to_csv` returns it, into a file in UTF-8."""
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(self.to_csv())

    def to_json(self) -> dict[str, Any]:
        """Return what `json.dumps` takes: no NaN, None for what is not known."""
        rows = [{name: _json(value) for name, value in record.items()} for record in self.records()]
        head = {"name": self.name, "caption": self.caption, "notes": list(self.notes)}
        return {**head, "columns": list(self.columns), "rows": rows}


def _frozen(values: ColumnData) -> ColumnArray:
    """Return `values` as an array that cannot be written to, as a view if it is an array."""
    array = values if isinstance(values, np.ndarray) else _array(list(values))
    if array.dtype.kind in "US":
        array = array.astype(object)
    data = np.ma.getdata(array).view()
    data.flags.writeable = False
    if not np.ma.isMaskedArray(array):
        return data
    mask = np.ma.getmaskarray(array).copy()
    mask.flags.writeable = False
    masked: ColumnArray = np.ma.MaskedArray(data, mask, copy=False)
    return masked


def _array(values: list[Value]) -> ColumnArray:
    if any(isinstance(value, str) for value in values) or not values:
        result = np.empty(len(values), object)
        result[:] = values
        return result
    missing = [value is None for value in values]
    if not any(missing):
        return np.array(values)
    present = np.array([value for value in values if value is not None])
    filled = np.array([0 if value is None else value for value in values], present.dtype if len(present) else np.int64)
    masked: ColumnArray = np.ma.MaskedArray(filled, missing)
    return masked


def _rank(name: str, place: int) -> int:
    """Return how early a column is hidden. The first one of a table never is."""
    return _RANKS.get(name, _KEPT.index(()) + 1) if place else 0


class _ShownColumn(NamedTuple):
    """A column as people read it. `is_right`: it is aligned to the right."""

    heading: str
    cells: list[str]
    is_right: bool


def _for_people(name: str, columns: Mapping[str, ColumnArray]) -> _ShownColumn:
    """Return the heading and the cells of a column, in the unit that reads best."""
    values = columns[name].tolist()
    kind = columns[name].dtype.kind
    if kind not in "iuf":
        return _ShownColumn(name, [NOT_AVAILABLE if value is None else str(value) for value in values], False)
    for ending, units in _UNITS.items():
        if name.endswith(ending) and (larger := _unit(name, columns, ending, units)) is not None:
            unit, size = larger
            heading = name.removesuffix(ending) + unit
            cells = [NOT_AVAILABLE if value is None else f"{value / size:.3f}" for value in values]
            return _ShownColumn(heading, cells, True)
    return _ShownColumn(name, [_number(value, kind) for value in values], True)


def _unit(
    name: str, columns: Mapping[str, ColumnArray], ending: str, units: Sequence[tuple[int, str, int]]
) -> tuple[str, int] | None:
    """Return the unit in which a column is shown, and its size, or None for the unit in its name.

    It is that of its family. A part of a whole has its own, if the family's unit is too large for some of its values.
    """
    family = _family(name, columns)
    whole, own = _range(family, columns), _range(name, columns)
    is_part = family != name and not name.startswith(_EXTREMES)
    ranges = ((own[0] or whole[0], whole[1]), own) if is_part else (whole,)
    suitable = (
        (unit, size)
        for smallest, largest in ranges
        for least, unit, size in units
        if largest >= least and smallest >= size * _LEAST_SHOWN and not (ending == "_ns" and largest >= _POINT_NS)
    )
    return next(suitable, None)


def _family(name: str, columns: Mapping[str, ColumnArray]) -> str:
    """Return the column that decides the unit of this one: least and most go by the mean, a part by the whole."""
    first, _, rest = name.partition("_")
    if first in _EXTREMES:
        family = f"mean_{rest}"
    elif name == "difference_ns":
        family = next((compared for compared in _COMPARED if compared in columns), name)
    else:
        family = _WHOLES.get(name, name)
    return family if family in columns else name


def _range(name: str, columns: Mapping[str, ColumnArray]) -> tuple[float, float]:
    """Return the least and the most that is not 0, of base and new together, as the eye compares them."""
    first, _, rest = name.partition("_")
    names = [f"base_{rest}", f"new_{rest}"] if first in ("base", "new") else [name]
    columns_shown = [columns[column].tolist() for column in names if column in columns]
    sizes = [abs(value) for column in columns_shown for value in column if value and math.isfinite(value)]
    return min(sizes, default=0), max(sizes, default=0)


def _number(value: float | None, kind: str) -> str:
    if value is None or not math.isfinite(value):
        return NOT_AVAILABLE
    return f"{value:.3f}" if kind == "f" else str(value)


def _html(text: str) -> str:
    return html.escape(layout.escape(text))


def _csv(value: Value) -> Value:
    if isinstance(value, str):
        return layout.formula_safe(value)
    return "" if value is None else value


def _json(value: Value) -> Value:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _for_pandas(values: ColumnArray, pandas: Any) -> Any:
    if not np.ma.isMaskedArray(values):
        return values
    kind = "Int64" if values.dtype.kind in "iu" else "Float64" if values.dtype.kind == "f" else object
    return pandas.array(values.tolist(), dtype=kind)
