"""`instrument import PATH... -o OUT`: write TensorBoard's event files in MindSpore's dialect."""

from __future__ import annotations

import argparse
import os

from instrument.facts.describe import Row
from instrument.formats.tensorboard_import import Imported, import_runs
from instrument.show import output
from instrument.show.opened_runs import tell, tell_losses
from instrument.show.output import folders_of, print_written, written_row


def configure(parser: argparse.ArgumentParser) -> None:
    what = "an event file of TensorBoard, a run, or a directory with runs below it"
    parser.add_argument("paths", metavar="PATH", nargs="+", help=what)
    parser.add_argument("-o", "--out", metavar="OUT", required=True, help="the folder to write to, new or empty")
    parser.add_argument("--force", action="store_true", help="write into a folder that is not empty, too")
    output.add_output_options(parser, "what was written")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    outs = folders_of(arguments.paths, arguments.out)
    imported = [import_runs(path, out, arguments.force) for path, out in zip(arguments.paths, outs, strict=True)]
    written = [row for path, part in zip(arguments.paths, imported, strict=True) for row in _rows(path, part)]
    left_out = [
        {"path": path, "reason": reason}
        for path, part in zip(arguments.paths, imported, strict=True)
        for reason in part.left_out
    ]
    print_written(arguments, written, left_out)
    for row in left_out:
        tell(f"not imported: {row['reason']}")
    for opened in (run for part in imported for run in part.runs):
        tell_losses(opened)
    return 0


def _rows(path: str, part: Imported) -> list[Row]:
    names = [os.path.relpath(run.path, path) if os.path.isdir(path) else os.curdir for run in part.sources]
    names = [run.name if below == os.curdir else below for below, run in zip(names, part.sources, strict=True)]
    return [written_row(*fields) for fields in zip(names, part.sources, part.written, strict=True)]
