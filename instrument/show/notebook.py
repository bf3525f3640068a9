"""Show runs, series and lineage in a notebook as tables and SVG, without a script; and `%instrument DIR`, by
`%load_ext instrument`.
"""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from instrument.analyse.layout import Cell, name, number
from instrument.errors import CorruptMessage, InstrumentError
from instrument.facts.describe import (
    facts_text,
    leaves,
    listing,
    losses_text,
    number_summary,
    summary,
    tags_text,
    value_facts,
)
from instrument.formats.arrays import PNG
from instrument.runs import folders
from instrument.runs.points import Points, Scalars, called, clock
from instrument.runs.run import Run, Runs, find_runs, read_run
from instrument.show import charts, pages
from instrument.values import Image

_ROWS = 100
_POINTS_AT_EACH_END = 5
_LARGEST_PICTURE_BYTES = 1 << 20
_USAGE = "usage: %instrument [DIR], with the directory of a run or of several, or an event file; without one: here"


class Markup(str):
    """A finished piece of HTML, which is not escaped again."""


def render(shown: object) -> str:
    """Return what a notebook shows of a run, runs, a series or a lineage."""
    if isinstance(shown, Run):
        return run(shown)
    if isinstance(shown, Runs):
        return runs(shown)
    if isinstance(shown, Points):
        return points(shown)
    assert isinstance(shown, Mapping)
    return lineage(shown)


def run(shown: Run) -> str:
    """Show a run: its tags with their curves, and what is missing."""
    kinds = [(kind, tag) for kind, tags in shown.tags().items() for tag in tags]
    rows = [row for kind, tag in kinds[:_ROWS] for row in _tag_rows(shown, kind, tag)]
    heads = ("kind", "tag", "writer", "curve", "last", "min", "max", "NaN", "points", "steps")
    parts = [_table(f"{shown.name} in {shown.path}", heads, rows)]
    parts += [_note(f"{len(kinds) - _ROWS} more tags: run.tags() lists them all")] if len(kinds) > _ROWS else []
    parts += [_note("with a profile: run.profile()")] if shown.traces else []
    parts += [_note(f"{losses_text(shown)}: see run.gaps and run.damage")] if losses_text(shown) else []
    return "".join(parts)


def _tag_rows(shown: Run, kind: str, tag: str) -> Iterator[list[Cell]]:
    """Yield a row for each writer of a tag."""
    for writer, points in shown.points(kind, tag).by_writer().items():
        row = summary(points)
        curve, numbers = "", list[Cell](["", "", "", ""])
        if isinstance(points, Scalars):
            facts = number_summary(points)
            curve = Markup(charts.sparkline(points.step, points.value))
            numbers = [facts["last"], facts["min"], facts["max"], facts["nan_count"]]
        steps = f"{row['first_step']}..{row['last_step']}"
        yield [kind, tag, called(writer), curve, *numbers, row["points"], steps]


def runs(shown: Runs) -> str:
    """Show the runs of a tree, a row each."""
    rows = [_run_row(entry) for entry in shown[:_ROWS]]
    parts = [_table(f"{len(shown)} runs", ("run", "tags", "steps", "last", "notes"), rows)]
    parts += [_note(f"{len(shown) - _ROWS} more runs")] if len(shown) > _ROWS else []
    return "".join([*parts, *map(_note, shown.notes)])


def _run_row(entry: Run) -> list[Cell]:
    row = listing(entry, entry.path)
    steps, last = "", ""
    if row["last_wall_time"] is not None:
        steps, last = f"{row['first_step']}..{row['last_step']}", clock(row["last_wall_time"])
    return [entry.path, tags_text(row), steps, last, losses_text(entry)]


def points(shown: Points) -> str:
    """Show a series: its curve if it is one of numbers, its first and last points."""
    count = len(shown)
    ends = min(count, _POINTS_AT_EACH_END)
    places = sorted({*range(ends), *range(count - ends, count)})
    rows = [[int(shown.step[at]), clock(float(shown.wall_time[at])), _value(shown, at)] for at in places]
    parts = []
    if isinstance(shown, Scalars):
        curves = [charts.sparkline(series.step, series.value, 480, 100) for series in shown.by_writer().values()]
        parts.append(f"<div>{''.join(curves)}</div>")
    parts.append(_table(f"{shown.kind} {shown.tag}", ("step", "time", "value"), rows))
    parts += [_note(f"{len(rows)} of {count} points are shown")] if len(rows) < count else []
    return "".join(parts)


def _value(shown: Points, at: int) -> Cell:
    """Return a value for a cell: numbers in digits, a picture as itself, all else in words."""
    if isinstance(shown, Scalars):
        return float(shown.value[at])
    try:
        value = shown.decode(at)
    except CorruptMessage as error:
        return str(error)
    if isinstance(value, Image) and value.data.startswith(PNG) and len(value.data) <= _LARGEST_PICTURE_BYTES:
        data = base64.b64encode(value.data).decode()
        return Markup(f'<img src="data:image/png;base64,{data}" alt="{value.width} x {value.height} pixels">')
    return facts_text(value_facts(lambda: value))


def lineage(shown: Mapping[str, object]) -> str:
    """Show a lineage: the path of each value, and the value."""
    rows = [[path, number(value) if isinstance(value, float) else str(value)] for path, value in leaves(dict(shown))]
    return _table("lineage", ("name", "value"), rows)


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table without columns that are empty, or the same writer, in all rows."""
    kept = [at for at, head in enumerate(heads) if not rows or _tells(head, [row[at] for row in rows])]
    body = [[_cell(row[at]) for at in kept] for row in rows]
    return pages.table([_text(heads[at]) for at in kept], body, _text(caption))


def _tells(head: str, cells: list[Cell]) -> bool:
    return len(set(cells)) > 1 if head == "writer" else any(cells) if head == "NaN" else any(c != "" for c in cells)


def _cell(value: Cell) -> str:
    if isinstance(value, Markup):
        return f"<td>{value}</td>"
    if isinstance(value, str):
        return f'<td style="text-align:left">{_text(value)}</td>'
    return f'<td style="text-align:right">{number(value)}</td>'


def _note(text: str) -> str:
    return f"<p>{pages.text(text)}</p>"


def _text(text: str) -> str:
    return pages.text(name(text, 200))


# ---------------------------------------------------------------- %instrument


class _Shell(Protocol):
    def register_magic_function(self, func: Callable[[str], object], magic_kind: str, magic_name: str) -> None: ...


def load_ipython_extension(shell: _Shell) -> None:
    """Register `%instrument`; IPython calls this for `%load_ext instrument`."""
    shell.register_magic_function(magic, "line", "instrument")


def magic(line: str) -> Run | Runs | None:
    """Return the run at a path, or the runs below it; the notebook shows the result as a table."""
    try:
        words = shlex.split(line)
        if len(words) > 1:
            raise ValueError(f"{len(words)} words")
        return open_at(os.path.expanduser(words[0]) if words else ".")
    except ValueError as error:
        print(f"{error}; {_USAGE}")
    except (InstrumentError, OSError) as error:
        print(error)
    return None


def open_at(path: str) -> Run | Runs:
    """Return the run at `path`, or the runs below it if it is no run itself."""
    if not os.path.isdir(path) or folders.event_files(path):
        return read_run(path)
    runs = find_runs(path)
    return runs if runs else read_run(path)  # raises with what is there instead
