"""`instrument import PATH... -o OUT`: write TensorBoard's event files in MindSpore's dialect."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from instrument.analyse.layout import Cell
from instrument.facts.rows import Row
from instrument.formats.tensorboard_import import Imported, import_runs
from instrument.show.cli import options
from instrument.show.cli.output import put_written, written_row
from instrument.show.terminal import tell

_PATH = "an event file of TensorBoard, a run, or a directory with runs below it"
ARGUMENTS = (
    options.argument("paths", metavar="PATH", nargs="+", help=_PATH),
    options.argument("-o", "--out", metavar="OUT", required=True, help="the folder to write to, new or empty"),
    options.FORCE,
    options.printed("what was written"),
)
EXAMPLES = (("import logs -o imported", "TensorBoard's runs, for MindInsight and instrument"),)


def run(arguments: argparse.Namespace) -> int:
    outs = options.folders_of(arguments.paths, arguments.out)
    imported = [
        (path, import_runs(path, out, arguments.force)) for path, out in zip(arguments.paths, outs, strict=True)
    ]
    left_out: list[Row] = [{"path": path, "reason": reason} for path, part in imported for reason in part.left_out]
    put_written(arguments, [row for path, part in imported for row in _rows(path, part)], left_out)
    for row in left_out:
        tell(f"not imported: {row['reason']}")
    for opened in (run for _, part in imported for run in part.runs):
        options.tell_losses(opened)
    return 0


def _rows(path: str, part: Imported) -> Iterator[dict[str, Cell]]:
    for run, written in part.written:
        below = os.path.relpath(run.path, path) if os.path.isdir(path) else os.curdir
        yield written_row(run.name if below == os.curdir else below, run, written)
