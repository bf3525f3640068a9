"""`instrument landscape RUN`: describe, draw or export the loss landscapes of a run."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from instrument.atomic_write import replacing
from instrument.errors import NoSuchRun
from instrument.facts import landscapes
from instrument.facts.describe import Row
from instrument.facts.surface import SCALES, Drawing, Scale, check
from instrument.formats import landscape as files
from instrument.runs.run import Run
from instrument.show import landscape_page
from instrument.show.opened_runs import PATHS, OpenedRuns, tell, tell_or_raise
from instrument.show.output import add_output_options, print_json, print_records
from instrument.show.tables import escape, name, prose, table
from instrument.values import LossSurface

_EXPORTS: dict[str, Callable[[LossSurface], bytes]] = {
    ".vtp": files.to_vtp,
    ".csv": files.to_csv,
    ".npz": files.to_npz,
}
_PICTURES = (".png", ".svg", ".pdf")
_PAGE = ".html"
_LOSS = "loss"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help=PATHS)
    what = "write a picture (.png, .svg, .pdf), a page (.html), or the values (.csv, .npz, .vtp for ParaView)"
    parser.add_argument("-o", "--output", metavar="OUT", help=what)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--index", type=int, metavar="N", help="which landscape, from 0; -1 is the last")
    which.add_argument("--interval", metavar="A..B", help="the one of the checkpoints from A to B, or of A,B,C,...")
    parser.add_argument("--metric", metavar="NAME", help="in pictures and pages, draw this metric instead of the loss")
    parser.add_argument("--scale", choices=SCALES, help="of pictures and pages (default: auto)")
    parser.add_argument("--clip", type=float, metavar="LOSS", help="draw all above alike (default: far outliers)")
    add_output_options(parser, "what is known of the landscapes")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    wrong = _wrong(arguments)
    if wrong:
        arguments.wrong_call(wrong)
    runs = OpenedRuns(arguments.runs)
    if arguments.output is not None and len(runs) > 1:
        arguments.wrong_call(f"--output is of one run, and there are {len(runs)}; give the directory of one")
    texts, rows, lacking = list[str](), list[Row](), list[NoSuchRun]()
    for run_name, opened in runs.quietly():
        try:
            chosen = _chosen(opened, arguments)
        except NoSuchRun as error:
            lacking.append(error)
            continue
        if arguments.output is not None:
            content = _content(arguments, opened, chosen[0][1])
            with replacing(arguments.output) as file:
                file.write(content)
            texts.append(prose(f"{escape(arguments.output)}: {escape(landscapes.title(chosen[0][1]))}", "  "))
        else:
            texts += [_heading(opened), *(_text(index, surface) for index, surface in chosen)]
        head = {"run": run_name, "path": opened.path, "file": arguments.output}
        rows += [{**head, "index": index, **landscapes.to_row(surface)} for index, surface in chosen]
    status = tell_or_raise(lacking, bool(rows))
    if arguments.json:
        print_json(rows)
    elif arguments.csv:
        print_records(rows)
    else:
        print("\n\n".join(texts))
    return runs.status or status


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
        page = landscape_page.html(drawing, opened.path, landscapes.facts(surface), landscapes.path_rows(surface))
        return page.encode(errors="backslashreplace")
    return files.picture(drawing, suffix[1:])


def _drawing(opened: Run, surface: LossSurface, arguments: argparse.Namespace) -> Drawing:
    what = arguments.metric or _LOSS
    title = f"{opened.name}, {landscapes.title(surface)}"
    if arguments.metric is not None:
        surface = _of_metric(surface, arguments.metric)
        title = f"{what} of {title}"
    return Drawing(surface, Scale.of(surface, arguments.scale or SCALES[0], arguments.clip), title, what)


def _of_metric(surface: LossSurface, metric: str) -> LossSurface:
    """Return the surface with a metric in the place of the loss; the metric of the path is not known."""
    if metric not in surface.metrics:
        names = ", ".join(surface.metrics) or "none"
        raise NoSuchRun(f"landscape {surface.tag!r} has no metric {metric!r}; it has {names}")
    nothing = np.full(surface.numbers.size, np.nan)
    return replace(surface, z=surface.metrics[metric], path_loss=nothing, true_loss=nothing, convergence=np.empty(0))


# ---------------------------------------------------------------- what is printed


def _heading(opened: Run) -> str:
    count = len(opened.landscapes)
    return prose(f"{count} landscape{'s' * (count != 1)} of {name(opened.name)} in {escape(opened.path)}", "  ")


def _text(index: int, surface: LossSurface) -> str:
    facts = landscapes.facts(surface)
    width = max(len(name(fact)) for fact, _ in facts)
    lines = [prose(f"{index}  {escape(landscapes.title(surface))}", "   ")]
    lines += [prose(f"   {name(fact).ljust(width)}  {escape(text)}", " " * min(width + 5, 20)) for fact, text in facts]
    rows = landscapes.path_rows(surface)
    if rows:
        lines += ["", table([escape(cell.upper()) for cell in rows[0]], [_cells(row) for row in rows[1:]], "   ")]
    return "\n".join(lines)


def _cells(row: list[Any]) -> list[Any]:
    return [None if isinstance(cell, float) and math.isnan(cell) else cell for cell in row]
