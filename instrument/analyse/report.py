"""A profile as text, and as a static page in a notebook: a description of the window, then the parts of its time."""

from __future__ import annotations

import html as escaping
import os
from collections.abc import Iterator
from datetime import datetime, timezone

import numpy as np

from instrument.analyse import advice, chrome_trace, layout, steps, stragglers, trace_files
from instrument.analyse.executions import window_of
from instrument.analyse.layout import UNLIMITED, Screen
from instrument.analyse.table import Table
from instrument.analyse.tables import ProfileTables
from instrument.wording import quoted_list, ranges

#: Rows of a table in the report; all of them are in the table itself.
_ROWS = 10
_FEW_ROWS = 5
_NAME_WIDTH = 48
#: Names of operators differ in the scopes in their middle: there these are wanted, too.
_OPERATOR_WIDTH = 64
_WIDTHS = {"operators": _OPERATOR_WIDTH, "problems": 120}


def text(profile: ProfileTables, screen: Screen = UNLIMITED, has_whole_names: bool = False) -> str:
    """Return the report for a screen. Long tables are cut to their first rows, and say so.

    Names are shortened to what a page has room for, unless `has_whole_names`. A screen with a width shortens them
    where it must.
    """
    parts = ["\n".join(layout.prose(line, screen, "    ") for line in _heading(profile))]
    if sentences := advice.sentences(profile):
        lines = [layout.prose(f"  {layout.escape(sentence)}", screen, "    ") for sentence in sentences]
        parts.append("\n".join([layout.paint("Advice", layout.BOLD, screen), *lines]))
    for table, rows in _sections(profile):
        width = None if has_whole_names else _WIDTHS.get(table.name, _NAME_WIDTH)
        parts.append(_section(_known(table), rows, width, screen))
    return "\n\n".join(parts)


def html(profile: ProfileTables) -> str:
    """Return the report as static HTML. Every text is escaped."""
    heading = "<br>".join(escaping.escape(layout.escape(line)) for line in _heading(profile))
    items = "".join(f"<li>{escaping.escape(layout.escape(line))}</li>" for line in advice.sentences(profile))
    tables = "".join(
        _known(table).take(slice(0, rows))._repr_html_() for table, rows in _sections(profile) if len(table)
    )
    return f"<div><p>{heading}</p>" + (f"<ul>{items}</ul>" if items else "") + f"{tables}</div>"


def _known(table: Table) -> Table:
    """Return a table without the columns of which nothing is known. The notes say why."""
    masks = {name: np.ma.getmaskarray(values) for name, values in table.columns.items()}
    return table.without(*(name for name, mask in masks.items() if len(mask) and mask.all()))


def _section(table: Table, rows: int, name_width: int | None, screen: Screen) -> str:
    if len(table):
        return table.text(rows, name_width, screen)
    notes = [layout.prose(f"  {layout.escape(note)}", screen, "  ") for note in table.notes or ["none"]]
    return "\n".join([layout.paint(table.caption, layout.BOLD, screen), *notes])


def _sections(profile: ProfileTables) -> Iterator[tuple[Table, int]]:
    """Yield the tables and how many rows of each. An empty table stays if its notes say why."""
    if len(ranks := profile.each()) > 1:
        spread = stragglers.spread(ranks)
        yield stragglers.devices(ranks, spread), _ROWS
        yield spread, _ROWS
    if len(profile.capture.steps):
        yield steps.explained(profile.step_parts), _ROWS
    yield profile.steps.without("start_ns"), _ROWS
    sides = ("side",) if len(profile.sides) == 1 else ()
    if len(profile.sides) > 1:
        yield profile.sides, _ROWS
    yield profile.operator_types.without(*sides), _ROWS
    yield profile.operators.without("type", "input_shapes", *sides), _ROWS
    yield profile.idle_streams, _ROWS
    if len(profile.idle):
        yield profile.idle.without("start_ns"), _FEW_ROWS
    if len(profile.overlap):  # without communication the steps say so
        yield profile.overlap, _ROWS
    if len(profile.spans):
        yield profile.spans.without(*(("open",) if not profile.spans["open"].any() else ())), _ROWS
    yield profile.memory_peaks.without("time_ns"), _ROWS
    yield profile.pipeline, _ROWS
    if len(profile.problems):
        yield profile.problems, _ROWS * 2


def _heading(profile: ProfileTables) -> Iterator[str]:
    metadata = profile.metadata
    numbers = sorted(set(profile.windows["window"].tolist()))
    yield f"Profile of {layout.escape(profile.path)}"
    devices = [capture.device for capture in profile.captures]
    line = f"  window {profile.number}" + (f" (there are {ranges(numbers)})" if len(numbers) > 1 else "")
    line += f", device {profile.device}" + (f" (there are {ranges(devices)}: --device)" if len(devices) > 1 else "")
    yield f"{line}, {profile.target}"
    if sentence := choice(profile):
        yield layout.escape(f"  {sentence}")
    versions = metadata.get("versions")
    if isinstance(versions, dict):
        made = ", ".join(f"{name} {version}" for name, version in versions.items())
        yield layout.escape(f"  {metadata.get('mode', '')} mode on {metadata.get('host', '?')}; {made}")
    if sentence := chrome_trace.alignment(profile.captures):
        yield f"  {sentence}"
    window = window_of(profile.capture)
    if window is not None:
        start = datetime.fromtimestamp(window[0] // 10**9, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        yield f"  opened {start}, open for {(window[1] - window[0]) / 1e9:.3f} s"
    if metadata.get("complete") is False:
        yield f"  NOT COMPLETE: {layout.escape(str(metadata.get('reason', '')))}"
    user = metadata.get("metadata")
    if isinstance(user, dict) and user:
        yield "  " + layout.escape("; ".join(f"{key}: {value}" for key, value in user.items()))


def choice(profile: ProfileTables) -> str:
    """Name the folder of the window, if other windows at the path are in other folders, else return nothing."""
    folders: dict[bool, set[str]] = {True: set(), False: set()}
    for place, is_shown in zip(profile.windows["place"].tolist(), profile.windows["is_shown"].tolist(), strict=True):
        folders[bool(is_shown)].add(os.path.relpath(trace_files.folder_of(place), profile.path))
    others = sorted(folders[False] - folders[True])
    if not others:
        return ""
    return (
        f"out of {quoted_list(sorted(folders[True]))}; other windows are out of {quoted_list(others)}: --window chooses"
    )
