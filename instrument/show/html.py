"""Show runs, series and lineage in a notebook as static HTML: tables and SVG, every text escaped, no script."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from instrument.errors import CorruptMessage
from instrument.facts import describe
from instrument.facts.describe import leaves, listing, losses_text, summary
from instrument.runs.points import Points, Scalars, called, clock
from instrument.runs.run import Run, Runs
from instrument.show import sparkline
from instrument.show.tables import Cell, escape, name, number
from instrument.values import Image

_ROWS = 100
_POINTS_AT_EACH_END = 5
_PNG = b"\x89PNG\r\n\x1a\n"
_LARGEST_PICTURE_BYTES = 1 << 20


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


def _tag_rows(shown: Run, kind: str, tag: str) -> Iterable[list[Cell]]:
    """Yield a row for each writer of a tag."""
    for points in shown.points(kind, tag).by_writer().values():
        row = summary(points)
        drawn = Markup(sparkline.svg(points.step, points.value)) if isinstance(points, Scalars) else ""
        numbers = [row.get(key, "") for key in ("last", "min", "max", "nan_count")]
        steps = f"{row['first_step']}..{row['last_step']}"
        yield [kind, tag, called(points.writers[0]), drawn, *numbers, row["points"], steps]


def runs(shown: Runs) -> str:
    """Show the runs of a tree, a row each."""
    rows = [_run_row(entry) for entry in shown[:_ROWS]]
    parts = [_table(f"{len(shown)} runs", ("run", "tags", "steps", "last", "notes"), rows)]
    parts += [_note(f"{len(shown) - _ROWS} more runs")] if len(shown) > _ROWS else []
    return "".join([*parts, *map(_note, shown.notes)])


def _run_row(entry: Run) -> list[Cell]:
    row = listing(entry, entry.path)
    tags = ", ".join(f"{count} {kind}" for kind, count in row["tags"].items())
    if row["first_step"] is None:
        return [entry.path, tags, "", "", losses_text(entry)]
    return [
        entry.path,
        tags,
        f"{row['first_step']}..{row['last_step']}",
        clock(row["last_wall_time"]),
        losses_text(entry),
    ]


def points(shown: Points) -> str:
    """Show a series: its curve if it is one of numbers, its first and last points."""
    count = len(shown)
    ends = min(count, _POINTS_AT_EACH_END)
    places = sorted({*range(ends), *range(count - ends, count)})
    rows = [[int(shown.step[at]), clock(float(shown.wall_time[at])), _value(shown, at)] for at in places]
    parts = [f"<div>{_curves(shown)}</div>"] if isinstance(shown, Scalars) else []
    parts.append(_table(f"{shown.kind} {shown.tag}", ("step", "time", "value"), rows))
    parts += [_note(f"{len(rows)} of {count} points are shown")] if len(rows) < count else []
    return "".join(parts)


def _curves(shown: Scalars) -> str:
    return "".join(sparkline.svg(series.step, series.value, 480, 100) for series in shown.by_writer().values())


def _value(shown: Points, at: int) -> Cell:
    """Return a value for a cell: numbers in digits, a picture as itself, all else in words."""
    if isinstance(shown, Scalars):
        return float(shown.value[at])
    try:
        value = shown.decode(at)
    except CorruptMessage as error:
        return str(error)
    if isinstance(value, Image) and value.data.startswith(_PNG) and len(value.data) <= _LARGEST_PICTURE_BYTES:
        data = base64.b64encode(value.data).decode()
        return Markup(f'<img src="data:image/png;base64,{data}" alt="{value.width} x {value.height} pixels">')
    return describe.facts_text(describe.value_facts(value))


def lineage(shown: Mapping[str, Any]) -> str:
    """Show a lineage: the path of each value, and the value."""
    rows = [[path, number(value) if isinstance(value, float) else str(value)] for path, value in leaves(dict(shown))]
    return _table("lineage", ("name", "value"), rows)


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table without columns that are empty, or the same writer, in all rows."""
    kept = [at for at, head in enumerate(heads) if not rows or _tells(head, [row[at] for row in rows])]
    head = "".join(f"<th>{_text(heads[at])}</th>" for at in kept)
    body = "".join("<tr>" + "".join(_cell(row[at]) for at in kept) + "</tr>" for row in rows)
    return f"<table><caption>{_text(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _tells(head: str, cells: list[Cell]) -> bool:
    return len(set(cells)) > 1 if head == "writer" else any(cells) if head == "NaN" else any(c != "" for c in cells)


def _cell(value: Cell) -> str:
    if isinstance(value, Markup):
        return f"<td>{value}</td>"
    if isinstance(value, str):
        return f'<td style="text-align:left">{_text(value)}</td>'
    return f'<td style="text-align:right">{number(value)}</td>'


def _note(text: str) -> str:
    return f"<p>{html.escape(escape(text))}</p>"


def _text(text: str) -> str:
    return html.escape(name(text, 200))
