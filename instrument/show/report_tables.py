"""The tables of a report of runs as HTML, every text escaped."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape as escape_html
from typing import Any

from instrument.facts import compare, describe
from instrument.facts.compare import Side
from instrument.facts.describe import Row
from instrument.runs.points import called, clock
from instrument.show import charts
from instrument.show.tables import escape, name, number

#: Rows of a table that are shown.
_ROWS = 500
_NAME_CHARACTERS = 80


def overview(runs: Sequence[tuple[Row, str]]) -> str:
    """Return a row a run: what it holds, and in words what is missing."""
    has_ranks = any(len(facts["ranks"]) > 1 for facts, _ in runs)
    rows = []
    for place, (facts, losses) in enumerate(runs):
        tags = ", ".join(f"{count} {kind}" for kind, count in facts["tags"].items())
        has_steps = facts["first_step"] is not None
        cells = [_cell(f"{_swatch(place)}{short(facts['run'])}<br><small>{text(facts['path'])}</small>", "long")]
        cells += [_cell(text(len(facts["ranks"])), "n")] if has_ranks else []
        cells += [_cell(text(tags)), _cell(text(f"{facts['first_step']} to {facts['last_step']}" if has_steps else ""))]
        cells += [_cell(text(clock(facts["last_wall_time"]) if has_steps else "")), _cell(text(losses), "bad")]
        rows.append(cells)
    return table(["run", *(["ranks"] if has_ranks else []), "tags", "steps", "last written", "missing"], rows)


def health(runs: Sequence[tuple[str, Sequence[Row], Row, Row]], left_out: Sequence[str]) -> str:
    """Return tables of values that are not finite, gaps, damage, superseded points, and what is not in the report."""
    parts = []
    broken = [
        [_cell(short(run), "long"), _cell(short(row["tag"]), "long"), _cell(text(describe.nonfinite_text(row)))]
        for run, rows, _, _ in runs
        for row in rows
    ]
    gaps = [
        [
            _cell(short(run), "long"),
            _number(gap["events"]),
            _cell(text(f"{gap['first_step']} to {gap['last_step']}")),
            _cell(text(gap["reason"]), "long"),
        ]
        for run, _, missing, _ in runs
        for gap in missing["gaps"]
    ]
    damage = [
        [
            _cell(short(run), "long"),
            _cell(text(os.path.basename(place["file"])), "long"),
            _number(place["offset"]),
            _number(place["bytes_skipped"]),
            _cell(text(place["reason"]), "long"),
        ]
        for run, _, missing, _ in runs
        for place in missing["damage"]
    ]
    superseded = [
        [_cell(short(run), "long"), _number(facts["superseded_points"])]
        for run, _, _, facts in runs
        if facts["superseded_points"]
    ]
    for caption, heads, rows in (
        ("Numbers that are NaN or infinite", ["run", "tag", "how many"], broken),
        ("Events that the recorder could not write", ["run", "events", "steps", "reason"], gaps),
        ("Places that cannot be read", ["run", "file", "offset", "bytes", "reason"], damage),
        ("Points that a later start, or the same step again, replaced", ["run", "points"], superseded),
    ):
        if rows:
            parts.append(table(heads, rows, caption))
    if not parts:
        parts.append("<p>Every number is finite, and nothing is missing or damaged.</p>")
    if left_out:
        items = "".join(f"<li>{text(reason)}</li>" for reason in left_out[:_ROWS])
        parts.append(f"<details><summary>Not in this page ({len(left_out)})</summary><ul>{items}</ul></details>")
    return "".join(parts)


def best(sides: Sequence[Side]) -> str:
    """Return the best value of each tag and run with its step, the best run marked, and the last value."""
    by_tag: dict[str, list[Row]] = {}
    for row in compare.scalars(sides):
        by_tag.setdefault(row["tag"], []).append(row)
    rows = []
    for tag, tag_rows in by_tag.items():
        cells = [_cell(short(tag), "long"), _cell(text(tag_rows[0]["direction"]))]
        differs = len({row["best"] for row in tag_rows}) > 1  # else none is the best
        for side in sides:
            own = [row for row in tag_rows if row["path"] == side.path]
            is_best = differs and bool(own) and own[0]["best"] == tag_rows[0]["best"]
            cells.append(_cell("<br>".join(_best(row, len(own) > 1) for row in own), "n best" if is_best else "n"))
        rows.append(cells)
    heads = ["tag", "best is", *(f"{side.run}: best (step), last" for side in sides)]
    return table(heads, rows) if rows else ""


def _best(row: Row, has_writers: bool) -> str:
    writer = f"{text(called((row['device'], row['host'])))}: " if has_writers else ""
    return f"{writer}<b>{number(row['best'])}</b> ({number(row['best_step'])}), {number(row['last'])}"


def hyper_parameters(sides: Sequence[Side]) -> str:
    """Return the hyper-parameters in which the runs differ, and folded away those that all have."""
    names = list(dict.fromkeys(name for side in sides for name in side.setup))
    differing = {row["name"] for row in compare.hyper_parameters(sides)}
    heads = ["name", *(side.run for side in sides)]
    several = [[name, *(side.setup.get(name) for side in sides)] for name in names if name in differing]
    same = [[name, sides[0].setup[name]] for name in names if name not in differing]
    parts = [table(heads, list(map(_setup_row, several)))] if several else []
    if same and len(sides) == 1:
        parts.append(table(["name", "value"], list(map(_setup_row, same))))
    elif same:
        rows = table(["name", "value"], list(map(_setup_row, same)))
        parts.append(f"<details><summary>The same in all runs ({len(same)})</summary>{rows}</details>")
    return "".join(parts)


def _setup_row(row: Sequence[Any]) -> list[str]:
    return [_cell(text(_value(value)), "long") for value in row]


def _value(value: Any) -> str:
    return number(value) if isinstance(value, float) else "" if value is None else str(value)


def legend(names: Sequence[str]) -> str:
    """Return the colour of each run; an empty text for one run."""
    if len(names) < 2:
        return ""
    runs = "".join(f"<span>{_swatch(place)}{text(name)}</span>" for place, name in enumerate(names))
    return f'<div class="legend">{runs}</div>'


def _swatch(place: int) -> str:
    return f'<i class="swatch c{place % charts.COLOURS} d{place // charts.COLOURS % charts.DASHES}"></i>'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Return finished cells under their heads, in a box that scrolls if it is too wide."""
    head = "".join(f"<th>{text(heading)}</th>" for heading in heads)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows[:_ROWS])
    more = f"<p>{len(rows) - _ROWS} more rows</p>" if len(rows) > _ROWS else ""
    title = f"<caption>{text(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def _cell(content: str, style: str = "") -> str:
    return f'<td class="{style}">{content}</td>' if style else f"<td>{content}</td>"


def _number(value: int) -> str:
    return _cell(text(value), "n")


def short(value: str) -> str:
    """Return a name as HTML, shortened in its middle; the pointer shows the whole of it."""
    shown = name(value, _NAME_CHARACTERS)
    return text(shown) if shown == escape(value) else f'<span title="{text(value)}">{text(shown)}</span>'


def text(value: Any) -> str:
    """Return a text as HTML, with everything that is not printable as an escape."""
    return escape_html(escape(str(value)))
