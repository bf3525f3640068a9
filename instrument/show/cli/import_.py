"""`instrument import PATH... -o OUT`: TensorBoard's event files in MindSpore's dialect."""

from __future__ import annotations

import argparse
import os

from instrument.errors import InstrumentError
from instrument.show import forms
from instrument.show.importing import import_runs
from instrument.show.runs import tell, tell_losses
from instrument.show.written import print_written


def configure(parser: argparse.ArgumentParser) -> None:
    what = "an event file of TensorBoard, a run, or a directory with runs below it"
    parser.add_argument("path", metavar="PATH", nargs="+", help=what)
    parser.add_argument("-o", "--out", metavar="OUT", required=True, help="the folder to write to, new or empty")
    parser.add_argument("--force", action="store_true", help="write into a folder that is not empty, too")
    forms.add_forms(parser, "what was written")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    outs = _outs(arguments.path, arguments.out)
    found = [import_runs(path, out, arguments.force) for path, out in zip(arguments.path, outs, strict=True)]
    written = [one for part in found for one in part.written]
    left_out = [one for part in found for one in part.left_out]
    print_written(arguments, written, left_out)
    for reason in left_out:
        tell(f"not imported: {reason}")
    for one in (run for part in found for run in part.runs):
        tell_losses(one)
    return 0


def _outs(paths: list[str], out: str) -> list[str]:
    """Where each path goes: one alone into the folder itself, several into folders of their names there."""
    if len(paths) == 1:
        return [out]
    names = [os.path.basename(os.path.abspath(path)) for path in paths]
    twice = sorted({one for one in names if names.count(one) > 1})
    if twice:
        raise InstrumentError(f"several of the paths end in {twice[0]!r}; import them one by one, each with its own -o")
    return [os.path.join(out, one) for one in names]
