"""`instrument landscape RUN`: describe, draw or export the loss landscapes of a run."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from instrument.analyse.layout import Cell, escape, name
from instrument.atomic_write import replacing
from instrument.errors import NoSuchRun
from instrument.facts import landscapes
from instrument.facts.rows import Row
from instrument.facts.surface import SCALES, Drawing, Scale, check
from instrument.formats import landscape as files
from instrument.runs.run import Run
from instrument.show import landscape as page
from instrument.show.cli import options
from instrument.show.cli.output import put
from instrument.show.terminal import prose, table, tell
from instrument.values import LossSurface
from instrument.wording import counted

_EXPORTS: dict[str, Callable[[LossSurface], bytes]] = {
    ".vtp": files.to_vtp,
    ".csv": files.to_csv,
    ".npz": files.to_npz,
}
_PICTURES = (".png", ".svg", ".pdf")
_PAGE = ".html"
_LOSS = "loss"
_OUT = "write a picture (.png, .svg, .pdf), a page (.html), or the values (.csv, .npz, .vtp for ParaView)"
_INTERVAL = "the one of the checkpoints from A to B, or of A,B,C,..."
_METRIC = "in pictures and pages, draw this metric instead of the loss"
ARGUMENTS = (
    options.RUNS,
    options.argument("-o", "--output", metavar="OUT", help=_OUT),
    [
        options.argument("--index", type=int, metavar="N", help="which landscape, from 0; -1 is the last"),
        options.argument("--interval", metavar="A..B", help=_INTERVAL),
    ],
    options.argument("--metric", metavar="NAME", help=_METRIC),
    options.argument("--scale", choices=SCALES, help="of pictures and pages (default: auto)"),
    options.argument("--clip", type=float, metavar="LOSS", help="draw all above alike (default: far outliers)"),
    options.printed("what is known of the landscapes"),
)
EXAMPLES = (
    ("landscape runs/adam", "the landscapes of a run, in words"),
    ("landscape runs/adam -o plane.html", "a page with the surface"),
    ("landscape runs/adam -o plane.vtp", "the values, for ParaView"),
)


def run(arguments: argparse.Namespace) -> int:
    wrong = _wrong(arguments)
    if wrong:
        arguments.wrong_call(wrong)
    runs = options.OpenedRuns(arguments.runs)
    if arguments.output is not None and len(runs) > 1:
        arguments.wrong_call(f"--output is of one run, and there are {len(runs)}; give the directory of one")
    results = runs.results(lambda run_name, opened: _result(arguments, run_name, opened))
    rows = [row for _, some in results for row in some]
    put(arguments, rows, (text for texts, _ in results for text in texts), rows)
    return runs.status


def _result(arguments: argparse.Namespace, run_name: str, opened: Run) -> tuple[list[str], list[Row]]:
    """Write the output file, if one is asked for; return the texts and the rows of the landscapes of a run."""
    chosen = _chosen(opened, arguments)
    if arguments.output is None:
        texts = [_heading(opened), *(_text(index, surface) for index, surface in chosen)]
    else:
        content = _content(arguments, opened, chosen[0][1])
        with replacing(arguments.output) as file:
            file.write(content)
        texts = [prose(f"{escape(arguments.output)}: {escape(landscapes.title(chosen[0][1]))}", "  ")]
    head = {"run": run_name, "path": opened.path, "file": arguments.output}
    return texts, [{**head, "index": index, **landscapes.to_row(surface)} for index, surface in chosen]


def _wrong(arguments: argparse.Namespace) -> str:
    suffix = "" if arguments.output is None else _suffix(arguments.output)
    if arguments.output is not None and suffix not in (*_PICTURES, _PAGE, *_EXPORTS):
        expected = ", ".join((*_PICTURES, _PAGE, *_EXPORTS))
        return f"--output is {escape(arguments.output)}; its name says what is written, and ends in one of {expected}"
    for option in ("metric", "scale", "clip"):
        if getattr(arguments, option) is not None and suffix not in (*_PICTURES, _PAGE):
            return f"--{option} is for pictures and pages; give --output with a name in {_PAGE} or {_PICTURES[0]} too"
    if arguments.clip is not None and not math.isfinite(arguments.clip):
        return f"--clip is {arguments.clip}; it is a finite loss"
    if arguments.interval is not None and not _interval_numbers(arguments.interval):
        return f"--interval is {escape(arguments.interval)}; expected FIRST..LAST, or all numbers with commas between"
    return ""


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _interval_numbers(text: str) -> tuple[list[int], bool] | None:
    """Return the numbers, and True if they are all numbers and not only the ends; None for another text."""
    ends = re.fullmatch(r"(\d+)(?:\.\.|-)(\d+)", text)
    if ends:
        return [int(ends[1]), int(ends[2])], False
    return ([*map(int, text.split(","))], True) if re.fullmatch(r"\d+(,\d+)+", text) else None


def _chosen(opened: Run, arguments: argparse.Namespace) -> list[tuple[int, LossSurface]]:
    """Return the indices and landscapes that the options choose."""
    numbered = [*enumerate(opened.landscapes)]
    if not numbered:
        unreadable = [damage.reason for damage in opened.damage if damage.reason.startswith("landscape")]
        raise NoSuchRun(
            f"run {opened.name!r} has no landscape"
            + (f" that can be read: {unreadable[0]}" if unreadable else "")
            + "; SummaryLandscape(summary_dir).compute(...) makes one of the checkpoints that a SummaryCollector with "
            "collect_landscape kept"
        )
    if arguments.index is not None:
        if not -len(numbered) <= arguments.index < len(numbered):
            raise NoSuchRun(f"run {opened.name!r} has no landscape {arguments.index}; it has {_listed(numbered)}")
        return [numbered[arguments.index]]
    if arguments.interval is not None:
        return [_of_interval(opened, numbered, arguments.interval)]
    if arguments.output is not None and len(numbered) > 1:
        tell(
            f"this is the first of {len(numbered)} landscapes; --index or --interval chooses another of "
            f"{_listed(numbered)}"
        )
    return numbered


def _of_interval(opened: Run, numbered: list[tuple[int, LossSurface]], text: str) -> tuple[int, LossSurface]:
    numbers, are_all = _interval_numbers(text) or ([], True)
    fitting = [
        candidate for candidate in numbered if candidate[1].numbers.size and _numbers(candidate[1], are_all) == numbers
    ]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise NoSuchRun(f"run {opened.name!r} has several landscapes of {text}: {_listed(fitting)}; choose by --index")
    raise NoSuchRun(f"run {opened.name!r} has no landscape of {text}; it has {_listed(numbered)}")


def _numbers(surface: LossSurface, are_all: bool) -> list[int]:
    numbers = sorted(surface.numbers.tolist())
    return numbers if are_all else [numbers[0], numbers[-1]]


def _listed(numbered: list[tuple[int, LossSurface]]) -> str:
    return ", ".join(f"{index} ({landscapes.title(surface)})" for index, surface in numbered)


# ---------------------------------------------------------------- files


def _content(arguments: argparse.Namespace, opened: Run, surface: LossSurface) -> bytes:
    """Return the content of the output file, whose name decides what it is."""
    suffix = _suffix(arguments.output)
    check(surface)
    if suffix in _EXPORTS:
        return _EXPORTS[suffix](surface)
    drawing = _drawing(opened, surface, arguments)
    if suffix == _PAGE:
        html = page.html(drawing, opened.path, landscapes.facts(surface), landscapes.path_rows(surface))
        return html.encode(errors="backslashreplace")
    return files.picture(drawing, suffix[1:])


def _drawing(opened: Run, surface: LossSurface, arguments: argparse.Namespace) -> Drawing:
    quantity = arguments.metric or _LOSS
    title = f"{opened.name}, {landscapes.title(surface)}"
    if arguments.metric is not None:
        surface = _of_metric(surface, arguments.metric)
        title = f"{quantity} of {title}"
    return Drawing(surface, Scale.of(surface, arguments.scale or SCALES[0], arguments.clip), title, quantity)


def _of_metric(surface: LossSurface, metric: str) -> LossSurface:
    """Return the surface with a metric in the place of the loss; the metric of the path is not known."""
    if metric not in surface.metrics:
        names = ", ".join(surface.metrics) or "none"
        raise NoSuchRun(f"landscape {surface.tag!r} has no metric {metric!r}; it has {names}")
    nothing = np.full(surface.numbers.size, np.nan)
    return replace(surface, z=surface.metrics[metric], path_loss=nothing, true_loss=nothing, convergence=np.empty(0))


# ---------------------------------------------------------------- what is printed


def _heading(opened: Run) -> str:
    count = counted(len(opened.landscapes), "landscape")
    return prose(f"{count} of {name(opened.name)} in {escape(opened.path)}", "  ")


def _text(index: int, surface: LossSurface) -> str:
    facts = landscapes.facts(surface)
    width = max(len(name(fact)) for fact, _ in facts)
    lines = [prose(f"{index}  {escape(landscapes.title(surface))}", "   ")]
    lines += [prose(f"   {name(fact).ljust(width)}  {escape(text)}", " " * min(width + 5, 20)) for fact, text in facts]
    rows = landscapes.path_rows(surface)
    if rows:
        lines += ["", table([escape(str(cell).upper()) for cell in rows[0]], [_cells(row) for row in rows[1:]], "   ")]
    return "\n".join(lines)


def _cells(row: list[str | float]) -> list[Cell]:
    return [None if isinstance(cell, float) and math.isnan(cell) else cell for cell in row]
